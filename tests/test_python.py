# tests/test_python.py - the Python package over the library of this build: the text and the logits of
# the program, streaming, asyncio, chats, errors, and declarations that cover the headers.
import os
import pathlib
import re
import subprocess
import sys

import pytest

from program import DATA, EMULATOR, ROOT, SANITIZED, logits_hash, run

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ROOT / "build/release"))
SMALL = DATA / "tales-2m-q4_0.gguf"
PYTHON = os.environ.get("GODWIT_CFFI_PYTHON", sys.executable)
pytestmark = pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="the library is loaded into this machine's Python")


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    library = BUILD / "libgodwit.so.0"
    if subprocess.run([PYTHON, "-c", "import cffi, numpy"], capture_output=True).returncode != 0:
        pytest.skip("SKIP: no cffi")
    if not library.exists():
        pytest.skip("SKIP: no libgodwit.so")
    folder = tmp_path_factory.mktemp("python")
    (folder / "godwit").mkdir()
    for path in (ROOT / "python/godwit").glob("*.py"):
        (folder / "godwit" / path.name).write_text(path.read_text())
    subprocess.run([PYTHON, ROOT / "python/make_abi.py", ROOT / "include", folder / "godwit/_abi.py"], check=True)

    def script(text, *args, check=True):
        done = subprocess.run([PYTHON, "-c", text, *map(str, args)], capture_output=True, text=True, timeout=120,
                              env=os.environ | {"PYTHONPATH": f"{folder}:{ROOT / 'docs'}", "GODWIT_LIBRARY": str(library)})
        assert not check or done.returncode == 0, done.stderr
        return done.stdout
    return script


OPEN = "import godwit, sys, hashlib, asyncio; m = godwit.Model(sys.argv[1], threads=1)\n"


def test_text_of_the_program(package):
    got = package(OPEN + "for seed in (1, 7): sys.stdout.write(m.generate('The old king', max_tokens=40, seed=seed) + '|')\n"
                  "sys.stdout.write(''.join(m.stream('The old king', max_tokens=40, temperature=0, stop=['.'])) + '|')", SMALL)
    say = ("run", "-m", SMALL, "-p", "The old king", "-n", 40, "-q", "--no-display-prompt", "-t", 1)
    want = [run(*say, "-s", seed).stdout[:-1] for seed in (1, 7)] + [run(*say, "--temp", 0, "--stop", ".").stdout[:-1]]
    assert got.split("|")[:-1] == want


def test_logits_of_the_program(package):
    ids = [1, 7, 300, 9, 22]
    got = package(OPEN + "print(hashlib.sha256(m.logits([1, 7, 300, 9, 22]).tobytes()).hexdigest())", SMALL)
    assert got.strip() == logits_hash(SMALL, ids)


def test_asyncio_goes_on_meanwhile(package):
    got = package(OPEN + """
async def beat(n):
    while True:
        n[0] += 1
        await asyncio.sleep(0.0005)
async def main():
    n = [0]
    other = asyncio.create_task(beat(n))
    text = ''.join([p async for p in m.astream('The sea', max_tokens=100, seed=3)])
    other.cancel()
    print(text == m.generate('The sea', max_tokens=100, seed=3), n[0] > 3)
asyncio.run(main())""", SMALL)
    assert got == "True True\n"


def test_chats_schemas_vectors(package):
    got = package(OPEN + """
a = m.chat([{'role': 'user', 'content': 'Hello'}], max_tokens=8, seed=1)
print(type(a).__name__, 0 < a.tokens <= 8, a.tool_calls)
print(m.generate('It was a ', json_schema={'enum': ['cat', 'dog']}, seed=3) in ('"cat"', '"dog"'))
tool = {'type': 'function', 'function': {'name': 'look', 'parameters': {'type': 'object', 'properties': {'x': {'enum': [1, 2]}},
        'required': ['x'], 'additionalProperties': False}}}
a = m.chat([{'role': 'user', 'content': 'Hello'}], tools=[tool], tool_choice='required', max_tokens=80, seed=1,
           chat_template='{% for m in messages %}{{ m.content }} {% endfor %}')
import json; print([(c.name, json.loads(c.arguments)['x'] in (1, 2)) for c in a.tool_calls][:1] == [('look', True)])
v = m.embed(['a cat', 'a dog'])
print(v.shape[0], v.dtype, m.loglikelihood('Once upon a', ' time')[1])""", SMALL)
    assert got == "Answer True []\nTrue\nTrue\n2 float32 True\n"


def test_errors(package):
    got = package("""
import godwit, sys
try:
    godwit.Model('/nowhere.gguf')
except godwit.GodwitError as e:
    print(e.status, '/nowhere.gguf' in str(e))
m = godwit.Model(sys.argv[1])
s = m.stream('The sea'); next(s); s.close()
for bad in (lambda: m.logits([10**6]), lambda: m.generate('x', json_schema='{'), lambda: m.chat([])):
    try:
        bad(); print('no error')
    except godwit.GodwitError as e:
        print(bool(str(e)))
m.close()
try:
    m.generate('x')
except Exception as e:
    print(type(e).__name__)""", SMALL)
    assert got.splitlines()[:4] == ["io True", "True", "True", "True"] and len(got.splitlines()) == 5


def test_examples(package):
    got = package("import runpy, sys; runpy.run_path(sys.argv.pop(1), run_name='__main__')",
                  ROOT / "docs/example_logits.py", SMALL, "Once upon a")
    assert got.startswith("Once upon a")
    got = package("import sys, types; from example_lm_eval import Godwit; g = Godwit(sys.argv[1], threads=1)\n"
                  "r = lambda *a: types.SimpleNamespace(args=a)\n"
                  "print(g.loglikelihood([r('Once upon a', ' time')])[0][1], len(g.generate_until([r('The sea', {'max_gen_toks': 4})])))", SMALL)
    assert got == "True 1\n"


def test_version_and_sizes(package):
    got = package("import godwit; print(godwit.version())")
    assert f'GW_VERSION "{got.strip()}"' in (ROOT / "include/godwit.h").read_text()
    assert re.search(rf'^version = "{re.escape(got.strip())}"$', (ROOT / "pyproject.toml").read_text(), re.M)
