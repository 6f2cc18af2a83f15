# tests/test_chat_tools.py - tools and reasoning in `godwit chat`: calls that must come come and fit
# their schemas, results are typed or come from a command that was allowed, reasoning is folded.
import json
import os
import re
import subprocess

import pytest

from program import BIN, DATA, EMULATOR, SANITIZED

SMALL = DATA / "tales-2m-q4_0.gguf"
# In a full hunt a hundred calls of the 21m model in each form that there is: GODWIT_CALLS=100.
CALLS = int(os.environ.get("GODWIT_CALLS", "0"))
TOOLS = [{"type": "function", "function": {
    "name": "get_weather", "description": "Weather", "parameters": {
        "type": "object", "additionalProperties": False,
        "properties": {"city": {"type": "string", "maxLength": 12},
                       "days": {"type": "integer", "minimum": 1, "maximum": 7},
                       "unit": {"enum": ["C", "F", None]},
                       "note": {"type": ["string", "null"], "maxLength": 6},
                       "at": {"type": "object", "properties": {"lat": {"type": "number"}},
                              "required": ["lat"], "additionalProperties": False}},
        "required": ["city", "unit"]}}},
    {"type": "function", "function": {"name": "now", "description": None, "parameters": None}}]
FEW = ["hermes", "qwen3-coder", "mistral", "llama-3", "deepseek-v4", "glm-4.5", "kimi-k2", "lfm2",
       "gemma-4", "minicpm5", "json"]


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    path = tmp_path_factory.mktemp("tools") / "tools.json"
    path.write_text(json.dumps(TOOLS))
    return path


def chat(text, *args, model=SMALL, code=0, **env):
    done = subprocess.run([*EMULATOR, BIN, "chat", "-q", "-t", "1", "--no-stats", "-m", str(model),
                           *map(str, args)], input=text, capture_output=True, text=True,
                          timeout=600, env=dict(os.environ, **env))
    assert done.returncode == code, done.stderr
    return done


def calls_of(text):
    """[(name, arguments)] of lines [NAME JSON], which may go on over several."""
    found, at = [], 0
    while (begin := re.compile(r"^\[(\w+) (?=\{)", re.M).search(text, at)) is not None:
        arguments, length = json.JSONDecoder(strict=True).raw_decode(text[begin.end():])
        found.append((begin[1], arguments))
        at = begin.end() + length
    return found


def validate(name, arguments):
    jsonschema = pytest.importorskip("jsonschema", reason="SKIP: no jsonschema")
    schema = {tool["function"]["name"]: tool["function"]["parameters"] for tool in TOOLS}[name]
    jsonschema.validate(arguments, schema or {"type": "object"})


def forms():
    if CALLS == 0:
        return FEW if not SANITIZED else FEW[:2]
    done = subprocess.run([*EMULATOR, BIN, "chat", "-m", str(SMALL), "--tool-form", "?"],
                          capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return [form for form in done.stderr.split("there are ")[1].strip().split(", ") if form != "none"]


@pytest.mark.parametrize("form", forms())
def test_required(tools, form):
    model = SMALL if CALLS == 0 else DATA.parent.parent / "models/tales-21m-q4_k_m.gguf"
    most = 400 if CALLS == 0 else 900  # the marks of a form are text here, and some are long
    for seed in range(max(1, CALLS)):  # no result is typed: the answer ends with the call
        done = chat("Weather?\n", "--tools", tools, "--tool-choice", "get_weather", "--tool-form",
                    form, "--temp", "1", "--seed", seed + 1, "-n", most, "--single-turn", "-c",
                    "2048", model=model)
        calls = calls_of(done.stdout)
        assert calls and calls[0][0] == "get_weather", f"{form} {seed}: {done.stdout!r}"
        for name, arguments in calls:
            validate(name, arguments)


FORCED = ("--tool-choice", "get_weather", "--tool-form", "gigachat-3.1", "--temp", "0.8", "--seed", "2",
          "-n", "300", "--single-turn")


def test_command(tools, tmp_path):
    seen = tmp_path / "seen.json"
    save = tmp_path / "chat.json"
    done = chat(f"Weather?\n/save {save}\n", "--tools", tools, *FORCED[:-1], "--tool-command",
                f"get_weather=cat > {seen}; echo sunny; exit 3")
    calls = calls_of(done.stdout)
    assert calls and json.loads(seen.read_text()) in [arguments for _, arguments in calls]
    messages = json.loads(save.read_text())["messages"]
    results = [m for m in messages if m["role"] == "tool"]
    assert results and results[0]["content"] == "sunny\nerror: the command failed with code 3"
    asked = next(m for m in messages if m.get("tool_calls"))
    assert results[0]["tool_call_id"] == asked["tool_calls"][0]["id"]
    again = chat(f"/load {save}\n/save {save}2\n", "-n", "4")
    assert again.returncode == 0
    assert json.loads((tmp_path / "chat.json2").read_text())["messages"][:len(messages)] == messages


def test_typed_result(tools, tmp_path):
    save = tmp_path / "chat.json"
    done = chat(f"Weather?\nrain\n/save {save}\n", "--tools", tools, *FORCED[:-1])
    assert calls_of(done.stdout)
    results = [m for m in json.loads(save.read_text())["messages"] if m["role"] == "tool"]
    assert results and results[0]["content"] == "rain"
    # without a result the call was not made
    done = chat("Weather?\n", "--tools", tools, *FORCED)
    assert calls_of(done.stdout)


def test_slash_tools(tools):
    done = chat(f"/tools\n/tools {tools}\n/tools none\n/tools /nowhere.json\n", "-n", "4", code=1)
    assert done.stderr.count("no tools") == 2
    assert "get_weather" in done.stderr and "result is typed" in done.stderr
    assert "/nowhere.json" in done.stderr


@pytest.mark.parametrize("args, words", [
    (("--tool-form", "no-such-form"), "there are harmony"),
    (("--reasoning-form", "no-such-form"), "there are harmony"),
    (("--tool-command", "x"), "NAME=COMMAND"),
    (("--tool-choice", "no_tool"), "no tool 'no_tool'")])
def test_mistakes(tools, args, words):
    done = chat("x\n", "--tools", tools, *args, code=2)
    assert words in done.stderr and done.stderr.count("\n") == 1 and done.stdout == ""


def test_broken_tools(tmp_path):
    for text, words in (("{}", "list"), ("[{", "syntax"), ('[{"type": "function"}]', "name")):
        path = tmp_path / "tools.json"
        path.write_text(text)
        done = chat("x\n", "--tools", path, code=1)
        assert words in done.stderr and done.stderr.count("\n") == 1


# A model that thinks: the grammar writes its thoughts.
THINKS = 'root ::= "<think>\\nA thought.\\n</think>\\n\\nThe answer."'


def test_reasoning_is_folded():
    base = ("--reasoning-form", "think", "--grammar", THINKS, "--temp", "0")
    assert chat("x\n", *base).stdout == "The answer.\n"
    assert chat("x\n", *base, "--show-reasoning").stdout == "A thought.\n\nThe answer.\n"
    broken = chat("x\n", "--reasoning-form", "think", "--grammar", 'root ::= "<think>\\nHalf a"',
                  "--temp", "0")
    assert broken.stdout == "Half a\n"
    plain = chat("x\n", *base[2:], "--reasoning-form", "none").stdout
    assert plain == "<think>\nA thought.\n</think>\n\nThe answer.\n"
