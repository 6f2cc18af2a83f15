# tests/test_hip_adapters.py - adapters on the emulators of cards: the bits of the processor (test_lora.py,
# test_lora_experts.py), in launches of their own and in those of products.
import os
import pathlib

import pytest

import test_lora as layers
import test_lora_experts as experts
from program import logits_hash
from test_lora import IDS, MODEL, adapters, loras  # noqa: F401
from test_lora_experts import mixture  # noqa: F401


def driver(wave):
    emulator = pathlib.Path(os.environ.get("GODWIT_BUILD", "")) / f"emulator/libgodwit_emu{wave}.so"
    if not emulator.is_file():
        pytest.skip("no emulator in this build")
    return {"GODWIT_HIP_DRIVER": str(emulator)}


@pytest.mark.parametrize("wave", [32, 64])
@pytest.mark.parametrize("of", [layers, experts], ids=["layers", "experts"])
def test_bits(of, wave):
    of.same_on("hip", driver(wave), 3)


def test_bits_of_layers_whose_norms_are_fused(adapters):  # noqa: F811
    one, two, three = adapters  # ranks of 8 and 3: in the products' launches; of 20: in launches of their own
    for given in ((three, f"{one}:-0.5"), (two,)):
        ask = [MODEL, IDS[:2], "--rows", "decode", *loras(*given)]
        assert logits_hash(*ask, "--device", "hip", "--exact", env=driver(32)) == logits_hash(*ask)


def test_bits_of_quantized_experts(mixture):  # noqa: F811
    model, one, two = mixture
    ask = [model, experts.IDS[:2], "--rows", "decode", *loras(one, f"{two}:-0.5")]
    assert logits_hash(*ask, "--device", "hip", "--exact", env=driver(32)) == logits_hash(*ask)
