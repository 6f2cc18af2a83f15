#!/usr/bin/env python3
"""Reference adapters and what PEFT makes of them, for tests/test_lora.py.

usage: lora_goldens.py FOLDER    (tests/data/lora is what it made)

Needs peft, transformers, torch and safetensors from PyPI; the versions that made the folder stand in
its README.md. Writes tiny random models in BF16 (llama, phi3), adapters of them in float32 as PEFT
saves them, every factor random, and golden.safetensors: input_ids [T], and NAME [T, v], the logits
of PEFT's model in float32 with the adapter, or of MODEL+ with several.
"""
import json
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

PROMPT, VOCAB, WIDTH = 16, 64, 32
SHAPE = {"vocab_size": VOCAB, "hidden_size": WIDTH, "intermediate_size": 48, "num_hidden_layers": 2,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
         "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0, "tie_word_embeddings": False}
LINEARS = ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
# name: (model, arguments of LoraConfig)
ADAPTERS = {
    "llama-all": ("llama", {"r": 4, "lora_alpha": 8, "target_modules": LINEARS}),
    "llama-stable": ("llama", {"r": 20, "lora_alpha": 5, "use_rslora": True,
                               "target_modules": ["q_proj", "v_proj", "down_proj"]}),
    "llama-ranks": ("llama", {"r": 2, "lora_alpha": 3, "target_modules": LINEARS,
                              "rank_pattern": {"layers.1.mlp.down_proj": 12, ".*k_proj": 9},
                              "alpha_pattern": {"o_proj": 7}}),
    "phi3-packed": ("phi3", {"r": 6, "lora_alpha": 9, "target_modules": [
        "qkv_proj", "o_proj", "gate_up_proj", "down_proj"]}),
}


def fill(parameters, scale):
    for p in parameters:
        p.data = torch.randn(p.shape) * scale if p.dim() > 1 else 1 + torch.randn(p.shape) * 0.1


def make_model(name, folder):
    config = transformers.AutoConfig.for_model(name, **SHAPE)
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    fill(model.parameters(), 0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def load_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager")


def make_adapter(base, more, folder):
    model = peft.get_peft_model(load_model(base), peft.LoraConfig(task_type="CAUSAL_LM", **more))
    fill([p for n, p in model.named_parameters() if "lora_" in n], 0.3)
    model.save_pretrained(folder)
    (folder / "README.md").unlink(missing_ok=True)
    settings = json.loads((folder / "adapter_config.json").read_text())
    settings["base_model_name_or_path"] = base.name
    settings["target_modules"].sort()
    (folder / "adapter_config.json").write_text(json.dumps(settings, indent=1) + "\n")


def logits(model, ids):
    with torch.no_grad():
        return model(ids[None]).logits[0].float().contiguous()


def main():
    out = pathlib.Path(sys.argv[1])
    torch.manual_seed(7)
    for name in ("llama", "phi3"):
        shutil.rmtree(out / name, ignore_errors=True)
        make_model(name, out / name)
    ids = torch.randint(3, VOCAB, (PROMPT,))
    golden = {"input_ids": ids.to(torch.int32)}
    for name in ("llama", "phi3"):
        golden[name] = logits(load_model(out / name), ids)
    for name, (base, more) in ADAPTERS.items():
        shutil.rmtree(out / name, ignore_errors=True)
        make_adapter(out / base, more, out / name)
        golden[name] = logits(peft.PeftModel.from_pretrained(load_model(out / base), out / name), ids)
    both = peft.PeftModel.from_pretrained(load_model(out / "llama"), out / "llama-all", "all")
    both.load_adapter(out / "llama-stable", "stable")
    both.base_model.set_adapter(["all", "stable"])
    golden["llama+"] = logits(both, ids)
    save_file(golden, out / "golden.safetensors")
    (out / "README.md").write_text(
        "Made by tools/lora_goldens.py with "
        f"peft {peft.__version__}, transformers {transformers.__version__}, "
        f"torch {torch.__version__.split('+')[0]}.\n")


if __name__ == "__main__":
    main()
