# tests/test_pull.py - models by name from a hub on this machine: what is downloaded, where it lies,
# and that after every fault of a server nothing is used that is half or wrong.
import hashlib
import os
import re
import resource
import subprocess
import sys
import time

import pytest

from hub import COMMIT, Hub
from program import BIN, DATA, EMULATOR, SLOW, run

SMALL = (DATA / "tales-2m-q4_0.gguf").read_bytes()
FILES = {"tales-Q4_0.gguf": SMALL, "tales-Q8_0.gguf": SMALL + b"\0" * 4096, "README.md": b"# no model\n"}
pytestmark = pytest.mark.skipif(bool(EMULATOR), reason="the library for requests is the host's")


@pytest.fixture(scope="module", autouse=True)
def needs_curl():
    done = run("pull", "user/repo", env={"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": "/nowhere"}, check=False)
    if "need libcurl" in done.stderr:
        pytest.skip("SKIP: no libcurl", allow_module_level=True)


@pytest.fixture
def hub():
    servers = []

    def start(files=FILES, **more):
        servers.append(Hub(files, **more))
        return servers[-1]
    yield start
    for server in servers:
        server.close()


def where(hub, home):
    return {"HF_ENDPOINT": hub.url, "HF_HOME": str(home), "HF_TOKEN": "", "HF_HUB_CACHE": "",
            "HF_HUB_OFFLINE": "0", "HF_TOKEN_PATH": str(home / "token")}


def pull(hub, home, name="user/repo", *args, **more):
    env = where(hub, home) | more.pop("env", {})
    return run("pull", name, *args, env=env, **more)


def blobs(home):
    return {p.name: p for p in (home / "hub/models--user--repo/blobs").glob("*")}


# ---- what is taken, and where it lies --------------------------------------------------------------

def test_pull_run_ls_rm(hub, tmp_path):
    h = hub()
    done = pull(h, tmp_path, "user/repo:q8_0")
    path = tmp_path / f"hub/models--user--repo/snapshots/{COMMIT}/tales-Q8_0.gguf"
    assert done.stdout == f"{path}\n" and path.read_bytes() == FILES["tales-Q8_0.gguf"]
    assert path.is_symlink() and os.readlink(path).startswith("../../blobs/")
    assert (tmp_path / "hub/models--user--repo/refs/main").read_text() == COMMIT
    env = where(h, tmp_path)
    before = len(h.asked)
    say = ("-p", "The sea", "-n", 4, "--temp", 0, "-q")
    want = run("run", "-m", DATA / "tales-2m-q4_0.gguf", *say).stdout
    for model in ("user/repo:Q4_0", "hf:user/repo:Q4_0", f"{h.url}/user/repo/resolve/main/tales-Q4_0.gguf"):
        assert run("run", "-m", model, *say, env=env).stdout == want
    assert run("run", "-hf", "user/repo", "--hf-file", "tales-Q4_0.gguf", *say, env=env).stdout == want
    assert len(h.asked) == before + 1  # the others were in the cache
    assert run("run", "-m", "user/repo:Q4_0", "--offline", *say, env=env | {"HF_ENDPOINT": "http://127.0.0.1:9"}).stdout == want
    listed = run("list", env=env).stdout
    assert "user/repo:Q4_0 |" in listed and "user/repo:Q8_0 |" in listed
    assert run("show", "user/repo:Q4_0", env=env).stdout.rstrip().endswith("valid")
    run("rm", "user/repo:Q8_0", env=env)
    assert set(blobs(tmp_path)) == {hashlib.sha256(SMALL).hexdigest()}
    run("rm", "user/repo", env=env)
    assert not (tmp_path / "hub/models--user--repo").exists()
    assert run("rm", "user/repo", env=env, check=False).returncode == 1


def test_which_quantization(hub, tmp_path):
    """Four bits or more, the mixture that loses least, with its image part and all its parts."""
    sizes = {"m-Q2_K.gguf": 20, "m-Q3_K_M.gguf": 30, "m-Q4_0.gguf": 40, "m-Q8_0.gguf": 80, "m-F16.gguf": 160,
             "imatrix.gguf": 1, "mmproj-BF16.gguf": 9, "mmproj-F16.gguf": 9,
             "m-Q4_K_M-00001-of-00002.gguf": 23, "m-Q4_K_M-00002-of-00002.gguf": 23}
    tiny = {name: (name.encode() * size)[:10 * size] for name, size in sizes.items()}
    h = hub(tiny)
    done = pull(h, tmp_path)
    assert done.stdout.endswith("m-Q4_K_M-00001-of-00002.gguf\n") and "of 6 Q4_K_M, as usual" in done.stderr
    got = {name for name, _, _ in h.asked}
    assert got == {"m-Q4_K_M-00001-of-00002.gguf", "m-Q4_K_M-00002-of-00002.gguf", "mmproj-F16.gguf"}
    env = where(h, tmp_path)
    pull(h, tmp_path, "user/repo:F16")
    listed = run("ls", env=env).stdout
    assert "user/repo:F16 |" in listed and "user/repo:Q4_K_M |" in listed and not re.search(r"^\| .*mmproj", listed, re.M)
    run("rm", "user/repo:F16", env=env)  # the image part stays with the other
    assert len(blobs(tmp_path)) == 3 and "Q4_K_M" in run("ls", env=env).stdout
    run("rm", "user/repo:Q4_K_M", env=env)
    assert not (tmp_path / "hub/models--user--repo").exists()
    done = pull(h, tmp_path, "user/repo:Q5_K_M", check=False)
    assert done.returncode == 1 and "Q5_K_M" in done.stderr and "Q8_0" in done.stderr


def free_bytes(device):
    """Of the row of `godwit devices`; None: there is no such device."""
    found = re.search(rf"^\| {device} \|.*?\| ([0-9.]+) (.?)B \| [^|]*\|$", run("devices").stdout, re.M)
    return found and float(found[1]) * 1000 ** " kMGT".index(found[2] or " ")


@pytest.mark.parametrize("device,budget,row,sizes,taken,words", [  # sizes: bytes, or parts of what is free
    ("cpu", None, "cpu", {"Q2_K": .05, "Q4_0": .09, "Q4_K_M": .1, "Q8_0": .2}, "Q4_K_M", r"in main memory \(.* free\), about [0-9.]+ tokens/s; :QUANT"),
    ("cpu", None, "cpu", {"Q2_K": .1, "IQ4_XS": .3, "Q4_K_M": 2}, "IQ4_XS", "the largest near the fastest"),
    ("cpu", None, "cpu", {"Q2_K": .1, "Q3_K_M": .3, "Q4_K_M": 2}, "Q3_K_M", "under four bits"),
    ("cpu", None, "cpu", {"Q2_K": 3, "Q4_K_M": 4}, "Q2_K", "none fits"),
    ("cpu", None, "cpu", {"Q5_K_M": .1, "Q6_K": .11, "Q8_0": .2}, "Q6_K", "tokens/s"),
    ("opencl:0", "1G", "opencl:0", {"Q2_K": .3e9, "IQ4_XS": .5e9, "Q4_K_M": .8e9}, "IQ4_XS", "in opencl:0 .1 GB free"),
    ("opencl", "2G", "opencl:0", {"Q2_K": .3e9, "IQ4_XS": .7e9, "Q4_K_M": .8e9}, "Q4_K_M", "in opencl:0 .2 GB free")])
def test_quantization_for_this_machine(hub, tmp_path, device, budget, row, sizes, taken, words):
    """From the list alone; only the chosen file is downloaded."""
    free = free_bytes(row)
    if free is None or row != "cpu" and free < 2e9:
        pytest.skip(f"SKIP: no {row} with enough memory")
    h = hub({f"m-{quant}.gguf": quant.encode() for quant in sizes})
    listing = h.listing()
    for entry, size in zip(listing["siblings"], sizes.values()):
        entry["lfs"]["size"] = int(size if size > 1000 else size * free)
    h.listing = lambda: listing
    h.fault = lambda handler, name, start: handler.reply(404, b"no") or True
    done = pull(h, tmp_path, "user/repo", "--device", device, *(("--vram-budget", budget) if budget else ()), check=False)
    line, = [line for line in done.stderr.splitlines() if line.startswith("user/repo: m-")]
    assert line.startswith(f"user/repo: m-{taken}.gguf, ") and re.search(words, line), line
    assert done.returncode == 1 and {name for name, _, _ in h.asked} <= {f"m-{taken}.gguf"}


def test_device_that_is_none(hub, tmp_path):
    done = pull(hub(), tmp_path, "user/repo", "--device", "cpu,none:7", check=False)
    assert done.returncode == 1 and "'none:7' is not on this machine" in done.stderr and blobs(tmp_path) == {}


def test_folder(hub, tmp_path):
    """Only what is needed of it."""
    wanted = {"config.json": b"{}", "tokenizer.json": b"{ }", "model.safetensors": b"weights",
              "1_Pooling/config.json": b"[]", "chat_template.jinja": b"x", "tokenizer.model": b"y"}
    others = {"pytorch_model.bin": b"no", "onnx/model.onnx": b"no", "consolidated.safetensors": b"no",
              "README.md": b"no", "original/x.json": b"no", "tf_model.h5": b"no"}
    h = hub(wanted | others)
    folder = pull(h, tmp_path).stdout.strip()
    assert {name for name, _, _ in h.asked} == set(wanted)
    for name, data in wanted.items():
        assert open(f"{folder}/{name}", "rb").read() == data


def test_token_and_mirror(hub, tmp_path):
    h = hub()
    pull(h, tmp_path / "a", env={"HF_TOKEN": "secret"})
    assert set(h.tokens) == {"Bearer secret"}
    h.tokens.clear()
    (tmp_path / "b").mkdir()
    (tmp_path / "b/token").write_text("filed\n")
    pull(h, tmp_path / "b", env={"HF_ENDPOINT": h.url + "/"})
    assert set(h.tokens) == {"Bearer filed"}
    other = hub()

    def elsewhere(handler, name, start):
        handler.reply(302, Location=f"http://localhost:{other.server.server_address[1]}/user/repo/resolve/main/{name}")
        return True
    h.fault = elsewhere
    pull(h, tmp_path / "c", env={"HF_TOKEN": "secret"})
    assert set(other.tokens) == {None}  # the token is the first host's alone


def test_ls_of_nothing(hub, tmp_path):
    listed = run("ls", env=where(hub(), tmp_path))
    assert listed.stdout.count("\n") == 2 and f"no model in {tmp_path}/hub: 'godwit pull" in listed.stderr


def test_several_processes(hub, tmp_path):
    """One downloads, the others wait for it."""
    h = hub()
    h.fault = lambda handler, name, start: time.sleep(0.4)
    env = os.environ | where(h, tmp_path)
    all = [subprocess.Popen([BIN, "pull", "user/repo:Q4_0"], env=env, stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True) for _ in range(3)]
    said = [p.communicate(timeout=60) for p in all]
    assert [p.returncode for p in all] == [0, 0, 0] and len({out for out, _ in said}) == 1
    assert len(h.asked) == 1


def test_hubs_own_tools_share_the_cache(hub, tmp_path):
    """Where the Python package is installed: it finds what was pulled, and the other way round."""
    python = os.environ.get("GODWIT_HUB_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import huggingface_hub"], capture_output=True).returncode != 0:
        pytest.skip("SKIP: no huggingface_hub")
    h = hub()
    env = os.environ | where(h, tmp_path) | {"HF_HUB_DISABLE_XET": "1"}
    del env["HF_HUB_CACHE"]
    find = ("import sys, huggingface_hub as h; print(h.hf_hub_download('user/repo', sys.argv[1], "
            "local_files_only=sys.argv[2] == '1'))")
    ours = pull(h, tmp_path, "user/repo:Q4_0").stdout.strip()
    theirs = subprocess.run([python, "-c", find, "tales-Q4_0.gguf", "1"], env=env, capture_output=True, text=True)
    assert theirs.stdout.strip() == ours, theirs.stderr
    theirs = subprocess.run([python, "-c", find, "tales-Q8_0.gguf", "0"], env=env, capture_output=True, text=True)
    assert theirs.returncode == 0, theirs.stderr
    before = len(h.asked)
    assert pull(h, tmp_path, "user/repo:Q8_0").stdout.strip() == theirs.stdout.strip()
    assert len(h.asked) == before
    scan = subprocess.run([python, "-c", "import huggingface_hub as h; i = h.scan_cache_dir(); print(len(i.warnings), "
                           "[(r.repo_id, r.nb_files) for r in i.repos])"], env=env, capture_output=True, text=True)
    assert scan.stdout.strip() == "0 [('user/repo', 2)]", scan.stdout + scan.stderr


# ---- faults ----------------------------------------------------------------------------------------

LARGE = bytes(range(256)) * (40 << 12)  # 40 MiB: comes in pieces


def reply(code, **headers):
    return lambda handler, name, start: handler.reply(code, b"no", **headers) or True


def once(fault):
    """The first request alone meets it."""
    met = []

    def f(handler, name, start):
        if met:
            return None
        met.append(1)
        return fault(handler, name, start)
    return f


def body(change, length=None, code=None):
    """Another body than the file's; length: what is promised."""
    def f(handler, name, start):
        data = change(h_files(handler)[name], start)
        handler.reply(code or (206 if handler.headers.get("Range") else 200), data, length=length)
        handler.cut()
        return True
    return f


def h_files(handler):
    return handler.server.hub.files


def cut_after(n):
    def f(handler, name, start):
        whole = h_files(handler)[name]
        ranged = handler.headers.get("Range")
        last = int(ranged.split("-")[1]) + 1 if ranged and ranged.split("-")[1] else len(whole)
        handler.send_response(206 if ranged else 200)
        if ranged:
            handler.send_header("Content-Range", f"bytes {start}-{last - 1}/{len(whole)}")
        handler.send_header("Content-Length", str(last - start))
        handler.end_headers()
        handler.wfile.write(whole[start:start + n])
        handler.wfile.flush()
        handler.cut()
        return True
    return f


def no_ranges(handler, name, start):
    handler.reply(200, h_files(handler)[name])
    return True


def wrong_range(handler, name, start):
    data = h_files(handler)[name]
    handler.reply(206, data[:1000], Content_Range=f"bytes 0-999/{len(data)}")
    return bool(start)


def flipped(data, start):
    return bytes([data[start] ^ 1]) + data[start + 1:]


MENDED = {  # faults after which the file is right
    "cut at once": once(cut_after(0)), "cut in the middle": once(cut_after(1000)),
    "cut again and again": cut_after(600_000), "500 once": once(reply(500)), "503 once": once(reply(503)),
    "408 once": once(reply(408)), "502 once": once(reply(502)),
    "429 with Retry-After": once(reply(429, Retry_After="0.3")), "429 without": once(reply(429)),
    "429 with a date": once(reply(429, Retry_After="Wed, 21 Oct 2026 07:28:00 GMT")),
    "wrong bytes once": once(body(flipped)), "no ranges": no_ranges,
    "redirect": once(lambda h, n, s: h.reply(302, Location=h.path + "?again") or True),
    "relative redirect, 307": once(lambda h, n, s: h.reply(307, Location="?x=1") or True),
    "body of an error page of 503": once(lambda h, n, s: h.reply(503, b"x" * 100_000) or True),
}
FATAL = {  # and those with which there is none: (fault, words of the message)
    "401": (reply(401), "HF_TOKEN"), "403": (reply(403), "terms"), "404": (reply(404), "404"),
    "410": (reply(410), "410"), "wrong bytes": (body(flipped), "digest"),
    "too short": (body(lambda d, s: d[s:-7]), ""), "too long": (body(lambda d, s: d[s:] + b"more"), "something else"),
    "redirect loop": (lambda h, n, s: h.reply(302, Location=h.path) or True, "redirect"),
    "redirect to a file": (lambda h, n, s: h.reply(302, Location="file:///etc/hostname") or True, ""),
    "an empty file": (body(lambda d, s: b""), ""), "a login page": (body(lambda d, s: b"<html>login</html>", code=200), ""),
    "another file's bytes": (body(lambda d, s: d[::-1]), "digest"),
}


def check(home, data, name):
    """No file under a blob's or a link's name that is not the right one."""
    for digest, path in blobs(home).items():
        if not digest.endswith(".incomplete"):
            assert path.read_bytes() == data and digest == hashlib.sha256(data).hexdigest()
    snapshots = home / f"hub/models--user--repo/snapshots/{COMMIT}/{name}"
    assert not os.path.lexists(snapshots) or snapshots.read_bytes() == data


@pytest.mark.parametrize("case", MENDED)
def test_mended(hub, tmp_path, case):
    h = hub({"m-Q4_0.gguf": SMALL})
    h.server.hub = h
    h.fault = MENDED[case]
    path = pull(h, tmp_path).stdout.strip()
    assert open(path, "rb").read() == SMALL
    check(tmp_path, SMALL, "m-Q4_0.gguf")


@pytest.mark.parametrize("case", FATAL)
def test_fatal(hub, tmp_path, case):
    h = hub({"m-Q4_0.gguf": SMALL})
    h.server.hub = h
    h.fault, words = FATAL[case]
    start = time.monotonic()
    done = pull(h, tmp_path, check=False)
    assert done.returncode == 1 and words in done.stderr and done.stdout == "", done.stderr
    assert len(re.findall("error:", done.stderr)) == 1 and time.monotonic() - start < 20
    check(tmp_path, SMALL, "m-Q4_0.gguf")
    assert not (tmp_path / "hub/models--user--repo/refs/main").exists()
    env = where(h, tmp_path)
    assert run("run", "-m", "user/repo", "-n", 1, "--offline", env=env, check=False).returncode == 1
    h.fault = None
    assert open(pull(h, tmp_path).stdout.strip(), "rb").read() == SMALL  # and it can be had afterwards


def test_pieces(hub, tmp_path):
    """A large file by several connections; cut ones, wrong ranges and servers without any."""
    h = hub({"m-Q4_0.gguf": LARGE})
    h.server.hub = h
    for number, fault in enumerate((None, once(cut_after(5 << 20)), once(reply(503)), no_ranges, wrong_range)):
        h.fault, h.asked = fault, []
        path = pull(h, tmp_path / str(number)).stdout.strip()
        assert open(path, "rb").read() == LARGE
        if number == 0:
            assert len(h.asked) == 5 and len({start for _, start, _ in h.asked}) == 5


def test_pieces_end_anywhere(hub, tmp_path):
    """A signal between pieces, a disk that is full: what is there is the file's beginning, and the next process goes on."""
    h = hub({"m-Q4_0.gguf": LARGE})
    h.server.hub = h
    h.fault = lambda handler, name, start: time.sleep(20) if start >= 24 << 20 else None
    child = subprocess.Popen([BIN, "pull", "user/repo"], env=os.environ | where(h, tmp_path), stderr=subprocess.PIPE)
    part = tmp_path / f"hub/models--user--repo/blobs/{hashlib.sha256(LARGE).hexdigest()}.incomplete"
    until = time.monotonic() + 60
    while time.monotonic() < until and not (part.exists() and part.stat().st_size == 24 << 20):
        time.sleep(0.02)
    child.terminate()
    start = time.monotonic()
    assert child.wait(20) == 128 + 15 and time.monotonic() - start < 5
    assert child.stderr.read().count(b"error:") == 0
    child.stderr.close()
    assert part.read_bytes() == LARGE[:24 << 20]
    h.fault, h.asked = None, []
    limit = 30 << 20
    done = pull(h, tmp_path, check=False, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
    assert done.returncode == 1 and done.stdout == "" and len(re.findall("error: .*cannot write", done.stderr)) == 1
    assert part.read_bytes() == LARGE[:limit] and {start for _, start, _ in h.asked} == {24 << 20}
    h.asked = []
    assert open(pull(h, tmp_path).stdout.strip(), "rb").read() == LARGE
    assert [start for _, start, _ in h.asked] == [limit]
    check(tmp_path, LARGE, "m-Q4_0.gguf")


def test_resume(hub, tmp_path):
    """What came is not asked for again, in the next process either; what does not fit is dropped."""
    h = hub({"m-Q4_0.gguf": SMALL})
    h.server.hub = h
    h.fault = lambda handler, name, start: cut_after(300_000)(handler, name, start) if not start else reply(404)(handler, name, start)
    assert pull(h, tmp_path, check=False).returncode == 1
    part, = blobs(tmp_path).values()
    assert part.name.endswith(".incomplete") and part.stat().st_size == 300_000
    h.fault, h.asked = None, []
    pull(h, tmp_path)
    assert h.asked == [("m-Q4_0.gguf", 300_000, len(SMALL))]
    check(tmp_path, SMALL, "m-Q4_0.gguf")
    run("rm", "user/repo", env=where(h, tmp_path))
    folder = tmp_path / "hub/models--user--repo/blobs"
    folder.mkdir(parents=True)
    for wrong in (b"x" * 1000, b"x" * (len(SMALL) + 10), b"x" * len(SMALL)):
        (folder / (hashlib.sha256(SMALL).hexdigest() + ".incomplete")).write_bytes(wrong)
        pull(h, tmp_path)
        check(tmp_path, SMALL, "m-Q4_0.gguf")
        for path in blobs(tmp_path).values():
            path.unlink()


@pytest.mark.parametrize("answer", [
    b"", b"[]", b"{", b'{"sha": "x", "siblings": []}',
    b'{"sha": "0123456789abcdef", "siblings": [{"rfilename": "../../x.gguf", "size": 1, "blobId": "%s"}]}' % (b"0" * 40),
    b'{"sha": "../../..", "siblings": [{"rfilename": "x.gguf", "size": 1, "blobId": "%s"}]}' % (b"0" * 40),
    b'{"sha": "0123456789abcdef", "siblings": [{"rfilename": "/etc/x.gguf", "size": 1, "blobId": "%s"}]}' % (b"0" * 40),
    b'{"sha": "0123456789abcdef", "siblings": [{"rfilename": "x.gguf", "size": -1, "lfs": {"sha256": 5}}]}'])
def test_lists_that_are_none(hub, tmp_path, answer):
    h = hub()
    h.list_fault = lambda handler: handler.reply(200, answer) or True
    done = pull(h, tmp_path, check=False)
    assert done.returncode == 1 and len(re.findall("error:", done.stderr)) == 1 and h.asked == []
    assert not [p for p in tmp_path.rglob("*") if p.is_file()]


@pytest.mark.parametrize("code,word", [(401, "HF_TOKEN"), (404, "404"), (403, "terms")])
def test_lists_that_are_refused(hub, tmp_path, code, word):
    h = hub()
    h.list_fault = lambda handler: handler.reply(code, b"{}") or True
    done = pull(h, tmp_path, check=False)
    assert done.returncode == 1 and word in done.stderr and "error: user/repo: " in done.stderr
    assert code != 404 or h.url in done.stderr  # which hub


def test_disk_is_looked_at_first(hub, tmp_path):
    """A file that no disk here holds is refused before a byte of it is asked for."""
    h = hub()
    listing = h.listing()
    listing["siblings"][0]["lfs"]["size"] = listing["siblings"][1]["lfs"]["size"] = 1 << 60
    h.listing = lambda: listing
    done = pull(h, tmp_path, check=False)
    assert done.returncode == 1 and "free" in done.stderr and h.asked == []


def test_signals_leave_what_came(hub, tmp_path):
    h = hub({"m-Q4_0.gguf": SMALL})
    h.server.hub = h
    h.fault = lambda handler, name, start: time.sleep(20)
    child = subprocess.Popen([BIN, "pull", "user/repo"], env=os.environ | where(h, tmp_path), stderr=subprocess.PIPE)
    while not h.asked and child.poll() is None:
        time.sleep(0.02)
    child.terminate()
    start = time.monotonic()
    assert child.wait(20) == 128 + 15 and time.monotonic() - start < 5
    child.stderr.close()
    check(tmp_path, SMALL, "m-Q4_0.gguf")
