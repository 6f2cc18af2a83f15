#!/usr/bin/env python3
# tools/score_goldens.py - tests/data/logit-score: a reranker made of a causal language model, small and random,
# as sentence-transformers (6.2) saves it, and the scores that the library gives pairs, by forms of its template.
# Needs torch, transformers, sentence-transformers. Run in the root: tools/score_goldens.py
import json
import pathlib
import shutil
import tempfile

import torch
from sentence_transformers import CrossEncoder
from sentence_transformers.base.modules import Transformer
from sentence_transformers.cross_encoder.modules import LogitScore
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

OUT = pathlib.Path("tests/data/logit-score")
PAIRS = [["how do birds fly", "Birds fly by their wings."], ["how do birds fly", "The sea was calm."],
         ["who is it?", "yes"], ["", "no <|im_end|x"], ["naïve été 海", "The sea, the sea: yes and no.\n\nNo!"]]
ASK = ("<|im_start|>system\n{{ messages | selectattr('role', 'eq', 'system') | map(attribute='content') | first | "
       "default('Answer yes or no.') }}<|im_end|>\n<|im_start|>user\n<Query>: {{ messages | selectattr('role', 'eq', "
       "'query') | map(attribute='content') | first }}\n<Document>: {{ messages | selectattr('role', 'eq', "
       "'document') | map(attribute='content') | first }}<|im_end|>\n")
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}{{ more | default('') }}"
FLAT = ASK + OPEN
PARTS = ("<|im_start|>user\nDoes it answer? yes or no.\n"
         "<Query>: {{ (messages | selectattr('role', 'eq', 'query') | first).content[0].text }}\n"
         "<Document>: {{ (messages | selectattr('role', 'eq', 'document') | first).content[0].text }}<|im_end|>\n" + OPEN)
FORMS = {  # name: template, chat template's arguments, prompt of every pair, does a token say no
    "flat": (FLAT, {"add_generation_prompt": True}, None, True),
    "parts": (PARTS, {"more": "Answer: "}, None, True),
    "prompt": (FLAT, {}, "Is it about birds?", True),
    "one-token": (FLAT, {"add_generation_prompt": True}, None, False),
}


def tokenizer():
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([" ".join(a + " " + b for a, b in PAIRS), "yes no " * 50], trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(), show_progress=False,
        special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"]))
    return PreTrainedTokenizerFast(tokenizer_object=t, eos_token="<|im_end|>", pad_token="<|endoftext|>",
                                   model_max_length=512)


def main():
    torch.manual_seed(1)
    own = tokenizer()
    config = Qwen3Config(vocab_size=len(own), hidden_size=32, intermediate_size=48, num_hidden_layers=2, head_dim=16,
                         num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=512,
                         tie_word_embeddings=True, bos_token_id=None, eos_token_id=own.eos_token_id)
    model = Qwen3ForCausalLM(config)
    for p in model.parameters():
        torch.nn.init.normal_(p, std=0.3)
    model = model.to(torch.bfloat16).float()
    found = {}
    shutil.rmtree(OUT, ignore_errors=True)
    for name, (template, arguments, prompt, with_no) in FORMS.items():
        with tempfile.TemporaryDirectory() as folder:
            own.chat_template = template
            model.to(torch.bfloat16).save_pretrained(folder)
            own.save_pretrained(folder)
            first = Transformer(folder, transformer_task="text-generation", model_kwargs={"torch_dtype": torch.float32},
                                processing_kwargs={"chat_template": arguments} if arguments else None)
            yes, no = own.convert_tokens_to_ids(["\u0120yes", "\u0120no"])
            assert yes is not None and no is not None
            whole = CrossEncoder(modules=[first, LogitScore(yes, no if with_no else None)],
                                 prompts={"birds": prompt} if prompt else None,
                                 default_prompt_name="birds" if prompt else None)
            saved = pathlib.Path(folder) / "saved"
            whole.save_pretrained(str(saved))
            again = CrossEncoder(str(saved), model_kwargs={"torch_dtype": torch.float32})
            scores = again.predict(PAIRS, activation_fn=torch.nn.Identity())
            ids = [again[0].preprocess([p], prompt=prompt)["input_ids"][0].tolist() for p in PAIRS]
            found[name] = {"scores": [float(s) for s in scores], "ids": ids}
            keep = OUT if name == "flat" else OUT / name
            keep.mkdir(parents=True, exist_ok=True)
            for file in saved.rglob("*"):
                part = file.relative_to(saved)
                if file.is_file() and part.name != "README.md" and (name == "flat" or not same(file, OUT / part)):
                    (keep / part).parent.mkdir(parents=True, exist_ok=True)
                    shutil.copy(file, keep / part)
    (OUT / "scores.json").write_text(json.dumps({"pairs": PAIRS, "forms": found}, ensure_ascii=False) + "\n")


def same(a, b):
    return b.exists() and a.read_bytes() == b.read_bytes()


if __name__ == "__main__":
    main()
