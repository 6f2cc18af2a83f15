#!/usr/bin/env python3
"""Reference adapters of mixtures and what PEFT makes of them, for tests/test_lora_experts.py.

usage: lora_experts_goldens.py FOLDER    (tests/data/lora-experts is what it made)

As tools/lora_goldens.py, for models whose experts are parameters: qwen2_moe, with shared experts and
a router that is adapted, gpt_oss, whose matrices are stored [k, m], with gate and up in turns and
biases, and mixtral, whose blocks have another name in files than in the model.
"""
import pathlib
import shutil
import sys

import peft
import torch
import transformers
from safetensors.torch import save_file

import lora_goldens

PROMPT = 12
SHAPE = {k: v for k, v in lora_goldens.SHAPE.items() if k != "intermediate_size"}
MODELS = {
    "qwen2_moe": {"intermediate_size": 48, "moe_intermediate_size": 24, "shared_expert_intermediate_size": 40,
                  "num_experts": 5, "num_experts_per_tok": 2},
    "gpt_oss": {"intermediate_size": 32, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2,
                "sliding_window": 8, "layer_types": ["sliding_attention", "full_attention"]},
    "mixtral": {"intermediate_size": 24, "num_local_experts": 4, "num_experts_per_tok": 2},
}
EXPERTS = ["mlp.experts.gate_up_proj", "mlp.experts.down_proj"]
# name: (model, arguments of LoraConfig)
ADAPTERS = {
    "qwen": ("qwen2_moe", {"r": 3, "lora_alpha": 6, "target_parameters": [*EXPERTS, "mlp.gate.weight"],
                           "target_modules": ["q_proj", "gate_proj", "up_proj", "down_proj"]}),
    "qwen-ranks": ("qwen2_moe", {"r": 2, "lora_alpha": 5, "use_rslora": True, "target_modules": [],
                                 "target_parameters": [*EXPERTS, "mlp.gate.weight"],
                                 "rank_pattern": {"layers.1.mlp.experts.down_proj": 9},
                                 "alpha_pattern": {"experts.gate_up_proj": 4}}),
    "oss": ("gpt_oss", {"r": 4, "lora_alpha": 4, "target_modules": ["o_proj"], "target_parameters": EXPERTS}),
    "mixtral": ("mixtral", {"r": 2, "lora_alpha": 4, "target_modules": [],
                            "target_parameters": ["1.mlp.experts.down_proj", "mlp.gate.weight"]}),
}


def make_model(name, folder):
    config = transformers.AutoConfig.for_model(name, **SHAPE, **MODELS[name])
    model = transformers.AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    lora_goldens.fill(model.parameters(), 0.2)
    model.to(torch.bfloat16).save_pretrained(folder)
    (folder / "generation_config.json").unlink(missing_ok=True)


def main():
    out = pathlib.Path(sys.argv[1])
    torch.manual_seed(11)
    golden = {}
    ids = torch.randint(3, lora_goldens.VOCAB, (PROMPT,))
    golden["input_ids"] = ids.to(torch.int32)
    for name in MODELS:
        shutil.rmtree(out / name, ignore_errors=True)
        make_model(name, out / name)
        golden[name] = lora_goldens.logits(lora_goldens.load_model(out / name), ids)
    for name, (base, more) in ADAPTERS.items():
        folder = out / f"adapter-{name}"
        shutil.rmtree(folder, ignore_errors=True)
        lora_goldens.make_adapter(out / base, more, folder)
        model = peft.PeftModel.from_pretrained(lora_goldens.load_model(out / base), folder)
        golden[f"adapter-{name}"] = lora_goldens.logits(model, ids)
    save_file(golden, out / "golden.safetensors")
    (out / "README.md").write_text(
        "Made by tools/lora_experts_goldens.py with "
        f"peft {peft.__version__}, transformers {transformers.__version__}, "
        f"torch {torch.__version__.split('+')[0]}.\n")


if __name__ == "__main__":
    main()
