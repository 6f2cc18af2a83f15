# tests/test_serve_sleep.py - `godwit serve` with models that sleep: requests in turn and at once with room for
# one that is awake, every text the one that its model gives alone; who sleeps, when, and what says so.
import concurrent.futures
import time

import pytest

from program import DATA
from seeing import data_uri, seeing_model
from serving import serving

PAIR = [DATA / "tales-2m-q4_0.gguf", DATA / "tales-2m-q4_k_m.gguf"]
PROMPTS = ["Once", "The sea", "A king", "One day"]


def ask(model, i):
    return {"model": model.stem, "prompt": PROMPTS[i % len(PROMPTS)], "max_tokens": 8, "seed": i % len(PROMPTS)}


def text_of(answer):
    return answer["choices"][0]["text"]


def state(s, model):
    return {m["id"]: m["status"]["value"] for m in s.get("/v1/models")[1]["data"]}[model.stem]


def of(s, name, model):
    """A number of /metrics of one model."""
    line = next(x for x in s.get("/metrics")[1].splitlines() if x.startswith(f'godwit_{name}{{model="{model.stem}"}}'))
    return float(line.rsplit(" ", 1)[1])


def wait_until(holds):
    limit = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < limit
        time.sleep(0.02)


@pytest.fixture(scope="module")
def alone():
    """{(model, i): text} with nothing else there."""
    texts = {}
    for model in PAIR:
        with serving("-c", 128, model=model) as s:
            for i in range(len(PROMPTS)):
                texts[model, i] = text_of(s.post("/v1/completions", ask(model, i)))
    return texts


def test_one_awake(alone):
    """Forty requests in turn, then twenty at once: none is lost, each has its text."""
    with serving("-m", PAIR[1], "--models-max", 1, "--sleep-memory", "1G", "-c", 128, model=PAIR[0]) as s:
        for i in range(40):
            model = PAIR[i % 2]
            assert text_of(s.post("/v1/completions", ask(model, i // 2))) == alone[model, i // 2 % len(PROMPTS)]
        assert {state(s, m) for m in PAIR} == {"loaded", "sleeping"}
        sleeps = [of(s, "model_sleeps_total", m) for m in PAIR]
        wakes = [of(s, "model_wakes_total", m) for m in PAIR]
        assert sleeps == [20, 19] and wakes == [19, 19]
        assert [of(s, "model_asleep", m) for m in PAIR] == [1, 0] and of(s, "model_loaded", PAIR[1]) == 1
        assert 0 < of(s, "model_wake_seconds", PAIR[0]) < 20
        with concurrent.futures.ThreadPoolExecutor(10) as many:
            asked = [(PAIR[i * 7 % 2], i) for i in range(20)]
            got = list(many.map(lambda a: text_of(s.post("/v1/completions", ask(*a))), asked))
        assert got == [alone[m, i % len(PROMPTS)] for m, i in asked]
        assert sum("loaded anew" in line or "is unloaded" in line for line in s.lines) == 0
        # What needs no weights wakes nobody.
        asleep = next(m for m in PAIR if state(s, m) == "sleeping")
        assert s.get(f"/props?model={asleep.stem}")[1]["is_sleeping"] is True
        assert state(s, asleep) == "sleeping"


def test_idle_and_by_name(alone):
    """The only model sleeps when nobody has come for a while, or when a client says so, and not before its
    work is done."""
    model = PAIR[0]
    with serving("-c", 512, "--sleep-idle-seconds", "0.2", model=model) as s:
        wait_until(lambda: s.get("/is_sleeping")[1] == {"is_sleeping": True})
        assert s.get("/health")[0] == 200 and state(s, model) == "sleeping"
        assert text_of(s.post("/v1/completions", ask(model, 1))) == alone[model, 1]
        assert of(s, "model_wakes_total", model) == 1
    with serving("-c", 512, "--sleep-memory", "1G", model=model) as s:
        with concurrent.futures.ThreadPoolExecutor(1) as one:
            long = one.submit(s.post, "/v1/completions", dict(ask(model, 0), max_tokens=300, ignore_eos=True))
            s.wait_for("running", 1)  # it has the model
            assert s.post("/sleep?level=1", None) == {}
            assert s.get("/is_sleeping")[1] == {"is_sleeping": False}
            assert len(long.result()["choices"][0]["text"]) > 300
        wait_until(lambda: s.get("/is_sleeping")[1]["is_sleeping"])
        assert s.post("/wake_up", None) == {}
        wait_until(lambda: state(s, model) == "loaded")
        assert text_of(s.post("/v1/completions", ask(model, 2))) == alone[model, 2]
    with serving("-c", 128, model=model) as s:
        assert "--sleep-memory" in s.post("/sleep", None, expect=400)["error"]["message"]


def test_main_memory_is_bounded():
    """What does not fit in main memory is unloaded, and comes back by being loaded."""
    size = PAIR[0].stat().st_size // 2
    with serving("-m", PAIR[1], "--models-max", 1, "--sleep-memory", size, "-c", 128, model=PAIR[0]) as s:
        for i in range(4):
            assert text_of(s.post("/v1/completions", ask(PAIR[i % 2], i)))
        assert {state(s, m) for m in PAIR} == {"loaded", "unloaded"}
        assert of(s, "model_sleeps_total", PAIR[0]) == 0


def test_models_that_see(tmp_path):
    """The tower sleeps with its model: pictures before, while it goes to sleep, and after."""
    path = seeing_model(tmp_path / "model")

    def seen(s, name):
        parts = [{"type": "image_url", "image_url": {"url": data_uri(name)}}, {"type": "text", "text": "w5 w6"}]
        return s.post("/v1/chat/completions", {"messages": [{"role": "user", "content": parts}], "max_tokens": 8,
                                               "temperature": 0})["choices"][0]["message"]["content"]

    with serving("-c", 512, "--sleep-memory", "1G", "--ignore-eos", model=path) as s:
        want = seen(s, "rgb.png")
        for name in ("rgb.png", "grey.png"):  # kept, and new
            assert s.post("/sleep", None) == {}
            wait_until(lambda: s.get("/is_sleeping")[1]["is_sleeping"])
            assert (seen(s, name) == want) == (name == "rgb.png")
        other = seen(s, "grey.png")
        assert of(s, "model_wakes_total", path) == 2 and not any("is unloaded" in line for line in s.lines)
    with serving("-c", 512, "--ignore-eos", model=path) as s:
        assert [seen(s, "grey.png"), seen(s, "rgb.png")] == [other, want]
