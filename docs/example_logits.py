# docs/example_logits.py - logits for callers that choose tokens themselves (outlines, llguidance and
# the like): the scores of the next token in, a mask or a choice of theirs out.
#     python3 example_logits.py model.gguf "Once upon a"
import sys

import numpy

import godwit


def allowed(text, tokens):
    """A stand-in for the caller's rule: tokens of letters and spaces alone."""
    return numpy.array([t.replace(" ", "").isalpha() for t in tokens])


model = godwit.Model(sys.argv[1])
spelled = [model.detokenize([i]) for i in range(model.n_vocab)]
ids = model.tokenize(sys.argv[2])
for _ in range(8):
    scores = model.logits(ids)[-1]
    scores[~allowed("", spelled)] = -numpy.inf
    ids.append(int(scores.argmax()))
print(model.detokenize(ids))
