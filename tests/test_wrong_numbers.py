# tests/test_wrong_numbers.py - configs with a number that is missing, negative, huge or of another
# kind, and specs of families with words changed: the model runs, or one line says what is wrong and
# the program exits with 1. Never a crash, an endless loop or all of memory. Drawn from a seed;
# GODWIT_DRAWS says how many (default 150 of each).
import json
import os
import random
import re
import resource
import subprocess
import time

import pytest

import program

GOLDENS = program.SHARED / "goldens"
SPECS = program.ROOT / "core/model/specs"
DRAWS = int(os.environ.get("GODWIT_DRAWS", "150"))
SECONDS = 20
BYTES = 3 << 30
OPTIONS = os.environ.get("ASAN_OPTIONS", "") + ":detect_leaks=0"  # many programs, killed or not
WRONG = {"missing": None, "negative": -1, "nothing": 0, "large": 2**31 - 1, "huge": 2**62,
         "beyond": 1e30, "tiny": 1e-30, "text": "x", "null": None, "list": [3, 5], "half": 0.5,
         "true": True, "object": {"a": 1}}
WORDS = ["0", "-1", "2", "1e30", "nan", "x", "layer", "norm", "add", "from", "h", "->", "d_model",
         "999999999999", "(", ")", "?", ":", "float", "cut", "%d", "", "like", "number"]

pytestmark = pytest.mark.skipif(not GOLDENS.is_dir(), reason="no reference checkpoints")


def limits():
    if not program.SLOW:  # sanitizers map more
        resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def complaint(folder, *args):
    """None, or what is wrong with the way the program took it."""
    begin = time.monotonic()
    decoder = "t5" not in folder.name and "m2m" not in folder.name
    rest = () if decoder else ("--decoder-ids", "1,2")
    done = subprocess.run([*program.EMULATOR, program.BIN, "logits", "-q", "-m", folder, "--ids",
                           "1,2,3", "-t", "1", *rest, *args], capture_output=True, text=True,
                          errors="replace", preexec_fn=limits, timeout=10 * SECONDS,
                          env={**os.environ, "ASAN_OPTIONS": OPTIONS})
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    seconds = time.monotonic() - begin
    if seconds > (10 if program.SLOW else 1) * SECONDS:
        return f"{seconds:.0f} s"
    if done.returncode == 0:
        return None if not any("error" in line for line in lines) else lines[:3]
    one = done.returncode == 1 and len(lines) == 1 and lines[0].startswith("godwit: error: ")
    return None if one else f"exit {done.returncode}: {lines[:3]}"


def numbers_of(value, path=()):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers_of(inner, (*path, key))
    elif value is None or isinstance(value, (int, float, list)):
        yield path


def folder_like(golden, to, config):
    to.mkdir()
    for file in golden.iterdir():
        if file.name != "config.json":
            (to / file.name).symlink_to(file)
    (to / "config.json").write_text(json.dumps(config))
    return to


def test_configs(tmp_path):
    draw = random.Random(1)
    cases = []
    for golden in sorted(GOLDENS.iterdir()):
        path = golden / "config.json"
        if path.is_file():
            config = json.loads(path.read_text())  # Python reads Infinity
            cases += [(golden, config, where, name) for where in numbers_of(config)
                      for name in WRONG]
    wrong = []
    for i, (golden, config, where, name) in enumerate(draw.sample(cases, DRAWS)):
        config = json.loads(json.dumps(config))
        inner = config
        for key in where[:-1]:
            inner = inner[key]
        inner[where[-1]] = WRONG[name]
        if name == "missing":
            del inner[where[-1]]
        said = complaint(folder_like(golden, tmp_path / f"{i}-{golden.name}", config))
        if said:
            wrong.append((golden.name, where, name, said))
    assert not wrong


def changed(draw, text):
    lines = text.split("\n")
    for _ in range(draw.choice([1, 1, 1, 2, 3])):
        k = draw.randrange(len(lines))
        words = lines[k].split(" ")
        at = draw.randrange(len(words))
        how = draw.randrange(5)
        if how == 0 and len(lines) > 1:
            del lines[k]
        elif how == 1:
            lines.insert(k, draw.choice(lines))
        elif how == 2:
            lines[k] = " ".join([*words[:at], draw.choice(WORDS), *words[at + 1:]])
        elif how == 3:
            lines[k] = " ".join([*words[:at], draw.choice(WORDS), *words[at:]])
        else:
            lines[k] = " ".join([*words[:at], *words[at + 1:]])
    return "\n".join(lines)


def test_specs(tmp_path):
    draw = random.Random(2)
    family = {}
    for spec in sorted(SPECS.glob("*.spec")):
        if spec.stem.endswith("-vision"):
            continue  # a tower's, which no model is opened by
        for names in re.findall(r"^hf (.*)$", spec.read_text(), re.M):
            family.update({name: spec for name in names.split()})
    models = []
    for golden in sorted(GOLDENS.iterdir()):
        path = golden / "config.json"
        name = path.is_file() and re.search(r'"architectures": *\[\s*"(\w+)"', path.read_text())
        if name and name.group(1) in family:
            models.append((golden, family[name.group(1)]))
    wrong = []
    for i in range(DRAWS):
        golden, spec = draw.choice(models)
        file = tmp_path / f"{i}.spec"
        file.write_text(changed(draw, spec.read_text()))
        said = complaint(golden, "--spec", file)
        if said:
            wrong.append((golden.name, file.read_text(), said))
    assert not wrong


def test_rope_without_attention(tmp_path):
    """Nothing would hold what it leaves in the cache."""
    file = tmp_path / "less.spec"
    text = (SPECS / "llama.spec").read_text()
    file.write_text(re.sub(r"^  attention\b.*\n", "", text, flags=re.M))
    done = subprocess.run([*program.EMULATOR, program.BIN, "logits", "-q", "-m",
                           GOLDENS / "llama-mha", "--spec", file, "--ids", "1"],
                          capture_output=True, text=True, timeout=10 * SECONDS)
    assert done.returncode == 1 and "rope_kv and no attention" in done.stderr
