# tests/test_packed_declared.py - layouts of packed weights that only the configuration tells apart, against the same
# numbers as plain floats; and those that are refused by name. The layouts are packed here after their definitions.
import json

import numpy
import pytest

import test_packed as packing
from program import logits_hash, run
from test_packed import D, IDS, as_e4m3, bf16, e4m3_values, method, scheme, some_scales, stream, widen, words, write_folder


def planes(codes, bits):
    """[n, k] codes: of every 32 first a plane of the 8, 4, 2 or 1 lowest bits, then the next."""
    n, k = codes.shape
    blocks, out, done = codes.reshape(n, k // 32, 32).astype("u4"), [], 0
    while done < bits:
        wide = max(w for w in (8, 4, 2, 1) if w <= bits - done)
        part = (blocks >> done & (1 << wide) - 1).reshape(n, k // 32, wide, 32 // wide)
        out.append((part << numpy.arange(32 // wide, dtype="u4") * wide).sum(3, dtype="u4"))
        done += wide
    return numpy.concatenate(out, 2).reshape(n, -1).astype("u4").view("i4")


def planar(rng, rows, cols, bits, group=32, sym=False):
    codes = rng.integers(0, 1 << bits, (rows, cols))
    zero = numpy.full((cols // group, rows), 1 << bits - 1) if sym else rng.integers(0, 1 << bits, (cols // group, rows))
    scale, index = some_scales(rng, cols // group, rows).astype("f2"), numpy.arange(cols) // group
    w = scale.astype("f4").T[:, index] * (codes - zero.T[:, index]).astype("f4")
    return w, {"qweight": numpy.ascontiguousarray(planes(codes, bits).T), "qzeros": planes(zero, bits), "scales": scale,
               "g_idx": index.astype("i4")}


def gemv(rng, rows, cols, group):
    """Groups are widened to whole words, and those to a multiple."""
    groups, many = cols // group, {32: 4, 64: 2}.get(group, 1)
    wide = -(-(-(-groups // 8)) // many) * many
    codes, zero = rng.integers(0, 16, (rows, cols)), numpy.zeros((rows, wide * 8), int)
    zero[:, :groups] = rng.integers(0, 16, (rows, groups))
    scale = numpy.zeros((rows, wide * 8), "f2")
    scale[:, :groups] = some_scales(rng, rows, groups)
    index = numpy.arange(cols) // group
    return scale.astype("f4")[:, index] * (codes - zero[:, index]).astype("f4"), {
        "qweight": words(codes, 4), "qzeros": words(zero, 4), "scales": scale}


def dense(rng, rows, cols, bits, group, asym):
    codes, groups = rng.integers(0, 1 << bits, (rows, cols)), cols // group
    zero = rng.integers(0, 1 << bits, (rows, groups)) if asym else numpy.full((rows, groups), 1 << bits - 1)
    scale, index = bf16(some_scales(rng, rows, groups)), numpy.arange(cols) // group
    out = {"weight_packed": stream(codes, bits), "weight_scale": scale, "weight_shape": numpy.array([rows, cols], "i8")}
    if asym:
        out["weight_zero_point"] = numpy.ascontiguousarray(stream(zero.T, bits).T)
    return widen(scale)[:, index] * (codes - zero[:, index]).astype("f4"), out


def powers(rng, *shape):
    stored = rng.integers(116, 122, shape).astype("u1")
    return stored, (2.0 ** (stored.astype(int) - 127)).astype("f4")


def mxfp6(rng, rows, cols):
    codes = rng.integers(0, 64, (rows, cols))
    level = numpy.array([m / 8 for m in range(8)] + [(1 + m / 8) * 2 ** e for e in range(3) for m in range(8)], "f4")
    stored, scale = powers(rng, rows, cols // 32)
    three = (codes.reshape(rows, -1, 4) << [0, 6, 12, 18]).sum(2)
    out = numpy.stack([three & 255, three >> 8 & 255, three >> 16], 2).reshape(rows, -1).astype("u1")
    values = numpy.where(codes & 32, -level[codes & 31], level[codes & 31])
    return values * numpy.repeat(scale, 32, 1), {"weight_packed": out, "weight_scale": stored}


def e4m3(rng, rows, cols):
    codes = rng.integers(0, 256, (rows, cols)).astype("u1")
    codes[codes & 127 == 127] = 3
    return codes


def mxfp8(rng, rows, cols, mlx):
    codes, (stored, scale) = e4m3(rng, rows, cols), powers(rng, rows, cols // 32)
    w = e4m3_values(codes) * numpy.repeat(scale, 32, 1)
    return w, {"weight": codes.view("u4"), "scales": stored} if mlx else {"weight": as_e4m3(codes), "weight_scale": stored}


def mlx_fp4(rng, rows, cols, group):
    codes = rng.integers(0, 16, (rows, cols)).astype("u1")
    stored, scale = powers(rng, rows, cols // group)
    if group == 16:  # E4M3
        stored = rng.integers(40, 100, (rows, cols // group)).astype("u1")
        scale = e4m3_values(stored)
    return packing.E2M1[codes] * numpy.repeat(scale, group, 1), {
        "weight": numpy.ascontiguousarray(codes[:, ::2] | codes[:, 1::2] << 4).astype("u1").view("u4"), "scales": stored}


def static_fp8(rng, rows, cols):
    codes, scale = e4m3(rng, rows, cols), some_scales(rng)[()] / 100
    return e4m3_values(codes) * numpy.float32(scale), {
        "weight": as_e4m3(codes), "weight_scale_inv": numpy.array(scale, "f4"), "activation_scale": numpy.array(7, "f4")}


def stored_as(kind):
    def make(rng, rows, cols):
        w, out = packing.nf4(rng, rows, cols, True)
        out["weight"] = out["weight"].reshape(-1).view(kind).reshape(-1, 1)
        return w, out
    return make


def prescaled(rng, rows, cols):
    w, out = packing.nvfp4(rng, rows, cols, True)
    times = bf16(rng.uniform(0.5, 2, cols))
    return w * widen(times), out | {"pre_quant_scale": times}


def auto_round(packing_format, **more):
    return method("auto-round", bits=4, packing_format=packing_format, **more)


def groups(version="0.20.1", **schemes):
    return {"quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized", "version": version,
                                    "config_groups": {k: {"targets": t, "weights": w} for k, (t, w) in schemes.items()}}}


PLANAR = lambda bits, **more: method("gptq", bits=bits, checkpoint_format="gptq_p", **more)
CASES = {
    **{f"planes-{b}": (lambda r, n, k, b=b: planar(r, n, k, b), PLANAR(b, sym=False)) for b in range(2, 9)},
    **{f"planes-{b}-sym": (lambda r, n, k, b=b: planar(r, n, k, b, sym=True), PLANAR(b, sym=True)) for b in (3, 5, 7)},
    "planes-5-said-gptq": (lambda r, n, k: planar(r, n, k, 5), method("gptq", bits=5, sym=False)),
    "planes-by-format": (lambda r, n, k: planar(r, n, k, 3), method("gptq", bits=3, sym=False, format="gptq_p")),
    **{f"awq-gemv-{g}": (lambda r, n, k, g=g: gemv(r, n, k, g), method("awq", bits=4, group_size=g, version="gemv"))
       for g in (16, 32)},
    "awq-gemv-rows": (lambda r, n, k: gemv(r, n, k, k), method("awq", bits=4, group_size=-1, version="GEMV")),
    **{f"dense-{b}": (lambda r, n, k, b=b: dense(r, n, k, b, 32, False), scheme(num_bits=b)) for b in (1, 2, 3, 5, 6, 7)},
    **{f"dense-{b}-asym": (lambda r, n, k, b=b: dense(r, n, k, b, 16, True), scheme(num_bits=b)) for b in (3, 4, 7)},
    "mxfp6": (mxfp6, scheme(num_bits=6, type="float", group_size=32)),
    "mxfp8": (lambda r, n, k: mxfp8(r, n, k, False), scheme(num_bits=8, type="float", group_size=32)),
    "mlx-mxfp8": (lambda r, n, k: mxfp8(r, n, k, True), {"quantization": {"group_size": 32, "bits": 8, "mode": "mxfp8"}}),
    "mlx-mxfp4": (lambda r, n, k: mlx_fp4(r, n, k, 32), {"quantization": {"group_size": 32, "bits": 4, "mode": "mxfp4"}}),
    "mlx-nvfp4": (lambda r, n, k: mlx_fp4(r, n, k, 16), {"quantization": {"group_size": 16, "bits": 4, "mode": "nvfp4"}}),
    "fp8-static": (static_fp8, method("fp8", activation_scheme="static", weight_block_size=None)),
    **{f"nf4-in-{k}": (stored_as(k), method("bitsandbytes", load_in_4bit=True, bnb_4bit_quant_storage=k))
       for k in ("u2", "f2", "f4", "i1")},
    "pre-quant-scale": (prescaled, method("modelopt", quant_algo="NVFP4_AWQ")),
    "auto-round-less-one": (lambda r, n, k: packing.gptq(r, n, k, 4, 32), auto_round("auto_round:auto_gptq", sym=False)),
    "auto-round-raw": (lambda r, n, k: packing.gptq(r, n, k, 4, 32, 2), auto_round("auto_round:gptqmodel", sym=False)),
    "auto-round-sym": (lambda r, n, k: packing.gptq(r, n, k, 4, 32, sym=True), auto_round("auto_round:auto_gptq", sym=True)),
    "auto-round-awq": (lambda r, n, k: packing.awq(r, n, k, 32), auto_round("auto_round:auto_awq", sym=False)),
}


def exact(folder):
    return logits_hash(folder, IDS, "--weights", "float", "--kv-type", "f32")


@pytest.mark.parametrize("name", CASES)
def test_the_publishers_numbers(tmp_path, name, monkeypatch):
    monkeypatch.setattr(packing, "CASES", CASES)
    packed, plain, _, _ = packing.build(tmp_path, name)
    assert exact(packed) == exact(plain)


@pytest.mark.parametrize("name", ["planes-3", "planes-5", "planes-7-sym", "awq-gemv-32", "dense-5", "dense-3-asym"])
def test_in_memory(tmp_path, name, monkeypatch):
    """Matrices that are not small keep their codes; as floats they are the publisher's all the same."""
    monkeypatch.setattr(packing, "CASES", CASES)
    packed, plain, _, _ = packing.build(tmp_path, name, packing.LARGE)
    assert exact(packed) == exact(plain)


def test_a_group_is_known_by_its_targets(tmp_path, monkeypatch):
    """Whole codes of 7 bits take as many words as those of 8 that run on: the module's group tells."""
    def make(rng, rows, cols):
        bits = 7 if cols == D + 32 else 8  # down_proj alone has so many columns
        return packing.tensors_ct(rng, rows, cols, bits, 32)
    config = groups(eight=(["Linear"], {"num_bits": 8}), seven=(["re:.*down_proj$"], {"num_bits": 7}), version="0.17.0")
    monkeypatch.setattr(packing, "CASES", {"two": (make, config)})
    packed, plain, _, _ = packing.build(tmp_path, "two")
    assert exact(packed) == exact(plain)


# ---- rotations ----------------------------------------------------------------------------------

def sylvester(n):
    m = numpy.ones((1, 1), "f4")
    while len(m) < n:
        m = numpy.block([[m, m], [m, -m]])
    return m


def rotation(kind, size, location="input", **more):
    apply = [{"targets": ["re:.*o_proj$"], "location": location, "inverse": more.pop("inverse", False), "ignore": []},
             {"targets": ["re:.*o_proj$"], "location": "weight_input", "inverse": True, "ignore": []}]
    return {"config_groups": {"R": {"type": kind, "head_dim": size, "randomize": False, "apply": apply} | more}}


@pytest.mark.parametrize("case", ["all", "blocks", "not stored", "any matrix", "back"])
def test_rotations(tmp_path, monkeypatch, case):
    """What goes into o_proj is rotated: logits are those of a folder whose weights are rotated instead."""
    n = D if case in ("all", "any matrix", "back") else 16
    matrix = sylvester(n)
    if case in ("any matrix", "back"):  # the rows in another order, some negative: no symmetric matrix
        matrix = matrix[numpy.random.default_rng(2).permutation(n)] * numpy.where(numpy.arange(n) % 3, 1, -1)[None, :]
    config = scheme(num_bits=8)
    config["quantization_config"]["transform_config"] = rotation(
        "random-hadamard" if case in ("any matrix", "back") else "hadamard", n if n < D else None, inverse=case == "back")
    monkeypatch.setattr(packing, "CASES", {"r": (lambda r, a, b: packing.tensors_ct(r, a, b, 8, 32), config)})
    packed, plain, tensors, config = packing.build(tmp_path, "r")
    name = "model.layers.0.self_attn.o_proj."
    w = packing.read_safetensors(plain / "model.safetensors")[name + "weight"].astype("f8")
    used = matrix.T if case == "back" else matrix
    rotated = numpy.concatenate([w[:, i:i + n] @ used.T / n ** .5 for i in range(0, D, n)], 1).astype("f4")
    if case != "not stored":
        tensors[name + "R_input.weight"] = numpy.ascontiguousarray(matrix.astype("f4"))
    folder = write_folder(tmp_path / "rotated", tensors, config)
    plain_tensors = packing.read_safetensors(plain / "model.safetensors") | {name + "weight": rotated}
    other = write_folder(tmp_path / "other", plain_tensors, {})
    exactly = ("--weights", "float", "--kv-type", "f32")
    got, want = packing.logits(folder, tmp_path, *exactly), packing.logits(other, tmp_path, *exactly)
    assert numpy.linalg.norm(got - want) < 1e-5 * numpy.linalg.norm(want)
    assert numpy.linalg.norm(packing.logits(plain, tmp_path, *exactly) - want) > 1e-2 * numpy.linalg.norm(want)


# ---- refused by name ------------------------------------------------------------------------------

def transformed(*rotations):
    return {"quantization_config": scheme(num_bits=8)["quantization_config"] | {"transform_config": rotations[0]}}


REFUSED = {
    "gptq marlin": (method("gptq", bits=4, checkpoint_format="marlin"), "marlin"),
    "gptq is marlin": (method("gptq", bits=4, is_marlin_format=True), "marlin"),
    "gptq bitblas": (method("gptq", bits=4, checkpoint_format="bitblas"), "bitblas"),
    "awq fast": (method("awq", bits=4, version="gemv_fast"), "gemv_fast"),
    "awq marlin": (method("awq", bits=4, version="marlin"), "marlin"),
    "auto-round": (auto_round("auto_round:fake"), "auto_round:fake"),
    "modelopt int4": (method("modelopt", quant_algo="W4A16_AWQ"), "W4A16_AWQ"),
    "modelopt svd": (method("modelopt", quant_algo="NVFP4_SVD"), "NVFP4_SVD"),
    "sparse": ({"quantization_config": scheme(num_bits=8)["quantization_config"] | {"format": "marlin-24"}}, "marlin-24"),
    "bitmask": ({"quantization_config": scheme(num_bits=8)["quantization_config"] |
                 {"sparsity_config": {"format": "sparse-24-bitmask"}}}, "sparse-24-bitmask"),
    "output": (transformed(rotation("hadamard", None, "output")), "output"),
    "queries alone": (transformed(rotation("hadamard", 32, "q_attn")), "queries or keys alone"),
    "random": (transformed(rotation("random-matrix", None)), "random-matrix"),
    "randomized": (transformed(rotation("hadamard", None, randomize=True)), "randomize"),
    "a method": (method("exl3", bits=4), "exl3"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_by_name(tmp_path, name, monkeypatch):
    config, said = REFUSED[name]
    monkeypatch.setattr(packing, "CASES", {"x": (lambda r, a, b: packing.tensors_ct(r, a, b, 8, 32), config)})
    packed, _, _, _ = packing.build(tmp_path, "x")
    done = run("logits", "-m", packed, "--ids", "1,2", check=False)
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_global_scales_of_experts_are_refused(tmp_path, monkeypatch):
    def make(rng, rows, cols):
        w, out = mlx_fp4(rng, rows, cols, 16)
        return w, out | {"global_scale": numpy.ones(1, "f4")}
    monkeypatch.setattr(packing, "CASES", {"x": (make, CASES["mlx-nvfp4"][1])})
    packed, _, _, _ = packing.build(tmp_path, "x")
    done = run("logits", "-m", packed, "--ids", "1,2", check=False)
    assert done.returncode == 1 and "global_scale" in done.stderr


def test_older_files_of_awq(tmp_path, monkeypatch):
    """quant_config.json beside config.json, as AutoAWQ wrote before the library knew it."""
    monkeypatch.setattr(packing, "CASES", {"x": (lambda r, n, k: gemv(r, n, k, 32), {})})
    packed, plain, _, _ = packing.build(tmp_path, "x")
    (packed / "quant_config.json").write_text(json.dumps(
        {"zero_point": True, "q_group_size": 32, "w_bit": 4, "version": "GEMV"}))
    assert exact(packed) == exact(plain)
