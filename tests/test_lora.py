# tests/test_lora.py - adapters: logits of PEFT, the same bits on every device, in any company and
# without them; files that are refused; requests of the server. tests/data/lora is from tools/lora_goldens.py.
import concurrent.futures
import json
import re
import struct

import numpy
import pytest

from program import DATA, EMULATOR, logits_hash, run
from serving import MODEL, serving
from tensor_files import gguf_text, read_safetensors, write_gguf, write_safetensors

LORA = DATA / "lora"
TYPES = {"F32": numpy.float32, "I32": numpy.int32}
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
         "mlp.down_proj": "ffn_down"}
HEAD = {"general.architecture": "llama", "general.type": "adapter", "adapter.type": "lora"}


def arrays(path):
    return {k: numpy.frombuffer(raw, TYPES[kind]).reshape(shape)
            for k, (kind, shape, raw) in read_safetensors(path).items()}


GOLDEN = arrays(LORA / "golden.safetensors")
IDS = [int(i) for i in GOLDEN["input_ids"]]


def loras(*adapters):
    return [word for a in adapters for word in ("--lora", a)]


def lora_gguf(path, tensors, alpha, **more):
    """tensors: name -> array."""
    pairs = {k: struct.pack("<I", 8) + gguf_text(v) for k, v in {**HEAD, **more}.items()}
    pairs["adapter.lora.alpha"] = struct.pack("<If", 6, alpha)
    write_gguf(path, pairs, {k: (v.shape, 0, v.astype(numpy.float32).tobytes()) for k, v in tensors.items()})
    return path


def converted(path, adapter, alpha, heads={"attn_q": 4, "attn_k": 2}):
    """A PEFT adapter in GGUF's names, with rows of rotated heads in turns as llama.cpp's converter puts them."""
    out = {}
    for name, x in arrays(adapter / "adapter_model.safetensors").items():
        layer, module, half = re.match(r".*layers\.(\d+)\.(.*)\.lora_([AB])\.weight", name).groups()
        own = NAMES[module]
        if half == "B" and own in heads:
            n = heads[own]
            x = x.reshape(n, 2, -1, x.shape[1]).swapaxes(1, 2).reshape(x.shape)
        out[f"blk.{layer}.{own}.weight.lora_{half.lower()}"] = x
    return lora_gguf(path, out, alpha)


@pytest.fixture(scope="module")
def as_gguf(tmp_path_factory):
    out = tmp_path_factory.mktemp("lora") / "llama.gguf"
    run("quantize", LORA / "llama", out, "bf16", "-q")
    return out


# ---- numbers --------------------------------------------------------------------------------------


def distance(model, adapters, golden, out, *args):
    run("logits", "-m", model, "--ids", ",".join(map(str, IDS)), "-o", out, "--kv-type", "f32",
        *loras(*adapters), *args)
    return numpy.abs(arrays(out)["logits"] - GOLDEN[golden]).max()


@pytest.mark.parametrize("rows", ["prefill", "decode"])
@pytest.mark.parametrize("model,adapters,golden", [
    ("llama", ["llama-all"], "llama-all"), ("llama", ["llama-stable"], "llama-stable"),
    ("llama", ["llama-ranks"], "llama-ranks"), ("phi3", ["phi3-packed"], "phi3-packed"),
    ("llama", ["llama-all", "llama-stable"], "llama+"), ("llama", ["llama-stable:0"], "llama")])
def test_logits_are_pefts(model, adapters, golden, rows, tmp_path):
    adapters = [LORA / a for a in adapters]
    assert distance(LORA / model, adapters, golden, tmp_path / "x.safetensors", "--rows", rows) < 2e-5
    assert numpy.abs(GOLDEN[golden] - GOLDEN[model]).max() > 1 or golden == model


def test_files_of_either_kind_for_models_of_either_kind(as_gguf, tmp_path):
    gguf = converted(tmp_path / "all.gguf", LORA / "llama-all", 8)
    for model in (LORA / "llama", as_gguf):
        for adapter in (LORA / "llama-all", gguf):
            assert distance(model, [adapter], "llama-all", tmp_path / "x.safetensors") < 2e-5
        first, second = (logits_hash(model, IDS, *loras(a)) for a in (LORA / "llama-all", gguf))
        assert first == second


def test_scales(tmp_path):
    ask = [LORA / "llama", IDS]
    whole, half = (logits_hash(*ask, *loras(f"{LORA}/llama-all{s}")) for s in (":1", ":0.5"))
    assert whole == logits_hash(*ask, *loras(LORA / "llama-all")) != half
    settings = json.loads((LORA / "llama-all/adapter_config.json").read_text())
    (tmp_path / "half").mkdir()
    (tmp_path / "half/adapter_config.json").write_text(json.dumps({**settings, "lora_alpha": 4}))
    (tmp_path / "half/adapter_model.safetensors").write_bytes(
        (LORA / "llama-all/adapter_model.safetensors").read_bytes())
    assert logits_hash(*ask, *loras(tmp_path / "half")) == half  # powers of two


@pytest.mark.parametrize("model,adapters,golden", [
    ("llama", ["llama-all"], "llama-all"), ("llama", ["llama-ranks"], "llama-ranks"),
    ("llama", ["llama-all", "llama-stable"], "llama+")])
def test_a_merged_model_is_the_same_model(model, adapters, golden, tmp_path):
    own, of_gguf, plain = (tmp_path / f"{n}.gguf" for n in ("own", "of-gguf", "plain"))
    adapters = loras(*(LORA / a for a in adapters))
    run("quantize", LORA / model, own, "f32", "-q", *adapters)
    run("quantize", LORA / model, plain, "f32", "-q")
    run("quantize", plain, of_gguf, "f32", "-q", *adapters)
    assert distance(own, [], golden, tmp_path / "x.safetensors") < 2e-5
    assert logits_hash(own, IDS) == logits_hash(of_gguf, IDS) != logits_hash(plain, IDS)


def test_a_quantized_model_is_not_merged_into_unasked(tmp_path, adapters):
    ask = ["quantize", MODEL, tmp_path / "x.gguf", "q4_0", "-q", *loras(adapters[0])]
    done = run(*ask, check=False)
    assert done.returncode != 0 and "--allow-requantize" in done.stderr and not (tmp_path / "x.gguf").exists()
    run(*ask, "--allow-requantize")
    assert logits_hash(tmp_path / "x.gguf", IDS) != logits_hash(MODEL, IDS)
    done = run("quantize", LORA / "llama", tmp_path / "y.gguf", "f32", *loras(adapters[0]), check=False)
    assert done.returncode != 0 and done.stderr.count("another model") == 1


# ---- bits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(), ("--weights", "int8")], ids=["bf16", "int8"])
@pytest.mark.parametrize("rows", ["prefill", "decode"])
def test_bits_of_an_adapter_do_not_depend_on_the_others(rows, weights):
    ask = [LORA / "llama", IDS, "--rows", rows, *weights]
    every, stable, ranks = (LORA / f"llama-{n}" for n in ("all", "stable", "ranks"))
    none = logits_hash(*ask)
    assert logits_hash(*ask, *loras(f"{every}:0")) == none
    assert logits_hash(*ask, *loras(f"{stable}:0", f"{every}:0")) == none
    alone = logits_hash(*ask, *loras(every))  # rank 4 among ranks of 12 and 20
    assert alone != none
    assert logits_hash(*ask, *loras(f"{ranks}:0", every, f"{stable}:0")) == alone
    both = logits_hash(*ask, *loras(ranks, every))
    assert both not in (alone, none)
    assert logits_hash(*ask, *loras(f"{stable}:0", ranks, every)) == both


def test_bits_of_every_width_and_level():
    ask = [LORA / "llama", IDS, *loras(LORA / "llama-all", LORA / "llama-ranks"), "--weights", "int8"]
    prefill, decode = (logits_hash(*ask, "--rows", r, cpu="scalar") for r in ("prefill", "decode"))
    assert prefill != decode
    for width in ("1", "3", "8"):
        assert logits_hash(*ask, "--rows", width) == decode
    for chunk in ("5", "16"):
        assert logits_hash(*ask, "-b", chunk, "--rows", "prefill") == prefill
    assert logits_hash(*ask, "--rows", "decode", cpu="avx2") == decode
    assert logits_hash(*ask, "--rows", "prefill", cpu="avx2") == prefill


def same_on(device, env, n):
    adapters = loras(LORA / "llama-all", f"{LORA}/llama-stable:0.5")
    for weights in ((), ("--weights", "int8")):
        for rows in ("prefill", "decode"):
            ask = [LORA / "llama", IDS[:n], "--rows", rows, *weights, *adapters]
            assert logits_hash(*ask, "--device", device, "--exact", env=env) == logits_hash(*ask)


# ---- refusals -------------------------------------------------------------------------------------


def changed(tmp_path, tensors=None, **settings):
    """The folder llama-all with other settings, or with other tensors."""
    out = tmp_path / "changed"
    out.mkdir(exist_ok=True)
    own = json.loads((LORA / "llama-all/adapter_config.json").read_text())
    (out / "adapter_config.json").write_text(json.dumps({**own, **settings}))
    old = read_safetensors(LORA / "llama-all/adapter_model.safetensors")
    write_safetensors(out / "adapter_model.safetensors", tensors(old) if tensors else old)
    return out


def refused(adapter, *words, model=LORA / "llama"):
    done = run("logits", "-m", model, "--ids", "3,4", *loras(adapter), check=False)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert str(word) in done.stderr, done.stderr


@pytest.mark.parametrize("settings,word", [
    ({"use_dora": True}, "use_dora"), ({"bias": "all"}, "bias is 'all'"), ({"peft_type": "LOHA"}, "LOHA"),
    ({"modules_to_save": ["lm_head"]}, "modules_to_save"), ({"lora_bias": True}, "lora_bias"),
    ({"init_lora_weights": "pissa_niter_4"}, "pissa"), ({"r": 5}, "rank"),
    ({"alpha_pattern": {"q_proj": 1e39}}, "not finite"), ({"alpha_pattern": {"(": 1}}, "pattern"),
    ({"alora_invocation_tokens": [1, 2]}, "alora")])
def test_settings_that_are_refused(settings, word, tmp_path):
    refused(changed(tmp_path, **settings), word)


@pytest.mark.parametrize("change,word", [
    (lambda t: {k.replace("mlp.down_proj", "mlp.side_proj"): v for k, v in t.items()}, "mlp.side_proj"),
    (lambda t: {k.replace("model.layers.0.self_attn.q_proj", "lm_head"): v for k, v in t.items()}, "lm_head"),
    (lambda t: {k.replace("layers.1.", "layers.7."): v for k, v in t.items()}, "layers.7"),
    (lambda t: {k: v for k, v in t.items() if "lora_B" not in k or "up_proj" not in k}, "only A"),
    (lambda t: {k: ("F32", [s[0], s[1] // 2], d[:len(d) // 2]) if "lora_A" in k else ("F32", s, d)
                for k, (_, s, d) in t.items()}, "another model"),
    (lambda t: {k: ("F32", [s[0] * s[1]], d) for k, (_, s, d) in t.items()}, "axes"),
    (lambda t: {**t, "base_model.model.lm_head.weight": ("F32", [1], b"\0" * 4)}, "lm_head.weight"),
    (lambda t: {}, "no pair")])
def test_tensors_that_are_refused(change, word, tmp_path):
    refused(changed(tmp_path, change), word)


def test_files_that_are_refused(as_gguf, tmp_path):
    small = {"blk.0.attn_q.weight.lora_a": numpy.zeros((2, 32)), "blk.0.attn_q.weight.lora_b": numpy.zeros((32, 2))}
    refused(tmp_path / "none", "no such file")
    refused(tmp_path, "adapter_config.json")
    refused(as_gguf, "general.type", model=as_gguf)
    refused(lora_gguf(tmp_path / "a", small, 1, **{"adapter.type": "lokr"}), "lokr")
    refused(lora_gguf(tmp_path / "b", small, 1, **{"general.architecture": "qwen2"}), "qwen2", model=as_gguf)
    refused(lora_gguf(tmp_path / "c", {**small, "output.weight.lora_a": numpy.zeros((2, 32)),
                                       "output.weight.lora_b": numpy.zeros((64, 2))}, 1), "output", model=as_gguf)
    refused(lora_gguf(tmp_path / "d", {"blk.0.attn_q.weight": numpy.zeros((2, 2))}, 1), "lora_a")
    refused(lora_gguf(tmp_path / "e", {k: numpy.zeros([257 if n == 2 else n for n in v.shape])
                                       for k, v in small.items()}, 1), "1 to 256")
    whole = lora_gguf(tmp_path / "f", small, 1).read_bytes()
    for n in range(0, len(whole), 97):  # cut anywhere
        (tmp_path / "g").write_bytes(whole[:n])
        refused(tmp_path / "g")


# ---- the server -----------------------------------------------------------------------------------


def random_adapter(path, seed, rank):
    """Of all linears of tales-2m, strong enough to change its text."""
    draw = numpy.random.default_rng(seed)
    shapes = {"attn_q": (256, 256), "attn_v": (128, 256), "attn_output": (256, 256), "ffn_gate": (512, 256),
              "ffn_up": (512, 256), "ffn_down": (256, 512)}
    tensors = {}
    for layer in range(2):
        for name, (m, k) in shapes.items():
            tensors[f"blk.{layer}.{name}.weight.lora_a"] = draw.normal(size=(rank, k)) / k**0.5
            tensors[f"blk.{layer}.{name}.weight.lora_b"] = draw.normal(size=(m, rank)) / 2
    return lora_gguf(path, tensors, rank)


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return [random_adapter(folder / f"{name}.gguf", seed, rank)
            for seed, (name, rank) in enumerate([("one", 8), ("two", 20), ("three", 3)])]


@pytest.fixture(scope="module")
def server(adapters):
    if EMULATOR:
        pytest.skip("the server of the native build")
    one, two, three = adapters
    with serving("-c", 512, *loras(f"one={one}", f"two={two}:0.5", three), "--lora-init-without-apply",
                 "--lora-at-once", 2) as s:
        yield s


def text(server, **more):
    asked = {"prompt": "Once upon a time", "max_tokens": 24, "seed": 7, **more}
    return server.post("/v1/completions", asked)["choices"][0]["text"].rstrip("\n")


def lone(*adapters):
    return run("run", "-m", MODEL, "-p", "Once upon a time", "-n", 24, "--seed", 7, "-t", "1", "--no-stats",
               "--no-display-prompt", "-q", *loras(*adapters)).stdout.rstrip("\n")


def test_requests_choose(server, adapters):
    one, two, three = adapters
    want = [lone(), lone(one), lone(f"{two}:0.5"), lone(three)]
    assert len(set(want)) == 4
    assert text(server) == want[0]
    assert text(server, model="one") == want[1]
    assert text(server, model="two") == want[2]
    assert text(server, lora=[{"id": 2, "scale": 1}]) == want[3]
    assert text(server, lora=[{"id": 1, "scale": 0.5}, {"id": 0, "scale": 0}]) == want[2]
    assert text(server, model="one", lora=[]) == want[0]
    assert text(server, lora=[{"id": 2, "scale": 1}, {"id": 0, "scale": 0.25}]) == lone(f"{one}:0.25", three)
    ids = [m["id"] for m in json.loads(server.ask("GET", "/v1/models")[2])["data"]]
    assert ids[1:] == ["one", "two"]
    for asked, called in (({"model": "two"}, "two"), ({"model": "two", "lora": []}, ids[0]), ({"model": ids[0]}, ids[0]), ({}, ids[0])):
        assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1, **asked})["model"] == called


def test_company_and_cache_change_nothing(server, adapters):
    prompt = "Once upon a time there was a small boat on the sea. " * 8  # pages that could be shared
    kinds = [{}, {"model": "one"}, {"model": "two"}, {"lora": [{"id": 2, "scale": 1}]},
             {"lora": [{"id": 2, "scale": 0.5}]}]
    asked = [dict(kind, prompt=prompt, max_tokens=8 + n, temperature=0.7) for n, kind in enumerate(kinds * 2)]
    alone = [text(server, **a, cache_prompt=False) for a in asked]
    assert len(set(alone[:5])) == 5
    with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
        assert list(pool.map(lambda a: text(server, **a), asked)) == alone
    assert [text(server, **a) for a in asked] == alone


def test_adapters_of_all_requests(server, adapters):
    one, two, three = adapters
    have = json.loads(server.ask("GET", "/lora-adapters")[2])
    assert [(a["id"], a["scale"], a["name"]) for a in have] == [(0, 0, "one"), (1, 0, "two"), (2, 0, "three.gguf")]
    assert server.post("/lora-adapters", [{"id": 0, "scale": 1}]) == {"success": True}
    assert text(server) == lone(one)
    assert text(server, lora=[]) == lone()
    assert server.post("/lora-adapters", []) == {"success": True}
    assert text(server) == lone()


@pytest.mark.parametrize("body,word", [
    ({"lora": 3}, "list"), ({"lora": [{"id": 9, "scale": 1}]}, "no adapter 9"), ({"lora": [{"id": 0}]}, "scale"),
    ({"lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 1}]}, "twice"), ({"lora": [{"id": -1, "scale": 1}]}, "id"),
    ({"lora": [{"id": i, "scale": 1} for i in range(3)]}, "--lora-at-once"), ({"lora": [{"id": 0, "scale": 1e30}]}, "scale")])
def test_fields_that_are_refused(server, body, word):
    status, _, answer = server.ask("POST", "/v1/completions", {"prompt": "Once", **body})[:3]
    assert status == 400 and word in json.loads(answer)["error"]["message"]


def change(server, what, expect=200, **body):
    status, headers, told = server.ask("POST", f"/v1/{what}_lora_adapter", body)
    assert status == expect, (status, told)
    return told if status == 200 else json.loads(told)["error"]["message"]


def load(server, name, path, expect=200, **more):
    return change(server, "load", expect, lora_name=name, lora_path=str(path), **more)


def names(server):
    return [m["id"] for m in server.get("/v1/models")[1]["data"]][1:]


def numbers(server):
    return {a["name"]: a["id"] for a in server.get("/lora-adapters")[1]}


@pytest.mark.skipif(bool(EMULATOR), reason="the server of the native build")
def test_adapters_come_and_go(adapters):
    """Under load: who is under way keeps its adapter, who comes waits, none is lost, each text is its own."""
    one, two, three = adapters
    alone = {"": lone(), "one": lone(one), "two": lone(two), "three": lone(three)}
    with serving("-c", 512, "--allow-lora-loading") as s:
        assert load(s, "one", one) == "Success: LoRA adapter 'one' added successfully."
        assert [text(s), text(s, model="one")] == [alone[""], alone["one"]]
        long = dict(prompt="Once upon a time", max_tokens=300, seed=7, ignore_eos=True)
        want = [s.post("/v1/completions", dict(long, model=m))["choices"][0]["text"] for m in ("base", "one")]
        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            under_way = [pool.submit(s.post, "/v1/completions", dict(long, model=m)) for m in ("base", "one")]
            s.wait_for("requests_open", 2)
            comes = [pool.submit(load, s, name, path) for name, path in (("two", two), ("three", three))]
            asked = ["one", "", "one", ""] * 2
            waiting = [pool.submit(text, s, model=name) for name in asked]
            assert [w.result()["choices"][0]["text"] for w in under_way] == want
            assert [w.result() for w in waiting] == [alone[name] for name in asked]
            assert all("added" in c.result() for c in comes)
            assert sorted(names(s)) == ["one", "three", "two"]
            assert [text(s, model=name) for name in alone] == list(alone.values())
            # One goes while a text has it.
            last = pool.submit(s.post, "/v1/completions", dict(long, model="one"))
            s.wait_for("requests_open", 1)
            number = numbers(s)
            assert change(s, "unload", lora_name="one") == "Success: LoRA adapter 'one' removed successfully."
            status, _, told = s.ask("POST", "/v1/completions", dict(long, model="one"))
            assert status == 404 and "'one'" in told and last.result()["choices"][0]["text"] == want[1]
        assert numbers(s) == {k: v for k, v in number.items() if k != "one"}
        assert load(s, "again", one) and numbers(s)["again"] == number["one"]  # a number that was free
        assert text(s, lora=[{"id": number["two"], "scale": 1}]) == alone["two"]
        assert load(s, "again", two, load_inplace=True) and text(s, model="again") == alone["two"]
        assert sorted(names(s)) == ["again", "three", "two"] and text(s) == alone[""]


@pytest.mark.skipif(bool(EMULATOR), reason="the server of the native build")
def test_adapters_that_do_not_come(adapters, tmp_path):
    one = adapters[0]
    (tmp_path / "bad.gguf").write_bytes(one.read_bytes()[:5000])
    with serving("-c", 512, "--allow-lora-loading", "--sleep-memory", "1G", *loras(f"one={one}")) as s:
        want = [text(s), text(s, model="one")]
        for body, status, word in (
                (dict(lora_name="two", lora_path="/nowhere"), 404, "/nowhere"), (dict(lora_name="two"), 400, "lora_path"),
                (dict(lora_path=str(one)), 400, "lora_name"), (dict(lora_name=3, lora_path=str(one)), 400, "lora_name"),
                (dict(lora_name="one", lora_path=str(one)), 400, "load_inplace"),
                (dict(lora_name="x" * 128, lora_path=str(one)), 400, "127 bytes"),
                (dict(lora_name="two", lora_path=str(tmp_path / "bad.gguf")), 400, "bad.gguf"),
                (dict(lora_name="two", lora_path=str(LORA / "llama-all")), 400, "another model"),
                (dict(lora_name="one", lora_path=str(tmp_path), load_inplace=True), 400, "adapter_config.json")):
            assert word in change(s, "load", status, **body)
            assert [text(s), text(s, model="one")] == want and names(s) == ["one"]
        assert "'two'" in change(s, "unload", 404, lora_name="two")
        assert s.ask("POST", "/v1/load_lora_adapter", "[]")[0] == 400
        assert s.post("/sleep", None) == {}  # what comes wakes the model
        while not s.get("/is_sleeping")[1]["is_sleeping"]:
            pass
        assert load(s, "two", adapters[1]) and text(s, model="two") == lone(adapters[1])
    with serving("-c", 512) as s:
        for what in ("load", "unload"):
            assert "--allow-lora-loading" in change(s, what, 403, lora_name="one", lora_path=str(one))


def test_options_that_are_refused(adapters):
    one = adapters[0]
    for args, word in ((("run", *loras(f"{one}:1e9")), "scale"), (("run", *loras("=x")), "name"),
                       (("run", *loras(*[one] * 5)), "at most 4"), (("embed", *loras(one)), "texts"),
                       (("serve", "-m", MODEL, *loras(f"a={one}", f"a={one}")), "twice")):
        done = run(*args, *(["-m", MODEL, "-p", "x"] if args[0] != "serve" else []), check=False)
        assert done.returncode != 0 and word in done.stderr, done.stderr
