# tests/test_packed.py - weights as quantizers publish them, against the same numbers as plain floats:
# the layouts are packed here after their definitions, and the logits must be equal bit for bit.
import collections
import json
import pickle
import struct
import sys
import types

import numpy
import pytest

from program import DATA, SHARED, logits_hash, run
from test_rope_goldens import read_safetensors, write_gguf

D, F, V, LAYERS = 64, 96, 64, 1
LARGE = 256  # matrices that are not small any more: they stay packed
IDS = [1, 7, 30, 63, 12]


def config_of(d):
    return {"architectures": ["LlamaForCausalLM"], "hidden_size": d, "intermediate_size": d + 32,
            "num_hidden_layers": LAYERS, "num_attention_heads": 2, "num_key_value_heads": 2,
            "vocab_size": V, "rms_norm_eps": 1e-5, "max_position_embeddings": 64,
            "tie_word_embeddings": False}


def shapes_of(d):
    return {"self_attn.q_proj": (d, d), "self_attn.k_proj": (d, d), "self_attn.v_proj": (d, d),
            "self_attn.o_proj": (d, d), "mlp.gate_proj": (d + 32, d), "mlp.up_proj": (d + 32, d),
            "mlp.down_proj": (d, d + 32)}


KINDS = {"float32": "F32", "float16": "F16", "uint16": "BF16", "int32": "I32", "int64": "I64",
         "int8": "I8", "uint8": "U8", "uint32": "U32"}


class E4M3(numpy.ndarray):
    """Bytes that are stored as F8_E4M3."""


def as_e4m3(codes):
    return numpy.asarray(codes, "u1").view(E4M3)


def write_folder(folder, tensors, config, d=D):
    folder.mkdir()
    header, body = {}, b""
    for name, t in tensors.items():
        data = numpy.ascontiguousarray(t).tobytes()
        kind = "F8_E4M3" if isinstance(t, E4M3) else KINDS[t.dtype.name]
        header[name] = {"dtype": kind, "shape": list(t.shape),
                        "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + body)
    (folder / "config.json").write_text(json.dumps(config_of(d) | config))
    return folder


def plain_tensors(rng, d):
    floats = lambda *shape: rng.standard_normal(shape).astype("f4")
    out = {"model.embed_tokens.weight": floats(V, d), "lm_head.weight": floats(V, d) / 8,
           "model.norm.weight": 1 + floats(d) / 8}
    for layer in range(LAYERS):
        for norm in ("input_layernorm", "post_attention_layernorm"):
            out[f"model.layers.{layer}.{norm}.weight"] = 1 + floats(d) / 8
    return out


# ---- packing ------------------------------------------------------------------------------------

def stream(codes, bits):
    """[n, k] codes as words [n, k * bits / 32], one stream of bits for each line."""
    n, k = codes.shape
    bit = (codes[:, :, None] >> numpy.arange(bits)) & 1
    bit = bit.reshape(n, k * bits // 32, 32).astype("u4")
    return (bit << numpy.arange(32, dtype="u4")).sum(2, dtype="u4").view("i4")


def words(codes, bits):
    """[n, k] codes, as many whole ones in a word as fit."""
    per = 32 // bits
    n, k = codes.shape
    padded = numpy.zeros((n, -(-k // per) * per), "u4")
    padded[:, :k] = codes
    shift = numpy.arange(per, dtype="u4") * bits
    return (padded.reshape(n, -1, per) << shift).sum(2, dtype="u4").view("i4")


AWQ = [0, 2, 4, 6, 1, 3, 5, 7]


def awq_words(codes):
    return stream(codes.reshape(codes.shape[0], -1, 8)[:, :, AWQ].reshape(codes.shape), 4)


def bf16(x):
    return (numpy.asarray(x, "f4").view("u4") >> 16).astype("u2")


def widen(x):
    return (x.astype("u4") << 16).view("f4") if x.dtype == numpy.uint16 else x.astype("f4")


def e4m3_values(codes):
    c = numpy.asarray(codes).view(numpy.ndarray).astype(int)
    e, m = c >> 3 & 15, c & 7
    v = numpy.where(e == 0, m / 8 * 2.0 ** -6, (1 + m / 8) * 2.0 ** (e - 7.0))
    return numpy.where(c & 128, -v, v).astype("f4")


E2M1 = numpy.array([0, .5, 1, 1.5, 2, 3, 4, 6, 0, -.5, -1, -1.5, -2, -3, -4, -6], "f4")


def some_scales(rng, *shape):
    return numpy.asarray(rng.uniform(0.5, 1.5, shape) / 40).astype("f4")


def gptq(rng, rows, cols, bits, group, version=1, order=False, sym=False):
    groups = -(-cols // group)
    codes = rng.integers(0, 1 << bits, (rows, cols))
    zero = numpy.full((groups, rows), 1 << bits - 1) if sym else rng.integers(1, 1 << bits, (groups, rows))
    scale = some_scales(rng, groups, rows).astype("f2")
    index = numpy.arange(cols) // group
    if order:  # one for all matrices that take the same input, as it is in practice, or for each its own
        (numpy.random.default_rng(cols) if order == "shared" else rng).shuffle(index)
    out = {"qweight": numpy.ascontiguousarray(stream(codes, bits).T), "qzeros": stream(zero - (version == 1), bits), "scales": scale,
           "g_idx": index.astype("i4")}
    w = scale.astype("f4").T[:, index] * (codes - zero.T[:, index]).astype("f4")
    return w, out


def awq(rng, rows, cols, group):
    codes = rng.integers(0, 16, (rows, cols))
    zero = rng.integers(0, 16, (cols // group, rows))
    scale = some_scales(rng, cols // group, rows).astype("f2")
    index = numpy.arange(cols) // group
    w = scale.astype("f4").T[:, index] * (codes - zero.T[:, index]).astype("f4")
    return w, {"qweight": awq_words(codes.T), "qzeros": awq_words(zero), "scales": scale}


def tensors_ct(rng, rows, cols, bits, group, asym=False, order=False):
    groups = -(-cols // group)
    codes = rng.integers(0, 1 << bits, (rows, cols))
    zero = rng.integers(0, 1 << bits, (rows, groups)) if asym else numpy.full((rows, groups), 1 << bits - 1)
    scale = bf16(some_scales(rng, rows, groups))
    index = numpy.arange(cols) // group
    out = {"weight_packed": words(codes, bits), "weight_scale": scale,
           "weight_shape": numpy.array([rows, cols], "i8")}
    if asym:
        out["weight_zero_point"] = numpy.ascontiguousarray(words(zero.T, bits).T)
    if order:
        rng.shuffle(index)
        out["weight_g_idx"] = index.astype("i4")
    elif asym:
        out["weight_g_idx"] = numpy.full(cols, -1, "i4")
    return widen(scale)[:, index] * (codes - zero[:, index]).astype("f4"), out


def int8_rows(rng, rows, cols, asym=False):
    codes = rng.integers(-127, 128, (rows, cols)).astype("i1")
    scale = some_scales(rng, rows, 1) / 32
    out = {"weight": codes, "weight_scale": scale, "input_scale": numpy.ones(1, "f4")}
    zero = numpy.zeros((rows, 1), "i1")
    if asym:
        out["weight_zero_point"] = zero = rng.integers(-9, 9, (rows, 1)).astype("i1")
    return scale * (codes.astype("f4") - zero), out


def bnb_int8(rng, rows, cols):
    codes = rng.integers(-127, 128, (rows, cols)).astype("i1")
    scale = some_scales(rng, rows) * 4
    w = codes.astype("f4") * scale[:, None] * numpy.float32(7.874015718698502e-3)
    return w, {"weight": codes, "SCB": scale, "weight_format": numpy.zeros((), "u1")}


def fp8(rng, rows, cols, how, name):
    codes = rng.integers(0, 256, (rows, cols)).astype("u1")
    codes[codes & 127 == 127] = 3
    if how in ("block", "block128", "e8m0"):
        high, span = (128, 128) if how == "block128" else (16, 48)
        shape = (-(-rows // high), -(-cols // span))
        scale = some_scales(rng, *shape) / 100
        if how == "e8m0":  # a byte: 2^(e - 127)
            stored = rng.integers(112, 122, shape).astype("u1")
            scale = (2.0 ** (stored.astype(int) - 127)).astype("f4")
        wide = numpy.repeat(numpy.repeat(scale, high, 0)[:rows], span, 1)[:, :cols]
    else:
        scale = numpy.asarray(some_scales(rng, *{"tensor": (1,), "scalar": (), "row": (rows, 1)}[how]) / 100, "f4")
        wide = scale if scale.ndim == 2 else scale.reshape(1, 1)
    values = e4m3_values(codes) * wide
    return values, {"weight": as_e4m3(codes), name: stored if how == "e8m0" else scale}


def nvfp4(rng, rows, cols, modelopt):
    codes = rng.integers(0, 16, (rows, cols)).astype("u1")
    scale = rng.integers(40, 100, (rows, cols // 16)).astype("u1")
    total = numpy.float32(3.7)
    real = e4m3_values(scale) / total if not modelopt else e4m3_values(scale) * total
    w = E2M1[codes] * numpy.repeat(real.astype("f4"), 16, 1)
    packed = (codes[:, ::2] | codes[:, 1::2] << 4).astype("u1")
    if modelopt:
        return w, {"weight": packed, "weight_scale": as_e4m3(scale), "weight_scale_2": numpy.array(total),
                   "input_scale": numpy.array(total)}
    return w, {"weight_packed": packed, "weight_scale": as_e4m3(scale),
               "weight_global_scale": numpy.array([total]), "input_global_scale": numpy.ones(1, "f4")}


def nf4(rng, rows, cols, nested):
    codes = rng.integers(0, 16, rows * cols).astype("u1")
    levels = numpy.sort(rng.uniform(-1, 1, 16)).astype("f4")
    n = rows * cols // 64
    state = {"quant_type": "nf4", "blocksize": 64, "dtype": "bfloat16", "shape": [rows, cols]}
    out = {"weight": (codes[::2] << 4 | codes[1::2]).reshape(-1, 1), "weight.quant_map": levels}
    if nested:
        table = rng.uniform(-1, 1, 256).astype("f4")
        code = rng.integers(0, 256, n).astype("u1")
        big = some_scales(rng, -(-n // 32))
        state |= {"nested_blocksize": 32, "nested_dtype": "float32", "nested_offset": 0.125}
        most = table[code] * numpy.repeat(big, 32)[:n] + numpy.float32(0.125)
        out |= {"weight.absmax": code, "weight.nested_absmax": big, "weight.nested_quant_map": table}
    else:
        most = out["weight.absmax"] = some_scales(rng, n) * 4
    text = json.dumps(state).encode()
    out["weight.quant_state.bitsandbytes__nf4"] = numpy.frombuffer(text, "u1")
    w = (levels[codes] * numpy.repeat(most, 64)).reshape(rows, cols)
    u = w.view("u4")
    return widen(((u + 0x7fff + (u >> 16 & 1)) >> 16).astype("u2")), out


def mlx(rng, rows, cols, bits, group):
    codes = rng.integers(0, 1 << bits, (rows, cols))
    scale, bias = bf16(some_scales(rng, rows, cols // group)), bf16(-some_scales(rng, rows, cols // group) * 8)
    wide = lambda x: numpy.repeat(widen(x), group, 1)
    return (wide(scale) * codes.astype("f4") + wide(bias)).astype("f4"), {
        "weight": stream(codes, bits).view("u4"), "scales": scale, "biases": bias}


def scheme(**weights):
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {
        "group_0": {"targets": ["Linear"], "weights": weights}}, "ignore": ["re:.*lm_head"]}}


def method(name, **more):
    return {"quantization_config": {"quant_method": name} | more}


CASES = {
    "gptq-2": (lambda r, n, k: gptq(r, n, k, 2, 32), method("gptq", bits=2, sym=False)),
    "gptq-3": (lambda r, n, k: gptq(r, n, k, 3, 32), method("gptq", bits=3, sym=False)),
    "gptq-4": (lambda r, n, k: gptq(r, n, k, 4, 32), method("gptq", bits=4, sym=False)),
    "gptq-8": (lambda r, n, k: gptq(r, n, k, 8, 32), method("gptq", bits=8, sym=False)),
    "gptq-4-order": (lambda r, n, k: gptq(r, n, k, 4, 16, order=True), method("gptq", bits=4, sym=False)),
    "gptq-4-order-shared": (lambda r, n, k: gptq(r, n, k, 4, 32, order="shared", sym=True), method("gptq", bits=4)),
    "gptq-v2": (lambda r, n, k: gptq(r, n, k, 4, 32, 2),
                method("gptq", bits=4, sym=False, checkpoint_format="gptq_v2")),
    "gptq-v2-said-v1": (lambda r, n, k: gptq(r, n, k, 4, 32, 2, sym=True),
                        method("gptq", bits=4, sym=True, checkpoint_format="gptq")),
    "gptq-v1-said-v2": (lambda r, n, k: gptq(r, n, k, 4, 32, 1, sym=True),
                        method("gptq", bits=4, sym=True, checkpoint_format="gptq_v2")),
    "gptq-whole-row": (lambda r, n, k: gptq(r, n, k, 4, k), method("gptq", bits=4, group_size=-1)),
    "awq": (lambda r, n, k: awq(r, n, k, 32), method("awq", bits=4)),
    "ct-4": (lambda r, n, k: tensors_ct(r, n, k, 4, 32), scheme(num_bits=4, group_size=32)),
    "ct-4-asym": (lambda r, n, k: tensors_ct(r, n, k, 4, 32, asym=True), scheme(num_bits=4)),
    "ct-4-order": (lambda r, n, k: tensors_ct(r, n, k, 4, 32, asym=True, order=True), scheme(num_bits=4)),
    "ct-4-row": (lambda r, n, k: tensors_ct(r, n, k, 4, k), scheme(num_bits=4, group_size=None)),
    "ct-3": (lambda r, n, k: tensors_ct(r, n, k, 3, 32), scheme(num_bits=3)),
    "ct-8": (lambda r, n, k: tensors_ct(r, n, k, 8, 32), scheme(num_bits=8)),
    "ct-int8": (int8_rows, scheme(num_bits=8)),
    "ct-int8-asym": (lambda r, n, k: int8_rows(r, n, k, True), scheme(num_bits=8)),
    "bnb-int8": (bnb_int8, method("bitsandbytes", load_in_8bit=True)),
    "fp8-block": (lambda r, n, k: fp8(r, n, k, "block", "weight_scale_inv"),
                  method("fp8", weight_block_size=[16, 48])),
    "fp8-block-128": (lambda r, n, k: fp8(r, n, k, "block128", "weight_scale_inv"), method("fp8")),
    "fp8-tensor": (lambda r, n, k: fp8(r, n, k, "tensor", "weight_scale"), scheme(num_bits=8)),
    "fp8-scalar": (lambda r, n, k: fp8(r, n, k, "scalar", "weight_scale"), method("modelopt")),
    "fp8-block-e8m0": (lambda r, n, k: fp8(r, n, k, "e8m0", "scale"), method("fp8", weight_block_size=[16, 48])),
    "fp8-row": (lambda r, n, k: fp8(r, n, k, "row", "weight_scale"), method("fbgemm_fp8")),
    "nvfp4-ct": (lambda r, n, k: nvfp4(r, n, k, False), scheme(num_bits=4)),
    "nvfp4-modelopt": (lambda r, n, k: nvfp4(r, n, k, True), method("modelopt", quant_algo="NVFP4")),
    "nf4": (lambda r, n, k: nf4(r, n, k, False), method("bitsandbytes", load_in_4bit=True)),
    "nf4-nested": (lambda r, n, k: nf4(r, n, k, True), method("bitsandbytes", load_in_4bit=True)),
    **{f"mlx-{b}": (lambda r, n, k, b=b: mlx(r, n, k, b, 32), {"quantization": {"group_size": 32, "bits": b}})
       for b in (2, 3, 4, 5, 6, 8)},
}


def build(tmp_path, name, d=D):
    """The folder with packed matrices, and the same one with their numbers."""
    make, config = CASES[name]
    rng = numpy.random.default_rng(1)
    packed = plain_tensors(rng, d)
    plain = dict(packed)
    for layer in range(LAYERS):
        for part, (rows, cols) in shapes_of(d).items():
            w, tensors = make(rng, rows, cols)
            plain[f"model.layers.{layer}.{part}.weight"] = numpy.asarray(w, "f4")
            packed |= {f"model.layers.{layer}.{part}.{k}": v for k, v in tensors.items()}
    return (write_folder(tmp_path / "packed", packed, config, d),
            write_folder(tmp_path / "plain", plain, {}, d), packed, config)


@pytest.mark.parametrize("name", CASES)
def test_the_publishers_numbers(tmp_path, name):
    packed, plain, _, _ = build(tmp_path, name)
    exact = ("--weights", "float", "--kv-type", "f32")
    assert logits_hash(packed, IDS, *exact) == logits_hash(plain, IDS, *exact)


def logits(folder, tmp_path, *args):
    run("logits", "-m", folder, "--ids", ",".join(map(str, IDS)), "-o", tmp_path / "x.safetensors", *args)
    return next(iter(read_safetensors(tmp_path / "x.safetensors").values()))


@pytest.mark.parametrize("device", ["cpu", "ref"])
def test_order_of_columns(tmp_path, device):
    """Matrices that keep their codes group by group take their input in that order."""
    packed, plain, tensors, config = build(tmp_path, "gptq-4-order-shared", LARGE)
    far = lambda a, b: numpy.linalg.norm(a - b) / numpy.linalg.norm(b)
    want = logits(plain, tmp_path)
    got = logits(packed, tmp_path, "--device", device)
    assert 1e-4 < far(got, want) < 0.05
    for name in tensors:
        if name.endswith("up_proj.g_idx") or name.endswith("gate_proj.g_idx"):
            tensors[name] = tensors[name][::-1]
    other = write_folder(tmp_path / "other", tensors, config, LARGE)
    assert far(logits(other, tmp_path, "--device", device), want) > 0.2


def test_rows_take_the_order_of_columns(tmp_path):
    """With rows of gate and up in the order of the columns of down, and those side by side: the same bits, for the
    engine does so itself."""
    packed, _, tensors, config = build(tmp_path, "gptq-4-order-shared", LARGE)
    for layer in range(LAYERS):
        part = f"model.layers.{layer}.mlp."
        index = tensors[part + "down_proj.g_idx"]
        order = numpy.argsort(index, kind="stable")
        tensors[part + "down_proj.g_idx"] = numpy.sort(index)
        words_of = tensors[part + "down_proj.qweight"].T[:, :, None] >> numpy.arange(0, 32, 4) & 15
        codes = words_of.reshape(LARGE, -1)[:, order]
        tensors[part + "down_proj.qweight"] = numpy.ascontiguousarray(stream(codes, 4).T)
        for name in ("gate_proj.", "up_proj."):
            tensors[part + name + "qweight"] = numpy.ascontiguousarray(tensors[part + name + "qweight"][:, order])
            tensors[part + name + "scales"] = numpy.ascontiguousarray(tensors[part + name + "scales"][:, order])
    other = write_folder(tmp_path / "other", tensors, config, LARGE)
    for args in ((), ("--rows", "decode")):
        assert logits_hash(packed, IDS, *args) == logits_hash(other, IDS, *args)


def test_made_of_columns_in_another_order(tmp_path):
    """What is made of such a folder has the publisher's order, and is refused as others of few bits are."""
    make = lambda folder, kind, *args: run("quantize", "-m", folder, "-o", tmp_path / f"{folder.name}.gguf", kind, *args,
                                           check=False)
    packed, plain, _, _ = build(tmp_path, "gptq-4-order-shared", LARGE)
    assert "q4_0 already" in make(packed, "q8_0").stderr
    for folder in (packed, plain):
        assert make(folder, "f32").returncode == 0
    assert (tmp_path / "packed.gguf").read_bytes()[-LARGE * LARGE * 4:] == \
        (tmp_path / "plain.gguf").read_bytes()[-LARGE * LARGE * 4:]
    assert logits_hash(tmp_path / "packed.gguf", IDS) == logits_hash(tmp_path / "plain.gguf", IDS)


@pytest.mark.parametrize("name", ["gptq-4-order-shared", "gptq-2", "gptq-3", "gptq-4", "gptq-8", "gptq-v2", "gptq-v2-said-v1",
                                  "awq", "ct-4", "ct-4-asym", "ct-4-row", "ct-8", "ct-int8", "bnb-int8",
                                  "mlx-4"])
def test_packed_in_memory(tmp_path, name):
    """Matrices that are not small keep their codes; as floats they are the publisher's all the same."""
    packed, plain, _, _ = build(tmp_path, name, LARGE)
    exact = ("--weights", "float", "--kv-type", "f32")
    want = logits_hash(plain, IDS, *exact)
    assert logits_hash(packed, IDS, *exact) == want
    coded = name != "gptq-8"  # whose codes less their zeros take more than 8 bits
    assert (logits_hash(packed, IDS, "--kv-type", "f32") != want) == coded


@pytest.mark.parametrize("name", ["fp8-block-128", "fp8-tensor", "fp8-row", "fp8-block-128-nan"])
def test_fp8_is_exact_in_a_byte(tmp_path, name):
    """Matrices that are not small keep their codes and have the bits of the same numbers as floats; the last
    blocks of rows and columns are partial."""
    packed, plain, tensors, config = build(tmp_path, name.removesuffix("-nan"), LARGE)
    assert "E4M3" in run("inspect", "-m", packed).stdout
    if name.endswith("-nan"):
        tensors["model.layers.0.mlp.down_proj.weight"][3, 287] = 0xff
        broken = write_folder(tmp_path / "broken", tensors, config, LARGE)
        done = run("logits", "-m", broken, "--ids", "1,2", check=False)
        assert done.returncode == 1 and "not finite" in done.stderr, done.stderr
        return
    for batch in ("1", "5"):
        assert logits_hash(packed, IDS, "--kv-type", "f32", "-ub", batch) == \
            logits_hash(plain, IDS, "--kv-type", "f32", "-ub", batch)
    far = lambda a, b: numpy.linalg.norm(a - b) / numpy.linalg.norm(b)
    assert far(logits(packed, tmp_path, "--device", "ref"), logits(plain, tmp_path)) < 1e-3


@pytest.mark.parametrize("name", ["nvfp4-modelopt", "nvfp4-ct"])
def test_nvfp4_in_half_a_byte(tmp_path, name):
    """Codes and scales stay; a global scale that divides is the reciprocal, but for --weights float."""
    packed, plain, _, _ = build(tmp_path, name, LARGE)
    assert "NVFP4" in run("inspect", "-m", packed).stdout
    exact = ("--weights", "float", "--kv-type", "f32")
    want = logits_hash(plain, IDS, *exact)
    assert logits_hash(packed, IDS, *exact) == want
    assert (logits_hash(packed, IDS, "--kv-type", "f32") == want) == (name == "nvfp4-modelopt")
    far = lambda a, b: numpy.linalg.norm(a - b) / numpy.linalg.norm(b)
    for device in ("cpu", "ref"):
        assert far(logits(packed, tmp_path, "--device", device), logits(plain, tmp_path)) < 1e-3


# ---- what torch.save wrote before zip archives --------------------------------------------------

def save_old(path, tensors, little=True):
    """Five pickles, then the storages, as PyTorch 1.5 writes."""
    names = ("torch", "torch._utils")
    kept = {name: sys.modules.get(name) for name in names}
    torch, utils = (types.ModuleType(name) for name in names)
    for name in ("FloatStorage", "HalfStorage"):
        setattr(torch, name, type(name, (), {"__module__": "torch", "__qualname__": name}))
    exec("def _rebuild_tensor_v2(*args): pass", utils.__dict__)
    utils._rebuild_tensor_v2.__module__ = "torch._utils"

    class Tensor:
        def __init__(self, values, key):
            self.values, self.key = values, key

        def __reduce__(self):
            steps = tuple(n // self.values.itemsize for n in self.values.strides)
            return utils._rebuild_tensor_v2, (Storage(self), 0, self.values.shape, steps, False,
                                              collections.OrderedDict())

    class Storage:
        def __init__(self, tensor):
            self.tensor = tensor

    class Pickler(pickle.Pickler):
        def persistent_id(self, what):
            if isinstance(what, Storage):
                kind = torch.FloatStorage if what.tensor.values.dtype == "f4" else torch.HalfStorage
                return ("storage", kind, what.tensor.key, "cpu", what.tensor.values.size, None)
            return None

    table = collections.OrderedDict((name, Tensor(v, str(94000 - i))) for i, (name, v) in enumerate(tensors.items()))
    try:
        sys.modules.update({"torch": torch, "torch._utils": utils})
        with open(path, "wb") as f:
            pickle.dump(0x1950a86a20f9469cfc6c, f, protocol=2)
            pickle.dump(1001, f, protocol=2)
            pickle.dump({"protocol_version": 1001, "little_endian": little,
                         "type_sizes": {"short": 2, "int": 4, "long": 4}}, f, protocol=2)
            Pickler(f, protocol=2).dump(table)
            by_key = sorted(table.values(), key=lambda t: t.key)
            pickle.dump([t.key for t in by_key], f, protocol=2)
            for t in by_key:
                f.write(struct.pack("<q", t.values.size) + t.values.tobytes())
    finally:
        for name, module in kept.items():
            sys.modules.pop(name) if module is None else sys.modules.update({name: module})


def test_before_archives(tmp_path):
    """Old files of PyTorch, in two parts with an index, are the safetensors file."""
    _, plain, _, _ = build(tmp_path, "gptq-4")
    tensors = read_safetensors(plain / "model.safetensors")
    old = tmp_path / "old"
    old.mkdir()
    (old / "config.json").write_text((plain / "config.json").read_text())
    parts = {"pytorch_model-00001-of-00002.bin": list(tensors)[::2], "pytorch_model-00002-of-00002.bin": list(tensors)[1::2]}
    for part, names in parts.items():
        save_old(old / part, {n: tensors[n] for n in names})
    (old / "pytorch_model.bin.index.json").write_text(json.dumps(
        {"weight_map": {n: part for part, names in parts.items() for n in names}}))
    assert logits_hash(old, IDS) == logits_hash(plain, IDS)


def test_old_files_that_are_damaged(tmp_path):
    whole, path = tmp_path / "whole.bin", tmp_path / "cut.bin"
    save_old(whole, {"w": numpy.arange(6, dtype="f4").reshape(2, 3)})
    data = whole.read_bytes()
    assert run("inspect", whole).returncode == 0
    for n in (21, 40, len(data) - 60, len(data) - 1):
        path.write_bytes(data[:n])
        done = run("inspect", path, check=False)
        assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    save_old(path, {"w": numpy.arange(6, dtype="f4")}, little=False)
    assert "big-endian" in run("inspect", path, check=False).stderr


# ---- published checkpoints, packed again ---------------------------------------------------------

def packed_again(tmp_path, golden, make, config, chosen):
    """A reference checkpoint whose chosen matrices are packed, and one with their numbers instead."""
    source = SHARED / "goldens" / golden
    if not source.is_dir():
        pytest.skip(f"{source} is not there")
    rng = numpy.random.default_rng(2)
    original = json.loads((source / "config.json").read_text())
    packed, plain = {}, {}
    for name, t in read_safetensors(source / "model.safetensors").items():
        if not chosen(name):
            packed[name] = plain[name] = t
            continue
        w, tensors = make(rng, *t.shape)
        plain[name] = numpy.asarray(w, "f4")
        packed |= {name.removesuffix("weight") + k: v for k, v in tensors.items()}
    folders = []
    for name, tensors, more in (("packed", packed, config), ("plain", plain, {})):
        folders.append(write_folder(tmp_path / name, tensors, {}))
        (folders[-1] / "config.json").write_text(json.dumps(original | more))
    return folders


@pytest.mark.parametrize("golden, case", [("bloom", "gptq-4"), ("bloom", "awq"), ("mixtral", "gptq-4"),
                                          ("mixtral", "ct-4-asym"), ("mixtral", "fp8-row")])
def test_families(tmp_path, golden, case):
    """One matrix of query, key and value, cut by heads; experts one by one."""
    make, config = CASES[case]
    inner = ("query_key_value", "dense", "w1", "w2", "w3")
    chosen = lambda name: name.endswith(".weight") and name.split(".")[-2].startswith(inner)
    packed, plain = packed_again(tmp_path, golden, make, config, chosen)
    exact = ("--weights", "float", "--kv-type", "f32")
    assert logits_hash(packed, IDS, *exact) == logits_hash(plain, IDS, *exact)


def expert_folders(tmp_path, case, d=D, width=32):
    """Qwen3-MoE as quantizers publish it, every expert's matrices packed, routers and norms as they were; and the
    same numbers as floats."""
    make, config = CASES[case]
    rng, experts = numpy.random.default_rng(3), 4
    plain = plain_tensors(rng, d)
    layer = "model.layers.0."
    for norm in ("q_norm", "k_norm"):
        plain[f"{layer}self_attn.{norm}.weight"] = 1 + rng.standard_normal(d // 2).astype("f4") / 8
    plain[f"{layer}mlp.gate.weight"] = rng.standard_normal((experts, d)).astype("f4")
    packed = dict(plain)
    shapes = {f"self_attn.{m}_proj": (d, d) for m in "qkvo"}
    for x in range(experts):
        shapes |= {f"mlp.experts.{x}.{m}_proj": (width, d) for m in ("gate", "up")}
        shapes[f"mlp.experts.{x}.down_proj"] = (d, width)
    for name, shape in shapes.items():
        w, tensors = make(rng, *shape)
        plain[f"{layer}{name}.weight"] = numpy.asarray(w, "f4")
        packed |= {f"{layer}{name}.{k}": v for k, v in tensors.items()}
    family = {"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "num_experts": experts,
              "num_experts_per_tok": 2, "moe_intermediate_size": width, "head_dim": d // 2,
              "norm_topk_prob": True, "decoder_sparse_step": 1, "mlp_only_layers": []}
    return [write_folder(tmp_path / "packed", packed, family | config, d),
            write_folder(tmp_path / "plain", plain, family, d)]


@pytest.mark.parametrize("case", ["gptq-4", "gptq-4-order-shared", "fp8-block"])
def test_experts_one_by_one(tmp_path, case):
    folders = expert_folders(tmp_path, case)
    exact = ("--weights", "float", "--kv-type", "f32")
    assert logits_hash(folders[0], IDS, *exact) == logits_hash(folders[1], IDS, *exact)


def test_experts_in_mxfp4(tmp_path):
    """gpt-oss as published: experts that are not small stay packed, and are the numbers of their codes."""
    rng, experts, layer = numpy.random.default_rng(5), 4, "model.layers.0."
    tensors = plain_tensors(rng, LARGE)
    shapes = {f"self_attn.{m}_proj": (LARGE, LARGE) for m in "qkvo"} | {"mlp.router": (experts, LARGE)}
    for name, shape in shapes.items():
        tensors[f"{layer}{name}.weight"] = rng.standard_normal(shape).astype("f4") / 16
        tensors[f"{layer}{name}.bias"] = rng.standard_normal(shape[0]).astype("f4") / 8
    tensors[f"{layer}self_attn.sinks"] = rng.standard_normal(2).astype("f4")
    for name, rows in (("gate_up", 2 * LARGE), ("down", LARGE)):
        stem = f"{layer}mlp.experts.{name}_proj"
        tensors[f"{stem}_blocks"] = rng.integers(0, 256, (experts, rows, LARGE // 32, 16)).astype("u1")
        tensors[f"{stem}_scales"] = rng.integers(119, 123, (experts, rows, LARGE // 32)).astype("u1")
        tensors[f"{stem}_bias"] = rng.standard_normal((experts, rows)).astype("f4") / 8
    folder = write_folder(tmp_path / "packed", tensors, {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": LARGE // 2,
        "intermediate_size": LARGE, "num_local_experts": experts, "num_experts_per_tok": 2, "swiglu_limit": 7.0,
        "sliding_window": 6, "layer_types": ["full_attention"], "quantization_config": {"quant_method": "mxfp4"}}, LARGE)
    far = lambda a, b: numpy.linalg.norm(a - b) / numpy.linalg.norm(b)
    plain = logits(folder, tmp_path, "--weights", "float", "--kv-type", "f32")
    assert 1e-5 < far(logits(folder, tmp_path, "--kv-type", "f32"), plain) < 2e-2
    assert far(logits(folder, tmp_path, "--device", "ref"), plain) < 2e-2


# ---- llama2.c ------------------------------------------------------------------------------------

def neighbours(w, heads):
    """Rows as Meta has them: halves of a head become neighbours."""
    return w.reshape(heads, 2, -1, w.shape[1]).transpose(0, 2, 1, 3).reshape(w.shape)


def llama2c(path, t, version):
    d, f = D, D + 32
    layer = lambda name: t[f"model.layers.0.{name}.weight"]
    shape = [d, f, 1, 2, 2, V, 64]
    norms = {"a": layer("input_layernorm"), "f": layer("post_attention_layernorm"), "n": t["model.norm.weight"]}
    mats = [neighbours(layer("self_attn.q_proj"), 2), neighbours(layer("self_attn.k_proj"), 2),
            layer("self_attn.v_proj"), layer("self_attn.o_proj"), layer("mlp.gate_proj"), layer("mlp.down_proj"),
            layer("mlp.up_proj")]
    raw = lambda *xs: b"".join(x.astype("<f4").tobytes() for x in xs)
    if version == 0:
        shape[5] = -V
        body = raw(t["model.embed_tokens.weight"], norms["a"], *mats[:4], norms["f"], *mats[4:], norms["n"],
                   numpy.zeros(64 * d // 2), t["lm_head.weight"])
        path.write_bytes(struct.pack("<7i", *shape) + body)
        return
    head = struct.pack("<Ii7iB", 0x616b3432, version, *shape, 0) + (struct.pack("<i", 32) if version == 2 else b"")
    every = [t["model.embed_tokens.weight"], *mats, t["lm_head.weight"]]
    packed = raw(*every) if version == 1 else b"".join(
        q.tobytes() + s.astype("<f4").tobytes() for q, s in map(int8_groups, every))
    path.write_bytes(head.ljust(256, b"\0") + raw(norms["a"], norms["f"], norms["n"]) + packed)


def int8_groups(w):
    groups = w.reshape(-1, 32)
    scale = (abs(groups).max(1) / 127).astype("f4")
    return numpy.rint(groups / scale[:, None]).astype("i1"), scale


@pytest.mark.parametrize("version", [0, 1, 2])
def test_llama2c(tmp_path, version):
    """One file of llama2.c is the folder with the same numbers; so is its tokenizer."""
    _, plain, _, _ = build(tmp_path, "gptq-4")
    tensors = dict(read_safetensors(plain / "model.safetensors"))
    path = tmp_path / "model.bin"
    llama2c(path, tensors, version)
    if version == 2:
        for name, w in tensors.items():
            if w.ndim == 2:
                q, s = int8_groups(w)
                tensors[name] = (q * s[:, None]).astype("f4").reshape(w.shape)
        plain = write_folder(tmp_path / "rounded", tensors, {})
    pieces = ["<unk>", "\n<s>\n", "\n</s>\n", *(f"<0x{i:02X}>" for i in range(20)), " ", "a", "b", " a", "ab", " ab"]
    pieces += [f"t{i}" for i in range(V - len(pieces))]
    (tmp_path / "tokenizer.bin").write_bytes(struct.pack("<i", 7) + b"".join(
        struct.pack("<fi", -float(i), len(p)) + p.encode() for i, p in enumerate(pieces)))
    assert logits_hash(path, IDS, "--kv-type", "f32") == logits_hash(plain, IDS, "--kv-type", "f32")
    said = run("tokenize", "-m", path, "-p", "ab a").stdout
    assert "28" in said and "26" in said, said  # " ab", " a"
    path.write_bytes(path.read_bytes()[:-4])
    refused(path)


# ---- small formats of GGUF ----------------------------------------------------------------------

def gguf_llama(path, weights, kind, factor):
    """Matrices [256, 256] whose bytes or numbers these are, of one layer; factor: their NVFP4 scale."""
    rng = numpy.random.default_rng(3)
    plain = {"token_embd.weight": rng.standard_normal((V, 256)), "output.weight": rng.standard_normal((V, 256)) / 8,
             "output_norm.weight": numpy.ones(256), "blk.0.attn_norm.weight": numpy.ones(256),
             "blk.0.ffn_norm.weight": numpy.ones(256)}
    keys = {"general.architecture": "llama", "llama.block_count": 1, "llama.context_length": 64,
            "llama.embedding_length": 256, "llama.feed_forward_length": 256, "llama.attention.head_count": 4,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.vocab_size": V}
    names = [f"blk.0.{n}.weight" for n in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down")]
    write_gguf(path, keys, {**plain, **{n: weights for n in names}, **(
        {n.replace("weight", "scale"): numpy.array([factor], "f4") for n in names} if factor else {})},
        {n: kind for n in names if kind})
    return path


@pytest.mark.parametrize("name, kind", [("iq2_xs", 17), ("iq3_s", 21), ("iq1_m", 29), ("tq1_0", 34), ("q1_0", 41),
                                        ("nvfp4", 40)])
def test_small_formats(tmp_path, name, kind):
    """A file in a format of few bits against one with its numbers as floats."""
    data = read_safetensors(DATA / "small-formats.safetensors")
    blocks = data[f"{name}.bytes"].reshape(4, -1)[:1]
    row = data[f"{name}.weights"].reshape(4, -1)[:1]
    n = 256 * 256 // row.size
    factor = 0.25 if name == "nvfp4" else None
    small = gguf_llama(tmp_path / "small.gguf", numpy.repeat(blocks, n, 0).reshape(256, -1), kind, factor)
    floats = gguf_llama(tmp_path / "floats.gguf", numpy.repeat(row, n, 0).reshape(256, 256) * (factor or 1), 0, None)
    exact = ("--weights", "float", "--kv-type", "f32")
    assert logits_hash(small, IDS, *exact) == logits_hash(floats, IDS, *exact)
    if name == "nvfp4":  # as codes, whose scales times this factor are exact
        assert logits_hash(small, IDS, *exact[2:]) == logits_hash(floats, IDS, *exact)


def refused(folder, *words):
    done = run("logits", "-m", folder, "--ids", "1,2", check=False)
    assert done.returncode == 1 and len(done.stderr.strip().splitlines()) == 1, done.stderr
    for word in words:
        assert word in done.stderr, done.stderr


def test_what_does_not_fit_is_named(tmp_path):
    _, _, tensors, config = build(tmp_path, "gptq-4")
    name = "model.layers.0.self_attn.q_proj"
    for i, (key, value, word) in enumerate([
            ("scales", None, "has no"), ("qzeros", tensors[f"{name}.qzeros"][:1], "qzeros"),
            ("g_idx", numpy.full(D, 2, "i4"), "group 2"), ("g_idx", numpy.zeros(D - 1, "i4"), "g_idx"),
            ("qweight", tensors[f"{name}.qweight"][:, :-8], "qweight")]):
        changed = dict(tensors)
        changed.pop(f"{name}.{key}")
        if value is not None:
            changed[f"{name}.{key}"] = value
        refused(write_folder(tmp_path / f"bad{i}", changed, config), name, word)
    refused(write_folder(tmp_path / "other", tensors, method("aqlm")), "aqlm", "compressed-tensors")


def test_scales_of_another_matrix_are_seen(tmp_path):
    """The test can fail: one scale changed is another digest."""
    packed, plain, tensors, config = build(tmp_path, "ct-4")
    tensors["model.layers.0.mlp.up_proj.weight_scale"][0, 0] ^= 1
    other = write_folder(tmp_path / "other", tensors, config)
    exact = ("--weights", "float")
    assert logits_hash(other, IDS, *exact) != logits_hash(plain, IDS, *exact)
