#!/usr/bin/env python3
# tests/data/draft-heads/make.py - what the library speculators drafts with the heads of
# tests/draft_heads.py after every position of a text, four tokens each, or a block, for
# test_draft_heads.c: goldens.json. With speculators 0.9.0, transformers 5.24 and torch 2.15.
#   make.py SHARED/models/tales-2m
import json
import random
import sys
import tempfile
import types
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1]))
import draft_heads  # noqa: E402

sys.modules["hs_connectors"] = types.SimpleNamespace(FileTransfer=object, HiddenStatesTransfer=object)
import torch  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from speculators.models.dflash import DFlashDraftModel, DFlashSpeculatorConfig  # noqa: E402
from speculators.models.dspark import DSparkDraftModel, DSparkSpeculatorConfig  # noqa: E402
from speculators.models.eagle3 import Eagle3DraftModel, Eagle3SpeculatorConfig  # noqa: E402
from transformers import LlamaForCausalLM  # noqa: E402

N_PROMPT, N_TEXT, STEPS = 12, 36, 4


@torch.no_grad()
def text_of(target, seed):
    rng = random.Random(seed)
    ids = torch.tensor([[1] + [rng.randrange(259, 4096) for _ in range(N_PROMPT - 1)]])
    return target.generate(ids, max_new_tokens=N_TEXT, min_new_tokens=N_TEXT, do_sample=False)


@torch.no_grad()
def states_of(target, ids):
    """Streams before layers 0 and 1 and after the last, side by side."""
    last = []
    hook = target.model.layers[-1].register_forward_hook(lambda m, i, o: last.append(o[0] if isinstance(o, tuple) else o))
    out = target(ids, output_hidden_states=True).hidden_states
    hook.remove()
    return torch.cat([out[0], out[1], last[0]], dim=-1)


@torch.no_grad()
def drafts_of(folder, ids, states):
    """[STEPS][position - 1]: step k after position p of the text, whose tokens up to p + k are the text's."""
    facts = json.loads((folder / "config.json").read_text())
    facts["transformer_layer_config"]["attn_implementation"] = "eager"
    config = Eagle3SpeculatorConfig(**{k: v for k, v in facts.items() if k not in ("architectures", "speculators_config")})
    config.transformer_layer_config._attn_implementation = "eager"
    model = Eagle3DraftModel(config).float().eval()
    weights = {k: v.float() if v.is_floating_point() else v for k, v in load_file(folder / "model.safetensors").items()}
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown and all(m.startswith("verifier_") for m in missing), (missing, unknown)
    n = ids.shape[1]
    drafted = model(hidden_states=states[:, :-1], input_ids=ids[:, 1:], document_ids=torch.zeros(1, n - 1, dtype=torch.long),
                    ttt_steps=STEPS)
    return [(d + model.d2t[d])[0].tolist() for d in drafted]


@torch.no_grad()
def blocks_of(folder, target, ids):
    """[position]: what the block that begins with the token there says of the tokens after it."""
    facts = json.loads((folder / "config.json").read_text())
    chains = "markov_rank" in facts
    made = DSparkSpeculatorConfig if chains else DFlashSpeculatorConfig
    config = made(**{k: v for k, v in facts.items() if k != "architectures"})
    config.transformer_layer_config._attn_implementation = "eager"
    model = (DSparkDraftModel if chains else DFlashDraftModel)(config).float().eval()
    weights = {k: v.float() if v.is_floating_point() else v for k, v in load_file(folder / "model.safetensors").items()}
    missing, unknown = model.load_state_dict(weights, strict=False)
    assert not unknown, unknown
    model.embed_tokens.weight.copy_(target.model.embed_tokens.weight)
    if "lm_head.weight" in missing:
        model.lm_head.weight.copy_(target.lm_head.weight)
    streams = target(ids, output_hidden_states=True).hidden_states
    states = torch.cat([streams[i] for i in config.aux_hidden_state_layer_ids], dim=-1)
    n, size = ids.shape[1], config.block_size
    wide = torch.nn.functional.pad(ids, (0, size))  # anchors stand at least a block before the end
    hidden, logits, _, _, at = model._backbone_forward(
        torch.nn.functional.pad(states, (0, 0, 0, size)), wide, torch.ones_like(wide),
        torch.zeros(1, n + size, target.config.hidden_size), torch.zeros_like(wide), max_anchors=n)
    assert at[::size].tolist() == list(range(n))
    first = 0 if config.sample_from_anchor else 1
    if chains:
        return chains_of(model, ids[0].tolist(), hidden.reshape(n, size, -1)[:, first:], logits.reshape(n, size, -1)[:, first:])
    said = logits[0].argmax(-1).reshape(n, size)[:, first:]
    return (said + model.d2t[said] if model.d2t is not None else said).tolist()


@torch.no_grad()
def chains_of(model, ids, hidden, logits):
    """[position]: each token of the block by the ones drafted before it; then how sure the head is of each."""
    out = []
    for token, states, base in zip(ids, hidden, logits):
        tokens, sure = [token], []
        for k in range(len(base)):
            before = torch.tensor([tokens])
            bias = model.markov_head.block_bias(prev_token_ids=before, hidden_states=states[None, :k + 1])
            said = (base[k] + bias[0, k]).argmax()
            by = [states[k]] + [model.markov_head.prev_embeddings(before)[0, k]] * model.config.confidence_head_with_markov
            sure.append(round(torch.sigmoid(model.confidence_head(torch.cat(by))).item(), 5))
            tokens.append(int(said + model.d2t[said] if model.d2t is not None else said))
        out.append(tokens[1:] + sure)
    return out


def main():
    tales = Path(sys.argv[1])
    target = LlamaForCausalLM.from_pretrained(tales, torch_dtype=torch.float32).eval()
    texts = []
    with tempfile.TemporaryDirectory() as at:
        for variant in draft_heads.VARIANTS:
            draft_heads.speculators(tales, Path(at) / variant, variant)
        for variant in [*draft_heads.BLOCKS, *draft_heads.CHAINS]:
            draft_heads.blocks(tales, Path(at) / variant, variant)
        for seed in range(2):
            ids = text_of(target, seed)
            states = states_of(target, ids)
            texts.append({"ids": ids[0].tolist(),
                          **{v: drafts_of(Path(at) / v, ids, states) for v in draft_heads.VARIANTS},
                          **{v: blocks_of(Path(at) / v, target, ids) for v in [*draft_heads.BLOCKS, *draft_heads.CHAINS]}})
    (HERE / "goldens.json").write_text(json.dumps({"texts": texts}) + "\n")


main()
