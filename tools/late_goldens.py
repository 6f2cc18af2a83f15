#!/usr/bin/env python3
"""The reference checkpoints of late interaction for tests/test_late.py.

usage: late_goldens.py FOLDER    (tests/data/goldens-families is what it made)

Needs pylate, torch, transformers and safetensors from PyPI; the versions that made the folders stand in
the README.md there. Writes `colbert`, a folder as ColBERT's own library saves it, and `colbert-pylate`,
ModernBERT with a Dense module: tiny random models with tokenizers of letters, and golden.safetensors
with the vectors that PyLate gives: `query` [texts * length, d], `document` [rows, d] and its `counts`.
"""
import json
import pathlib
import shutil
import string
import sys

import torch
import transformers
from pylate.models.colbert import ColBERT
from safetensors.torch import load_file, save_file

QUERIES = ["where do gulls sleep?", "a", "one query that is too long to be taken whole"]
DOCUMENTS = ["Gulls sleep on the sea, or on roofs.", "no", "!?", "it is a long text, and so it is cut at its end"]
WIDTH, LENGTHS = 32, {"query_length": 12, "document_length": 20}


def randomize(model):
    random = torch.Generator().manual_seed(7)
    for name, p in model.named_parameters():
        x = torch.randn(p.shape, generator=random)
        if "norm" in name.lower():
            x = 0.2 * x + (1.0 if name.endswith("weight") else 0.0)
        elif p.dim() >= 2:
            x = x * (0.7 if "embed" in name else 1.2 / p.shape[-1] ** 0.5)
        else:
            x = 0.1 * x
        p.data.copy_(x)


def write_base(folder, config):
    """A model and its tokenizer, without a projection."""
    folder.mkdir(parents=True, exist_ok=True)
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused0]", "[unused1]"]
    letters = [f"{before}{x}" for before in ("", "##") for x in string.ascii_lowercase]
    vocab = [*special, *letters, *string.punctuation]
    (folder / "vocab.txt").write_text("\n".join(vocab) + "\n")
    tokenizer = transformers.BertTokenizerFast(str(folder / "vocab.txt"))
    tokenizer.add_special_tokens({"additional_special_tokens": ["[unused0]", "[unused1]"]})
    tokenizer.save_pretrained(folder)
    config = transformers.AutoConfig.for_model(**config, vocab_size=len(vocab), hidden_size=WIDTH,
                                               num_hidden_layers=2, num_attention_heads=4,
                                               intermediate_size=48, max_position_embeddings=64)
    model = transformers.AutoModel.from_config(config)
    randomize(model)
    model.save_pretrained(folder)


def write_colbert(folder):
    write_base(folder, {"model_type": "bert"})
    tensors = {f"bert.{name}": x for name, x in load_file(folder / "model.safetensors").items()}
    random = torch.Generator().manual_seed(8)
    tensors["linear.weight"] = torch.randn((16, WIDTH), generator=random) * WIDTH ** -0.5
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["architectures"] = ["HF_ColBERT"]
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "artifact.metadata").write_text(json.dumps({
        "query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": LENGTHS["query_length"],
        "doc_maxlen": LENGTHS["document_length"], "attend_to_mask_tokens": False}, indent=2) + "\n")
    return ColBERT(str(folder), device="cpu")


def write_pylate(folder):
    base = folder.with_name("base")
    write_base(base, {"model_type": "modernbert", "local_attention": 32, "global_attn_every_n_layers": 2,
                      "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2,
                      "sep_token_id": 3})
    torch.manual_seed(9)
    model = ColBERT(str(base), device="cpu", embedding_size=16, skiplist_words=["?", ","], **LENGTHS)
    model.save(str(folder), create_model_card=False)
    shutil.rmtree(base)
    return ColBERT(str(folder), device="cpu")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for name, write in (("colbert", write_colbert), ("colbert-pylate", write_pylate)):
        folder = pathlib.Path(sys.argv[1]) / name
        shutil.rmtree(folder, ignore_errors=True)
        model = write(folder)
        encode = {"show_progress_bar": False, "convert_to_tensor": True}
        queries = model.encode(QUERIES, is_query=True, **encode)
        documents = model.encode(DOCUMENTS, is_query=False, **encode)
        save_file({"query": torch.cat(list(queries)).contiguous(),
                   "document": torch.cat(list(documents)).contiguous(),
                   "counts": torch.tensor([len(x) for x in documents])}, folder / "golden.safetensors")
        (folder / "texts.json").write_text(json.dumps({"query": QUERIES, "document": DOCUMENTS}, indent=2) + "\n")
        for file in folder.rglob("*"):
            file.chmod(0o755 if file.is_dir() else 0o644)


if __name__ == "__main__":
    main()
