# tests/test_python.py - the Python package over the library of this build: the text and the logits of
# the program, streaming, asyncio, chats, errors, and declarations that cover the headers.
import os
import pathlib
import re
import subprocess
import sys

import pytest

from program import DATA, EMULATOR, ROOT, SANITIZED, logits_hash, run
from test_lora import random_adapter
from test_see import folder as eyes  # noqa: F401

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

    def script(text, *args, check=True, cwd=None):
        done = subprocess.run([PYTHON, "-c", text, *map(str, args)], capture_output=True, text=True, timeout=120, cwd=cwd,
                              env=os.environ | {"PYTHONPATH": f"{folder}:{ROOT / 'docs'}", "GODWIT_LIBRARY": str(library)})
        assert not check or done.returncode == 0, done.stderr
        return done.stdout
    script.folder = folder
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


@pytest.fixture(scope="module")
def adapters(tmp_path_factory):
    folder = tmp_path_factory.mktemp("adapters")
    return [random_adapter(folder / f"{name}.gguf", seed, 4) for seed, name in enumerate(("one", "two"))]


def test_docs(package, adapters, tmp_path):
    """The page's examples, as they stand."""
    for name, path in zip(("model", "tone", "law"), (SMALL, *adapters)):
        (tmp_path / f"{name}.gguf").symlink_to(path)
    got = package("import doctest, sys; print(doctest.testfile(sys.argv[1], module_relative=False, verbose=False,"
                  "optionflags=doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL).attempted)", ROOT / "docs/python.md", cwd=tmp_path)
    assert int(got) > 20, got


def test_batch(package):
    got = package(OPEN + """
prompts = ['The old king', 'A mouse', 'The sea', 'Once', 'My dear']
with m.batch(parallel=3, n_ctx=128) as b:
    together = b.generate(prompts, max_tokens=12, seed=5)
    shaped = b.submit('It was a ', json_schema={'enum': ['cat', 'dog']}, seed=3)
    stopped = b.submit('The sea', max_tokens=100, temperature=0, stop='.')
    ended = b.submit('The sea', max_tokens=3)
    async def main():
        asked = [b.submit(p, max_tokens=12, seed=5) for p in prompts]
        async def whole(r): return ''.join([piece async for piece in r])
        return await asyncio.gather(*map(whole, asked))
    print(asyncio.run(main()) == together)
    print(shaped.result() in ('"cat"', '"dog"'), '.' not in stopped.result(), stopped.finish)
    print(ended.result() != '', ended.finish, ended.tokens)
    for bad in (lambda: b.submit([10**6]), lambda: b.submit('x' * 4000), lambda: b.submit('x', json_schema='{')):
        try: bad(); print('no error')
        except godwit.GodwitError as e: print(e.status)
    long = b.submit('The sea', max_tokens=110)
    next(iter(long))
print(together == [m.generate(p, max_tokens=12, seed=5) for p in prompts], long.finish)
list(long)
try: b.submit('x')
except godwit.GodwitError as e: print(e.status)""", SMALL)
    assert got.splitlines() == ["True", "True True stop", "True length 3", "argument", "context", "syntax", "True cancelled", "state"], got


def test_session(package, tmp_path):
    got = package(OPEN + """
import gc, numpy
ids = m.tokenize('Once upon a time there was a king')
with m.session(64) as s:
    s.prefill(ids[:-3]); s.decode(ids[-3:])
    rows = s.logits
    print(rows.shape, rows.flags.writeable, rows.base is not None, s.tokens == ids)
    other = s.copy()
    print(other.logits.shape, other.pos == s.pos)
    s.decode([5]); other.decode([5])
    print(numpy.array_equal(s.logits, other.logits))
    other.rewind(len(ids)); other.decode([9])
    print(numpy.array_equal(s.logits, other.logits))
    s.save(sys.argv[2]); other.load(sys.argv[2]); print(other.tokens == s.tokens)
    view = other.logits
del other
gc.collect()
# Objects in a cycle with their model: whatever the collector's order, none goes before what needs it.
for _ in range(3):
    a = godwit.Model(sys.argv[1], threads=1); a.forks = [a.session(32) for _ in range(3)]; a.embed(['x']); a.me = a
    del a; gc.collect()
try: m.session(64).prefill(list(range(65)))
except godwit.GodwitError as e: print(e.status)
v = m.vocabulary(); print(len(v) == m.n_vocab, b''.join(v[i] for i in ids[1:]).strip(), m.is_end(m.eos), m.bos == ids[0])
""", SMALL, tmp_path / "session")
    assert got.splitlines() == ["(3, 4096) False True True", "(0, 4096) True", "True", "False", "True", "context",
                                "True b'Once upon a time there was a king' True True"], got


def test_pictures(package, eyes):
    got = package("""
import godwit, sys
m = godwit.Model(sys.argv[1], threads=1, images=True)
raw = open(sys.argv[2], 'rb').read()
how = dict(max_tokens=12, temperature=0)
say = lambda *pictures: m.generate('w5 w6 w7', images=pictures, **how)
print(say(sys.argv[2]) == say(raw), say(raw) != say(sys.argv[3]))
import base64
parts = lambda p: [{'role': 'user', 'content': [p, {'type': 'text', 'text': 'w5 w6 w7'}]}]
url = {'type': 'image_url', 'image_url': {'url': 'data:image/png;base64,' + base64.b64encode(raw).decode()}}
print(m.chat(parts({'type': 'image', 'image': sys.argv[2]}), **how).text == m.chat(parts(url), **how).text)
print(m.generate('w5 w6 w7', images=sys.argv[2], **how) == say(raw))
for bad in (b'none', 'https://example.org/a.png', 'data:image/png;base64,%%', 'data:image/png'):
    try: m.chat(parts({'type': 'image', 'image': bad}), **how); print('no error')
    except godwit.GodwitError as e: print(e.status)
try: godwit.Model(sys.argv[1]).generate('w5', images=[raw])
except godwit.GodwitError as e: print(e.status)
sys.stdout.write(say(raw))""", eyes, DATA / "pictures/rgb.png", DATA / "pictures/grey.png")
    *lines, told = got.split("\n", 8)
    assert lines == ["True True", "True", "True", "magic", "argument", "argument", "argument", "argument"], got
    want = run("run", "-m", eyes, "--image", DATA / "pictures/rgb.png", "-p", "w5 w6 w7", "-n", 12, "--temp", 0,
               "--no-display-prompt", "--no-stats", "-q").stdout
    assert told.strip() == want.strip()


def test_adapters(package, adapters, tmp_path):
    one, two = adapters
    got = package("""
import godwit, sys
path, one, two, file = sys.argv[1:]
how = dict(max_tokens=16, seed=7)
open_ = lambda **more: godwit.Model(path, threads=1, **more)
m = open_(lora={'first': one, 'second': (two, 0.5)}, lora_at_once=2)
say = lambda lora=None: m.generate('The old king', lora=lora, **how)
alone = [say(), say('first'), say('second'), say(['first', 'second']), say({'second': 0.25})]
for text in alone[:4]: sys.stdout.write(text.replace(chr(10), ' ') + '|')
print(len({*alone}), say(0) == alone[1], say(()) == say({'first': 0}) == alone[0], m.adapters)
with m.batch(parallel=3, n_ctx=128) as b:
    picks = [None, 'first', 'second', ['second', 'first'], {'second': 0.25}]
    print([b.submit('The old king', lora=p, **how).result() for p in picks] == alone,
          b.generate(['The old king'] * 2, lora='first', **how) == alone[1:2] * 2)
usual = open_(lora=[one, (two, 0.5)])
print(usual.generate('The old king', **how) == alone[3], usual.generate('The old king', lora=(), **how) == alone[0],
      open_(lora=one).generate('The old king', **how) == alone[1], usual.adapters)
say_chat = lambda lora: m.chat([{'role': 'user', 'content': 'Hello'}], lora=lora, **how).text
print(say_chat(None) == say_chat(()) != say_chat('first'))
# A fork, and a saved session, have the adapters of their text.
ids = m.tokenize('The old king had a')
with m.session(64, lora='first') as s:
    s.prefill(ids[:-1]); fork = s.copy(); s.decode(ids[-1:]); fork.decode(ids[-1:])
    print((s.logits == fork.logits).all(), end=' '); s.save(file); fork.load(file)
    other = m.session(64); other.prefill(ids[:-1]); other.decode(ids[-1:]); print((s.logits == other.logits).all())
    try: other.load(file)
    except godwit.GodwitError as e: print(e.status)
for bad in (lambda: say('third'), lambda: say(2), lambda: say({'first': float('nan')}), lambda: say(['first'] * 2),
            lambda: open_().generate('x', lora='first'), lambda: open_(lora='/nowhere'), lambda: m.generate('x', lora=[0] * 5),
            lambda: usual.embed(['x'])):
    try: bad(); print('no error')
    except godwit.GodwitError as e: print(e.status)""", SMALL, one, two, tmp_path / "session")
    lines = got.splitlines()
    *told, first = lines[0].split("|")
    say = ("run", "-m", SMALL, "-p", "The old king", "-n", 16, "-q", "--no-display-prompt", "--seed", 7, "-t", 1)
    wanted = [run(*say, *more).stdout[:-1].replace("\n", " ") for more in (
        (), ("--lora", one), ("--lora", f"{two}:0.5"), ("--lora", one, "--lora", f"{two}:0.5"))]
    assert told == wanted and len({*told}) == 4
    assert first == "5 True True ['first', 'second']"
    assert lines[1:] == ["True True", "True True True ['one.gguf', 'two.gguf']", "True", "True False", "metadata", "argument",
                         "argument", "argument", "argument", "argument", "io", "limit", "unsupported"], got


def test_types_of_caches(package):
    got = package(OPEN + """
ids = m.tokenize('Once upon a time there was a king who had')
print(hashlib.sha256(m.logits(ids).tobytes()).hexdigest())
q = godwit.Model(sys.argv[1], threads=1, kv_type='q4_0')
print(hashlib.sha256(q.logits(ids).tobytes()).hexdigest())
with q.batch(n_ctx=64) as b: print(b.generate(['The sea'], max_tokens=9, seed=2)[0] == q.generate('The sea', max_tokens=9, seed=2))
q = godwit.Model(sys.argv[1], threads=1, kv_type='q8_0,q4_0')
print(hashlib.sha256(q.logits(ids).tobytes()).hexdigest())
try: godwit.Model(sys.argv[1], kv_type='q8_0/q4_0')
except godwit.GodwitError as e: print(e.status, 'q5_0' in str(e))
print(ids)
for device, layers in (('cpu', 1), ('cpu', 'all'), ('cpu', 'some'), ('ref', 1), ('ref', 'none')):
    try: print(godwit.Model(sys.argv[1], device=device, kv_host_layers=layers).device[:3])
    except godwit.GodwitError as e: print(e.status, 'main memory' in str(e))""", SMALL).splitlines()
    ids = [int(i) for i in got[5][1:-1].split(",")]
    assert got[:5] == [logits_hash(SMALL, ids), logits_hash(SMALL, ids, "--kv-type", "q4_0"), "True",
                       logits_hash(SMALL, ids, "-ctk", "q8_0", "-ctv", "q4_0"), "argument True"]
    assert len({got[0], got[1], got[3]}) == 3
    assert got[6:] == ["cpu", "cpu", "argument False", "unsupported True", "ref"]


def test_errors(package):
    got = package("""
import godwit, sys
try:
    godwit.Model('/nowhere.gguf')
except godwit.GodwitError as e:
    print(e.status, '/nowhere.gguf' in str(e))
m = godwit.Model(sys.argv[1])
s = m.stream('The sea'); next(s); s.close()
for bad in (lambda: godwit.Model(sys.argv[1], n_ctx=-1), lambda: m.generate('x', max_tokens=-2), lambda: m.session(-5), lambda: m.batch(n_ctx=-5)):
    try: bad(); print('no error')
    except ValueError as e: print('-' in str(e))
try: godwit.Model(sys.argv[1], images=True)
except godwit.GodwitError as e: print('mmproj=PATH' in str(e) and '--' not in str(e))
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
    assert got.splitlines()[:-1] == ["io True", *["True"] * 8] and len(got.splitlines()) == 10


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


@pytest.fixture(scope="module")
def nightly(tmp_path_factory):
    """An environment with packages of others, where they can be had."""
    if os.environ.get("GODWIT_NIGHTLY") != "1":
        pytest.skip("SKIP: GODWIT_NIGHTLY is not 1")
    folder = tmp_path_factory.mktemp("packages")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)

    def need(*names):
        done = subprocess.run([folder / "bin/pip", "install", "-q", "cffi", "numpy", *names], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip(f"SKIP: {' '.join(names)} cannot be installed")
        return folder / "bin/python"
    return need


@pytest.mark.parametrize("names", [("llguidance",), ("lm_eval",), ("mypy",)], ids=lambda n: n[0])
def test_with_packages_of_others(package, nightly, names, tmp_path):
    """docs/example_llguidance.py and docs/example_lm_eval.py with the real ones; type hints."""
    python = nightly(*names)
    paths = os.environ | {"GODWIT_LIBRARY": str(BUILD / "libgodwit.so.0"), "PYTHONPATH": f"{package.folder}:{ROOT / 'docs'}"}
    if names == ("llguidance",):
        done = subprocess.run([python, ROOT / "docs/example_llguidance.py", SMALL, "My name is ", "[A-Z][a-z]{2,8}"],
                              env=paths, capture_output=True, text=True)
        assert done.returncode == 0 and re.fullmatch("[A-Z][a-z]{2,8}\n", done.stdout), done.stdout + done.stderr
    elif names == ("lm_eval",):
        done = subprocess.run([python, "-c", """
import sys
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from example_lm_eval import Godwit
g = Godwit(sys.argv[1], threads=1)
ask = lambda kind, *args: [Instance(request_type=kind, doc={}, arguments=args, idx=0)]
print(isinstance(g, LM), g.loglikelihood(ask('loglikelihood', 'Once upon a', ' time'))[0][1],
      g.loglikelihood_rolling(ask('loglikelihood_rolling', 'The sea was calm.'))[0] < 0,
      len(g.generate_until(ask('generate_until', 'The sea', {'until': ['.'], 'max_gen_toks': 9}))))""", SMALL],
                              env=paths, capture_output=True, text=True)
        assert done.stdout == "True True True 1\n", done.stdout + done.stderr
    else:
        done = subprocess.run([python, "-m", "mypy", "--strict", "--cache-dir", tmp_path, "godwit"], cwd=ROOT / "python",
                              capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
