# tests/test_serve_pictures.py - pictures in requests of every API: the text is that of `godwit run --image`, alone and
# with others at once; they are counted, cached by what they hold, and refused in one line.
import base64
import concurrent.futures
import http.client
import json
import time

import pytest

from program import run
from seeing import PICTURES, TEMPLATE, coded, data_uri, seeing_model, slow_picture
from serving import Server, serving

SAY = "w5 w6 w7"
COMMON = {"temperature": 0, "ignore_eos": True, "seed": 1}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return seeing_model(tmp_path_factory.mktemp("serve-see") / "qwen3vl")


@pytest.fixture(scope="module")
def server(folder):
    with serving("-c", 512, model=folder) as s:
        yield s


def parts(*names, text=SAY):
    return [*[{"type": "image_url", "image_url": {"url": data_uri(n)}} for n in names], {"type": "text", "text": text}]


def chat(server, *messages, n=12, **more):
    return server.post("/v1/chat/completions", {"messages": list(messages), "max_tokens": n, **COMMON, **more})


def user(*names, text=SAY):
    return {"role": "user", "content": parts(*names, text=text)}


def said(answer):
    return answer["choices"][0]["message"]["content"]


def alone(folder, *names):
    files = [argument for n in names for argument in ("--image", PICTURES / n)]
    return run("run", "-m", folder, *files, "-p", SAY, "-n", "12", "--temp", "0", "--no-display-prompt", "--no-stats",
               "--ignore-eos").stdout.rstrip("\n")


def test_every_api(server, folder):
    want = alone(folder, "rgb.png", "grey.png")
    answer = chat(server, user("rgb.png", "grey.png"))
    assert said(answer).strip() == want.strip()
    blocks = [{"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": coded(n)}}
              for n in ("rgb.png", "grey.png")]
    message = server.post("/v1/messages", {"messages": [{"role": "user", "content": [*blocks, {"type": "text", "text": SAY}]}],
                                           "max_tokens": 12, **COMMON})
    assert message["content"][0]["text"] == said(answer)
    items = [{"type": "input_image", "image_url": data_uri(n)} for n in ("rgb.png", "grey.png")]
    response = server.post("/v1/responses", {"input": [{"role": "user", "content": [*items, {"type": "input_text", "text": SAY}]}],
                                             "max_output_tokens": 12, **COMMON})
    assert response["output"][0]["content"][0]["text"] == said(answer)
    images = [coded("rgb.png"), coded("grey.png")]
    options = {"num_predict": 12, **COMMON}
    ollama = server.post("/api/chat", {"messages": [{"role": "user", "content": SAY, "images": images}], "stream": False,
                                       "options": options})
    assert ollama["message"]["content"] == said(answer)
    generated = server.post("/api/generate", {"prompt": SAY, "images": images, "stream": False, "options": options})
    assert generated["response"] == said(answer)
    place = "<|vision_start|><|image_pad|><|vision_end|>"
    written = server.post("/apply-template", {"messages": [user("rgb.png", "grey.png")]})["prompt"]
    before, after = written.split(place[:16])[0], written.rsplit("<|vision_end|>", 1)[1]
    native = server.post("/completion", {"prompt": {"prompt_string": f"{before}<__media__><__media__>{after}",
                                                    "multimodal_data": images}, "n_predict": 12, **COMMON})
    assert native["content"].strip() == said(answer).strip()
    # Tokens are counted as they are read.
    tokens = answer["usage"]["prompt_tokens"]
    assert message["usage"]["input_tokens"] + message["usage"]["cache_read_input_tokens"] == tokens
    assert server.post("/v1/messages/count_tokens", {"messages": [{"role": "user", "content": [*blocks, {"type": "text", "text": SAY}]}]}
                       )["input_tokens"] == tokens
    assert server.post("/v1/responses/input_tokens", {"input": [{"role": "user", "content": [*items, {"type": "input_text", "text": SAY}]}]}
                       )["input_tokens"] == tokens
    assert server.post("/v1/chat/completions/input_tokens", {"messages": [user("rgb.png", "grey.png")]})["input_tokens"] == tokens
    assert tokens > chat(server, user("rgb.png"))["usage"]["prompt_tokens"] > chat(server, user())["usage"]["prompt_tokens"]


def test_what_it_says_of_itself(server):
    assert server.get("/props")[1]["modalities"]["vision"] is True
    assert "multimodal" in server.get("/v1/models")[1]["models"][0]["capabilities"]
    assert "vision" in server.post("/api/show", {"model": "qwen3vl"})["capabilities"]


def test_turns(server):
    """The next turn finds its pictures in the cache; another picture of the same size is another prompt."""
    text = " ".join(f"w{i % 40 + 5}" for i in range(150))
    first, name = chat(server, user("turn1.jpg", text=text), n=4), "turn1.jpg"
    history = [user(name, text=text), {"role": "assistant", "content": said(first)}, user("grey.png", text="w8")]
    again = chat(server, *history)
    cached = again["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert cached >= 128
    fresh = chat(server, *history, cache_prompt=False)
    assert said(fresh) == said(again) and fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    other = chat(server, user("turn2.jpg", text=text), n=4)
    assert other["usage"]["prompt_tokens"] == first["usage"]["prompt_tokens"]
    assert other["usage"]["prompt_tokens_details"]["cached_tokens"] < 64


def test_at_once(server, folder):
    """Streams side by side, of one picture and of several, have the text of each alone."""
    shown = [("rgb.png",), ("grey.png",), ("rgb.jpg",), ("grey.png", "rgb.png"), ("rgb.png", "grey.png"), ()]
    with concurrent.futures.ThreadPoolExecutor(6) as pool:
        texts = list(pool.map(lambda names: said(chat(server, user(*names), n=40)), shown))
    assert texts == [said(chat(server, user(*names), n=40, cache_prompt=False)) for names in shown]
    assert len(set(texts)) > 3
    both = chat(server, user("rgb.png"), n=12, **{"temperature": 1, "seed": 3})
    many = server.post("/v1/chat/completions", {"messages": [user("rgb.png")], "max_tokens": 12, **COMMON, "temperature": 1,
                                                "seed": 3, "n": 2})
    assert many["choices"][0]["message"]["content"] == said(both)
    streamed = server.events("/v1/chat/completions", {"messages": [user("rgb.png")], "max_tokens": 12, **COMMON})
    assert "".join(e[1]["choices"][0]["delta"].get("content", "") for e in streamed
                   if e[1] != "[DONE]" and e[1]["choices"]) == said(chat(server, user("rgb.png")))


def test_grammar(server):
    answer = chat(server, user("rgb.png"), n=40, ignore_eos=False, grammar='root ::= (" "? "w1" [0-9])+')
    words = said(answer).split()
    assert len(words) > 9 and all(w[:2] == "w1" and len(w) == 3 for w in words)


def result(content):
    call = {"id": "c", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    return [{"role": "user", "content": "w5"}, {"role": "assistant", "content": "w9", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": content}]


def test_results_of_tools(server, folder, tmp_path):
    seen = chat(server, *result(parts("rgb.png")), logprobs=True)
    assert seen["choices"] != chat(server, *result(parts("grey.png")), logprobs=True)["choices"]
    blocks = {"type": "tool_result", "tool_use_id": "c", "content": [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": coded("rgb.png")}},
        {"type": "text", "text": SAY}]}
    messages = [{"role": "user", "content": "w5"},
                {"role": "assistant", "content": [{"type": "text", "text": "w9"},
                                                  {"type": "tool_use", "id": "c", "name": "look", "input": {}}]},
                {"role": "user", "content": [blocks]}]
    answer = server.post("/v1/messages", {"messages": messages, "max_tokens": 12, **COMMON})
    assert answer["content"][0]["text"] == said(seen)
    # What no one can read is named there, not refused.
    chat(server, *result([{"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}, {"type": "text", "text": SAY}]))
    # A template whose results are texts: the picture comes in a message of its own.
    strict = TEMPLATE.replace("{% for c in m.content %}", "{% if m.role == 'tool' %}{{ raise_exception('text') }}{% endif %}"
                              "{% for c in m.content %}")
    (tmp_path / "strict.jinja").write_text(strict)
    with serving("-c", 512, "--chat-template", tmp_path / "strict.jinja", model=folder) as s:
        both = [chat(s, *result(parts(n)), logprobs=True)["choices"] for n in ("rgb.png", "grey.png")]
        assert both[0] != both[1] and both[0] != seen["choices"]
        answer = s.post("/apply-template", {"messages": result(parts("rgb.png"))})["prompt"]
        assert answer.index(SAY) < answer.index("<|vision_start|>")


BAD = [({"type": "image_url", "image_url": {"url": "data:image/png;base64,????"}}, "base64"),
       ({"type": "image_url", "image_url": {"url": "data:image/png,AAAA"}}, "base64"),
       ({"type": "image_url", "image_url": {"url": "file:///etc/passwd"}}, "http"),
       ({"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}, "--allow-image-urls"),
       ({"type": "image_url", "image_url": {"url": 3}}, "url"),
       ({"type": "image_url"}, "image_url"),
       ({"type": "input_image", "file_id": "f"}, "file_id"),
       ({"type": "image", "source": {"type": "file", "file_id": "f"}}, "source"),
       ({"type": "image", "source": {"type": "base64", "media_type": "image/png"}}, "base64"),
       ({"type": "image_url", "image_url": {"url": "data:image/png;base64," + "QUJD" * 9}}, "content[0]"),
       ({"type": "input_audio", "input_audio": {}}, "input_audio")]


def test_what_is_wrong(server):
    for part, word in BAD:
        error = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}], "max_tokens": 4}, expect=400)["error"]
        assert word in error["message"] and error["param"] == "messages" and "\n" not in error["message"], (part, error)
    png = (PICTURES / "rgb.png").read_bytes()
    for name, file in (("cut", png[:-30]), ("lying", png[:16] + b"\xff\xff\xff\xff" * 2 + png[24:])):
        image = base64.b64encode(file).decode()
        for path, body in (("/v1/messages", {"messages": [{"role": "user", "content": [
                {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}}]}], "max_tokens": 4}),
                ("/api/chat", {"messages": [{"role": "user", "content": "w5", "images": [image]}]}),
                ("/completion", {"prompt": {"prompt_string": "<__media__>", "multimodal_data": [image]}})):
            error = server.post(path, body, expect=400)["error"]
            assert error if isinstance(error, str) else error["message"], (name, path)
    error = server.post("/v1/chat/completions", {"messages": [user(*["rgb.png"] * 65)]}, expect=400)["error"]
    assert "64" in error["message"]
    error = server.post("/v1/chat/completions", {"messages": [user(*["rgb.png"] * 60, text="w5 " * 500)]}, expect=400)["error"]
    assert error["code"] == "context_length_exceeded"
    error = server.post("/completion", {"prompt": {"prompt_string": "w5", "multimodal_data": [coded("rgb.png")]}}, expect=400)["error"]
    assert "<__media__>" in error["message"]
    server.post("/completion", {"prompt": "w5", "image_data": [{"id": 1, "data": coded("rgb.png")}]}, expect=400)
    server.post("/api/generate", {"prompt": "w5", "images": [coded("rgb.png")], "raw": True}, expect=400)
    # What a user types is no place of a picture, nor a mark of the server's.
    typed = chat(server, {"role": "user", "content": "<|image_pad|> \x020000000000000000:0\x03"})
    assert typed["usage"]["completion_tokens"] == 12


def test_pictures_of_ollama_are_a_list(server):
    for images in ("BASE64", {}, 3):
        bodies = (("/api/generate", {"prompt": "w1", "images": images}),
                  ("/api/chat", {"messages": [{"role": "user", "content": "w1", "images": images}]}))
        for path, body in bodies:
            assert "images: a list" in str(server.post(path, body, expect=400)["error"])


def test_addresses(folder):
    """Only public ones, however they are spelled."""
    with serving("-c", 512, "--allow-image-urls", model=folder) as s:
        for host in ("127.0.0.1", "localhost", "[::1]", "0x7f.1", "2130706433", "169.254.169.254", "10.0.0.1", "[::ffff:127.0.0.1]",
                     "0.0.0.0", "[fd00:ec2::254]", "168.63.129.16"):
            part = {"type": "image_url", "image_url": {"url": f"http://{host}:{s.port}/health"}}
            error = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": [part]}]}, expect=400)["error"]
            assert "not public" in error["message"], (host, error)
        assert s.get("/health")[0] == 200


def test_a_model_without_eyes():
    with serving("-c", 512) as s:
        for path, body in (("/v1/chat/completions", {"messages": [user("rgb.png")]}),
                           ("/v1/messages", {"max_tokens": 4, "messages": [{"role": "user", "content": [
                               {"type": "image", "source": {"type": "base64", "data": coded("rgb.png")}}]}]}),
                           ("/api/chat", {"messages": [{"role": "user", "content": "a", "images": [coded("rgb.png")]}]})):
            error = s.post(path, body, expect=400)["error"]
            assert "takes text" in (error if isinstance(error, str) else error["message"])
        assert s.get("/props")[1]["modalities"]["vision"] is False
        named = s.post("/apply-template", {"messages": result(parts("rgb.png"))})["prompt"]
        assert "[image: not shown]" in named


def test_eyes_shut(folder, tmp_path):
    with serving("-c", 512, "--no-mmproj", model=folder) as s:
        s.post("/v1/chat/completions", {"messages": [user("rgb.png")]}, expect=400)
        assert s.get("/props")[1]["modalities"]["vision"] is False
    with pytest.raises((AssertionError, OSError)):
        Server("--mmproj", tmp_path / "none.gguf", model=folder)


def test_texts_while_a_picture_is_encoded(tmp_path):
    """A text that comes meanwhile is answered long before the picture, and a picture whose client has left is given up:
    a small one is not kept waiting by it."""
    model = seeing_model(tmp_path / "qwen3vl")

    def body(level):
        slow = base64.b64encode(slow_picture(tmp_path / "slow.png", model, level).read_bytes()).decode()
        return {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {
            "url": f"data:image/png;base64,{slow}"}}]}], "max_tokens": 1, **COMMON}

    first, second = body(1), body(2)  # the same pixels in different files
    with serving("-c", 4096, model=model) as s:
        took = {}

        def ask(name, *arguments, **more):
            start = time.monotonic()
            chat(s, *arguments, **more)
            took[name] = time.monotonic() - start

        with concurrent.futures.ThreadPoolExecutor(1) as pool:
            picture = pool.submit(ask, "picture", first["messages"][0], n=1)
            time.sleep(0.2)
            assert not picture.done()
            ask("text", user(), n=8)
            assert not picture.done()
            picture.result()
        assert took["text"] < 0.6 * took["picture"], took
        gone = http.client.HTTPConnection("127.0.0.1", s.port)
        gone.request("POST", "/v1/chat/completions", json.dumps(second))
        time.sleep(0.2)
        gone.close()
        ask("small", user("rgb.png"), n=1)
        assert took["small"] < 0.6 * took["picture"], took


def test_drafts(folder, server):
    """Words that the text has already are drafted; the text stays what it was."""
    with serving("-c", 512, "--draft", "ngram", model=folder) as s:
        for names in (("rgb.png",), ("rgb.png", "grey.png")):
            assert said(chat(s, user(*names), n=60)) == said(chat(server, user(*names), n=60))
