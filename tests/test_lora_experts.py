# tests/test_lora_experts.py - adapters of experts: logits of PEFT in each form that files have them in, the
# same bits on every device, in any company and without them. tests/data/lora-experts is from
# tools/lora_experts_goldens.py.
import concurrent.futures
import json
import re

import numpy
import pytest

from program import DATA, EMULATOR, SANITIZED, logits_hash, run
from serving import serving
from tensor_files import read_gguf, read_safetensors, write_gguf, write_safetensors
from test_lora import arrays, lora_gguf, loras

LORA = DATA / "lora-experts"
GOLDEN = arrays(LORA / "golden.safetensors")
IDS = [int(i) for i in GOLDEN["input_ids"]]
QWEN, OSS = LORA / "qwen2_moe", LORA / "gpt_oss"
NAMES = {"self_attn.q_proj": "attn_q", "mlp.gate": "ffn_gate_inp", "mlp.shared_expert.gate_proj": "ffn_gate_shexp",
         "mlp.shared_expert.up_proj": "ffn_up_shexp", "mlp.shared_expert.down_proj": "ffn_down_shexp"}
EXPERTS = 5  # of qwen2_moe


def peft_folder(path, like, tensors, **settings):
    path.mkdir(exist_ok=True)
    own = json.loads((LORA / like / "adapter_config.json").read_text())
    (path / "adapter_config.json").write_text(json.dumps({**own, **settings}))
    write_safetensors(path / "adapter_model.safetensors", {
        k: ("F32", list(v.shape), numpy.ascontiguousarray(v).tobytes()) for k, v in tensors.items()})
    return path


def modules(adapter):
    """{(layer, module): (A, B)} of a PEFT folder; experts' as [E, r, k] and [E, m, r], by the parameter's name."""
    found = {}
    for name, x in arrays(LORA / adapter / "adapter_model.safetensors").items():
        layer, module, half = re.match(r".*layers\.(\d+)\.(.*)\.lora_([AB])\.weight", name).groups()
        found.setdefault((int(layer), module), {})[half] = x
    out = {}
    for (layer, module), pair in found.items():
        a, b = pair["A"], pair["B"]
        if "experts" in module:
            a = a.reshape(EXPERTS, -1, a.shape[1])
            b = b.reshape(b.shape[0], -1, EXPERTS).transpose(2, 0, 1)
            module = "mlp.experts." + ("gate_up_proj" if module.endswith("base_layer") else "down_proj")
        out[layer, module] = (a, b)
    return out


def apart(adapter):
    """The same with gate and up in two."""
    for (layer, module), (a, b) in modules(adapter).items():
        if module.endswith("gate_up_proj"):
            half = b.shape[1] // 2
            yield layer, "mlp.experts.gate_proj", a, b[:, :half]
            yield layer, "mlp.experts.up_proj", a, b[:, half:]
        else:
            yield layer, module, a, b


def one_by_one(path):
    """The adapter with linear layers of each expert, as of transformers before 5.0; its first expert's down is
    zeros, so that it can be left out."""
    tensors = {}
    for layer, module, a, b in apart("adapter-qwen"):
        base = f"base_model.model.model.layers.{layer}."
        for x in range(EXPERTS if "experts" in module else 1):
            name = module.replace("experts.", f"experts.{x}.")
            tensors[f"{base}{name}.lora_A.weight"] = a[x] if "experts" in module else a
            tensors[f"{base}{name}.lora_B.weight"] = b[x] if "experts" in module else b
    return peft_folder(path, "adapter-qwen", tensors, target_parameters=None)


def stacked(path):
    """As convert_lora_to_gguf.py puts them."""
    tensors = {}
    for layer, module, a, b in apart("adapter-qwen"):
        name = NAMES.get(module) or f"ffn_{module.split('.')[-1].removesuffix('_proj')}_exps"
        tensors[f"blk.{layer}.{name}.weight.lora_a"] = a
        tensors[f"blk.{layer}.{name}.weight.lora_b"] = b
    return lora_gguf(path, tensors, 6, **{"general.architecture": "qwen2moe"})


def distance(model, adapters, golden, out, *args):
    run("logits", "-m", model, "--ids", ",".join(map(str, IDS)), "-o", out, "--kv-type", "f32", *loras(*adapters), *args)
    return numpy.abs(arrays(out)["logits"] - GOLDEN[golden]).max()


# ---- numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", ["prefill", "decode"])
@pytest.mark.parametrize("model,adapter", [("qwen2_moe", "qwen"), ("qwen2_moe", "qwen-ranks"), ("gpt_oss", "oss"),
                                           ("mixtral", "mixtral")])
def test_logits_are_pefts(model, adapter, rows, tmp_path):
    golden = f"adapter-{adapter}"
    assert distance(LORA / model, [LORA / golden], golden, tmp_path / "x.safetensors", "--rows", rows) < 2e-5
    assert numpy.abs(GOLDEN[golden] - GOLDEN[model]).max() > 1


def test_every_form_is_the_same_adapter(tmp_path):
    as_gguf = tmp_path / "model.gguf"
    run("quantize", QWEN, as_gguf, "bf16", "-q")
    forms = [LORA / "adapter-qwen", one_by_one(tmp_path / "each"), stacked(tmp_path / "stacked.gguf")]
    for model in (QWEN, as_gguf):
        assert distance(model, forms[:1], "adapter-qwen", tmp_path / "x.safetensors") < 2e-5
        assert len({logits_hash(model, IDS, *loras(f)) for f in forms}) == 1


def test_experts_that_are_left_out_are_not_changed(tmp_path):
    """Of one expert alone, with a rank of its own, as linear layers and among zeros of the others."""
    draw = numpy.random.default_rng(3)
    a, b = (draw.normal(size=s).astype(numpy.float32) for s in ((2, 32), (24, 2)))
    base = "base_model.model.model.layers.0.mlp.experts.4.up_proj"
    alone = peft_folder(tmp_path / "alone", "adapter-qwen", {f"{base}.lora_A.weight": a, f"{base}.lora_B.weight": b},
                        r=2, target_parameters=None)
    whole = {f"blk.0.ffn_up_exps.weight.lora_{k}": numpy.zeros((EXPERTS, *v.shape)) for k, v in (("a", a), ("b", b))}
    for k, v in (("a", a), ("b", b)):
        whole[f"blk.0.ffn_up_exps.weight.lora_{k}"][4] = v
    together = lora_gguf(tmp_path / "together.gguf", whole, 6, **{"general.architecture": "qwen2moe"})
    assert logits_hash(QWEN, IDS, *loras(alone)) == logits_hash(QWEN, IDS, *loras(together)) != logits_hash(QWEN, IDS)


def turned(path, like, tensors, version, which, experts):
    """The factors that `which` names in each other's place, as versions of PEFT had them."""
    out = dict(tensors)
    for name in [n for n in tensors if n.endswith(f"{which}.lora_A.weight")]:
        other = name.replace("lora_A", "lora_B")
        a, b = tensors[name], tensors[other]
        r = a.shape[0] // experts
        out[name] = b.reshape(b.shape[0], r, experts).transpose(2, 1, 0).reshape(-1, b.shape[0])
        out[other] = a.reshape(experts, r, -1).transpose(2, 1, 0).reshape(-1, r * experts)
    return peft_folder(path, like, out, peft_version=version)


@pytest.mark.parametrize("model,adapter,which,experts", [("qwen2_moe", "adapter-qwen", "experts.base_layer", 5),
                                                         ("gpt_oss", "adapter-oss", "experts", 4)])
def test_factors_in_each_others_place(model, adapter, which, experts, tmp_path):
    """Told by shapes; of a square matrix (gpt_oss' down, stored [k, m]) by PEFT's version."""
    own = arrays(LORA / adapter / "adapter_model.safetensors")
    want = logits_hash(LORA / model, IDS, *loras(LORA / adapter))
    other = turned(tmp_path / "other", adapter, own, "0.19.0", which, experts)
    assert logits_hash(LORA / model, IDS, *loras(other)) == want
    if model == "gpt_oss":
        older, wrong = peft_folder(tmp_path / "older", adapter, own, peft_version=None), turned(
            tmp_path / "wrong", adapter, own, "0.19.1", which, experts)
        assert logits_hash(OSS, IDS, *loras(older)) == want != logits_hash(OSS, IDS, *loras(wrong))


@pytest.mark.parametrize("model,adapters", [("qwen2_moe", ["qwen"]), ("gpt_oss", ["oss"]), ("mixtral", ["mixtral"]),
                                            ("qwen2_moe", ["qwen", "qwen-ranks"])])
def test_a_merged_model_is_the_same_model(model, adapters, tmp_path):
    own, of_gguf, plain = (tmp_path / f"{n}.gguf" for n in ("own", "of-gguf", "plain"))
    given = loras(*(LORA / f"adapter-{a}" for a in adapters))
    run("quantize", LORA / model, own, "f32", "-q", *given)
    run("quantize", LORA / model, plain, "f32", "-q")
    run("quantize", plain, of_gguf, "f32", "-q", *given)
    assert logits_hash(own, IDS) == logits_hash(of_gguf, IDS) != logits_hash(plain, IDS)
    if len(adapters) == 1:
        assert distance(own, [], f"adapter-{adapters[0]}", tmp_path / "x.safetensors") < 2e-5
        return
    seen = []
    for m, more in ((own, []), (LORA / model, given)):
        run("logits", "-m", m, "--ids", ",".join(map(str, IDS)), "-o", tmp_path / "x.safetensors", "--kv-type", "f32", *more)
        seen.append(arrays(tmp_path / "x.safetensors")["logits"])
    assert numpy.abs(seen[0] - seen[1]).max() < 2e-5


# ---- bits -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("weights", [(), ("--weights", "int8")], ids=["bf16", "int8"])
@pytest.mark.parametrize("rows", ["prefill", "decode"])
def test_bits_do_not_depend_on_the_others(rows, weights):
    ask = [QWEN, IDS, "--rows", rows, *weights]
    one, ranks = LORA / "adapter-qwen", LORA / "adapter-qwen-ranks"
    none = logits_hash(*ask)
    assert logits_hash(*ask, *loras(f"{one}:0")) == logits_hash(*ask, *loras(f"{ranks}:0", f"{one}:0")) == none
    alone = logits_hash(*ask, *loras(one))
    assert logits_hash(*ask, *loras(f"{ranks}:0", one)) == alone != none
    assert logits_hash(*ask, *loras(ranks, one)) not in (alone, none)
    oss = [OSS, IDS, "--rows", rows, *weights]  # gates before, biases, a bounded activation
    assert logits_hash(*oss, *loras(f"{LORA}/adapter-oss:0")) == logits_hash(*oss)


def test_bits_of_every_width_and_level():
    ask = [QWEN, IDS, *loras(LORA / "adapter-qwen", LORA / "adapter-qwen-ranks"), "--weights", "int8"]
    prefill, decode = (logits_hash(*ask, "--rows", r, cpu="scalar") for r in ("prefill", "decode"))
    assert prefill != decode
    for width in ("1", "3", "8"):
        assert logits_hash(*ask, "--rows", width) == decode
    assert logits_hash(*ask, "-b", "5", "--rows", "prefill") == prefill
    assert logits_hash(*ask, "--rows", "decode", cpu="avx2") == decode


def same_on(device, env, n):
    for model, given in ((QWEN, ("qwen", "qwen-ranks")), (OSS, ("oss",))):
        for weights in ((), ("--weights", "int8")):
            for rows in ("prefill", "decode"):
                ask = [model, IDS[:n], "--rows", rows, *weights, *loras(*(LORA / f"adapter-{a}" for a in given))]
                assert logits_hash(*ask, "--device", device, "--exact", env=env) == logits_hash(*ask)


# ---- refusals -------------------------------------------------------------------------------------


def refused(model, adapter, *words):
    done = run("logits", "-m", model, "--ids", "3,4", *loras(adapter), check=False)
    assert done.returncode != 0 and done.stderr.count("\n") == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_what_is_refused(tmp_path):
    own = arrays(LORA / "adapter-qwen/adapter_model.safetensors")
    down = "base_model.model.model.layers.0.mlp.experts.lora_"

    def changed(words, tensors=None, model=QWEN, **settings):
        refused(model, peft_folder(tmp_path / "changed", "adapter-qwen", {**own, **(tensors or {})}, **settings), *words)

    own = {k: v for k, v in own.items() if "experts" in k}
    changed(["5 experts", "another model"], model=LORA / "mixtral")
    changed(["rank"], r=200, target_parameters=["mlp.experts.gate_up_proj", "mlp.experts.down_proj"])
    changed(["not known", "mlp.experts"], target_parameters=["mlp.experts.down_proj"])
    changed(["not known", "gate_up_proj and down_proj"], target_parameters=["mlp.experts.w1", "mlp.experts.w2"])
    changed(["experts.down_proj", "another model"],
            {f"{down}A.weight": own[f"{down}A.weight"][:, :20], f"{down}B.weight": own[f"{down}B.weight"]})
    small = {"blk.0.ffn_up_exps.weight.lora_a": numpy.zeros((5, 2, 32)), "blk.0.ffn_up_exps.weight.lora_b": numpy.zeros((5, 24, 2))}
    head = {"general.architecture": "qwen2moe"}
    for change, word in (
            ({"blk.0.ffn_up_exps.weight.lora_a": numpy.zeros((4, 2, 32))}, "[r, k]"),
            ({k: v[:4] for k, v in small.items()}, "4 experts"), ({k: v[:, :2] for k, v in small.items()}, "another model"),
            ({k: v[0] for k, v in small.items()}, "0 experts"),
            ({k: numpy.zeros((1, 1, 1, 1)) for k in small}, "4 axes")):
        refused(QWEN, lora_gguf(tmp_path / "a.gguf", {**small, **change}, 2, **head), word)
    linear = {k.replace("up_exps", "up_shexp"): v for k, v in small.items()}
    refused(QWEN, lora_gguf(tmp_path / "b.gguf", linear, 2, **head), "one linear layer")


# ---- in company -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def mixture(tmp_path_factory):
    """tales-2m with its feed-forward layers three times, as experts, and a random router; adapters of those."""
    folder = tmp_path_factory.mktemp("mixture")
    draw = numpy.random.default_rng(9)
    pairs, tensors = read_gguf(DATA / "tales-2m-q4_0.gguf")
    number = dict(zip(("llama.expert_count", "llama.expert_used_count"), (3, 2)))
    pairs |= {k: b"\4\0\0\0" + v.to_bytes(4, "little") for k, v in number.items()}
    made = {}
    for name, (shape, kind, raw) in tensors.items():
        part = re.match(r"(blk\.\d+\.)ffn_(gate|up|down)\.weight", name)
        if part:
            made[f"{part[1]}ffn_{part[2]}_exps.weight"] = ((3, *shape), kind, raw * 3)
        else:
            made[name] = (shape, kind, raw)
    for layer in range(2):
        router = draw.normal(size=(3, 256)).astype(numpy.float32)
        made[f"blk.{layer}.ffn_gate_inp.weight"] = (router.shape, 0, router.tobytes())
    write_gguf(folder / "mixture.gguf", pairs, made)
    adapters = []
    for name, rank in (("one", 8), ("two", 3)):
        thin = {}
        for layer in range(2):
            for part, m, k in (("gate", 512, 256), ("up", 512, 256), ("down", 256, 512)):
                thin[f"blk.{layer}.ffn_{part}_exps.weight.lora_a"] = draw.normal(size=(3, rank, k)) / k**0.5
                thin[f"blk.{layer}.ffn_{part}_exps.weight.lora_b"] = draw.normal(size=(3, m, rank)) / 2
        adapters.append(lora_gguf(folder / f"{name}.gguf", thin, rank))
    return folder / "mixture.gguf", *adapters


@pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="the server of the native build")
def test_texts_are_the_same_alone_and_in_company(mixture):
    model, one, two = mixture
    kinds = [{}, {"model": "one"}, {"model": "two"}, {"lora": [{"id": 0, "scale": 0.5}, {"id": 1, "scale": -0.7}]}]
    asked = [dict(kind, prompt="Once upon a time", max_tokens=12 + n, seed=7) for n, kind in enumerate(kinds * 2)]
    with serving("-c", 256, *loras(f"one={one}", f"two={two}"), "--lora-init-without-apply",
                 "--lora-at-once", 2, model=model) as s:
        def text(body):
            return s.post("/v1/completions", body)["choices"][0]["text"]

        alone = [text({**a, "cache_prompt": False}) for a in asked]
        assert len({a[:40] for a in alone[:4]}) == 4
        with concurrent.futures.ThreadPoolExecutor(len(asked)) as pool:
            assert list(pool.map(text, asked)) == alone
    ask = ("run", "-m", model, "-p", "Once upon a time", "-n", 13, "--seed", 7, "-t", "1", "--no-stats",
           "--no-display-prompt", "-q")
    assert run(*ask, *loras(one)).stdout.rstrip("\n") == alone[1].rstrip("\n")
