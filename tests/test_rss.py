# tests/test_rss.py - memory of a run: at most the file, the KV cache and a tenth more; a measurement
# of devices takes no table of n-grams; tables of which a token reads a row are not resident.
# Models with random weights, large enough that the program itself (FIXED) does not decide.
import json
import os
import struct
import subprocess
import sys

import pytest

from program import BIN, EMULATOR, SANITIZED, SHARED, copy_folder

SYNTH = SHARED / "tools/synth_gguf.py"
FIXED = 24 << 20  # the program, its libraries, one thread stack per thread, the tokenizer
CONTEXT = 512

pytestmark = [
    pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="memory of an emulator or a sanitizer"),
    pytest.mark.skipif(not SYNTH.is_file(), reason=f"{SYNTH} is not there"),
]


def peak_bytes(args):
    """Peak resident bytes of one run (of its own process: wait4 tells)."""
    with open(os.devnull, "r+b") as null:
        child = subprocess.Popen([BIN, *map(str, args)], stdin=null, stdout=null,
                                 stderr=subprocess.PIPE)
        words = child.stderr.read()
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
    assert child.returncode == 0, words[-2000:]
    return usage.ru_maxrss * 1024


@pytest.mark.parametrize("weights", ["q4_k", "f16"])
def test_peak(weights, tmp_path):
    path = tmp_path / "synthetic.gguf"
    subprocess.run([sys.executable, SYNTH, "1.1b", weights, path, "--layers", "3"], check=True,
                   stdout=subprocess.DEVNULL)
    kv = 3 * 2 * CONTEXT * 4 * 64 * 2  # layers, K and V, positions, KV heads, width, f16
    peak = peak_bytes(["logits", "-m", path, "-c", CONTEXT, "--ids", "1,300,301,302", "--greedy", 4])
    limit = (path.stat().st_size + kv) * 1.1 + FIXED
    assert peak <= limit, f"{peak / 2**20:.0f} MiB, allowed {limit / 2**20:.0f} MiB"


def is_prime(n):
    return n > 1 and all(n % d for d in range(2, int(n**0.5) + 1))


def enlarge_tables(folder, base):
    """The same folder with tables of n-grams from `base` rows a hash on, of zeros that take no disk; bytes
    of one table."""
    config = json.loads((folder / "config.json").read_text())
    config["ngram_vocab_size_base"] = base
    (folder / "config.json").write_text(json.dumps(config))
    path = folder / "model.safetensors"
    data = path.read_bytes()
    begin = 8 + struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:begin])
    primes, n = [], base
    while len(primes) < (config["ngram_size"] - 1) * config["heads_per_ngram"]:
        primes += [n] if is_prime(n) else []
        n += 1
    name = next(k for k in header if "ngram_embedding.shard_0" in k)
    width = header[name]["shape"][1]
    rows = -(-sum(primes) // config["make_ngram_vocab_size_divisible_by"]) * 8
    end = len(data) - begin
    header[name] |= {"shape": [rows, width], "data_offsets": [end, end + rows * width * 2]}
    kept, place = b"", 0
    for key, t in sorted(header.items(), key=lambda kv: kv[1].get("data_offsets", [0])[0]):
        if key not in ("__metadata__", name):
            first, last = t["data_offsets"]
            kept += data[begin + first:begin + last]
            t["data_offsets"] = [place, place + last - first]
            place += last - first
    header[name]["data_offsets"] = [place, place + rows * width * 2]
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + kept)
        out.truncate(8 + len(text) + place + rows * width * 2)
    return rows * width * 2


def test_measuring_takes_no_table(tmp_path, monkeypatch):
    """auto and plan make layers up to measure with: not their tables, which may be larger than memory."""
    golden = SHARED / "goldens/qwen4-exp"
    if not golden.is_dir():
        pytest.skip(f"{golden} is not there")
    folder = copy_folder(golden, tmp_path / "model")
    table = enlarge_tables(folder, 4_000_000)
    assert table > 500e6
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    peak = peak_bytes(["plan", "-m", folder, "-c", 64, "-b", 16, "--device", "cpu"])
    assert peak <= FIXED + (32 << 20), f"{peak / 2**20:.0f} MiB; the table has {table / 2**20:.0f}"


def decoding_bytes(args):
    """Resident bytes, the most seen from the first word on standard output to the end of it."""
    with subprocess.Popen([BIN, *map(str, args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, bufsize=0) as child:
        most = 0
        while child.stdout.read(1):
            with open(f"/proc/{child.pid}/statm") as f:
                numbers = f.read().split()
            most = max(most, int(numbers[1]) * os.sysconf("SC_PAGESIZE"))
    assert child.returncode == 0
    return most


def test_decode_leaves_tables_on_disk(tmp_path):
    """A small gemma4-e2b, whose table of inputs per layer is over a third of what a token reads:
    resident are at most 1.2 times the decode bytes, and the program itself."""
    path, vocab = tmp_path / "e.gguf", 98304
    subprocess.run([sys.executable, "bench/make_shapes.py", "gemma4-e2b", "q4_k", path, "--layers", "10",
                    "--vocab", str(vocab)], check=True, stdout=subprocess.DEVNULL)
    done = subprocess.run([BIN, "bench", "-m", path, "-p", "0", "-n", "1", "-r", "1", "-o", "json",
                           "--device", "cpu"], check=True, capture_output=True, text=True)
    decode = json.loads(done.stdout)[0]["decode_bytes"]
    table = vocab * 10 * 256 * 144 // 256
    assert table > 0.35 * decode
    resident = decoding_bytes(["run", "-m", path, "-c", CONTEXT, "-b", 32, "-p", "w1 w2", "-n", 32,
                               "--ignore-eos", "--device", "cpu"])
    limit = 1.2 * decode + FIXED
    assert resident <= limit, f"{resident / 2**20:.0f} MiB, allowed {limit / 2**20:.0f} MiB"
