# tests/test_hip.py - whole models on the hip backend over the emulator, at both wave widths: the bits
# of the scalar CPU for every format, order and width; faults end in one line and exit code 1.
# With GODWIT_HIP_DRIVER=system the first card of this machine computes instead.
import importlib.util
import os
import pathlib
import re

import pytest

from head_widths import write_model
from program import DATA, ROOT, SANITIZED, SHARED, logits_hash, run, small_models, some_ids
from test_packed import IDS as PACKED_IDS, LARGE, build, expert_folders

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ""))
SYSTEM = os.environ.get("GODWIT_HIP_DRIVER") == "system"
EMULATORS = {n: BUILD / f"emulator/libgodwit_emu{n}.so" for n in (32, 64)}
RADEON = BUILD / "emulator/libgodwit_emuradeon.so"
GFX12 = BUILD / "emulator/libgodwit_emugfx12.so"  # prompts and decode of quantized weights
PLAIN = BUILD / "emulator/libgodwit_emuplain.so"  # no matrix instructions
WIDTHS = ["card"] if SYSTEM else [32, 64]
KINDS = "GODWIT_HIP_KINDS" in os.environ  # not tools/test hip-all
HIP = ("--device", "hip", "--exact")  # float prompts too
IDS = some_ids(70)  # beyond a page
TINY = DATA / "tales-2m-q4_0.gguf"

pytestmark = pytest.mark.skipif(SANITIZED or not SYSTEM and not EMULATORS[32].is_file(),
                                reason="no emulator in this build")


def on(wave, **settings):
    driver = "" if SYSTEM else str(EMULATORS[wave])
    return {"GODWIT_HIP_DRIVER": driver, **settings}


def models():
    found = small_models(("int8", "int4-g32", "int4-g256"))
    return [pytest.param(path, args, id=name) for name, (path, args) in sorted(found.items())]


def bench_module(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"bench/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cpu_hash(path, ids, *args):
    return logits_hash(path, ids, *args, "-t", 1, cpu="scalar", env={"GODWIT_HIP_DRIVER": "none"})


# The emulator does a few million multiplications a second: few tokens, each way through the kernels.
# At the second width one format of each kind: its kernels meet every format in test_hip_ops.c.
@pytest.mark.parametrize("wave,path,args", [
    pytest.param(wave, *model.values, id=f"{wave}-{model.id}") for wave in WIDTHS for model in models()
    if not KINDS or wave == WIDTHS[0] or model.id.endswith(("q4_0", "q6_k", "f16", "int8"))])
def test_hash(wave, path, args):
    for rows, n in (("prefill", 9), ("decode", 3), ("5", 7)):
        n = 40 if SYSTEM else n
        want = cpu_hash(path, IDS[:n], "--rows", rows, *args)
        assert logits_hash(path, IDS[:n], "--rows", rows, *args, *HIP, env=on(wave)) == want, rows


@pytest.mark.skipif(SYSTEM, reason="of the emulator")
@pytest.mark.parametrize("rows", ["prefill", "decode", "5", "16"])
@pytest.mark.parametrize("name", ["tales-2m-q4_0", "tales-2m-q4_k_m", "tales-2m-q8_0", "tales-2m-f16"])
def test_radeon(name, rows):
    """Waves of 32 without copies, matrices by WMMA: gfx1100 in kernels_hip/arch.h."""
    path = DATA / f"{name}.gguf"
    path = path if path.is_file() else SHARED / f"models/{name}.gguf"
    if not path.is_file():
        pytest.skip(f"no {path}")
    ids = IDS if rows == "prefill" else IDS[:18]
    want = cpu_hash(path, ids, "--rows", rows)
    assert logits_hash(path, ids, "--rows", rows, *HIP, env={"GODWIT_HIP_DRIVER": str(RADEON)}) == want


@pytest.mark.skipif(SYSTEM, reason="of the emulator")
@pytest.mark.parametrize("rows", ["prefill", "decode", "5"])
@pytest.mark.parametrize("driver", [PLAIN, GFX12], ids=["gfx1030", "gfx12"])
def test_other_radeons(driver, rows):
    """gfx1030, as gfx906 and sm_75: products and attention in digits by dot products; gfx1201: by its WMMA."""
    ids = IDS if rows == "prefill" else IDS[:18]
    want = cpu_hash(TINY, ids, "--rows", rows)
    assert logits_hash(TINY, ids, "--rows", rows, *HIP, env={"GODWIT_HIP_DRIVER": str(driver)}) == want


@pytest.mark.skipif(SYSTEM, reason="of the emulator")
@pytest.mark.parametrize("rows", ["prefill", "5"])
def test_radeon_told_to_have_none(rows):
    """Code of gfx1100, a row of gfx1030: the backend takes no kernels with matrix instructions there."""
    want = cpu_hash(TINY, IDS[:18], "--rows", rows)
    env = {"GODWIT_HIP_DRIVER": str(RADEON), "GODWIT_EMULATOR_PROCESSOR": "gfx1030"}
    assert logits_hash(TINY, IDS[:18], "--rows", rows, *HIP, env=env) == want


@pytest.mark.parametrize("wave", WIDTHS)
def test_doctor(wave):
    """Every kernel gives the scalar CPU's bits, or is meant not to."""
    done = run("doctor", "--device", "hip", "--time", 600, env=on(wave))
    assert re.search(r"hip: (\d+) of \1 give the scalar CPU's bits", done.stdout), done.stdout


@pytest.mark.parametrize("wave", WIDTHS)
def test_beyond_a_page(wave):
    for rows in ("prefill", "16"):
        want = cpu_hash(TINY, IDS, "--rows", rows)
        assert logits_hash(TINY, IDS, "--rows", rows, *HIP, env=on(wave)) == want


@pytest.mark.parametrize("wave", WIDTHS)
def test_tables_of_ngrams(wave):
    """They and all else run on the card."""
    model = SHARED / "goldens/qwen4-exp"
    if not model.is_dir():
        pytest.skip(f"{model} is not there")
    ids = [3 + i * 37 % 290 for i in range(11)]
    for rows in ("prefill", "5"):
        args = ("--rows", rows, "--kv-type", "f32")
        want = cpu_hash(model, ids, *args)
        assert logits_hash(model, ids, *args, *HIP, env=on(wave)) == want, rows
    if wave == WIDTHS[0]:
        done = run("bench", "-m", model, *HIP, "-p", 4, "-n", 1, "-r", 1, "--ops", env=on(wave))
        assert "hip.ngram" in done.stdout and "| cpu." not in done.stdout


@pytest.mark.parametrize("wave", WIDTHS)
@pytest.mark.parametrize("name", ["bailingmoe3", "glm5-next", "hy_v4", "minimax-m3"])
def test_lists_and_bounded_nets(wave, name):
    model = DATA / "goldens-families" / name
    for rows in ("prefill", "5") if wave == WIDTHS[0] else ("5",):
        args = ("--rows", rows, "--kv-type", "f32")
        assert logits_hash(model, range(3, 19), *args, *HIP, env=on(wave)) == cpu_hash(model, range(3, 19), *args), rows


@pytest.mark.parametrize("wave", WIDTHS)
@pytest.mark.parametrize("name,width", [("gptq-4-order-shared", LARGE), ("fp8-block-128", 512)])
def test_packed(tmp_path, wave, name, width):
    """Columns in another order, which products of one row take themselves; tiles of FP8 that are done
    so fast that the waves behind them meet."""
    folder = build(tmp_path, name, width)[0]
    for rows in ("decode", "3"):
        want = cpu_hash(folder, PACKED_IDS[:4], "--rows", rows)
        assert logits_hash(folder, PACKED_IDS[:4], "--rows", rows, *HIP, env=on(wave)) == want, rows


@pytest.mark.parametrize("wave", WIDTHS)
def test_chunks_and_launches(wave):
    ids = IDS[:20]
    want = cpu_hash(TINY, ids)
    for args, settings in ((("-b", 7), ""), (("--no-graph",), ""), ((), "check"), ((), "no-block")):
        got = logits_hash(TINY, ids, *args, *HIP, env=on(wave, GODWIT_HIP=settings))
        assert got == want, (args, settings)


@pytest.mark.parametrize("wave", WIDTHS)
def test_float_prompts_on_matrix_units(wave):
    """Their bits are not the CPU's, but no chunk's either."""
    model = SHARED / "models/tales-2m-f16.gguf"
    if not model.is_file():
        pytest.skip("no shared models")
    want = logits_hash(model, IDS, "--device", "hip", env=on(wave))
    assert want != cpu_hash(model, IDS)
    for chunk in (27, 7):  # as many rows as decoding may have, too
        assert logits_hash(model, IDS, "--device", "hip", "-b", chunk, env=on(wave)) == want


def kept(cache, model, *args, env=None):
    """Run with a prompt cache: the text, and the tokens of the prompt that came from it; None: the
    cache was not used."""
    say = ("run", "-m", model, "-p", "Once upon a time there", "-n", 3, "--temp", 0, "--prompt-cache")
    done = run(*say, cache, *args, env=env or {"GODWIT_HIP_DRIVER": "none"})
    if "is not used" in done.stderr:
        assert "another arithmetic" in done.stderr
        return done.stdout, None
    return done.stdout, int(re.search(r"cache +(\d+) more tokens", done.stderr).group(1))


def test_prompt_caches_across_devices(tmp_path):
    """What decides is the arithmetic of each layer's prompt, not the device: a quantized model has the
    CPU's bits everywhere, a float one on 16-bit matrix units does not."""
    hip, env = ("--device", "hip"), on(WIDTHS[0])
    want = kept(tmp_path / "hip", TINY, *hip, env=env)
    assert want[1] == 0
    text, n = kept(tmp_path / "hip", TINY)
    assert n > 3 and text == want[0]
    half = SHARED / "models/tales-2m-f16.gguf"
    if not half.is_file():
        pytest.skip("no shared models")
    plain = kept(tmp_path / "cpu", half)[0]
    kept(tmp_path / "half", half, *hip, env=env)
    assert kept(tmp_path / "half", half) == (plain, None)
    assert kept(tmp_path / "half", half, *hip, env=env)[1] > 3
    assert kept(tmp_path / "half", half, *hip, "--offload-layers", 1, env=env)[1] is None
    assert kept(tmp_path / "cpu", half, *hip, env=env)[1] is None
    text, n = kept(tmp_path / "cpu", half, *HIP, env=env)
    assert n > 3 and text == plain


def test_text_and_bench():
    env = on(WIDTHS[0])
    say = ("run", "-m", TINY, "-p", "Once upon", "-n", 6, "--temp", 0.7, "--seed", 5)
    want = run(*say).stdout
    done = run(*say, *HIP, env=env)
    assert done.stdout == want and "hip" in done.stderr
    say = (*say, "--top-p", 1, "--min-p", 0)  # the device draws by top-k alone
    assert run(*say, *HIP, env=env).stdout == run(*say).stdout
    table = run("bench", "-m", TINY, "-p", 4, "-n", 2, "-r", 1, "--ops", *HIP, env=env).stdout
    assert "| hip" in table and "MBU" in table and "hip.linear.q4_0" in table and "hip:0 (" in table
    launches = table.split("tg2")[-1]
    assert not re.search(r"\| *hip\.rope_kv ", launches), "launches of their own"
    norms = re.findall(r"\| *hip\.norm +\| *(\w+) +\| *(\d+) ", launches)
    assert norms == [], "norms are made by what is before and behind them"
    alone = run("bench", "--gemm", "q4_0:K=64,N=32,M=1,17", "--device", "hip", env=env).stdout
    assert "| 1 | hip.linear.q4_0 |" in alone and "| 17 | hip.linear.prefill.q4_0 |" in alone


@pytest.mark.parametrize("wave", WIDTHS)
@pytest.mark.parametrize("width,fmt", [(128, "q4_k"), (64, "q8_0")])
def test_recurrent_layers_in_few_launches(wave, width, fmt, tmp_path, monkeypatch):
    """A delta net with gated attention and a shared expert, of widths that the launches for one row have: what lies
    between its products is one, a shared expert is in those of the others, products of one norm are one."""
    shapes = bench_module("make_shapes")
    shape = dict(shapes.QWEN, arch="qwen35moe", layers=4, width=256, heads=2, head=64, rotary=32, kv_heads=1, values=4,
                 keys=2, wide=width, experts=8, used=2, ff=256, vocab=512, context=4096)
    monkeypatch.setitem(shapes.SHAPES, "small", shape)
    monkeypatch.setattr("sys.argv", ["make_shapes.py", "small", fmt, str(tmp_path / "m.gguf")])
    shapes.main()
    ids = [7 + 61 * i % 500 for i in range(7)]
    for rows in ("decode", "5"):
        want = cpu_hash(tmp_path / "m.gguf", ids, "--rows", rows)
        assert logits_hash(tmp_path / "m.gguf", ids, "--rows", rows, *HIP, env=on(wave)) == want, rows
    ops = run("bench", "-m", tmp_path / "m.gguf", "-p", 0, "-n", 2, "-r", 1, "--ops", *HIP, env=on(wave)).stdout
    roles = re.findall(r"\| *hip\.[\w.]+ +\| *(\w+) +\| *\d+ ", ops)
    assert "delta" in roles and "experts_down" in roles
    assert not {"d_taps", "d_norm", "s_down", "quantize"} & set(roles), roles
    assert wave == 64 or not {"d_q", "d_a"} & set(roles), roles  # by copies to shared memory


@pytest.mark.parametrize("name", ["gemma4-e", "gemma3n", "qwen4-exp"])
def test_tables_at_home(name):
    """Cards that share layers go on behind rows of a table that the processor reads, each with its own
    stream."""
    model = SHARED / "goldens" / name
    if SYSTEM or not model.is_dir():
        pytest.skip(f"{model} and two emulated cards are not there")
    ids, env = [3, 4, 50, 60, 70], on(WIDTHS[0], GODWIT_EMULATOR_DEVICES="2")
    split = ("--device", "hip:0,hip:1", "--split-mode", "tensor", "--exact")
    for rows in ("prefill", "decode"):
        want = cpu_hash(model, ids, "--rows", rows)
        got = logits_hash(model, ids, "--rows", rows, *split, env=env)
        assert got == want, rows


def test_exchange_alone():
    env = dict(on(WIDTHS[0]), GODWIT_EMULATOR_DEVICES="3")
    done = run("bench", "--exchange", "100,1,3", "--device", "hip:0,hip:1,hip:2", env=env).stdout
    assert re.search(r"rows of 100 floats on hip:0,hip:1,hip:2; a word is there after [\d.]+ us", done)
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in done.splitlines() if line[:1] == "|"]
    assert [row[0] for row in rows[2:]] == ["1", "3"]
    assert all(float(row[1]) > 0 and row[3] == "" for row in rows[2:])  # 100 are no whole blocks
    done = run("bench", "--exchange", "128,2", "--device", "hip:0,hip:1", env=env).stdout
    assert re.search(r"\| 2 \| [\d.]+ \| [\d.]+ \| [\d.]+ \| [\d.]+ \|", done)
    fail = run("bench", "--exchange", "128,2", "--device", "cpu,hip:0", env=env, check=False).stderr
    assert "through the host" in fail


@pytest.mark.parametrize("rows,kv", [("prefill", "q4_0"), ("decode", "q4_0"), ("3", "q5_0"), ("prefill", "q5_0"),
                                     ("decode", "q8_0,q4_0"), ("prefill", "q8_0,q4_0"), ("3", "f16,q8_0"),
                                     ("prefill", "f16,q5_0")])
@pytest.mark.parametrize("wave", WIDTHS)
def test_hash_cache_in_few_bits(wave, rows, kv):
    """Pages beyond the first one, whose codes are read where they lie."""
    model, ids = DATA / "tales-2m-q4_0.gguf", some_ids(70)
    args = ("--rows", rows, "--kv-type", kv)
    assert logits_hash(model, ids, *args, *HIP, env=on(wave)) == cpu_hash(model, ids, *args)


@pytest.mark.parametrize("wave", WIDTHS)
def test_caches_of_any_width(wave, tmp_path):
    """Heads of 80 in blocks of 32."""
    model = write_model(tmp_path / "80")
    for rows, kv, more in (("prefill", "q8_0", ("--weights", "int8")), ("decode", "q4_0", ()), ("5", "q8_0,q4_0", ())):
        args = ("--rows", rows, "--kv-type", kv, *more)
        ids = [i % 64 for i in (IDS if rows == "prefill" else IDS[:9])]
        assert logits_hash(model, ids, *args, *HIP, env=on(wave)) == logits_hash(model, ids, *args), (rows, kv)
    if not SYSTEM and wave == WIDTHS[0]:
        split = ("--device", "hip:0,hip:1", "--split-mode", "tensor", "--exact", "--kv-host-layers", 1)
        assert logits_hash(model, ids, *args, *split, env=on(wave, GODWIT_EMULATOR_DEVICES="2")) == \
            logits_hash(model, ids, *args)


@pytest.mark.parametrize("wave", WIDTHS)
def test_caches_in_main_memory(wave):
    """Kernels read and write them there, on one card and on two, by layers and for each layer."""
    args = ("-c", 128, "--kv-host-layers")
    for rows, kv, n in (("prefill", "f16", 70), ("decode", "q8_0", 9), ("5", "f16,q4_0", 15)):
        ids = IDS[:n]
        want = cpu_hash(TINY, ids, "--rows", rows, "--kv-type", kv)
        asked = 1 if rows == "5" else "all"
        got = logits_hash(TINY, ids, "--rows", rows, "--kv-type", kv, *HIP, *args, asked, env=on(wave))
        assert got == want, (rows, kv)
    half = SHARED / "models/tales-2m-f16.gguf"
    for kv, more in (("f16", ()), ("q8_0", ("--exact",))) if half.is_file() else ():
        args_of = ("-c", 128, "-b", 40, "--kv-type", kv, "--device", "hip", *more)  # pages come to the card first
        want = logits_hash(half, IDS, *args_of, "--kv-host-layers", "none", env=on(wave))
        assert logits_hash(half, IDS, *args_of, "--kv-host-layers", "all", env=on(wave)) == want, kv
    if SYSTEM or wave != WIDTHS[0]:
        return
    want = cpu_hash(TINY, IDS[:15])
    for mode in ("layer", "tensor"):
        split = ("--device", "hip:0,hip:1", "--split-mode", mode, "--exact")
        got = logits_hash(TINY, IDS[:15], *split, *args, "all", env=on(wave, GODWIT_EMULATOR_DEVICES="2"))
        assert got == want, mode


def test_which_prompts_have_digits():
    """Those in front of quantized weights, beside a cache that is not F32."""
    for more, has in (((), 1), (("-ctk", "q8_0", "-ctv", "q8_0"), 1), (("-ctv", "q8_0"), 1),
                      (("-ctv", "f32"), 0), (("-ctk", "f32", "-ctv", "f32"), 0),
                      (("--weights", "float"), 0)):
        ops = run("bench", "-m", TINY, "-p", 20, "-n", 2, "-r", 1, "--ops", *HIP, *more, env=on(WIDTHS[0])).stdout
        prompt, generated = ops.split(", tg2, ")
        assert ("hip.attention.digits" in prompt) == bool(has), (more, ops)
        assert "hip.attention." in generated and "digits" not in generated


@pytest.mark.parametrize("wave", WIDTHS)
def test_experts_in_main_memory(wave, tmp_path):
    """What a norm leaves is there for experts that another device has, also where the router would take it in."""
    packed, plain = expert_folders(tmp_path, "gptq-4", 256, 256)
    for model, rows in ((packed, "decode"), (packed, "3"), (plain, "decode")):
        want = cpu_hash(model, range(1, 6), "--rows", rows)
        for kept in ((), ("--cpu-moe",)):
            assert logits_hash(model, range(1, 6), *HIP, *kept, "--rows", rows, env=on(wave)) == want, (rows, kept)


@pytest.mark.parametrize("args", [("--weights", "f16"), ("--weights", "f16", "--exact"), ()])
def test_prompts_of_layers_in_main_memory(args):
    """Whether a prompt is computed on the card is decided by time, so no bit may depend on it: 16-bit matrix units,
    which round otherwise than the CPU does, are left out."""
    way = ("--device", "hip", "-ngl", 1, "-b", 64, *args)
    hashes = {logits_hash(TINY, some_ids(100), *way, "--prompt-offload", on_off, env=on(WIDTHS[0]))
              for on_off in ("on", "off")}
    assert len(hashes) == 1


@pytest.mark.parametrize("wave", WIDTHS)
def test_text_with_drafts(wave):
    """Drafted text is the CPU's: rows of the covering table of test_draft_identity.c, at the second
    width a few, as drafting knows none."""
    program = BUILD / "tests/test_draft_identity"
    if not program.is_file() or not (SHARED / "models").is_dir():
        pytest.skip("tests/test_draft_identity or the shared models are not there")
    rows = "289" if SYSTEM else "2" if KINDS and wave == 64 else "5"
    done = run(binary=str(program), env=on(wave, GODWIT_DRAFT_DEVICE="hip", GODWIT_DRAFT_ROWS=rows))
    assert " 0 of them differ" in done.stdout + done.stderr


@pytest.mark.parametrize("wave", WIDTHS)
@pytest.mark.parametrize("name", ["t5-v1.1", "m2m100"])
def test_beams(wave, name):
    model = SHARED / "goldens" / name
    if not model.is_dir():
        pytest.skip(f"{model} is not there")
    ask = ["logits", "-m", model, "--ids", "5,6,7,8,9,2", "--decoder-ids", "2", "--greedy", "5",
           "--beams", "4", "-c", "40"]
    want = run(*ask, "--device", "cpu", env={"GODWIT_HIP_DRIVER": "none"}).stdout
    assert want.count("beam: ") == 4 and run(*ask, *HIP, env=on(wave)).stdout == want


@pytest.mark.parametrize("wave", WIDTHS)
def test_texts_of_an_encoder(wave, tmp_path):
    """Over 512 rows in a pass, so that products have the tiles of gemm_wide.hip and norms leave what
    they read: the CPU's bits when exact, else those of a launch for each node, alone or together."""
    maker = bench_module("make_encoders")
    maker.SHAPES["bge-m3"] = (1, 64, 128, 2, 20100, 256)
    maker.write_folder("bge-m3", "f16", tmp_path / "m")
    texts = [" ".join(f"w{(i * 31 + k * k) % 997}" for k in range(90 + 11 * i)) for i in range(5)]
    (tmp_path / "all").write_text("\n".join(texts))
    (tmp_path / "one").write_text(texts[0])

    def vectors(file, *args, **settings):
        return run("embed", "-m", tmp_path / "m", "-f", tmp_path / file, *args,
                   env=on(wave, **settings)).stdout.splitlines()

    got = vectors("all", "--device", "hip")
    assert len(got) == 5 and got[:1] == vectors("one", "--device", "hip")
    assert got == vectors("all", "--device", "hip", GODWIT_HIP="no-fuse")
    exact = vectors("all", *HIP)
    assert exact == vectors("all", "--device", "cpu") and exact != got


def fails(setting, *words):
    done = run("logits", "-m", TINY, "--ids", "1,300", *HIP, check=False,
               env=on(WIDTHS[0], GODWIT_HIP=setting))
    assert done.returncode == 1, done.stderr
    assert "hash:" not in done.stdout and done.stderr.count("\n") == 1
    for word in words:
        assert word in done.stderr
    return done.stderr


@pytest.mark.parametrize("k", [1, 2, 3, 5, 8, 13, 20])
def test_allocation_failure(k):
    fails(f"fail-alloc={k}", "simulated")


@pytest.mark.parametrize("k", [1, 3, 10])
def test_device_lost(k):
    fails(f"no-graph,fail-launch={k}", "was lost while")
