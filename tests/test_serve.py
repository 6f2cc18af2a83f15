# tests/test_serve.py - godwit serve: every route and field, one text for all, errors by name; begin,
# end and loading.
import base64
import concurrent.futures
import json
import os
import pathlib
import pty
import re
import shutil
import signal
import socket
import struct
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, ROOT, SANITIZED, SHARED, run
from serving import MODEL, TASKS, Server, serving

pytestmark = pytest.mark.skipif(bool(EMULATOR), reason="the server of the native build")
USER = [{"role": "user", "content": "Tell me of the sea."}]
LONG = {"prompt": "Once upon a time", "max_tokens": 400, "ignore_eos": True, "seed": 5}


def slow_head(server):
    """What a head that comes at a byte a second is told, and when."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=30) as s:
        began = time.monotonic()
        s.sendall(b"GET /health HTTP/1.1\r\n")
        s.settimeout(1)
        while time.monotonic() - began < 25:
            try:
                return s.recv(4096), time.monotonic() - began
            except TimeoutError:
                s.sendall(b"X")
    return b"", time.monotonic() - began


@pytest.fixture(scope="module")
def server():
    with serving("-c", 512) as s:
        with concurrent.futures.ThreadPoolExecutor() as beside:
            s.slow_head = beside.submit(slow_head, s)  # ten seconds, beside all the tests
            yield s


def text_of(answer):
    return answer["choices"][0]["text"]


# ---- one text -------------------------------------------------------------------------------------


def test_text_is_that_of_a_lone_run(server):
    lone = run("run", "-m", MODEL, "-p", "Once upon a time", "-n", 24, "--seed", 7, "-t", "1",
               "--no-stats", "--no-display-prompt", "-q").stdout.rstrip("\n")
    asked = {"prompt": "Once upon a time", "max_tokens": 24, "seed": 7}
    assert text_of(server.post("/v1/completions", asked)).rstrip("\n") == lone
    chunks = [e["choices"][0]["text"] for _, e in server.events("/v1/completions", asked) if e != "[DONE]"]
    assert "".join(chunks).rstrip("\n") == lone
    native = {"prompt": asked["prompt"], "n_predict": 24, "seed": 7}
    assert server.post("/completion", native)["content"].rstrip("\n") == lone
    ids = server.post("/tokenize", {"content": asked["prompt"], "add_special": True})["tokens"]
    assert text_of(server.post("/v1/completions", dict(asked, prompt=ids))).rstrip("\n") == lone


def test_text_does_not_depend_on_company(server):
    asked = [{"prompt": f"Once there was a {thing} and", "max_tokens": 12 + n % 9, "seed": n,
              "temperature": n % 3 * 0.5, "stop": ["zzz"]}
             for n, thing in enumerate(["king", "cat", "ship"] * (4 if SANITIZED else 8))]
    alone = [text_of(server.post("/v1/completions", a)) for a in asked]
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        together = list(pool.map(lambda a: text_of(server.post("/v1/completions", a)), asked))
    assert together == alone


def test_every_api_gives_the_same_answer(server):
    options = {"seed": 3, "temperature": 0.7}
    chat = {"messages": USER, "max_tokens": 10, **options}
    text = server.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
    assert text
    deltas = [e["choices"][0]["delta"].get("content") or "" for _, e in
              server.events("/v1/chat/completions", chat) if e != "[DONE]"]
    assert "".join(deltas) == text
    response = {"input": USER, "max_output_tokens": 10, **options}
    assert server.post("/v1/responses", response)["output"][0]["content"][0]["text"] == text
    events = server.events("/v1/responses", response)
    assert [e["sequence_number"] for _, e in events] == list(range(len(events)))
    assert [name for name, _ in events] == [e["type"] for _, e in events]
    assert "".join(e["delta"] for n, e in events if n == "response.output_text.delta") == text
    assert events[-1][1]["response"]["output"][0]["content"][0]["text"] == text
    message = {"messages": USER, "max_tokens": 10, **options}
    assert server.post("/v1/messages", message)["content"][0]["text"] == text
    events = server.events("/v1/messages", message)
    assert [n for n, _ in events][:2] == ["message_start", "content_block_start"]
    assert [n for n, _ in events][-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert "".join(e["delta"]["text"] for n, e in events if n == "content_block_delta") == text
    ollama = {"messages": USER, "options": {"num_predict": 10, **options}}
    lines = server.ask("POST", "/api/chat", ollama)[2].splitlines()
    assert "".join(json.loads(line)["message"]["content"] for line in lines) == text
    assert json.loads(lines[-1])["done_reason"] == "length"
    once = server.post("/api/generate", {"prompt": USER[0]["content"], "stream": False,
                                         "options": {"num_predict": 10, **options}})
    assert once["response"] == text and once["eval_count"] == 10


def test_choices_repeat(server):
    asked = {"messages": USER, "max_tokens": 8, "seed": 4, "n": 3}
    first, again = (server.post("/v1/chat/completions", asked)["choices"] for _ in range(2))
    assert first == again and [c["index"] for c in first] == [0, 1, 2]
    texts = [c["message"]["content"] for c in first]
    assert len(set(texts)) == 3
    one = server.post("/v1/chat/completions", dict(asked, n=1))["choices"][0]["message"]["content"]
    assert one == texts[0]
    seeds = {server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})["seed"] for _ in range(3)}
    assert len(seeds) == 3


# ---- fields ---------------------------------------------------------------------------------------


def test_stop_leaks_nothing(server):
    asked = {"prompt": "Once upon a time", "max_tokens": 30, "seed": 7}
    text = text_of(server.post("/v1/completions", asked))
    stop = text[9:14]
    answer = server.post("/v1/completions", dict(asked, stop=[stop, "never comes"]))
    assert text_of(answer) == text[:text.index(stop)] and answer["choices"][0]["finish_reason"] == "stop"
    events = server.events("/v1/completions", dict(asked, stop=stop))
    assert "".join(e["choices"][0]["text"] for _, e in events if e != "[DONE]") == text_of(answer)
    chat = {"messages": USER, "max_tokens": 30, "seed": 3}
    said = server.post("/v1/chat/completions", chat)["choices"][0]["message"]["content"]
    assert len(said) > 12
    cut = server.post("/v1/chat/completions", dict(chat, stop=said[6:10]))["choices"][0]
    assert cut["message"]["content"] == said[:said.index(said[6:10])] and cut["finish_reason"] == "stop"


def test_usage_and_cache(server):
    prompt = "The king and the queen went to the sea. " * 12
    first = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "seed": 1})
    again = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "seed": 1})
    assert text_of(first) == text_of(again)
    n = first["usage"]["prompt_tokens"]
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] == (n - 1) // 64 * 64 > 0
    fresh = server.post("/v1/completions", {"prompt": prompt, "max_tokens": 2, "seed": 1,
                                            "cache_prompt": False})
    assert fresh["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    assert text_of(fresh) == text_of(first)
    events = server.events("/v1/completions", {"prompt": "a", "max_tokens": 2, "seed": 1,
                                               "stream_options": {"include_usage": True}})
    assert events[-1][1] == "[DONE]" and events[-2][1]["choices"] == []
    assert events[-2][1]["usage"]["completion_tokens"] == 2 and events[-2][1]["timings"]["predicted_n"] == 2


def test_tools_in_every_shape(server):
    """What cannot be enforced is let through, what is no function is passed over."""
    odd = {"type": "object", "$defs": {"n": {"type": "array", "items": {"type": "string", "pattern": "^\\d+$"}}},
           "properties": {"x": {"$ref": "#/$defs/n"}, "y": {"description": None}, "z": {}}}
    tools = [{"type": "function", "function": {"name": "f", "description": None, "parameters": odd}},
             {"type": "function", "function": {"name": "g"}}]
    asked = {"messages": USER, "tools": tools, "max_tokens": 3, "tool_choice": "none", "ignore_eos": True}
    assert server.post("/v1/chat/completions", asked)["usage"]["completion_tokens"] == 3
    flat = [{"type": "web_search"}, {"type": "local_shell"}, {"type": "function", "name": "f", "parameters": odd}]
    answer = server.post("/v1/responses", {"input": "x", "tools": flat, "max_output_tokens": 3, "ignore_eos": True})
    assert answer["usage"]["output_tokens"] == 3


def test_drafts_and_the_next_turn(server):
    draft = DATA / "tales-2m-q4_k_m.gguf"
    asked = [{"prompt": "Once upon a time " * 5, "max_tokens": 70, "seed": n, "ignore_eos": True} for n in (1, 2)]
    plain = [server.post("/completion", dict(a, return_tokens=True)) for a in asked]
    with serving("-c", 512, "--draft", draft, "--draft-length", "fixed:3") as s:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            drafted = list(pool.map(lambda a: s.post("/completion", dict(a, return_tokens=True)), asked))
        assert [d["tokens"] for d in drafted] == [p["tokens"] for p in plain]
        count = lambda name: int(re.search(rf"^godwit_{name}_total{{.*}} (\d+)", s.get("/metrics")[1], re.M)[1])
        assert count("drafted_tokens") > count("draft_accepted_tokens") > 0
        ids = s.post("/tokenize", {"content": asked[0]["prompt"], "add_special": True})["tokens"]
        ids += drafted[0]["tokens"]
        limit = time.monotonic() + 20
        while count("read_ahead_tokens") < 2 * (len(ids) // 64) * 64 and time.monotonic() < limit:
            time.sleep(0.02)
        turn = s.post("/v1/completions", {"prompt": ids + [5], "max_tokens": 2})
        assert turn["usage"]["prompt_tokens_details"]["cached_tokens"] == len(ids) // 64 * 64


def test_probabilities(server):
    asked = {"messages": USER, "max_tokens": 5, "temperature": 0, "logprobs": True, "top_logprobs": 3,
             "ignore_eos": True}
    choice = server.post("/v1/chat/completions", asked)["choices"][0]
    entries = choice["logprobs"]["content"]
    assert len(entries) == 5
    for entry in entries:
        assert len(entry["top_logprobs"]) == 3 and bytes(entry["bytes"]).decode() == entry["token"]
        assert entry["logprob"] <= entry["top_logprobs"][0]["logprob"] <= 0
    shown = "".join(e["token"] for e in entries)
    assert choice["message"]["content"].strip() == shown.strip()
    streamed = [p for _, e in server.events("/v1/chat/completions", asked) if e != "[DONE]"
                for c in e["choices"] if c.get("logprobs") for p in c["logprobs"]["content"]]
    assert streamed == entries


def test_echo_scores_a_text_as_the_command_does(server):
    """What programs that compare texts ask for: the probabilities of the prompt's own tokens."""
    ids = [1, 300, 301, 302, 303, 304]
    answer = server.post("/v1/completions", {"prompt": [ids, ids[:4]], "max_tokens": 1, "echo": True,
                                             "logprobs": 2, "temperature": 0, "seed": 1234})
    assert [c["index"] for c in answer["choices"]] == [0, 1]
    long, short = (c["logprobs"] for c in answer["choices"])
    assert long["token_logprobs"][:4] == short["token_logprobs"][:4] and long["token_logprobs"][0] is None
    assert len(long["tokens"]) == len(ids) + 1 == len(long["text_offset"])
    assert all(t is None or len(t) == 2 for t in long["top_logprobs"])
    # The greedy token is the best of its own list.
    assert long["token_logprobs"][-1] == max(long["top_logprobs"][-1].values())
    said = server.post("/v1/completions", {"prompt": "The cat and the sea", "max_tokens": 3, "echo": True, "logprobs": 1,
                                           "temperature": 0})["choices"][0]
    places = said["logprobs"]["text_offset"]
    for place, after, token in zip(places, [*places[1:], len(said["text"])], said["logprobs"]["tokens"]):
        assert said["text"][place:after] in (token, token[1:], "")
    assert said["text"].startswith("The cat and the sea") and places[:3] == [0, 0, 3]
    many = server.post("/v1/completions", {"prompt": [ids[:2 + n % 4] for n in range(150)], "max_tokens": 1,
                                           "temperature": 0, "echo": True, "logprobs": 1})["choices"]
    assert [c["index"] for c in many] == list(range(150))  # more than the queue holds
    assert all(many[n]["logprobs"] == many[n % 4]["logprobs"] for n in range(150))
    only = server.post("/v1/completions", {"prompt": ids, "max_tokens": 0, "echo": True, "logprobs": 0})
    assert only["choices"][0]["logprobs"]["token_logprobs"] == long["token_logprobs"][:len(ids)]
    assert only["usage"]["completion_tokens"] == 0
    for made in (0, 1):  # a prompt of one token: its own entry is all there is of it
        one = {"prompt": [ids[1]], "max_tokens": made, "echo": True, "logprobs": 1, "temperature": 0, "n": 2}
        for choice in server.post("/v1/completions", one)["choices"]:
            scores = choice["logprobs"]
            assert scores["token_logprobs"][:1] == scores["top_logprobs"][:1] == [None]
            assert "".join(scores["tokens"]).lstrip() == choice["text"].lstrip() and len(scores["tokens"]) == 1 + made
            assert scores["text_offset"] == [0, len(choice["text"]) - len(scores["tokens"][-1])][:1 + made]

def test_scores_are_those_of_the_scorer(server, tmp_path):
    """As programs that compare endings ask: ids, echo, one token more. tests/test_serve_clients.py has lm-eval itself."""
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(t) + "\n" for t in TASKS))
    done = run("evaluate", "-q", "-o", "json", "-m", MODEL, "-t", 1, "--tasks", tmp_path / "tasks.jsonl")
    ids = lambda text: server.post("/tokenize", {"content": text, "add_special": True})["tokens"]
    for task, sample in zip(TASKS, json.loads(done.stdout)["models"][0]["tasks"][0]["samples"]):
        before = len(ids(task["query"]))
        asked = {"prompt": [ids(f"{task['query']} {c}") for c in task["choices"]], "max_tokens": 1, "temperature": 0,
                 "logprobs": 1, "seed": 1234, "echo": True}
        scores = [c["logprobs"]["token_logprobs"][before:-1] for c in server.post("/v1/completions", asked)["choices"]]
        assert [len(s) for s in scores] == sample["ids"]
        assert [sum(s) for s in scores] == pytest.approx(sample["loglikelihood"], rel=1e-8)
    # The one token more is there where it ends the text, as well: the last ending's is not taken for it.
    ended = server.post("/v1/completions", dict(asked, logit_bias={"2": 100}))["choices"]
    assert [c["logprobs"]["token_logprobs"][before:-1] for c in ended] == scores
    assert {c["logprobs"]["tokens"][-1] for c in ended} == {"</s>"} and {c["finish_reason"] for c in ended} == {"stop"}
    streamed = [p for _, e in server.events("/v1/completions", dict(asked, prompt=asked["prompt"][0], logit_bias={"2": 100}))
                if e != "[DONE]" for c in e["choices"] if c["logprobs"] for p in c["logprobs"]["token_logprobs"]]
    assert streamed == ended[0]["logprobs"]["token_logprobs"]


def test_text_of_a_schema(server):
    schema = {"type": "object", "properties": {"age": {"type": "integer"}, "name": {"enum": ["Ann", "Bob"]}},
              "required": ["age", "name"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema, "strict": True}}
    for seed in range(3):
        answer = server.post("/v1/chat/completions", {"messages": USER, "max_tokens": 300, "seed": seed,
                                                      "response_format": form})
        value = json.loads(answer["choices"][0]["message"]["content"])
        assert isinstance(value["age"], int) and value["name"] in ("Ann", "Bob")
    flat = {"input": "x", "max_output_tokens": 300, "seed": 1,
            "text": {"format": {"type": "json_schema", "name": "x", "schema": schema}}}
    assert json.loads(server.post("/v1/responses", flat)["output"][0]["content"][0]["text"])["name"]
    native = {"prompt": "x", "n_predict": 300, "seed": 1, "json_schema": schema}
    assert json.loads(server.post("/completion", native)["content"])["name"]
    ollama = {"prompt": "x", "stream": False, "format": schema, "options": {"num_predict": 300, "seed": 1}}
    assert json.loads(server.post("/api/generate", ollama)["response"])["name"]
    gbnf = server.post("/v1/completions", {"prompt": "x", "max_tokens": 9, "grammar": 'root ::= "yes" | "no"'})
    assert text_of(gbnf) in ("yes", "no") and gbnf["choices"][0]["finish_reason"] == "stop"


def test_bias_and_ban(server):
    text = text_of(server.post("/v1/completions", {"prompt": "Once upon", "max_tokens": 3, "temperature": 0}))
    first = server.post("/tokenize", {"content": text.split()[0]})["tokens"]
    for bias in ({str(first[0]): -100}, [[first[0], False]], [[" " + text.split()[0], -100.0]]):
        other = server.post("/v1/completions", {"prompt": "Once upon", "max_tokens": 3, "temperature": 0,
                                                "logit_bias": bias})
        assert text_of(other) != text
    server.post("/v1/completions", {"prompt": "a", "logit_bias": {"999999": 1}}, expect=400)


FIELDS = [
    ({"temperature": 1.5, "top_k": 3}, ("--temp", 1.5, "--top-k", 3)), ({"top_p": 0.3}, ("--top-p", 0.3)),
    ({"min_p": 0.4}, ("--min-p", 0.4)), ({"typical_p": 0.3}, ("--typical", 0.3)), ({"top_n_sigma": 0.5}, ("--top-nsigma", 0.5)),
    ({"tfs_z": 0.3}, ("--tfs", 0.3)), ({"xtc_probability": 1, "xtc_threshold": 0.02}, ("--xtc-probability", 1, "--xtc-threshold", 0.02)),
    ({"dynatemp_range": 0.7, "dynatemp_exponent": 2}, ("--dynatemp-range", 0.7, "--dynatemp-exp", 2)),
    ({"mirostat": 1, "mirostat_tau": 2, "mirostat_eta": 0.5}, ("--mirostat", 1, "--mirostat-ent", 2, "--mirostat-lr", 0.5)),
    ({"mirostat": 2, "mirostat_tau": 2}, ("--mirostat", 2, "--mirostat-ent", 2)),
    ({"repeat_penalty": 1.8, "repeat_last_n": 8}, ("--repeat-penalty", 1.8, "--repeat-last-n", 8)),
    ({"presence_penalty": 1.9}, ("--presence-penalty", 1.9)), ({"frequency_penalty": 1.5}, ("--frequency-penalty", 1.5)),
    ({"temperature": 0, "dry_multiplier": 4, "dry_base": 2, "dry_allowed_length": 1, "dry_penalty_last_n": 30,
      "dry_sequence_breakers": ["zzz"]},
     ("--temp", 0, "--dry-multiplier", 4, "--dry-base", 2, "--dry-allowed-length", 1, "--dry-penalty-last-n", 30,
      "--dry-sequence-breaker", "zzz")),
    ({"samplers": ["min_p", "temperature"], "temperature": 1.4}, ("--samplers", "min-p;temperature", "--temp", 1.4)),
    ({"grammar": 'root ::= "a" [b-f]+'}, ("--grammar", 'root ::= "a" [b-f]+')),
    ({"json_schema": {"type": "integer"}}, ("--json-schema", '{"type": "integer"}')),
    ({"logit_bias": {"300": 50}}, ("--logit-bias", "300=50")), ({"banned_strings": ["great"]}, ("--ban", "great")), ({"fsd_alpha": 0.5}, ("--fsd", 0.5))]


def test_fields_are_the_options_of_the_command(server):
    """Each has an effect, and the one that the option has."""
    asked = {"prompt": "Once upon a time there was a", "seed": 7, "stream": False}
    plain = text_of(server.post("/v1/completions", dict(asked, max_tokens=24)))
    for fields, options in FIELDS:
        lone = run("run", "-m", MODEL, "-p", asked["prompt"], "-n", 24, "--seed", 7, "-t", 1, "-q", "--no-stats",
                   "--no-display-prompt", *options).stdout.rstrip("\n")
        got = text_of(server.post("/v1/completions", {**asked, "max_tokens": 24, **fields}))
        assert got.rstrip("\n") == lone and got != plain, fields
        assert server.post("/completion", {**asked, "n_predict": 24, **fields})["content"] == got, fields


def test_unknown_fields_are_ignored(server):
    answer = server.post("/v1/chat/completions", {
        "model": "gpt-4", "messages": USER, "max_tokens": 1, "user": "me", "metadata": {"a": 1}, "store": True,
        "service_tier": "auto", "prompt_cache_key": "k", "safety_identifier": "s", "verbosity": "low",
        "frequency_penalty": None, "tools": [], "stop": None, "ignore_eos": True})
    assert answer["choices"][0]["finish_reason"] == "length" and answer["system_fingerprint"]


MESSAGES = {"messages": USER}
WRONG = [  # path, body, words of the error
    ("/v1/completions", "nonsense", "line 1, column"),
    ("/v1/completions", "[1]", "no JSON object"),
    ("/v1/completions", "", "no body"),
    ("/v1/completions", '{"prompt": "a", "prompt": "b"}', "duplicate"),
    ("/v1/completions", "[" * 5000, "depth"),
    ("/v1/completions", {}, "prompt"),
    ("/v1/completions", {"prompt": {}}, "prompt"),
    ("/v1/completions", {"prompt": [999999]}, "number 1"),
    ("/v1/completions", {"prompt": ["a", 5.5]}, "prompt"),
    ("/v1/completions", {"prompt": "a", "temperature": "hot"}, "temperature"),
    ("/v1/completions", {"prompt": "a", "top_p": 2}, "top_p"),
    ("/v1/completions", {"prompt": "a", "max_tokens": -5}, "max_tokens"),
    ("/v1/completions", {"prompt": "a", "n": 0}, "n:"),
    ("/v1/completions", {"prompt": "a", "suffix": 1}, "suffix"),
    ("/v1/completions", {"prompt": "a", "best_of": 3}, "best_of"),
    ("/v1/completions", {"prompt": "a", "stop": 3}, "stop"),
    ("/v1/completions", {"prompt": "a", "logprobs": 99}, "logprobs"),
    ("/v1/completions", {"prompt": "a", "samplers": ["nope"]}, "nope"),
    ("/v1/completions", {"prompt": "a", "grammar": "root = 1"}, "grammar"),
    ("/v1/completions", {"prompt": "a", "response_format": {"type": "xml"}}, "xml"),
    ("/v1/chat/completions", {}, "messages"),
    ("/v1/chat/completions", {"messages": [{"content": "x"}]}, "role"),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "image_url"),
    ("/v1/chat/completions", dict(MESSAGES, top_logprobs=2), "logprobs"),
    ("/v1/chat/completions", dict(MESSAGES, audio={}), "audio"),
    ("/v1/chat/completions", dict(MESSAGES, tool_choice="required"), "tool"),
    ("/v1/chat/completions", dict(MESSAGES, response_format={"type": "json_schema", "json_schema": {
        "schema": {"type": "nonsense"}}}), "response_format"),
    ("/v1/responses", {"input": 3}, "input"),
    ("/v1/responses", {"input": []}, "input: a list"),
    ("/v1/responses", {"instructions": "a", "input": [{"type": "function_call", "name": "f", "call_id": "1"}, {"role": "user", "content": 3}]},
     "input[1].content"),
    ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "input[0].content[0]"),
    ("/v1/responses", {"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
    ("/v1/messages", MESSAGES, "max_tokens"),
    ("/v1/messages", {"max_tokens": 5}, "messages"),
    ("/completion", {}, "prompt"),
    ("/completion", {"prompt": "a", "image_data": [1]}, "image_data"),
    ("/tokenize", {}, "content"),
    ("/detokenize", {"tokens": [-1]}, "tokens"),
    ("/api/chat", {"messages": "x"}, "messages"),
    ("/api/generate", {"prompt": "a", "suffix": 1}, "suffix"),
]


@pytest.mark.parametrize("path,body,words", WRONG)
def test_errors_name_the_field(server, path, body, words):
    answer = server.post(path, body, expect=400)
    error = answer["error"]
    text = error if isinstance(error, str) else error["message"]
    assert words in text and "\n" not in text
    if path == "/v1/responses":
        assert error["param"] == ("previous_response_id" if "previous_response_id" in body else "input")
    if path == "/v1/messages":
        assert answer["type"] == "error" and error["type"] == "invalid_request_error"


def test_prompt_that_does_not_fit(server):
    error = server.post("/v1/completions", {"prompt": "word " * 2000}, expect=400)["error"]
    assert error["code"] == "context_length_exceeded" and error["n_ctx"] == 512
    assert str(error["n_prompt_tokens"]) in error["message"] and "512" in error["message"]
    # What fits goes on until the context is full, and is not cut.
    answer = server.post("/v1/completions", {"prompt": "word " * 150, "max_tokens": 4000, "ignore_eos": True})
    assert answer["usage"]["total_tokens"] in (512, 513) and answer["choices"][0]["finish_reason"] == "length"


# ---- other routes ---------------------------------------------------------------------------------


def test_helpers(server):
    status, models = server.get("/v1/models")
    (model,) = models["data"]
    assert status == 200 and model["id"] == MODEL.stem and model["meta"]["n_ctx"] == 512
    assert server.get(f"/v1/models/{MODEL.stem}")[1]["id"] == MODEL.stem
    assert server.get("/v1/models/other")[0] == 404
    text = "The cat — and the sea."
    tokens = server.post("/tokenize", {"content": text})["tokens"]
    assert server.post("/detokenize", {"tokens": tokens})["content"].strip() == text
    pieces = server.post("/tokenize", {"content": text, "with_pieces": True})["tokens"]
    assert [p["id"] for p in pieces] == tokens
    prompt = server.post("/apply-template", {"messages": USER})["prompt"]
    assert USER[0]["content"] in prompt
    counted = server.post("/v1/messages/count_tokens", {"messages": USER})["input_tokens"]
    used = server.post("/v1/messages", {"messages": USER, "max_tokens": 1})["usage"]
    assert counted == used["input_tokens"] + used["cache_read_input_tokens"]
    info = server.get("/tokenizer_info")[1]
    assert (info["bos_token"], info["eos_token"], info["model_max_length"]) == ("<s>", "</s>", 512)
    props = server.get("/props")[1]
    assert props["default_generation_settings"]["n_ctx"] == 512 and props["total_slots"] == 16
    assert len(server.get("/slots")[1]) == 16
    for path in ("/v1/embeddings", "/v1/rerank"):
        assert "model" in server.post(path, {}, expect=501)["error"]["message"]
    assert server.get("/api/version")[1]["version"][0].isdigit()
    assert server.get("/api/tags")[1]["models"][0]["name"] == MODEL.stem
    shown = server.post("/api/show", {"model": MODEL.stem})
    assert "tools" in shown["capabilities"] and shown["model_info"]["llama.context_length"] == 512
    assert server.get("/api/ps")[1]["models"]
    assert server.get("/nope")[0] == 404 and server.ask("PUT", "/health")[0] == 405
    status, headers, text = server.ask("HEAD", "/health")
    assert status == 200 and text == "" and int(headers["Content-Length"]) > 0
    status, headers, _ = server.ask("GET", "/health", headers={"X-Request-Id": "my-id.1"})
    assert headers["X-Request-Id"] == "my-id.1"


TEMPLATE = """{{ bos_token }}{{ mood }}{{ reasoning_effort }}{% for m in messages %}[{{ m.role }}{% if tools %} {{ tools | length }}{% endif %}]
{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
{%- for c in m.tool_calls or [] %}{% for k, v in c.function.arguments.items() %} {{ k }}={{ v }}{% endfor %}{% endfor %}
{% endfor %}{% if add_generation_prompt %}[assistant]{% endif %}"""


def test_what_a_template_is_given(tmp_path):
    """Messages in every shape that clients send; a broken call in the history breaks nothing. Reasoning comes
    under both names, and goes back under any."""
    (tmp_path / "chat.jinja").write_text(TEMPLATE)
    call = lambda text: [{"id": "1", "type": "function", "function": {"name": "f", "arguments": text}}]
    messages = [{"role": "developer", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": None, "reasoning": "why", "tool_calls": call('{"k": 1}')},
                {"role": "tool", "tool_call_id": "1", "content": "y"}]
    with serving("-c", 512, "--chat-template", tmp_path / "chat.jinja", "--reasoning-form", "think") as s:
        prompt = s.post("/apply-template", {"messages": messages})["prompt"]
        assert prompt.endswith("[system]a\nb[user]x[assistant]<think>why</think> k=1[tool]y[assistant]")
        variables = {"chat_template_kwargs": {"mood": "calm,"}, "reasoning_effort": "low"}
        assert "calm,low[system]a" in s.post("/apply-template", {"messages": messages, **variables})["prompt"]
        read = lambda more: s.post("/v1/chat/completions", {"messages": messages, "max_tokens": 1, **more})["usage"]["prompt_tokens"]
        assert read(variables) > read({})
        messages[2]["tool_calls"] = call('{"k": "cut o')
        assert 'arguments={"k": "cut o' in s.post("/apply-template", {"messages": messages})["prompt"]
        went_on = s.post("/apply-template", {"messages": [*messages[:2], {"role": "assistant", "content": "So"}]})["prompt"]
        assert went_on.endswith("[assistant]So")
        asked = {"messages": messages, "grammar": 'root ::= "<think>one two</think>three"', "max_tokens": 60}
        message = s.post("/v1/chat/completions", asked)["choices"][0]["message"]
        assert message["reasoning"] == message["reasoning_content"] == "one two" and message["content"].strip() == "three"
        deltas = [e["choices"][0]["delta"] for _, e in s.events("/v1/chat/completions", asked) if e != "[DONE]"]
        assert "".join(d.get("reasoning_content", "") for d in deltas) == "one two"
        blocks = s.post("/v1/messages", dict(asked, messages=[{"role": "user", "content": "x"}]))["content"]
        assert [b["type"] for b in blocks] == ["thinking", "text"] and blocks[0]["thinking"] == "one two"
        items = s.post("/v1/responses", {"input": "x", "grammar": asked["grammar"]})["output"]
        assert [i["type"] for i in items] == ["reasoning", "message"]
        assert items[1]["content"][0]["text"].strip() == "three"
        events = s.events("/v1/responses", {"input": "x", "grammar": asked["grammar"]})
        assert "".join(e["delta"] for n, e in events if n == "response.reasoning_text.delta") == "one two"
        assert [i["type"] for i in events[-1][1]["response"]["output"]] == ["reasoning", "message"]
        line = s.post("/api/chat", {"messages": [{"role": "user", "content": "x"}], "stream": False,
                                    "options": {"grammar": asked["grammar"]}})
        assert line["message"]["thinking"] == "one two"


def test_metrics(server):
    server.post("/v1/completions", {"prompt": "a", "max_tokens": 3})
    _, text = server.get("/metrics")
    for name in ("time_to_first_token_seconds_bucket", "time_between_tokens_seconds_count", "request_seconds_sum",
                 "pages_used", "queue_requests", "rows_total", "prefix_hit_tokens_total"):
        assert re.search(rf"^godwit_{name}(\{{.*\}})? [\d.e+-]+$", text, re.M), name
    for line in text.splitlines():
        assert re.match(r"# (HELP|TYPE) godwit_\w+ .+$|godwit_\w+(\{\w+=\"[^\"]*\"\})? [\d.e+-]+$", line), line


def test_pages_in_main_memory():
    prompts = [list(range(n, n + 200)) for n in (3, 300)]
    with serving("-c", 256, "--parallel", 1, "--cache-tokens", 256, "--cache-ram", 4, "--no-read-ahead") as s:
        answers = [s.post("/v1/completions", {"prompt": prompts[n], "max_tokens": 8, "temperature": 0})
                   for n in (0, 1, 0)]
        cached = [a["usage"]["prompt_tokens_details"]["cached_tokens"] for a in answers]
        assert cached == [0, 0, 192] and answers[0]["choices"] == answers[2]["choices"]
        assert s.metric("host_pages_fetched_total") == 3 and s.metric("host_pages_saved_total") >= 3
        places = int(s.metric("host_pages"))
        ready = next(line for line in s.lines if " is ready: " in line)
        found = re.search(r"a cache of 256 tokens for all, (\d+) more in ([\d.]+) MB of main memory", ready)
        assert int(found[1]) == 64 * places and 3.9 < float(found[2]) <= 4.2, ready


def test_vectors():
    text = "The cat and the sea."
    lone = json.loads(run("embed", "-m", MODEL, "-p", text, "-t", "1").stdout)["embedding"]
    with serving("--embeddings") as s:
        found = s.post("/v1/embeddings", {"input": [text, "Other words.", text]})
        first, other, third = (row["embedding"] for row in found["data"])
        assert first == third != other and first == pytest.approx(lone, rel=1e-6)
        packed = s.post("/v1/embeddings", {"input": text, "encoding_format": "base64"})["data"][0]["embedding"]
        values = struct.unpack(f"<{len(first)}f", base64.b64decode(packed))
        assert list(values) == pytest.approx(first, rel=1e-6)
        short = s.post("/v1/embeddings", {"input": text, "dimensions": 8})["data"][0]["embedding"]
        assert len(short) == 8 and sum(x * x for x in short) == pytest.approx(1)
        ids = s.post("/v1/embeddings", {"input": [[1, 300, 301]]})
        assert ids["usage"]["prompt_tokens"] == 3
        for wrong in ({}, {"input": []}, {"input": [[-1]]}, {"input": text, "encoding_format": "x"}, {"input": text, "dimensions": 10**6},
                      {"input": "sea " * 20000}):
            assert s.post("/v1/embeddings", wrong, expect=400)["error"]["message"]
        assert "classifier" in s.post("/v1/rerank", {"query": "a", "documents": ["b"]}, expect=501)["error"]["message"]
        assert "no text" in s.post("/v1/completions", {"prompt": "a"}, expect=501)["error"]["message"]


# ---- clients that leave, and readers that stall ------------------------------------------------------


def open_request(server, body, path="/v1/completions"):
    s = socket.create_connection(("127.0.0.1", server.port), timeout=20)
    text = json.dumps(body).encode()
    s.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(text)}\r\n\r\n".encode() + text)
    return s


@pytest.mark.parametrize("stream", [True, False])
def test_client_leaves(server, stream):
    before = server.metric("cancelled_total")
    s = open_request(server, dict(LONG, stream=stream, n=128))
    if stream:
        assert b"200 OK" in s.recv(100)
    s.close()
    server.wait_for("running", 0)
    server.wait_for("requests_open", 0)
    assert server.metric("cancelled_total") == before + 1


@pytest.mark.skipif(SANITIZED, reason="so many tokens take sanitizers a minute; bench/serve_soak.py has such readers")
def test_reader_that_stalls(server):
    """Its answer waits for it, others do not, and it is whole: 5 MB, more than the system buffers."""
    asked = {"messages": USER, "stream": True, "n": 6, "logprobs": True, "top_logprobs": 20, "max_tokens": 400, "seed": 11,
             "ignore_eos": True}
    texts = lambda events: sorted(json.dumps(c) for e in events for c in e["choices"])
    whole = texts(e for _, e in server.events("/v1/chat/completions", asked) if e != "[DONE]")
    body = json.dumps(asked).encode()
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        s.settimeout(60)
        s.connect(("127.0.0.1", server.port))
        s.sendall(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
                  % len(body) + body)
        limit = time.monotonic() + 20
        held = (0, 0)
        while not all(held):  # the system's buffer grows as it fills: the answer is held for a moment before it is held for good
            assert time.monotonic() < limit, held
            before = server.metric("held")
            assert text_of(server.post("/v1/completions", {"prompt": "Once", "max_tokens": 4}))
            held = before, server.metric("held")
        s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
        got = Server.rest(s).decode()
    found = [json.loads(line[6:]) for line in got.split("\n") if line.startswith("data: {")]
    assert texts(found) == whole and "data: [DONE]" in got


# ---- keys, pages of others ----------------------------------------------------------------------------


def test_keys(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the house\nsecond-key\r\n\n")
    with serving("--api-key", "first", "--api-key-file", keys) as s:
        assert s.get("/health")[0] == 200 and s.get("/")[0] == 200
        for headers in ({}, {"Authorization": "Bearer wrong"}, {"Authorization": "first"}):
            status, given, text = s.ask("GET", "/v1/models", headers=headers)
            assert status == 401 and "key" in text and given["WWW-Authenticate"] == "Bearer"
        for headers in ({"Authorization": "Bearer first"}, {"x-api-key": "second-key"}):
            assert s.get("/v1/models", headers=headers)[0] == 200
        preflight = {"Origin": "http://localhost:3000", "Access-Control-Request-Headers": "authorization"}
        status, given, _ = s.ask("OPTIONS", "/v1/chat/completions", headers=preflight)
        assert status == 204 and given["Access-Control-Allow-Headers"] == "authorization"
        assert given["Access-Control-Allow-Origin"] == "http://localhost:3000"
        assert "Access-Control-Allow-Origin" not in s.ask(
            "GET", "/health", headers={"Origin": "https://evil.example"})[1]
        assert s.get("/health", headers={"Host": "proxy.example"})[0] == 200


def test_hosts_and_origins(server):
    assert server.get("/health", headers={"Host": "evil.example"})[0] == 403
    assert server.get("/health", headers={"Host": "localhost:1"})[0] == 200
    for host in ("host.docker.internal:1", "host.containers.internal", "a.local", "[::1]:1", "10.0.0.1"):
        assert server.get("/health", headers={"Host": host})[0] == 200
    origin = lambda name, **more: server.ask("GET", "/health", headers={"Origin": name, **more})[:2]
    for name in ("https://a.example", "null", "http://10.0.0.1", "https://localhost.evil.example"):
        status, given = origin(name)
        assert status == 403 and "Access-Control-Allow-Origin" not in given, name
    for name in ("http://localhost:3000", "http://127.0.0.1", "http://[::1]:5", "app://obsidian.md", "http://a.internal"):
        status, given = origin(name)
        assert status == 200 and given["Access-Control-Allow-Origin"] == name, name
        assert "Access-Control-Allow-Credentials" not in given
    assert origin("http://192.168.0.7:80", Host="192.168.0.7:80")[0] == 200  # the server's own page
    assert origin("http://192.168.0.8:80", Host="192.168.0.7:80")[0] == 403
    with serving("--cors-origin", "https://app.example", "--allowed-host", "proxy.example", "-a", "tales") as s:
        allowed = lambda origin: s.ask("GET", "/health", headers={"Origin": origin})[1]["Access-Control-Allow-Origin"]
        assert allowed("https://app.example") == "https://app.example" and allowed("https://b.example") is None
        assert allowed("http://localhost") == "http://localhost"
        assert s.get("/health", headers={"Host": "proxy.example"})[0] == 200
        assert s.get("/health", headers={"Host": "evil.example"})[0] == 403
        assert s.get("/v1/models")[1]["data"][0]["id"] == "tales"


# ---- begin and end ---------------------------------------------------------------------------------------


def test_drain():
    s = Server("-c", 512, "--drain", 20)
    one = open_request(s, dict(LONG, stream=True))
    assert b"data" in one.recv(4096) + one.recv(4096)
    s.process.send_signal(signal.SIGTERM)
    got = s.rest(one)
    one.close()
    assert b"data: [DONE]" in got and b'"length"' in got  # whole, although the end was asked for
    assert s.process.wait(timeout=30) == 0


def test_drain_has_an_end():
    s = Server("-c", 512, "--drain", 0)
    one = open_request(s, dict(LONG, stream=True, n=128))
    assert b"data" in one.recv(4096) + one.recv(4096)
    s.process.send_signal(signal.SIGINT)
    assert b"the server is ending" in s.rest(one)
    one.close()
    assert s.process.wait(timeout=30) == 0


def test_a_second_signal_ends_it_at_once():
    s = Server("-c", 512, "--drain", 60)
    one = open_request(s, dict(LONG, stream=True, n=128))
    assert b"data" in one.recv(4096) + one.recv(4096)
    s.process.send_signal(signal.SIGTERM)
    limit = time.monotonic() + 20
    while not any("are being answered" in line for line in s.lines):
        assert time.monotonic() < limit
        time.sleep(0.01)
    s.process.send_signal(signal.SIGTERM)
    assert s.process.wait(timeout=10) == 128 + signal.SIGTERM
    one.close()


def test_on_a_terminal():
    """A line says how much is done, as long as anything is."""
    mine, its = pty.openpty()
    process = subprocess.Popen([BIN, "serve", "-m", MODEL, "--port", "0", "-t", "1", "-c", "512"], stderr=its,
                               stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    os.close(its)
    seen = b""
    while not (found := re.search(rb"listening on http://127\.0\.0\.1:(\d+)", seen)) or b"is ready" not in seen:
        seen += os.read(mine, 4096)
    one = socket.create_connection(("127.0.0.1", int(found[1])), timeout=20)
    body = json.dumps(dict(LONG, n=128)).encode()
    one.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    while not re.search(rb"\r\x1b\[K1 requests, \d+ rows, [1-9]\d* tok/s", seen):
        seen += os.read(mine, 4096)
    one.close()
    process.terminate()
    assert process.wait(timeout=30) == 0
    os.close(mine)


def refused(*arguments):
    done = run("serve", *arguments, check=False, timeout=60)
    assert done.returncode in (1, 2) and done.stderr.count("error:") == 1, done.stderr
    return done


def test_wrong_usage(server, tmp_path):
    assert "port" in refused("-m", MODEL, "--port", server.port).stderr
    assert "no address" in refused("-m", MODEL, "--host", "no.such.host.invalid").stderr
    assert "cannot open" in refused("-m", tmp_path / "nothing.gguf").stderr
    assert "no model" in refused("-m", tmp_path).stderr
    (tmp_path / "broken.gguf").write_bytes(b"GGUF nonsense")
    assert "broken" in refused("-m", tmp_path / "broken.gguf", "--port", 0).stderr
    assert "names" in refused("-m", MODEL, "-a", "one", "-a", "two").stderr
    assert "empty key" in refused("-m", MODEL, "--api-key", "").stderr
    (tmp_path / "keys").write_text("\n")
    assert "no key" in refused("-m", MODEL, "--api-key-file", tmp_path / "keys").stderr


def test_log(tmp_path):
    with serving("--log-file", tmp_path / "log", "--log-format", "json") as s:
        s.post("/v1/completions", {"prompt": "a", "max_tokens": 2}, headers={"X-Request-Id": "one"})
        s.get("/nope")
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    (one,) = [line for line in lines if line["id"] == "one"]
    assert one["generated_tokens"] == 2 and one["model"] == MODEL.stem and one["status"] == 200
    assert lines[-1]["target"] == "/nope" and lines[-1]["status"] == 404
    if os.path.exists("/dev/full"):
        with serving("--log-file", "/dev/full") as s:
            assert s.get("/health")[0] == 200 and s.metric("access_log_lost_total") > 0


def test_log_is_rotated(tmp_path):
    """SIGHUP opens the file anew; nothing ends, no line is lost. Without a file it ends the server in order."""
    log, old = tmp_path / "log", tmp_path / "log.1"
    with serving("--log-file", log) as s:
        s.get("/props")
        limit = time.monotonic() + 20
        while "/props" not in log.read_text():
            assert time.monotonic() < limit
            time.sleep(0.01)
        log.rename(old)
        s.get("/health?renamed")  # still to the old one, by whatever name
        s.process.send_signal(signal.SIGHUP)
        while not log.exists():
            assert time.monotonic() < limit + 20
            time.sleep(0.01)
        s.get("/v1/models")
        long = open_request(s, dict(LONG, stream=True))
        assert b"data" in long.recv(4096) + long.recv(4096)
        s.process.send_signal(signal.SIGHUP)
        long.close()
        s.wait_for("requests_open", 0)
    both = old.read_text() + log.read_text()
    assert "/props" in old.read_text() and "/v1/models" in log.read_text()
    for target in ("/props", "/health?renamed", "/v1/models", "/v1/completions"):
        assert both.count(f" {target}\"") == 1, target
    with serving() as s:
        assert s.stop(signal.SIGHUP) == 0


def test_names_with_marks():
    """In labels of /metrics as Prometheus escapes them, in JSON as JSON does; a name is one line."""
    with serving("-a", 'a "b\\c') as s:
        assert s.get("/v1/models")[1]["data"][0]["id"] == 'a "b\\c'
        assert 'godwit_model_loaded{model="a \\"b\\\\c"} 1\n' in s.get("/metrics")[1]
    for names in (["-a", "a\nb"], ["-a", ""], ["-a", "a", "-m", MODEL, "-a", "a"]):
        done = run("serve", "-m", MODEL, *names, check=False)
        assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def test_service_manager(tmp_path):
    """Readiness and a socket that is handed over, as systemd does it."""
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(tmp_path / "notify"))
    notify.settimeout(30)
    passed = socket.create_server(("127.0.0.1", 0))

    def hand_over():
        os.dup2(passed.fileno(), 3)
        os.environ["LISTEN_PID"] = str(os.getpid())
    command = f'export LISTEN_PID=$$; exec {BIN} serve -m {MODEL} -t 1'
    process = subprocess.Popen(["sh", "-c", command], preexec_fn=hand_over, pass_fds=(3,), stderr=subprocess.PIPE,
                               env=dict(os.environ, LISTEN_FDS="1", NOTIFY_SOCKET=str(tmp_path / "notify")))
    told = b""
    while b"READY=1" not in told:
        told += notify.recv(4096) + b"\n"
    port = passed.getsockname()[1]
    with socket.create_connection(("127.0.0.1", port), timeout=20) as s:
        s.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        assert b'{"status":"ok"}' in Server.rest(s)
    process.terminate()
    assert process.wait(timeout=30) == 0
    assert b"STOPPING=1" in notify.recv(4096)
    process.stderr.close()
    passed.close()


@pytest.mark.skipif(SANITIZED, reason="the release build has the libraries of packages")
def test_packaging(tmp_path):
    """The unit is one that systemd takes; the container has the libraries that the program asks for."""
    if shutil.which("systemd-analyze"):
        unit = tmp_path / "godwit.service"
        unit.write_text((ROOT / "packaging/godwit.service").read_text().replace("/usr/bin/godwit", str(pathlib.Path(BIN).resolve())))
        done = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], capture_output=True, text=True, timeout=60)
        assert "godwit.service" not in done.stderr, done.stderr
    if shutil.which("dpkg-query"):
        files = re.findall(r"=> (/\S+)", subprocess.run(["ldd", BIN], capture_output=True, text=True).stdout)
        needed = re.findall(r"NEEDED +(\S+)", subprocess.run(["objdump", "-p", BIN], capture_output=True, text=True).stdout)
        names = [f.removeprefix("/usr") for f in files if os.path.basename(f) in needed]
        found = subprocess.run(["dpkg-query", "-S", *("*" + n for n in names)], capture_output=True, text=True).stdout
        packages = {line.split(":")[0] for line in found.splitlines()} - {"libc6"}
        assert "libjansson4" in packages
        container = (ROOT / "packaging/Dockerfile").read_text().split("FROM debian:bookworm-slim")[1]
        assert not [p for p in packages if not re.search(rf"\s{re.escape(p)}\s", container)], packages


def test_queue_is_bounded():
    with serving("-c", 512, "--parallel", 1, "--queue", 1, "--sse-ping", 1) as s:
        running = open_request(s, dict(LONG, n=128))
        s.wait_for("running", 1)
        waits = open_request(s, dict(LONG, stream=True))
        answer = b""
        while b"\n:" not in answer:  # so that nobody on the way takes it for dead
            answer += waits.recv(4096)
        assert b"data" not in answer
        waits.close()
        s.wait_for("queue_requests", 0)
        others = [open_request(s, dict(LONG, stream=True)) for _ in range(6)]
        answers = [o.recv(65536) for o in others]
        statuses = sorted(int(a.split()[1]) for a in answers)
        assert statuses.count(429) >= 4 and statuses[0] == 200, statuses
        assert all(re.search(rb"\r\nRetry-After: \d+\r\n", a) for a in answers if b" 429 " in a)
        for one in [running, *others]:
            one.close()


def test_nobody_waits_longer_than_the_queue_time():
    with serving("-c", 512, "--parallel", 1, "--queue-time", 1) as s:
        running = open_request(s, dict(LONG, n=128))
        s.wait_for("running", 1)
        streams = open_request(s, dict(LONG, stream=True))
        status, headers, text = s.ask("POST", "/v1/completions", LONG)
        assert status == 503 and int(headers["Retry-After"]) > 0 and "no turn in 1 s" in text
        got = b""
        while not got.endswith(b"\r\n0\r\n\r\n"):
            got += streams.recv(4096)
        assert b" 200 OK" in got and b'data: {"error"' in got and b"no turn in 1 s" in got
        s.wait_for("requests_open", 1)  # the one that runs
        running.close()
        streams.close()


# ---- several models ------------------------------------------------------------------------------------------


def test_several_models(tmp_path):
    small = sorted(DATA.glob("tales-2m-*.gguf"))[:3]
    for path in small:
        (tmp_path / path.name).symlink_to(path)
    budget = max(p.stat().st_size for p in small) * 2
    with serving("--models-memory", budget, "-c", 128, model=tmp_path) as s:
        states = {m["id"]: m["status"]["value"] for m in s.get("/v1/models")[1]["data"]}
        assert set(states) == {p.stem for p in small} and set(states.values()) == {"unloaded"}
        texts = {}
        for path in small:
            asked = {"model": path.stem, "prompt": "Once", "max_tokens": 6, "seed": 1}
            answer = s.post("/v1/completions", asked)
            assert answer["model"] == path.stem
            texts[path.stem] = text_of(answer)
        loaded = [m["id"] for m in s.get("/v1/models")[1]["data"] if m["status"]["value"] == "loaded"]
        assert small[-1].stem in loaded and len(loaded) < len(small)
        again = s.post("/v1/completions", {"model": small[0].stem, "prompt": "Once", "max_tokens": 6, "seed": 1})
        assert text_of(again) == texts[small[0].stem]
        error = s.post("/v1/completions", {"model": "other", "prompt": "a"}, expect=404)["error"]
        assert error["code"] == "model_not_found" and small[0].stem in error["message"]
        assert s.post("/v1/completions", {"prompt": "a", "max_tokens": 1})["model"] == small[0].stem
    # One that cannot be loaded is named, and stands in nobody's way.
    broken = tmp_path / "tales-2m-broken.gguf"
    broken.write_bytes(small[0].read_bytes()[:5000])
    with serving("-c", 128, model=tmp_path) as s:
        assert s.get("/health")[1] == {"status": "ok"}
        for _ in range(2):
            assert broken.stem in s.post("/v1/completions", {"model": broken.stem, "prompt": "a"}, expect=500)["error"]["message"]
        assert s.post("/v1/completions", {"model": small[0].stem, "prompt": "a", "max_tokens": 1})
        status, health = s.get("/health")
        assert status == 200 and health["status"] == "ok"
        assert [f["model"] for f in health["failed"]] == [broken.stem] and "cannot be loaded" in health["failed"][0]["message"]
        listed = {m["id"]: m["status"] for m in s.get("/v1/models")[1]["data"]}
        assert listed[broken.stem]["failed"] and "failed" not in listed[small[0].stem]
        broken.unlink()
        broken.symlink_to(small[0])
        assert s.post("/v1/completions", {"model": broken.stem, "prompt": "a", "max_tokens": 1})
        assert s.get("/health")[1] == {"status": "ok"}


def test_models_in_use_stay_and_idle_ones_go():
    """With room for one: a second one waits until nobody uses the first. Unused, both go in the end."""
    one, other = sorted(DATA.glob("tales-2m-*.gguf"))[:2]
    with serving("-m", other, "--models-memory", one.stat().st_size, "--idle-unload", "0.2", "-c", 512, model=one) as s:
        state = lambda path: {m["id"]: m["status"]["value"] for m in s.get("/v1/models")[1]["data"]}[path.stem]
        long = open_request(s, dict(LONG, model=one.stem, n=128, stream=True))
        assert b"data" in long.recv(4096) + long.recv(4096)
        waits = open_request(s, {"model": other.stem, "prompt": "Once", "max_tokens": 4})
        s.wait_for("requests_open", 2)
        time.sleep(0.3)
        assert state(one) == "loaded" and state(other) != "loaded"
        long.close()
        assert b" 200 " in waits.recv(4096)
        waits.close()
        limit = time.monotonic() + 20
        while state(other) != "unloaded":
            assert time.monotonic() < limit
            time.sleep(0.05)
        assert state(one) == "unloaded"


def test_loading_is_told():
    """The port is open before the weights are read. Who is slow to ask finds them read, and asks anew."""
    model = SHARED / "models/tales-21m"
    seen = {}
    for _ in range(10):
        s = Server("-c", 128, model=model if model.exists() else MODEL, wait=False)
        while 200 not in seen and s.process.poll() is None:
            status, answer = s.get("/health")
            seen[status] = answer
        assert s.stop() == 0
        if 503 in seen:
            break
        seen = {}
    assert seen[200]["status"] == "ok"
    assert 0 <= seen[503]["progress"] <= 1 and seen[503]["error"]["code"] == 503


def test_slow_head_has_a_deadline(server):
    answer, seconds = server.slow_head.result()
    assert answer.startswith(b"HTTP/1.1 408 ") and 9 < seconds < 15
