# tests/test_fill.py - text before a suffix (fill in the middle): prompts by marks that keys or spellings name, cut to
# the context, on the command line and in each API of the server. The right prompts are spelled here id by id.
import struct

import pytest

from program import DATA, run
from serving import serving
from tensor_files import gguf_text, read_gguf, write_gguf

SMALL = DATA / "tales-2m-q4_0.gguf"
PREFIX, SUFFIX = "Once upon a time there was a girl.", " And she was happy."
MARKS = {"prefix": 4000, "suffix": 4001, "middle": 4002, "pad": 4003, "repo": 4004, "file": 4005}
QWEN = {"prefix": "<|fim_prefix|>", "suffix": "<|fim_suffix|>", "middle": "<|fim_middle|>", "pad": "<|fim_pad|>",
        "repo": "<|repo_name|>", "file": "<|file_sep|>"}
KEYS = {"prefix": "fim_pre", "suffix": "fim_suf", "middle": "fim_mid", "pad": "fim_pad", "repo": "fim_rep",
        "file": "fim_sep"}


def made(path, spelled=None, keyed=()):
    """tales-2m with marks in place of six of its tokens."""
    pairs, tensors = read_gguf(SMALL)
    raw, at, texts = pairs["tokenizer.ggml.tokens"], 16, []
    for _ in range(struct.unpack_from("<Q", raw, 8)[0]):
        n = struct.unpack_from("<Q", raw, at)[0]
        texts.append(raw[at + 8:at + 8 + n].decode())
        at += 8 + n
    for mark, text in (spelled or {}).items():
        texts[MARKS[mark]] = text
    pairs["tokenizer.ggml.tokens"] = raw[:16] + b"".join(map(gguf_text, texts))
    for mark in keyed:
        pairs[f"tokenizer.ggml.{KEYS[mark]}_token_id"] = struct.pack("<II", 4, MARKS[mark])
    write_gguf(path, pairs, tensors)
    return path


@pytest.fixture(scope="module")
def qwen(tmp_path_factory):
    return made(tmp_path_factory.mktemp("fill") / "qwen.gguf", QWEN)


@pytest.fixture(scope="module")
def server(qwen):
    with serving("-c", 256, model=qwen) as s:
        yield s


def ids_of(server, text, joined=False):
    """joined: without the space that SentencePiece puts before a text."""
    return server.post("/tokenize", {"content": text.removeprefix(" ") if joined else text})["tokens"]


def expected(server, ids, n=12):
    return server.post("/completion", {"prompt": ids, "n_predict": n, "temperature": 0})


def infill(server, n=12, **fields):
    return server.post("/infill", {"input_prefix": PREFIX, "input_suffix": SUFFIX, "n_predict": n, "temperature": 0,
                                   **fields})


def plain_prompt(server):
    return [1, MARKS["prefix"], *ids_of(server, PREFIX), MARKS["suffix"], *ids_of(server, SUFFIX, True),
            MARKS["middle"]]


def test_every_api_asks_by_the_same_prompt(server, qwen):
    ids = plain_prompt(server)
    right = expected(server, ids)
    got = infill(server)
    assert (got["content"], got["tokens_evaluated"], got["truncated"]) == (right["content"], len(ids), False)
    assert right["content"]
    openai = server.post("/v1/completions", {"prompt": PREFIX, "suffix": SUFFIX, "max_tokens": 12, "temperature": 0})
    assert openai["choices"][0]["text"] == right["content"] and openai["usage"]["prompt_tokens"] == len(ids)
    ollama = server.post("/api/generate", {"prompt": PREFIX, "suffix": SUFFIX, "stream": False,
                                           "options": {"num_predict": 12, "temperature": 0}})
    assert ollama["response"] == right["content"]
    options = ("run", "-m", qwen, "-p", PREFIX, "--suffix", SUFFIX, "-n", 12, "--temp", 0, "-t", 1, "-q", "--no-stats")
    assert run(*options, "--no-display-prompt").stdout.rstrip("\n") == right["content"].rstrip("\n")
    assert run(*options).stdout == PREFIX + right["content"] + SUFFIX + "\n"


def test_marks_that_end_a_text_are_none_of_it(server):
    for mark in ("pad", "repo", "file"):
        answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 8,
                                                      "logit_bias": {str(MARKS[mark]): 100}})
        assert answer["choices"][0]["finish_reason"] == "stop" and not answer["choices"][0]["message"]["content"]


def test_a_folder_with_an_image_part_has_one_model(qwen, tmp_path):
    for name in ("qwen.gguf", "mmproj-qwen.gguf"):
        (tmp_path / name).symlink_to(qwen)
    with serving("-m", tmp_path, "-c", 64, model=None) as s:
        assert [m["id"] for m in s.get("/v1/models")[1]["data"]] == ["qwen"]


def test_no_suffix_is_a_plain_prompt(server):
    plain = server.post("/v1/completions", {"prompt": PREFIX, "max_tokens": 8, "temperature": 0})
    for suffix in ("", None):
        again = server.post("/v1/completions", {"prompt": PREFIX, "suffix": suffix, "max_tokens": 8, "temperature": 0})
        assert again["choices"] == plain["choices"]
    say = ("run", "-m", SMALL, "-p", PREFIX, "-n", 4, "--temp", 0, "-q", "--no-stats")  # no model that fills in
    assert run(*say, "--suffix", "").stdout == run(*say).stdout


def test_other_files_and_a_beginning(server):
    line = [len(ids_of(server, "\n")), ids_of(server, "\n")[-1:]]  # a name after a line's end has no space before it
    names = [ids_of(server, f"\n{name}\n")[line[0]:] for name in ("project", "a.txt", "untitled")]
    assert all(n[-1:] == line[1] for n in names)
    body = [*ids_of(server, PREFIX), *ids_of(server, " She saw", True)]
    ids = [MARKS["prefix"], *body, MARKS["suffix"], *ids_of(server, SUFFIX, True), MARKS["middle"]]
    project = [MARKS["repo"], *names[0], MARKS["file"], *names[1], *ids_of(server, " The dog ran.", True),
               MARKS["file"], *names[2]]
    for extra, whole in (([], [1, *ids]), ([{"filename": "a.txt", "text": " The dog ran."}], [1, *project, *ids])):
        got = infill(server, input_extra=extra, prompt=" She saw")
        assert got["tokens_evaluated"] == len(whole) and got["content"] == expected(server, whole)["content"]


def test_what_has_no_room_is_cut(server):
    long = " ".join(f"The dog ran {i} times." for i in range(200))
    got = infill(server, input_prefix=long, input_suffix=" " + long, n=40)
    left = 256 - 40 - 4  # the context, the answer, the start and three marks
    prefix, suffix = ids_of(server, long), ids_of(server, long, True)
    ids = [1, MARKS["prefix"], *prefix[len(prefix) - (left - left // 4):], MARKS["suffix"], *suffix[:left // 4],
           MARKS["middle"]]
    assert got["truncated"] and got["tokens_evaluated"] == len(ids) == 256 - 40
    assert got["content"] == expected(server, ids, 40)["content"]


def test_marks_in_texts_are_text(server):
    spelled = infill(server, input_suffix=" <|fim_middle|> And")
    assert spelled["tokens_evaluated"] > 5 + len(ids_of(server, PREFIX)) + 4


def test_wrong_requests(server):
    for body, words in (({}, "input_prefix"), ({"input_prefix": "a"}, "input_suffix"),
                        ({"input_prefix": "a", "input_suffix": 3}, "input_suffix"),
                        ({"input_prefix": "a", "input_suffix": "b", "input_extra": {}}, "input_extra"),
                        ({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"filename": 3}]}, "input_extra[0]"),
                        ({"input_prefix": "a", "input_suffix": "b", "prompt": [1]}, "prompt")):
        assert words in server.post("/infill", body, expect=400)["error"]["message"]
    body = {"prompt": ["a", "b"], "suffix": "c"}
    assert "prompt" in server.post("/v1/completions", body, expect=400)["error"]["message"]


def test_keys_go_before_spellings(server, tmp_path):
    path = made(tmp_path / "keys.gguf", {"prefix": "<fim_x>"}, ("prefix", "suffix", "middle"))
    wanted = infill(server)["content"]
    got = run("run", "-m", path, "-p", PREFIX, "--suffix", SUFFIX, "-n", 12, "--temp", 0, "-t", 1, "-q", "--no-stats",
              "--no-display-prompt").stdout
    assert got.rstrip("\n") == wanted.rstrip("\n")


def test_mistral_wants_the_suffix_first(server, tmp_path):
    path = made(tmp_path / "mistral.gguf", {"prefix": "[PREFIX]", "suffix": "[SUFFIX]"})
    ids = [1, MARKS["suffix"], *ids_of(server, SUFFIX, True), MARKS["prefix"], *ids_of(server, PREFIX)]
    got = run("run", "-m", path, "-p", PREFIX, "--suffix", SUFFIX, "-n", 12, "--temp", 0, "-t", 1, "-q", "--no-stats",
              "--no-display-prompt").stdout
    assert got.rstrip("\n") == expected(server, ids)["content"].rstrip("\n")


def test_a_model_without_marks_says_so():
    done = run("run", "-m", SMALL, "-p", "a", "--suffix", "b", check=False)
    assert done.returncode == 1 and "cannot fill in" in done.stderr and "no prefix, no suffix" in done.stderr
    with serving() as s:
        for path, body in (("/infill", {"input_prefix": "a", "input_suffix": "b"}),
                           ("/v1/completions", {"prompt": "a", "suffix": "b"}),
                           ("/api/generate", {"prompt": "a", "suffix": "b"})):
            assert "no middle token" in str(s.post(path, body, expect=501)["error"])
