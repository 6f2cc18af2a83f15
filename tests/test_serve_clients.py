# tests/test_serve_clients.py - the public Python clients against godwit serve, as their users write:
# openai, anthropic, ollama, litellm, pydantic-ai, instructor, langchain, cohere, lm-eval; and curl. They are installed by pip into a folder of the build, once;
# a test whose client cannot be had is skipped.
import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from program import EMULATOR, SANITIZED, run
from seeing import PICTURES, coded, data_uri, seeing_model
from serving import MODEL, TASKS, serving

pytestmark = pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="the server of the release build")
CLIENTS = ["openai", "anthropic", "ollama"]
# What is made of these; resolved by uv, which pip takes minutes for.
FRAMEWORKS = ["litellm", "pydantic-ai-slim[openai]", "instructor", "langchain-openai", "cohere"]
# lm-eval asks for 250 MB more than its model over HTTP imports (scikit-learn, SciPy, NLTK, tiktoken), so what
# that imports is named here; the version because the next one may import more.
LM_EVAL = "lm-eval==0.4.13"
LM_EVAL_IMPORTS = ["datasets", "sacrebleu", "pytablewriter", "jinja2", "more_itertools", "requests", "aiohttp", "tenacity"]
KEY = {"Authorization": "Bearer secret"}
SAY = [{"role": "user", "content": "Tell me of the sea."}]


PIP = ["-m", "pip", "install", "-q", "--no-compile", "--disable-pip-version-check", "--timeout", "20", "--retries", "1"]


def install(name, *steps, folder=None):
    """A Python of the build folder after these steps, each its arguments; the test is skipped where one fails."""
    folder = folder or pathlib.Path(os.environ.get("GODWIT_BUILD", "/tmp")) / "serve-clients"
    if not (folder / name).exists():
        for step in steps:
            done = subprocess.run(list(map(str, step)), capture_output=True, text=True, timeout=600)
            if done.returncode != 0:
                why = (done.stderr.strip() or "?").splitlines()[-1]
                pytest.skip(f"SKIP: pip cannot install {name}: {why}")
        (folder / name).touch()
    return folder / "bin/python"


@pytest.fixture(scope="module")
def clients():
    """A Python that has the clients."""
    folder = pathlib.Path(os.environ.get("GODWIT_BUILD", "/tmp")) / "serve-clients"
    return install("clients", [sys.executable, "-m", "venv", folder], [folder / "bin/python", *PIP, *CLIENTS])


@pytest.fixture(scope="module")
def frameworks(clients):
    """A Python of its own, with what is made of the clients."""
    folder = pathlib.Path(os.environ.get("GODWIT_BUILD", "/tmp")) / "serve-frameworks"
    return install("frameworks", [sys.executable, "-m", "venv", folder], [folder / "bin/python", *PIP, "uv"],
                   [folder / "bin/uv", "pip", "install", "-q", "--python", folder / "bin/python", *CLIENTS, *FRAMEWORKS],
                   folder=folder)


@pytest.fixture(scope="module")
def lm_eval(clients):
    """The same Python, with lm-eval."""
    return install("lm-eval", [clients, *PIP, "--no-deps", LM_EVAL], [clients, *PIP, *LM_EVAL_IMPORTS])


@pytest.fixture(scope="module")
def server():
    with serving("-c", 512, "--api-key", "secret") as s:
        yield s


def script(clients, server, text, **more):
    done = subprocess.run([str(clients), "-c", text], capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, PORT=str(server.port), MODEL=MODEL.stem, **more))
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


def expected(server, **more):
    asked = {"messages": SAY, "max_tokens": 8, "seed": 5, "temperature": 0.5, **more}
    answer = server.post("/v1/chat/completions", asked, headers=KEY)
    return answer["choices"][0]["message"]["content"]


def test_openai(clients, server):
    got = script(clients, server, '''
import json, os, openai
c = openai.OpenAI(base_url=f"http://127.0.0.1:{os.environ['PORT']}/v1", api_key="secret", max_retries=0)
say = [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hello"}]}]
tell = [{"role": "user", "content": "Tell me of the sea."}]
out = {"models": [m.id for m in c.models.list()]}
a = c.chat.completions.create(model="any", messages=tell, max_completion_tokens=8, seed=5, temperature=0.5)
out["text"] = a.choices[0].message.content
s = c.chat.completions.create(model="any", messages=tell, max_tokens=8, seed=5, temperature=0.5, stream=True,
                              stream_options={"include_usage": True})
chunks = list(s)
out["stream"] = "".join(x.choices[0].delta.content or "" for x in chunks if x.choices)
out["usage"] = chunks[-1].usage.completion_tokens
c.chat.completions.create(model="any", messages=say, max_tokens=1)
tool = {"type": "function", "function": {"name": "weather", "description": "of a city", "strict": True, "parameters": {
    "type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"], "additionalProperties": False}}}
a = c.chat.completions.create(model="any", messages=tell, tools=[tool], tool_choice="required", max_tokens=300, seed=1)
call = a.choices[0].message.tool_calls[0]
out["call"] = [call.function.name, json.loads(call.function.arguments), a.choices[0].finish_reason, call.type]
s = c.chat.completions.create(model="any", messages=tell, tools=[tool], max_tokens=300, seed=1, stream=True,
                              tool_choice={"type": "function", "function": {"name": "weather"}})
name, arguments = "", ""
for x in s:
    for d in (x.choices[0].delta.tool_calls or []) if x.choices else []:
        assert d.index == 0
        name += d.function.name or ""
        arguments += d.function.arguments or ""
out["streamed call"] = [name, json.loads(arguments)]
more = tell + [a.choices[0].message.model_dump(), {"role": "tool", "tool_call_id": call.id, "content": "sunny"}]
out["after"] = c.chat.completions.create(model="any", messages=more, tools=[tool], tool_choice="none", max_tokens=3).choices[0].finish_reason
import pydantic
class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int
p = c.chat.completions.parse(model="any", messages=tell, response_format=Person, max_tokens=400, seed=3)
out["parsed"] = p.choices[0].message.parsed.model_dump()
t = c.completions.create(model="any", prompt=["Once", "The"], max_tokens=3, echo=True, logprobs=2, temperature=0)
out["echo"] = [len(x.logprobs.tokens) == len(x.logprobs.token_logprobs) for x in t.choices]
r = c.responses.create(model="any", input="Tell me of the sea.", max_output_tokens=8, temperature=0.5, extra_body={"seed": 5})
out["response"] = r.output_text
with c.responses.stream(model="any", input="Tell me of the sea.", max_output_tokens=8, temperature=0.5, extra_body={"seed": 5}) as s:
    out["response stream"] = "".join(event.delta for event in s if event.type == "response.output_text.delta")
for wrong in ({"api_key": "no"}, {}):
    try:
        c.with_options(**wrong).chat.completions.create(model="any", messages=tell, temperature=-1)
    except openai.APIStatusError as e:
        out.setdefault("errors", []).append([e.status_code, e.param])
print(json.dumps(out))
''')
    text = expected(server)
    assert got["models"] == [MODEL.stem] and got["usage"] == 8
    assert got["text"] == got["stream"] == got["response"] == got["response stream"] == text
    name, arguments, reason, kind = got["call"]
    assert (name, reason, kind) == ("weather", "tool_calls", "function")
    for found in (arguments, got["streamed call"][1]):
        assert set(found) == {"city", "days"} and found["city"] in ("Oslo", "Rome") and 1 <= found["days"] <= 9
    assert got["after"] in ("stop", "length") and len(got["parsed"]["name"]) <= 8
    assert got["echo"] == [True, True] and got["errors"] == [[401, None], [400, "temperature"]]


def test_anthropic(clients, server):
    got = script(clients, server, '''
import json, os, anthropic
c = anthropic.Anthropic(base_url=f"http://127.0.0.1:{os.environ['PORT']}", api_key="secret", max_retries=0)
tell = [{"role": "user", "content": "Tell me of the sea."}]
ask = dict(model="any", messages=tell, max_tokens=8, extra_body={"seed": 5, "temperature": 0.5})
a = c.messages.create(**ask)
out = {"text": a.content[0].text, "reason": a.stop_reason, "usage": a.usage.output_tokens}
with c.messages.stream(**ask) as s:
    out["stream"] = "".join(s.text_stream)
    out["final"] = s.get_final_message().usage.output_tokens
out["count"] = c.messages.count_tokens(model="any", messages=tell).input_tokens
tool = {"name": "weather", "description": "of a city", "input_schema": {"type": "object", "properties": {"city": {"enum": ["Oslo", "Rome"]}},
        "required": ["city"], "additionalProperties": False}}
a = c.messages.create(model="any", messages=tell, max_tokens=300, tools=[tool], tool_choice={"type": "tool", "name": "weather"},
                      system=[{"type": "text", "text": "x-anthropic-billing-header: abc"}, {"type": "text", "text": "Be brief."}])
out["call"] = [a.stop_reason, a.content[-1].name, a.content[-1].input]
more = tell + [{"role": "assistant", "content": a.content}, {"role": "user", "content": [
    {"type": "tool_result", "tool_use_id": a.content[-1].id, "content": "sunny"}, {"type": "text", "text": "So?"}]}]
out["after"] = c.messages.create(model="any", messages=more, tools=[tool], tool_choice={"type": "none"}, max_tokens=3).stop_reason
try:
    c.messages.create(model="any", messages=[{"role": "user", "content": "a " * 3000}], max_tokens=3)
except anthropic.BadRequestError as e:
    out["error"] = e.body["error"]["type"]
print(json.dumps(out))
''')
    assert got["text"] == got["stream"] == expected(server) and got["usage"] == got["final"] == 8
    assert got["reason"] == "max_tokens" and got["count"] > 5 and got["error"] == "invalid_request_error"
    assert got["call"][:2] == ["tool_use", "weather"] and got["call"][2]["city"] in ("Oslo", "Rome")
    assert got["after"] in ("end_turn", "max_tokens")


def test_ollama(clients, server):
    got = script(clients, server, '''
import json, os, ollama
c = ollama.Client(host=f"http://127.0.0.1:{os.environ['PORT']}", headers={"Authorization": "Bearer secret"})
tell = [{"role": "user", "content": "Tell me of the sea."}]
options = {"num_predict": 8, "seed": 5, "temperature": 0.5}
out = {"models": [m.model for m in c.list().models], "running": [m.model for m in c.ps().models]}
out["text"] = c.chat(model=os.environ["MODEL"], messages=tell, options=options).message.content
out["stream"] = "".join(p.message.content for p in c.chat(model=os.environ["MODEL"], messages=tell, options=options, stream=True))
g = c.generate(model=os.environ["MODEL"], prompt="Tell me of the sea.", options=options)
out["generate"] = [g.response, g.eval_count, g.done_reason]
out["show"] = c.show(os.environ["MODEL"]).capabilities
out["json"] = json.loads(c.chat(model=os.environ["MODEL"], messages=tell, options={"num_predict": 300, "seed": 1},
    format={"type": "object", "properties": {"a": {"type": "integer", "maximum": 99}}, "required": ["a"], "additionalProperties": False}).message.content)
print(json.dumps(out))
''')
    text = expected(server)
    assert got["models"] == got["running"] == [MODEL.stem] and "tools" in got["show"]
    assert got["text"] == got["stream"] == text and got["generate"] == [text, 8, "length"]
    assert isinstance(got["json"]["a"], int)


def test_pictures(clients, tmp_path):
    """A picture from each client is the same one, as chat completions of no client have it."""
    with serving("-c", 512, "--api-key", "secret", "--ignore-eos", model=seeing_model(tmp_path / "model")) as s:
        content = [{"type": "image_url", "image_url": {"url": data_uri("rgb.png")}}, {"type": "text", "text": "w5 w6 w7"}]
        answer = s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 8,
                                                 "temperature": 0}, headers=KEY)["choices"][0]["message"]["content"]
        got = script(clients, s, '''
import json, os, openai, anthropic, ollama
at, say, uri, data = f"http://127.0.0.1:{os.environ['PORT']}", "w5 w6 w7", os.environ["URI"], os.environ["DATA"]
o = openai.OpenAI(base_url=at + "/v1", api_key="secret", max_retries=0)
chat = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": uri, "detail": "auto"}}, {"type": "text", "text": say}]}]
out = [o.chat.completions.create(model="any", messages=chat, max_tokens=8, temperature=0).choices[0].message.content]
items = [{"role": "user", "content": [{"type": "input_image", "image_url": uri, "detail": "auto"}, {"type": "input_text", "text": say}]}]
out.append(o.responses.create(model="any", input=items, max_output_tokens=8, temperature=0).output_text)
a = anthropic.Anthropic(base_url=at, api_key="secret", max_retries=0)
image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": data}}
m = a.messages.create(model="any", max_tokens=8, extra_body={"temperature": 0}, messages=[{"role": "user", "content": [image, {"type": "text", "text": say}]}])
out.append(m.content[0].text)
l = ollama.Client(host=at, headers={"Authorization": "Bearer secret"})
message = {"role": "user", "content": say, "images": [os.environ["FILE"]]}
out.append(l.chat(model="any", messages=[message], options={"num_predict": 8, "temperature": 0}).message.content)
print(json.dumps(out))
''', URI=data_uri("rgb.png"), DATA=coded("rgb.png"), FILE=str(PICTURES / "rgb.png"))
        assert got == [answer] * 4


def test_anthropic_tool_runner(clients, server):
    """Its conversations are kept by the server unless that says it does not: then they come whole."""
    got = script(clients, server, '''
import json, os, anthropic
from anthropic import beta_tool
c = anthropic.Anthropic(base_url=f"http://127.0.0.1:{os.environ['PORT']}", api_key="secret", max_retries=0)
asked = []
@beta_tool
def weather(city: str) -> str:
    """Of a city."""
    asked.append(city)
    return "sunny"
runner = c.beta.messages.tool_runner(model="any", max_tokens=120, tools=[weather], max_iterations=2,
    messages=[{"role": "user", "content": "Tell me of the sea."}], tool_choice={"type": "tool", "name": "weather"})
print(json.dumps({"messages": [m.stop_reason for m in runner], "asked": len(asked)}))
''')
    assert got["messages"] and got["asked"] >= (got["messages"][0] == "tool_use")


def test_frameworks(frameworks, server):
    got = script(frameworks, server, '''
import json, os, sys
out, sys.stdout = sys.stdout, sys.stderr
base = f"http://127.0.0.1:{os.environ['PORT']}"
found = {}
import litellm
ask = dict(api_base=base + "/v1", api_key="secret", messages=[{"role": "user", "content": "Tell me of the sea."}])
found["litellm"] = litellm.completion(model="openai/any", max_tokens=8, seed=5, temperature=0.5, **ask).choices[0].message.content
for model, where in (("openai/any", base + "/v1"), ("anthropic/any", base)):
    try:
        litellm.completion(model=model, max_tokens=3, api_base=where, api_key="secret", messages=[{"role": "user", "content": "a " * 3000}])
    except litellm.ContextWindowExceededError:
        found.setdefault("full", []).append(model)
import pydantic, instructor, openai
class Person(pydantic.BaseModel):
    name: str = pydantic.Field(max_length=8)
    age: int = pydantic.Field(ge=0, le=99)
client = instructor.from_openai(openai.OpenAI(base_url=base + "/v1", api_key="secret"), mode=instructor.Mode.JSON_SCHEMA)
found["instructor"] = client.chat.completions.create(model="any", response_model=Person, max_tokens=300, seed=3,
    messages=ask["messages"], max_retries=1).model_dump()
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
model = OpenAIChatModel("any", provider=OpenAIProvider(base_url=base + "/v1", api_key="secret"))
agent = Agent(model, output_type=Person, retries=1, model_settings={"max_tokens": 300, "seed": 3})
found["pydantic_ai"] = agent.run_sync("Tell me of the sea.").output.model_dump()
from langchain_openai import ChatOpenAI
chat = ChatOpenAI(base_url=base + "/v1", api_key="secret", model="any", max_tokens=300, seed=3)
found["langchain"] = chat.with_structured_output(Person, method="json_schema").invoke("Tell me of the sea.").model_dump()
found["stream"] = len("".join(str(x.content) for x in chat.stream("Tell me of the sea.")))
json.dump(found, out)
''', LITELLM_LOCAL_MODEL_COST_MAP="True")
    assert got["litellm"] == expected(server) and got["full"] == ["openai/any", "anthropic/any"]
    for name in ("instructor", "pydantic_ai", "langchain"):
        assert len(got[name]["name"]) <= 8 and 0 <= got[name]["age"] <= 99, name
    assert got["stream"] > 0


def test_embeddings_of_clients(clients):
    with serving("--embeddings", "-c", 256) as s:
        got = script(clients, s, '''
import json, os, ollama, openai
base = f"http://127.0.0.1:{os.environ['PORT']}"
c = ollama.Client(host=base)
many = c.embed(model=os.environ["MODEL"], input=["a", "b"]).embeddings
one = c.embeddings(model=os.environ["MODEL"], prompt="a").embedding
other = openai.OpenAI(base_url=base + "/v1", api_key="none").embeddings.create(model="any", input="a").data[0].embedding
print(json.dumps([[float(x) for x in v] for v in (many[0], one, other)]))
''')
    assert got[0] == pytest.approx(got[1]) and got[0] == pytest.approx(got[2], rel=1e-5, abs=1e-7)


def test_curl(server):
    if not shutil.which("curl"):
        pytest.skip("SKIP: no curl")
    body = json.dumps({"messages": SAY, "max_tokens": 8, "seed": 5, "temperature": 0.5, "stream": True})
    done = subprocess.run(["curl", "-sN", "--fail-with-body", "-m", "60", f"http://127.0.0.1:{server.port}/v1/chat/completions", "-H",
                           "Authorization: Bearer secret", "-H", "Expect: 100-continue", "-d", body],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    lines = [line[6:] for line in done.stdout.splitlines() if line.startswith("data: ")]
    assert lines[-1] == "[DONE]"
    deltas = [json.loads(line)["choices"][0]["delta"].get("content") or "" for line in lines[:-1]]
    assert "".join(deltas) == expected(server)


def test_side_requests_cost_their_own_pages(server):
    """Titles and tags between two turns, and a line in front that is another each time."""
    def message(line):
        texts = [f"x-anthropic-billing-header: {line}", "The king and the queen went to the sea. " * 12]
        used = server.post("/v1/messages", {"messages": SAY, "max_tokens": 1, "system": [
            {"type": "text", "text": text} for text in texts]}, headers=KEY)["usage"]
        return used["cache_read_input_tokens"], used["input_tokens"]
    first = message("a")
    for n in range(4):
        server.post("/v1/completions", {"prompt": f"A title for {n}: " + "word " * 80, "max_tokens": 2}, headers=KEY)
    cached, read = message("b")
    assert cached + read == sum(first) and cached == (sum(first) - 1) // 64 * 64 > 64


TASK = """task: endings
dataset_path: json
dataset_kwargs: {{data_files: {{test: "{path}"}}}}
test_split: test
output_type: multiple_choice
doc_to_text: "<s>{{{{query}}}}"
doc_to_choice: choices
doc_to_target: gold
metric_list: [{{metric: acc}}]
"""


def test_lm_eval(lm_eval, server, tmp_path):
    """lm-eval with its local-completions model, ids by this server's /tokenize, against `godwit evaluate`."""
    tasks = tmp_path / "tasks.jsonl"
    tasks.write_text("".join(json.dumps(t) + "\n" for t in TASKS))
    (tmp_path / "endings.yaml").write_text(TASK.format(path=tasks))
    got = script(lm_eval, server, '''
import json, os, sys
out, sys.stdout = sys.stdout, sys.stderr
import lm_eval
from lm_eval.tasks import TaskManager
r = lm_eval.simple_evaluate(
    model="local-completions", tasks=["endings"], log_samples=True, bootstrap_iters=0,
    model_args=f"model={os.environ['MODEL']},base_url=http://127.0.0.1:{os.environ['PORT']}/v1/completions,num_concurrent=4,auth_token=secret",
    task_manager=TaskManager(include_path=os.environ["HF_HOME"], include_defaults=False))
samples = sorted(r["samples"]["endings"], key=lambda x: x["doc_id"])
json.dump([r["results"]["endings"]["acc,none"], [[float(y[0][0]) for y in x["resps"]] for x in samples]], out)
''', OPENAI_API_KEY="secret", HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", HF_HOME=str(tmp_path))
    (mine,) = json.loads(run("evaluate", "-q", "-o", "json", "-m", MODEL, "-t", 1, "--tasks", tasks).stdout)["models"][0]["tasks"]
    assert got[0] == pytest.approx(mine["acc"])
    for theirs, x in zip(got[1], mine["samples"], strict=True):
        assert theirs == pytest.approx(x["loglikelihood"], rel=1e-7)
