# tests/test_field_files.py - files, configurations and sampling numbers as people meet them: each against the
# same model without the oddity, or against what its publisher's library says.
import json
import pathlib
import re
import struct
import subprocess

import pytest

from program import BIN, DATA, SHARED, SLOW, copy_folder, run
from tensor_files import gguf_text, read_gguf, read_safetensors, write_gguf, write_safetensors

SMALL = DATA / "tales-2m-q4_0.gguf"
FIELD, GOLDENS = SHARED / "field", SHARED / "goldens"
CASES = """bnb-quant-storage ct-dense-3bit ct-transform-hadamard fp8-activation-scale gguf-sampling gptq-planar-3bit
gptq-planar-asym hf-architecture-of-wrapper hf-llama-mlp-bias hf-qwen3moe-num-local-experts hf-rope-dynamic
rope-dynamic mlx-switch-mlp quantize-ministral3-yarn quantize-mistral-folder run-name-with-escape""".split()
needs_goldens = pytest.mark.skipif(not GOLDENS.is_dir() or SLOW, reason="needs the reference checkpoints")


@pytest.mark.skipif(not FIELD.is_dir() or SLOW, reason="needs the field cases")
@pytest.mark.parametrize("name", CASES)
def test_field_case(name):
    case = json.loads((FIELD / name / "case.json").read_text())
    done = subprocess.run(["bash", "-c", case["command"].format(godwit=BIN, dir=FIELD / name)], capture_output=True,
                          timeout=100)
    expect = case["expect"]
    if "rc" in expect:
        assert done.returncode == expect["rc"], done.stderr
    if "stdout" in expect:
        assert done.stdout.decode("utf-8", "replace") == expect["stdout"]
    if "stderr_regex" in expect:
        assert re.search(expect["stderr_regex"], done.stderr.decode())


# ---- sampling ------------------------------------------------------------------------------------

def text_of(model, *args, **more):
    return run("run", "-m", model, "-p", "the sea", "-n", 12, "-s", 1, *args, **more)


def with_pairs(path, **pairs):
    head, tensors = read_gguf(SMALL)
    write_gguf(path, head | {k.replace("__", "."): v for k, v in pairs.items()}, tensors)
    return path


def f32(x):
    return struct.pack("<If", 6, x)


def i32(x):
    return struct.pack("<Ii", 5, x)


def test_sampling_of_a_gguf_file(tmp_path):
    model = with_pairs(tmp_path / "m.gguf", general__sampling__temp=f32(0.0), general__sampling__top_k=i32(7))
    said = text_of(model)
    assert said.stdout == text_of(SMALL, "--temp", 0).stdout != text_of(SMALL).stdout
    assert len(re.findall(r"recommend: temperature 0, top_k 7", said.stderr)) == 1
    assert "recommend" not in text_of(model, "-q").stderr
    assert text_of(model, "--temp", 0.8, "--top-k", 40).stdout == text_of(SMALL).stdout  # an option overrides
    assert text_of(model, env={"GODWIT_ARG_TEMP": "0.8", "GODWIT_ARG_TOP_K": "40"}).stdout == text_of(SMALL).stdout
    out_of_range = with_pairs(tmp_path / "o.gguf", general__sampling__temp=f32(-3.0), general__sampling__top_p=f32(7.0))
    assert text_of(out_of_range).stdout == text_of(SMALL).stdout
    assert text_of(SMALL).stdout == text_of(with_pairs(tmp_path / "t.gguf",
                                                       general__sampling__temp=struct.pack("<I", 8) + gguf_text("0"))).stdout


@pytest.mark.skipif(not (SHARED / "models/tales-2m").is_dir(), reason="needs the small model's folder")
def test_sampling_of_a_folder(tmp_path):
    folder = copy_folder(SHARED / "models/tales-2m", tmp_path / "m")
    plain = text_of(folder).stdout
    assert "recommend" not in text_of(folder).stderr  # its file says what options say by themselves
    path = folder / "generation_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"temperature": 0.6, "top_k": 20, "top_p": 0.95}))
    said = text_of(folder)
    assert said.stdout == text_of(SHARED / "models/tales-2m", "--temp", 0.6, "--top-k", 20, "--top-p", 0.95).stdout
    assert said.stdout != plain and "temperature 0.6, top_k 20" in said.stderr


# ---- GGUF ------------------------------------------------------------------------------------------

def hash_of(model):
    return run("logits", "-m", model, "-p", "the sea", "--greedy", 6).stdout


def array(kind, *items):
    return struct.pack("<IQ", kind, len(items)) + b"".join(items)


def test_arrays_in_arrays(tmp_path):
    """A key that no text needs, as some converters write: passed over, and shown as what it is."""
    inner = array(4, struct.pack("<I", 1), struct.pack("<I", 2))
    nested = struct.pack("<I", 9) + array(9, inner, array(8, gguf_text("word")), array(9, inner, inner))
    model = with_pairs(tmp_path / "m.gguf", some__nested=nested)
    assert hash_of(model) == hash_of(SMALL)
    assert "some.nested" in run("inspect", model).stdout
    run("quantize", "-m", model, "-o", tmp_path / "q.gguf", "q8_0", "--allow-requantize")
    assert nested in (tmp_path / "q.gguf").read_bytes()
    for broken in (struct.pack("<I", 9) + struct.pack("<IQ", 9, 2**40), struct.pack("<I", 9) + array(9, array(99)),
                   struct.pack("<I", 9) + b"".join(struct.pack("<IQ", 9, 1) for _ in range(40))):
        done = run("inspect", with_pairs(tmp_path / "b.gguf", some__nested=broken), check=False)
        assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("key", ["eos", "bos", "padding", "unknown", "eot"])
def test_ids_out_of_range(key, tmp_path):
    """An id that names no token is not used, which is said; a text without it is the same."""
    pairs, tensors = read_gguf(SMALL)
    pairs[f"tokenizer.ggml.{key}_token_id"] = struct.pack("<II", 4, 123456)
    write_gguf(tmp_path / "m.gguf", pairs, tensors)
    ids = ("--ids", "1,300,400", "--greedy", 6)
    done = run("logits", "-m", tmp_path / "m.gguf", *ids)
    assert done.stdout == run("logits", "-m", SMALL, *ids).stdout
    assert f"{key}_token_id" in done.stderr


def test_names_without_controls(tmp_path):
    name = struct.pack("<I", 8) + gguf_text("a\x1b]0;title\x07\u009bb\x7f")
    said = text_of(with_pairs(tmp_path / "m.gguf", general__name=name)).stderr
    assert "a?]0;title?" in said and not re.search("[\x07\x1b\x7f\u009b]", said)


def test_an_adapter_is_told(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    (tmp_path / "adapter_model.safetensors").write_bytes(b"")
    done = run("run", "-m", tmp_path, "-p", "a", check=False)
    assert done.returncode == 1 and "adapter" in done.stderr and done.stderr.count("\n") == 1


# ---- folders -------------------------------------------------------------------------------------

def changed(source, target, **change):
    folder = copy_folder(GOLDENS / source, target)
    config = json.loads((folder / "config.json").read_text())
    for key, value in change.items():
        if value is None:
            config.pop(key, None)
        else:
            config[key] = value
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def logits(model):
    done = run("logits", "-m", model, "--ids", "3,10,17,24,31", "--greedy", 6, "--kv-type", "f32", "-t", 1, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@needs_goldens
@pytest.mark.parametrize("kind", ["PeftModelForCausalLM", "FSDPQwen3ForCausalLM", "OptimizedModule"])
def test_wrappers(kind, tmp_path):
    folder = changed("qwen3", tmp_path / "m", architectures=[kind], model_type="qwen3")
    assert logits(folder) == logits(GOLDENS / "qwen3")


@needs_goldens
@pytest.mark.parametrize("change", [{"architectures": ["Qwen3ForRewardModel"]}, {"architectures": ["LlamaForCausalLMEagle"]},
                                    {"architectures": ["MyOwn"], "auto_map": {"AutoModel": "x.MyOwn"}}])
def test_other_classes_are_no_wrappers(change, tmp_path):
    folder = changed("qwen3", tmp_path / "m", model_type="qwen3", **change)
    done = run("logits", "-m", folder, "--ids", "1,2", check=False)
    assert done.returncode == 1 and change["architectures"][0] in done.stderr


@needs_goldens
@pytest.mark.parametrize("name, key", [("mixtral", "num_local_experts"), ("qwen2-moe", "num_experts"), ("qwen3-next", "num_experts"),
                                       ("deepseek-v3", "n_routed_experts"), ("nemotron-h-moe", "n_routed_experts"),
                                       ("granite-hybrid", "num_local_experts")])
def test_expert_counts_by_any_key(name, key, tmp_path):
    count = json.loads((GOLDENS / name / "config.json").read_text())[key]
    for other in {"num_local_experts", "num_experts", "n_routed_experts"} - {key}:
        folder = changed(name, tmp_path / other, **{key: None, other: count})
        assert logits(folder) == logits(GOLDENS / name), other


@needs_goldens
def test_the_outer_configuration_ties(tmp_path):
    """text_config says tied, the whole says it is not, and the head is there: it counts."""
    config = json.loads((GOLDENS / "ministral3-mm/config.json").read_text())
    folder = changed("ministral3-mm", tmp_path / "m", text_config=config["text_config"] | {"tie_word_embeddings": True})
    assert logits(folder) == logits(GOLDENS / "ministral3-mm")


@needs_goldens
def test_mlx_experts(tmp_path):
    """All experts in one tensor, by MLX's names."""
    folder = copy_folder(GOLDENS / "mixtral", tmp_path / "m")
    tensors = read_safetensors(folder / "model.safetensors")
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj", "gate_proj": "gate_proj", "up_proj": "up_proj",
             "down_proj": "down_proj"}
    joined, out = {}, {}
    for name, t in tensors.items():
        found = re.match(r"(.*)\.experts\.(\d+)\.(\w+)\.weight$", name)
        if found:
            joined.setdefault((found[1], found[3]), {})[int(found[2])] = t
        else:
            out[name] = t
    if not joined:
        pytest.skip("the experts are together already")
    for (start, part), each in joined.items():
        kind, shape, _ = each[0]
        out[f"{start}.switch_mlp.{names[part]}.weight"] = (kind, [len(each), *shape], b"".join(each[i][2] for i in range(len(each))))
    write_safetensors(folder / "model.safetensors", out)
    assert logits(folder) == logits(GOLDENS / "mixtral")


@needs_goldens
def test_norms_that_mlx_shifted_are_refused(tmp_path):
    folder = copy_folder(GOLDENS / "qwen3-next", tmp_path / "m")
    tensors = read_safetensors(folder / "model.safetensors")
    for name, (kind, shape, data) in tensors.items():
        if name.endswith("conv1d.weight"):
            tensors[name] = (kind, [shape[0], shape[2], 1], data)
    write_safetensors(folder / "model.safetensors", tensors)
    done = run("logits", "-m", folder, "--ids", "1,2", check=False)
    assert done.returncode == 1 and "MLX" in done.stderr


def test_mix_adds_both(tmp_path):
    """`mix plus V add` in one line is the two sums that two lines say."""
    spec = (pathlib.Path(__file__).parent.parent / "core/model/specs/llama.spec").read_text()
    ends = {"one": "  linear down -> y\n  mix from y plus h add\n", "two": "  linear down\n  mix plus h\n  add\n"}
    said = {}
    for name, end in ends.items():
        text = spec.replace("  norm ffn_norm\n", "  norm ffn_norm -> h\n").replace("  glu act gate up", "  glu act gate up")
        text = re.sub(r"  residual down.*\n", end, text)
        path = tmp_path / f"{name}.spec"
        path.write_text(text)
        said[name] = run("logits", "-m", SMALL, "--spec", path, "--ids", "1,300,400", "--greedy", 6).stdout
    assert said["one"] == said["two"] != run("logits", "-m", SMALL, "--ids", "1,300,400", "--greedy", 6).stdout


@needs_goldens
def test_ropes_by_older_names(tmp_path):
    """su is longrope; dynamic is no scaling up to the trained length."""
    n = json.loads((GOLDENS / "llama-mha/config.json").read_text())
    half = n.get("head_dim", n["hidden_size"] // n["num_attention_heads"]) // 2
    long = {"short_factor": [1.0 + i / 8 for i in range(half)], "long_factor": [2.0 + i for i in range(half)],
            "original_max_position_embeddings": 8, "rope_theta": 10000.0}
    said = [logits(changed("llama-mha", tmp_path / kind, rope_parameters=None, rope_theta=10000.0,
                           rope_scaling=long | {"type": kind})) for kind in ("longrope", "su")]
    assert said[0] == said[1] != logits(GOLDENS / "llama-mha")
    theta = n.get("rope_parameters", n).get("rope_theta", 10000.0)
    folder = changed("llama-mha", tmp_path / "d", rope_parameters={"rope_type": "dynamic", "factor": 4.0, "rope_theta": theta})
    assert logits(folder) == logits(GOLDENS / "llama-mha")


def glm(folder, normed):
    """GLM-4.5 of two layers, the second with experts: random weights."""
    import random
    rng, d, f, e, v = random.Random(4), 32, 16, 4, 64
    config = {"architectures": ["Glm4MoeForCausalLM"], "model_type": "glm4_moe", "hidden_size": d, "intermediate_size": 48,
              "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": v,
              "n_routed_experts": e, "num_experts_per_tok": 2, "moe_intermediate_size": f, "n_shared_experts": 1,
              "first_k_dense_replace": 1, "use_qk_norm": normed, "max_position_embeddings": 128, "rms_norm_eps": 1e-5,
              "rope_theta": 10000.0, "partial_rotary_factor": 0.5, "attention_bias": False, "tie_word_embeddings": False}
    shapes = {"model.embed_tokens.weight": [v, d], "lm_head.weight": [v, d], "model.norm.weight": [d]}
    for layer in range(2):
        at = f"model.layers.{layer}."
        shapes |= {at + "input_layernorm.weight": [d], at + "post_attention_layernorm.weight": [d],
                   at + "self_attn.q_proj.weight": [32, d], at + "self_attn.k_proj.weight": [16, d],
                   at + "self_attn.v_proj.weight": [16, d], at + "self_attn.o_proj.weight": [d, 32]}
        if normed:
            shapes |= {at + "self_attn.q_norm.weight": [16], at + "self_attn.k_norm.weight": [16]}
        parts = [("mlp.", 48)] if layer == 0 else [(f"mlp.experts.{i}.", f) for i in range(e)] + [("mlp.shared_experts.", f)]
        for part, wide in parts:
            shapes |= {at + part + "gate_proj.weight": [wide, d], at + part + "up_proj.weight": [wide, d],
                       at + part + "down_proj.weight": [d, wide]}
        if layer == 1:
            shapes |= {at + "mlp.gate.weight": [e, d], at + "mlp.gate.e_score_correction_bias": [e]}
    tensors = {}
    for name, shape in shapes.items():
        n = shape[0] * (shape[1] if len(shape) > 1 else 1)
        values = [rng.gauss(1 if "norm" in name else 0, 0.3) for _ in range(n)]
        tensors[name] = ("F32", shape, struct.pack(f"<{n}f", *values))
    folder.mkdir()
    write_safetensors(folder / "model.safetensors", tensors)
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.parametrize("normed", [True, False])
def test_norms_of_q_and_k_by_their_tensors(normed, tmp_path):
    """A GGUF file of GLM-4.5 has them or not, whatever its number of layers."""
    folder = glm(tmp_path / "m", normed)
    run("quantize", "-m", folder, "-o", tmp_path / "m.gguf", "f32", "-t", 1)
    greedy = [re.search("greedy: .*", logits(m)).group() for m in (folder, tmp_path / "m.gguf")]
    assert greedy[0] == greedy[1]
