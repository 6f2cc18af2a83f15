# tests/test_serve_forms.py - requests as clients and their vendors write them: conversations that a template
# refuses, tools in every form, constraints of other servers, errors in each API's words, Ollama's and TEI's
# routes; and what requests may cost, which is linear and told before it is too much.
import json
import re
import signal
import socket
import subprocess
import threading
import time

import pytest

from program import BIN, EMULATOR, SANITIZED
from serving import MODEL, Server, serving

pytestmark = pytest.mark.skipif(bool(EMULATOR), reason="the server of the native build")
TURN = "{{ '<|im_start|>' + m.role + '\n' + (m.content or '') + '<|im_end|>\n' }}"
OPEN = "{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{%- endif %}"
TOOLS = ("{%- if tools %}{{ '<|im_start|>system\nTools: ' }}{%- for t in tools %}{{ t.function.name }} {% endfor %}"
         "{{ ' Call as <tool_call>{\"name\": ..., \"arguments\": ...}</tool_call><|im_end|>\n' }}{%- endif %}"
         "{%- for m in messages %}" + TURN + "{%- endfor %}" + OPEN)
TIME = {"type": "object", "properties": {"zone": {"type": "string", "enum": ["UTC"]}}, "required": ["zone"],
        "additionalProperties": False}
ANY = {"type": "object", "properties": {}}
SAY = [{"role": "user", "content": "Tell me a story."}]


def function(name, parameters):
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


@pytest.fixture(scope="module")
def tools_server(tmp_path_factory):
    path = tmp_path_factory.mktemp("forms") / "tools.jinja"
    path.write_text(TOOLS)
    with serving("-c", 2048, "--chat-template", path) as s:
        yield s


def prompt_of(tmp_path, template, messages, **more):
    """What a template is given of a conversation; (status, text)."""
    path = tmp_path / "template.jinja"
    path.write_text(template)
    with serving("-c", 512, "--chat-template", path) as s:
        status, _, text = s.ask("POST", "/apply-template", {"messages": messages, **more})
        return status, json.loads(text).get("prompt", text)


def test_system_in_the_middle(tmp_path):
    talk = [{"role": "system", "content": "FIRST"}, {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "ok"}, {"role": "developer", "content": "LATER"},
            {"role": "user", "content": "go"}]
    refuses = "{%- if m.role == 'system' and not loop.first %}{{ raise_exception('only first') }}{%- endif %}"
    drops = "{%- if m.role == 'system' and not loop.first %}{%- else %}" + TURN + "{%- endif %}"
    for body in (refuses + TURN, drops):
        status, text = prompt_of(tmp_path, "{%- for m in messages %}" + body + "{%- endfor %}" + OPEN, talk)
        assert status == 200 and text.count("LATER") == 1, text
        assert text.index("FIRST") < text.index("ok<") < text.index("LATER") < text.index("go<")
        assert "<|im_start|>user\n<system-reminder>\nLATER" in text
    takes = "{%- for m in messages %}" + TURN + "{%- endfor %}"
    assert "<|im_start|>system\nLATER" in prompt_of(tmp_path, takes, talk)[1]  # nothing is rewritten without need


def test_templates_that_want_turns(tmp_path):
    strict = ("{%- set ns = namespace(last='assistant') %}{%- for m in messages %}"
              "{%- if m.role == ns.last or m.role not in ['user', 'assistant'] %}{{ raise_exception('turns') }}{%- endif %}"
              "{%- set ns.last = m.role %}" + TURN + "{%- endfor %}")
    talk = [{"role": "system", "content": "S"}, {"role": "user", "content": "a"}, {"role": "user", "content": "b"},
            {"role": "assistant", "content": "c"}, {"role": "system", "content": "R"}, {"role": "user", "content": "d"}]
    status, text = prompt_of(tmp_path, strict, talk)
    assert status == 200 and text.count("<|im_start|>") == 3, text
    at = [text.index(word) for word in ("S\n", "a\n", "b<", "c<", "R\n", "d<")]
    assert at == sorted(at)
    status, text = prompt_of(tmp_path, strict, [{"role": "assistant", "content": "c"}])
    assert status == 400 and "turns" in text  # what no form of it mends is still told in the template's words


def test_reasoning_text_and_calls(tmp_path):
    """As gpt-oss answers: its template refuses text with reasoning, and shows the first call alone."""
    template = ("{%- for m in messages %}{%- if m.tool_calls %}{%- if m.content and m.thinking %}{{ raise_exception('both') }}"
                "{%- endif %}{{ '(' + (m.thinking or m.content or '') + ') ' + m.tool_calls[0].function.name + '\n' }}"
                "{%- else %}" + TURN + "{%- endif %}{%- endfor %}")
    call = lambda n: {"id": n, "type": "function", "function": {"name": f"look_{n}", "arguments": "{}"}}
    talk = [SAY[0], {"role": "assistant", "content": "I look.", "reasoning_content": "WHY",
                     "tool_calls": [call("a"), call("b")]},
            {"role": "tool", "tool_call_id": "b", "content": "of b"}, {"role": "tool", "tool_call_id": "a", "content": "of a"}]
    status, text = prompt_of(tmp_path, template, talk)
    assert status == 200, text
    at = [text.index(word) for word in ("WHY", "I look.", "look_a", "of a", "look_b", "of b")]
    assert at == sorted(at)


def test_allowed_tools_and_namespaces(tools_server):
    news, clock = function("get_news", ANY), function("get_time", TIME)
    only = {"mode": "required", "tools": [{"type": "function", "function": {"name": "get_time"}}]}
    ask = {"messages": SAY, "max_tokens": 200, "seed": 1, "tools": [news, clock]}
    for choice in ({"type": "allowed_tools", "allowed_tools": only}, {"type": "allowed_tools", **only}):
        answer = tools_server.post("/v1/chat/completions", dict(ask, tool_choice=choice))["choices"][0]["message"]
        assert {c["function"]["name"] for c in answer["tool_calls"]} == {"get_time"}
    wrong = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [{"type": "function", "name": "nope"}]}}
    assert "nope" in tools_server.post("/v1/chat/completions", dict(ask, tool_choice=wrong), expect=400)["error"]["message"]
    inner = {"type": "function", "name": "get_time", "parameters": TIME}
    for space, choice in (("mcp__clock", "required"), ("mcp__clock__", {"type": "function", "name": "get_time"})):
        got = tools_server.post("/v1/responses", {
            "input": "time?", "max_output_tokens": 200, "tool_choice": choice,
            "tools": [{"type": "namespace", "name": space, "tools": [inner]}]})
        call = next(o for o in got["output"] if o["type"] == "function_call")
        assert (call["name"], call["namespace"]) == ("get_time", space)
    events = tools_server.events("/v1/responses", {
        "input": "time?", "max_output_tokens": 200, "tool_choice": "required",
        "tools": [{"type": "namespace", "name": "mcp__clock", "tools": [inner]}]})
    items = [data["item"] for name, data in events if name == "response.output_item.done"]
    assert [(i["name"], i["namespace"]) for i in items if i["type"] == "function_call"] == [("get_time", "mcp__clock")]


def test_calls_that_are_cut_off(tools_server):
    schema = {"type": "object", "properties": {"query": {"type": "string", "minLength": 60}}, "required": ["query"]}
    for n in (2, 6, 20, 80):
        ask = {"messages": SAY, "max_tokens": n, "temperature": 0, "tools": [function("web_search", schema)],
               "tool_choice": "required"}
        choice = tools_server.post("/v1/chat/completions", ask)["choices"][0]
        assert choice["finish_reason"] == "length" and not choice["message"]["content"]
        deltas = [d["choices"][0]["delta"] for _, d in tools_server.events("/v1/chat/completions", ask) if d != "[DONE]"]
        assert "".join(d.get("content") or "" for d in deltas) == ""
        calls = choice["message"].get("tool_calls", [])
        assert n < 80 or (calls[0]["function"]["name"] == "web_search" and calls[0]["function"]["arguments"])
        line = tools_server.post("/api/chat", {"messages": SAY, "stream": False, "tools": ask["tools"],
                                               "tool_choice": "required", "options": {"num_predict": n, "temperature": 0}})
        assert line["message"]["content"] == "" and line["done_reason"] == "length" and "tool_calls" not in line["message"]


def test_tools_too_large_together(tools_server):
    wide = {"type": "string", "maxLength": 256, "pattern": "^[a-zA-Z0-9_-]+$"}
    many = [function(f"tool_{i}", {"type": "object", "properties": {f"p{k}": wide for k in range(8)}, "required": ["p0"]})
            for i in range(60)]
    ask = {"messages": SAY, "max_tokens": 4, "tools": many}
    took = []
    for _ in range(2):
        begin = time.monotonic()
        status, headers, text = tools_server.ask("POST", "/v1/chat/completions", ask)
        took.append(time.monotonic() - begin)
        assert status == 200 and "large together" in headers["Godwit-Relaxed"], text
    assert took[1] < took[0]  # what was compiled is kept
    _, headers, _ = tools_server.ask("POST", "/v1/chat/completions", dict(ask, tools=many[:2]))
    assert headers["Godwit-Relaxed"] is None


def test_constraints_of_other_servers(tools_server):
    number, choice = re.compile("[0-9]{3}"), ("abc", 'x"y\\z')
    for field, right in (
            ({"guided_choice": list(choice)}, lambda t: t in choice), ({"guided_regex": "[0-9]{3}"}, number.fullmatch),
            ({"regex": "[0-9]{3}"}, number.fullmatch), ({"guided_json": {"type": "integer"}}, lambda t: isinstance(json.loads(t), int)),
            ({"guided_json": '{"type": "integer"}'}, lambda t: isinstance(json.loads(t), int)),
            ({"guided_grammar": 'root ::= "cat"'}, lambda t: t == "cat"), ({"ebnf": 'root ::= "cat"'}, lambda t: t == "cat"),
            ({"structured_outputs": {"choice": list(choice)}}, lambda t: t in choice),
            ({"structured_outputs": {"regex": "[0-9]{3}"}}, number.fullmatch),
            ({"structured_outputs": {"json_object": True}}, lambda t: t.startswith("{")),
            ({"response_format": {"type": "regex", "value": "[0-9]{3}"}}, number.fullmatch)):
        for path, where in (("/v1/chat/completions", {"messages": SAY}), ("/v1/completions", {"prompt": "a"})):
            if path == "/v1/completions" and "response_format" in field:
                continue
            got = tools_server.post(path, dict(where, max_tokens=120, seed=1, **field))["choices"][0]
            assert right(got["text"] if "text" in got else got["message"]["content"]), (field, got)
    for field, name in (({"structured_outputs": {"structural_tag": "x"}}, "structural_tag"), ({"guided_regex": 5}, "guided_regex"),
                        ({"guided_choice": []}, "guided_choice"), ({"guided_regex": "a", "guided_choice": ["b"]}, "guided_choice")):
        error = tools_server.post("/v1/chat/completions", dict(messages=SAY, **field), expect=400)["error"]
        assert name in error["message"]


def test_words_for_a_full_context(tools_server):
    long = "word " * 6000
    chat = {"messages": [{"role": "user", "content": long}]}
    for path, body, words in (("/v1/chat/completions", chat, r"maximum context length is 2048 tokens"),
                              ("/v1/responses", {"input": long}, r"exceeds the context window"),
                              ("/v1/messages", dict(chat, max_tokens=4), r"^prompt is too long: \d+ tokens > 2048 maximum$"),
                              ("/completion", {"prompt": long}, r"exceeds the available context size \(2048 tokens\)"),
                              ("/api/chat", dict(chat, stream=False), r"input length exceeds the context length")):
        error = tools_server.post(path, body, expect=400)["error"]
        assert re.search(words, error if isinstance(error, str) else error["message"]), error
    assert tools_server.post("/completion", {"prompt": long}, expect=400)["error"]["type"] == "exceed_context_size_error"
    assert tools_server.post("/v1/responses", {"input": long}, expect=400)["error"]["code"] == "context_length_exceeded"


def test_integers_beyond_64_bits(tools_server):
    for n in ("9223372036854776000", "18446744073709551615", "123456789012345678901234567890"):
        schema = '{"type": "object", "properties": {"a": {"type": "integer", "maximum": %s}}}' % n
        tools_server.post("/v1/chat/completions", '{"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, '
                          '"metadata": {"id": %s}, "tools": [{"type": "function", "function": {"name": "f", "parameters": %s}}]}' % (n, schema))
    assert "seed" in tools_server.post("/v1/completions", '{"prompt": "a", "seed": 9223372036854775808.0}', expect=400)["error"]["message"]


def test_tokens_spell_the_text(tools_server):
    ask = {"messages": SAY, "max_tokens": 8, "temperature": 0, "logprobs": True}
    for more in ({}, {"stop": ["time"]}, {"seed": 3, "temperature": 1.0}):
        choice = tools_server.post("/v1/chat/completions", dict(ask, **more))["choices"][0]
        spelled = b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"]).decode()
        assert spelled == choice["message"]["content"], more
        chunks = [d["choices"][0] for _, d in tools_server.events("/v1/chat/completions", dict(ask, **more)) if d != "[DONE]"]
        streamed = b"".join(bytes(e["bytes"]) for c in chunks if c.get("logprobs") for e in c["logprobs"]["content"])
        assert streamed.decode() == spelled
    line = tools_server.post("/api/chat", {"messages": SAY, "stream": False, "logprobs": True, "top_logprobs": 2,
                                           "options": {"num_predict": 6, "temperature": 0}})
    assert b"".join(bytes(e["bytes"]) for e in line["logprobs"]).decode() == line["message"]["content"]
    assert len(line["logprobs"][0]["top_logprobs"]) == 2


def test_threads_and_counts(tools_server):
    for thread in ({"type": "create"}, {"type": "continue", "previous_message_id": "msg_0"}):
        error = tools_server.post("/v1/messages", {"max_tokens": 4, "messages": SAY, "thread": thread}, expect=400)["error"]
        assert error["details"]["error_code"] == "thread_unsupported_request"
    got = tools_server.post("/v1/responses/input_tokens", {"input": "hello there", "instructions": "be brief"})
    assert got["object"] == "response.input_tokens" and got["input_tokens"] > 5


def test_ollama_loads_and_lets_go():
    with serving("-c", 512) as s:
        for path, body in (("/api/generate", {}), ("/api/chat", {"messages": []})):
            for more, reason in (({"keep_alive": 0}, "unload"), ({}, "load"), ({"keep_alive": "5m"}, "load")):
                got = s.post(path, dict(body, stream=False, **more))
                assert got["done_reason"] == reason and got["done"], got
                assert bool(s.get("/api/ps")[1]["models"]) == (reason == "load") and s.get("/health")[0] == 200
        assert s.post("/api/generate", {"prompt": "a", "stream": False, "keep_alive": 0,
                                        "options": {"num_predict": 2}})["eval_count"] >= 1
        assert s.get("/api/ps")[1]["models"] == []
        assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 2})["usage"]["completion_tokens"] == 2
        assert "keep_alive" in s.post("/api/generate", {"prompt": "a", "keep_alive": "soon"}, expect=400)["error"]
        assert s.post("/api/show", {"model": "any"})["capabilities"][:2] == ["completion", "tools"]
        assert s.post("/api/show", {"pad": "x" * (1 << 21)}, expect=413)


def test_ollama_embeds():
    with serving("--embeddings", "-c", 64) as s:
        many = s.post("/api/embed", {"input": ["a", "b " * 500]})
        assert len(many["embeddings"]) == 2 and many["prompt_eval_count"] <= 128
        assert s.post("/api/embed", {"input": "a"})["embeddings"][0] == pytest.approx(many["embeddings"][0])
        assert s.post("/api/embeddings", {"prompt": "a"})["embedding"] == pytest.approx(many["embeddings"][0])
        assert s.post("/api/embed", {"input": []})["embeddings"] == []
        assert "context length" in s.post("/api/embed", {"input": "b " * 500, "truncate": False}, expect=400)["error"]


# ---- cost and life ---------------------------------------------------------------------------------------


def test_parts_cost_their_length(tools_server):
    took = []
    for n in (3000, 24000):
        begin = time.monotonic()
        tools_server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": ["abcdefgh"] * n}]}, expect=400)
        took.append(time.monotonic() - begin)
    assert took[1] < 8 * took[0] + 4, took  # 64 times, were it by the square
    assert "be\0fore" in tools_server.post("/apply-template", {"messages": [{"role": "user", "content": [
        {"type": "text", "text": "be\0fore"}]}]})["prompt"]


def test_values_are_counted_before_they_are_parsed(tools_server):
    body = '{"prompt": "a", "pad": [' + ",".join(["{}"] * 600000) + "]}"
    status, _, text = tools_server.ask("POST", "/v1/completions", body)
    assert status == 413 and "MiB" in json.loads(text)["error"]["message"]


def test_compressed_bodies_and_clients_of_a_proxy(tmp_path):
    log = tmp_path / "log"
    with serving("--log-file", log, "--client-header", "X-Forwarded-For") as s:
        assert s.ask("POST", "/v1/completions", b"\x1f\x8b", headers={"Content-Encoding": "gzip"})[0] == 415
        assert s.ask("GET", "/health", headers={"X-Forwarded-For": "evil, 10.9.8.7"})[0] == 200
    assert "10.9.8.7" in log.read_text() and "evil" not in log.read_text()


def test_a_log_that_nobody_reads():
    process = subprocess.Popen([BIN, "serve", "-m", MODEL, "--port", "0", "-t", "1", "-c", "256"], stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL, text=True)
    port = next(int(found[1]) for line in process.stderr if (found := re.search(r"127\.0\.0\.1:(\d+)", line)))
    ask = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: " + b"x" * 100 + b"\r\n\r\n"
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        for _ in range(300):
            s.sendall(ask * 10)
            got = b""
            while got.count(b"HTTP/1.1") < 10:
                got += s.recv(65536)
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=20) == 0


@pytest.mark.skipif(SANITIZED, reason="seconds of a release build")
def test_heavy_schemas_delay_nobody_and_end_with_the_server():
    heavy = [function(f"t{i}", {"type": "object", "properties": {
        f"p{k}": {"type": "string", "maxLength": 65536, "pattern": "^[a-z]+$"} for k in range(4)}}) for i in range(60)]
    s = Server("-c", 1024, "--drain", 1)
    ask = {"messages": SAY, "max_tokens": 2, "tools": heavy}
    threads = [threading.Thread(target=lambda n=n: s.ask("POST", "/v1/chat/completions", dict(ask, seed=n))) for n in range(3)]
    for t in threads:
        t.start()
    begin = time.monotonic()
    s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})
    took = time.monotonic() - begin
    for t in threads:
        t.join()
    assert took < 3, took  # 0.2 s of a machine that is not shared
    begin = time.monotonic()
    assert s.stop() == 0 and time.monotonic() - begin < 10


def test_integers_beyond_64_bits(tools_server):
    """A bound is brought within 64 bits, so that what is made is valid; what has to be exact is refused by its place."""
    for bound, least in ((2**64 - 1, 2**63 - 2), (10**30, 0)):
        schema = {"type": "object", "properties": {"n": {"type": "integer", "minimum": least, "maximum": bound}},
                  "required": ["n"], "additionalProperties": False}
        ask = {"messages": SAY, "max_tokens": 80, "seed": 3, "temperature": 0}
        tool = {"tools": [function("count", schema)], "tool_choice": "required"}
        call = tools_server.post("/v1/chat/completions", {**ask, **tool})["choices"][0]["message"]["tool_calls"][0]
        assert least <= int(re.search(r'"n":\s*(\d+)\s', call["function"]["arguments"])[1]) < 2**63
        form = {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}
        text = tools_server.post("/v1/chat/completions", {**ask, **form})["choices"][0]["message"]["content"]
        assert least <= int(re.search(r'"n":\s*(\d+)\s', text)[1]) < 2**63
    for value, where in (({"const": 2**64}, ".const"), ({"enum": [1, -2**63 - 1]}, ".enum[1]"),
                         ({"type": "integer", "multipleOf": 10**20}, ".multipleOf"),
                         ({"type": "integer", "minimum": 2**64}, ".minimum"), ({"const": [2**64]}, ".const[0]"),
                         ({"const": {"x": [1, 2**63]}}, ".const.x[1]"), ({"const": {"maximum": 2**64}}, ".const.maximum"),
                         ({"enum": [{"minimum": -2**64}]}, ".enum[0].minimum"),
                         ({"type": "integer", "not": {"maximum": 2**64}}, ".not.maximum")):
        schema = {"type": "object", "properties": {"n": value}}
        form = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema}}
        for body in ({"tools": [function("count", schema)]}, {"json_schema": schema}, {"response_format": form}):
            error = tools_server.post("/v1/chat/completions", {"messages": SAY, **body}, expect=400)["error"]
            assert error["param"].endswith("properties.n" + where) and "64 bits" in error["message"]
    for name in ("seed", "max_tokens", "n", "top_k"):
        error = tools_server.post("/v1/chat/completions", {"messages": SAY, name: 2**64}, expect=400)["error"]
        assert error["param"] == name
    assert tools_server.post("/v1/chat/completions", {"messages": SAY, "max_tokens": 1, "metadata": {"id": 10**30}})


def test_integers_beyond_64_bits_are_shown_as_written(tmp_path, tools_server):
    """In arguments of calls, as values and as texts, in variables, and in what only describes a schema."""
    wide = [2**64, -2**63 - 1, 10**30, 2**63 - 1, 1.5]
    calls = [{"id": f"call{i}", "type": "function", "function": {"name": "f", "arguments": arguments}}
             for i, arguments in enumerate(({"n": wide}, json.dumps({"n": wide})))]
    talk = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": calls}]
    shown = json.dumps({"n": wide})
    status, text = prompt_of(tmp_path, "{%- for m in messages %}{%- for c in m.tool_calls or [] %}"
                             "{{ c.function.arguments | tojson }}|{%- endfor %}{%- endfor %}{{ k }}{{ tools[0] | tojson if tools }}", talk,
                             chat_template_kwargs={"k": 2**70}, tools=[function("f", {"type": "object", "properties": {
                                 "n": {"type": "integer", "default": 2**80}}})])
    assert status == 200 and text.startswith(f"{shown}|{shown}|{2**70}") and f'"default": {2**80}' in text, text
    by_messages = {"max_tokens": 1, "messages": [talk[0], {"role": "assistant", "content": [
        {"type": "tool_use", "id": "call0", "name": "f", "input": {"n": 2**64}}]}]}
    assert tools_server.post("/v1/messages/count_tokens", by_messages)["input_tokens"] > 0
    for odd in ('{"n": 000000000000000000000001}', '{99999999999999999999: 1}'):  # no JSON: stays a text
        calls[1]["function"]["arguments"] = odd
        status, text = prompt_of(tmp_path, "{%- for m in messages %}{%- for c in m.tool_calls or [] %}"
                                 "{{ c.function.arguments }}|{%- endfor %}{%- endfor %}", talk)
        assert status == 200 and text.endswith(odd + "|"), text


def test_what_is_near_an_integer_beyond_64_bits(tools_server):
    """Names of members are no keywords, default values are left alone, a real number is no integer, places are whole."""
    names = {"const": {"type": "integer", "minimum": 2**63 - 2, "maximum": 2**64, "default": {"minimum": 2**64}},
             "maximum": {"const": 1e30, "title": 2**64}}
    schema = {"type": "object", "properties": names, "required": list(names), "additionalProperties": False}
    answer = tools_server.post("/v1/chat/completions", {"messages": SAY, "max_tokens": 90, "seed": 3, "json_schema": schema})
    made = json.loads(answer["choices"][0]["message"]["content"])
    assert 2**63 - 2 <= made["const"] < 2**63 and made["maximum"] == 1e30
    real = {"type": "number", "minimum": 1e300, "description": 2**64}
    tools_server.post("/v1/chat/completions", {"messages": SAY, "max_tokens": 1, "json_schema": real})
    for name in ("b" * 40, "b" * 90):
        schema = {"type": "object", "properties": {"a": {"type": "object", "properties": {name: {"const": 2**64}}}}}
        body = {"messages": SAY, "tools": [function("count", schema)]}
        error = tools_server.post("/v1/chat/completions", body, expect=400)["error"]
        assert f"tools[0].function.parameters.properties.a.properties.{name}.const: " in error["message"]
        assert len(error["param"]) <= 63 and error["param"].startswith("...") and error["param"].endswith("b.const")
