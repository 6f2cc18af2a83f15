# docs/example_llguidance.py - a text that llguidance's grammars rule (pip install llguidance): its mask of the
# tokens that may come next over godwit's scores. Outlines and others that hand out masks fit in the same place.
#     python3 example_llguidance.py model.gguf "My name is " '[A-Z][a-z]{2,8}'
import sys

import llguidance
import llguidance.numpy as masks
import numpy

import godwit


class Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, model):
        self.model, self.tokens = model, model.vocabulary()
        self.bos_token_id, self.eos_token_id = (t if t >= 0 else None for t in (model.bos, model.eos))
        self.special_token_ids = [i for i, spelled in enumerate(self.tokens) if not spelled]

    def __call__(self, text):
        return self.model.tokenize(text, bos=False)


def constrained(model, prompt, grammar, max_tokens=64):
    """The most probable text that the grammar allows."""
    tokenizer = llguidance.LLTokenizer(llguidance.TokenizerWrapper(Vocabulary(model)), n_vocab=model.n_vocab)
    matcher, mask = llguidance.LLMatcher(tokenizer, grammar), masks.allocate_token_bitmask(1, model.n_vocab)
    with model.session() as session:
        session.prefill(model.tokenize(prompt))
        begin = session.pos
        while not matcher.is_stopped() and session.pos < begin + max_tokens:
            masks.fill_next_token_bitmask(matcher, mask)
            scores = session.logits[-1:].copy()
            masks.apply_token_bitmask_inplace(scores, mask)
            token = int(numpy.argmax(scores))
            if model.is_end(token) or not matcher.consume_token(token):
                break
            session.decode([token])
        return model.detokenize_bytes(session.tokens)[len(model.detokenize_bytes(session.tokens[:begin])):].decode()


if __name__ == "__main__":
    print(constrained(godwit.Model(sys.argv[1]), sys.argv[2], llguidance.LLMatcher.grammar_from_regex(sys.argv[3])))
