# docs/example_lm_eval.py - a model of lm-eval (EleutherAI's lm-evaluation-harness) by this package:
#     from example_lm_eval import Godwit; lm_eval.simple_evaluate(model=Godwit("model.gguf"), tasks=["piqa"])
# Without lm-eval the class works alone: requests are objects with `args`.
import godwit

try:
    from lm_eval.api.model import LM
except ImportError:
    LM = object


class Godwit(LM):
    def __init__(self, path, **options):
        super().__init__()
        self.model = godwit.Model(path, **options)

    def loglikelihood(self, requests, **unused):
        return [self.model.loglikelihood(*r.args) for r in requests]

    def loglikelihood_rolling(self, requests, **unused):
        return [self.model.loglikelihood("", r.args[0])[0] for r in requests]

    def generate_until(self, requests, **unused):
        out = []
        for r in requests:
            prompt, how = r.args
            out.append(self.model.generate(prompt, stop=how.get("until", []), max_tokens=how.get("max_gen_toks", 256),
                                           temperature=how.get("temperature", 0.0)))
        return out
