# docs/example_logits.py - logits for callers that choose tokens themselves: the scores of the next token in, a
# choice of theirs out. Scores are numpy's view of the library's own, without a copy.
#     python3 example_logits.py model.gguf "Once upon a"
import sys

import numpy

import godwit

model = godwit.Model(sys.argv[1])
words = numpy.array([t.replace(b" ", b"").isalpha() for t in model.vocabulary()])  # tokens of letters alone
with model.session() as session:
    session.prefill(model.tokenize(sys.argv[2]))
    for _ in range(8):
        session.decode([int(numpy.where(words, session.logits[-1], -numpy.inf).argmax())])
    print(model.detokenize(session.tokens))
