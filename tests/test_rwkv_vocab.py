# tests/test_rwkv_vocab.py - the tokenizer of RWKV out of its own file and out of a GGUF file, against the
# longest token at every byte, looked for here in the plainest way.
import json

import pytest

from family_files import numbers, value, write_gguf
from program import run

WORDS = ["\n\n", "  ", " the", "it's", 'say "', "both '\"", "\\n", "\tx", "\r\n", "Größe", "\u200b", "\x85", "日本", "😀"]
PARTS = [b"\xe4\xb8", b"\x9f\x98", b"\xff\xfe'", "the quick".encode(), b" qu", b"qui"]
TOKENS = [bytes([b]) for b in range(256)] + [w.encode() for w in WORDS] + PARTS
TEXTS = ["the quick the quiet", "it's \"both\" say \"both '\"\\n \\x41", "\ta\tx\r\n\n\n   end", "日本語 中丟 😀🙂 Größe\u200b\x85ÿþ'",
         "", "\x00\x01\x7f"]


def ids_of(text):
    out, at, known = [], 0, {t: i + 1 for i, t in enumerate(TOKENS)}
    while at < len(text):
        size = max(len(t) for t in TOKENS if text.startswith(t, at))
        out.append(known[text[at:at + size]])
        at += size
    return out


def literal(token):
    try:
        return repr(token.decode())
    except UnicodeDecodeError:
        return repr(token)


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rwkv")
    lines = [f"{i + 1} {literal(t)} {len(t)}\n" for i, t in enumerate(TOKENS)]
    (folder / "rwkv_vocab_v20230424.txt").write_text("".join(lines), encoding="utf-8")
    texts = ["<s>"] + [repr(t)[2:-1] for t in TOKENS] + ["[PAD]"]
    write_gguf(folder / "model.gguf", {
        "general.architecture": value("rwkv7"), "tokenizer.ggml.model": value("rwkv"),
        "tokenizer.ggml.tokens": value(texts), "tokenizer.ggml.token_type": numbers([3] + [1] * len(TOKENS) + [5]),
        "tokenizer.ggml.bos_token_id": value(0), "tokenizer.ggml.eos_token_id": value(0)},
        {"token_embd.weight": ([1, 32], 0, bytes(128))})
    return folder / "rwkv_vocab_v20230424.txt", folder / "model.gguf"


@pytest.mark.parametrize("which", [0, 1])
def test_longest(which, models, tmp_path):
    for text in TEXTS:
        (tmp_path / "text").write_bytes(text.encode())
        got = json.loads(run("tokenize", "-m", models[which], "-f", tmp_path / "text", "-q").stdout)
        assert got == ids_of(text.encode()), text
        if got:
            back = run("tokenize", "-m", models[which], "--decode", ",".join(map(str, got)), "-q").stdout
            assert back.removesuffix("\n") == text.replace("\r\n", "\n").removesuffix("\n")


@pytest.mark.parametrize("line, words", [
    ("3 'a' 1", "line 2 is not '2'"), ("2 'a 1", "line 2 is not"), ("2 'a' 2", "line 2 has 1 bytes, not 2"),
    ("2 b'\\xe4' 2", "line 2 has 1 bytes"), ("2 '\\xe4' 1", "line 2 has 2 bytes"), ("2 'x' 1", "are the same"),
    ("2 '' 0", "line 2"), ("2", "line 2 is not")])
def test_broken(line, words, tmp_path):
    path = tmp_path / "rwkv_vocab_v20230424.txt"
    path.write_text(f"1 'x' 1\n{line}\n")
    done = run("tokenize", "-m", path, "-p", "x", check=False)
    assert done.returncode != 0 and words in done.stderr and done.stderr.count("\n") == 1
