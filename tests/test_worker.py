# tests/test_worker.py - one model over `godwit worker`s, here all on this machine: the bits of one process,
# weights that are sent once, who is refused, one line when a worker is lost, and clients that mean harm.
import contextlib
import hashlib
import hmac
import os
import re
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest

from program import BIN, DATA, EMULATOR, ROOT, logits_hash, run, some_ids
from serving import serving

SMALL = DATA / "tales-2m-q4_0.gguf"
LAYERS = ROOT / "models/tales-21m-q4_k_m.gguf"
SECRET = b"a secret of more than sixteen bytes"
HELLO = struct.Struct("=8sII64s32s")

pytestmark = pytest.mark.skipif(bool(EMULATOR), reason="processes that fork are not emulated")


class Worker:
    def __init__(self, folder, *arguments):
        folder.mkdir(exist_ok=True)
        self.secret, self.keep = folder / "secret", folder / "keep"
        self.secret.write_bytes(SECRET + b"\n")
        self.process = subprocess.Popen(
            [BIN, "worker", "--secret-file", self.secret, "--listen", "127.0.0.1:0", "-t", "1", "--keep-dir",
             self.keep, "--device", "cpu", *map(str, arguments)], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()
        self.address = self.wait_for(r"listening on (127\.0\.0\.1:\d+)")[1]

    def _read(self):
        for line in self.process.stderr:
            self.lines.append(line)

    def wait_for(self, pattern, count=1):
        """The match of the count-th line that has the pattern."""
        limit = time.monotonic() + 30
        while True:
            found = [m for m in (re.search(pattern, line) for line in list(self.lines)) if m]
            if len(found) >= count:
                return found[count - 1]
            assert time.monotonic() < limit and self.process.poll() is None, (pattern, self.lines)
            time.sleep(0.01)

    def options(self, *others):
        return ("--workers", ",".join([self.address, *(w.address for w in others)]), "--secret-file", self.secret)

    def connect(self):
        port = int(self.address.rsplit(":", 1)[1])
        return socket.create_connection(("127.0.0.1", port), timeout=10)

    def stop(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        return self.process.wait(timeout=20)


@contextlib.contextmanager
def working(folder, *arguments):
    worker = Worker(folder, *arguments)
    try:
        yield worker
    finally:
        code = worker.stop()
        assert code == 0, (code, worker.lines[-5:])


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("workers")
    with working(folder / "a") as a, working(folder / "b", "--keep", 0) as b:
        yield a, b


# ---- the same text -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows,split", [("decode", "0,1"), ("prefill", "1,1,1")])
def test_bits(pair, rows, split):
    ids = some_ids(70)
    others = pair[1:] if split.count(",") == 2 else ()
    done = run("logits", "-m", LAYERS, "--ids", ",".join(map(str, ids)), "--rows", rows, "-b", 24, "-t", 1,
               *pair[0].options(*others), "--split", split)
    assert logits_hash(LAYERS, ids, "--rows", rows, "-t", 1) in done.stdout


def test_texts(pair, tmp_path):
    text = tmp_path / "text"
    text.write_text("The sea was calm and the old ship went on. " * 30)
    for args in (("run", "-m", LAYERS, "-p", "The sea", "-n", 24, "--seed", 3, "--draft", SMALL, "-q"),
                 ("perplexity", "-m", SMALL, "-f", text, "-c", 128)):
        assert run(*args, "-t", 1, *pair[0].options(), "--split", "1,2").stdout == run(*args, "-t", 1).stdout, args


def test_serve(pair):
    asked = {"prompt": "Once", "max_tokens": 12, "seed": 5}
    with serving("-c", 128, model=SMALL) as alone:
        want = alone.post("/v1/completions", asked)["choices"]
    with serving("-c", 128, "--sleep-memory", "1G", *pair[0].options(), model=SMALL) as s:
        for _ in range(2):
            assert s.post("/v1/completions", asked)["choices"][0]["text"] == want[0]["text"]
            s.post("/sleep", None)


def test_second_start(tmp_path):
    """The first start sends the weights, the second none of them; a folder without room keeps fewer."""
    args = ("run", "-m", LAYERS, "-p", "The sea", "-n", 8, "--seed", 3, "-t", 1, "-q")
    left = r"has left: it sent ([\d.]+) (\w*B) of weights, ([\d.]+) (\w*B) were here"
    want = run(*args).stdout
    with working(tmp_path / "w") as w:
        for start in (1, 2):
            assert run(*args, *w.options(), "--split", "0,1").stdout == want
            sent, unit, here, _ = w.wait_for(left, start).groups()
            if start == 1:  # but for what is in the model twice
                assert unit == "MB" and float(sent) > 5 > float(here), w.lines
        assert float(sent) == 0 or unit == "kB", w.lines  # what is too small to be kept
        files = sorted(w.keep.iterdir())
        assert len(files) > 30 and all(re.fullmatch("[0-9a-f]{64}", f.name) for f in files)
    total = sum(f.stat().st_size for f in files)
    with working(tmp_path / "w", "--keep", total // 2) as w:
        with open(files[0], "ab") as cut:  # of another size: it is not what its name says
            cut.write(b"x")
        assert run(*args, *w.options(), "--split", "0,1").stdout == want
        w.wait_for(left)
    assert sum(f.stat().st_size for f in w.keep.iterdir()) <= total // 2
    w.keep.chmod(0o777)
    with working(tmp_path / "w") as w:
        assert run(*args, *w.options(), "--split", "0,1").stdout == want
        assert w.wait_for("weights are not kept there: others than this user may write to it")


def test_another_file_of_the_same_name(tmp_path):
    """Digests in the cache folder are of the file as it was: one written over, of the same size and time, is new."""
    model, env = tmp_path / "m.gguf", {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    args = ("run", "-m", model, "-p", "The sea", "-n", 16, "--seed", 3, "-t", 1, "-q")
    model.write_bytes(SMALL.read_bytes())
    first = run(*args).stdout
    time.sleep(4)  # until its times are old enough to tell
    with working(tmp_path / "w") as w:
        for start in (1, 2):
            assert run(*args, *w.options(), "--split", "0,1", env=env).stdout == first
            w.wait_for("has left", start)
            assert len(list((tmp_path / "cache/godwit").glob("digests-*.bin"))) == 1
        times, size = model.stat(), model.stat().st_size
        with open(model, "r+b") as f:
            f.seek(size // 3)
            part = f.read(size // 3)
            f.seek(size // 3)
            f.write(bytes(b ^ 1 for b in part))
        os.utime(model, ns=(times.st_atime_ns, times.st_mtime_ns))
        second = run(*args).stdout
        assert second != first
        assert run(*args, *w.options(), "--split", "0,1", env=env).stdout == second


# ---- who is refused ------------------------------------------------------------------------------------------


def refused(*options):
    done = run("run", "-m", SMALL, "-p", "a", "-n", 4, "-q", *options, check=False)
    assert done.returncode != 0 and done.stdout == "" and done.stderr.count("\n") == 1, done.stderr
    return done.stderr


def test_refused(pair, tmp_path):
    a = pair[0]
    other = tmp_path / "other"
    other.write_bytes(b"another secret of some length")
    assert "refuses: it has another secret" in refused("--workers", a.address, "--secret-file", other)
    assert a.wait_for("is not served any more: .*it has another secret")
    other.write_bytes(b"short\n")
    assert "at least 16 bytes" in refused("--workers", a.address, "--secret-file", other)
    assert "--secret-file is missing" in refused("--workers", a.address)
    assert "is not HOST:PORT" in refused("--workers", "nowhere", "--secret-file", a.secret)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert f"worker 127.0.0.1:{port} cannot be reached" in refused("--workers", f"127.0.0.1:{port}", "--secret-file", a.secret)
    done = run("worker", "--secret-file", a.secret, "--device", "nothing", check=False)
    assert done.returncode == 1 and "'nothing' is not on this host" in done.stderr and done.stderr.count("\n") == 1
    done = run("worker", "--secret-file", a.secret, "--listen", a.address, check=False)
    assert done.returncode == 1 and "cannot listen on" in done.stderr


def test_an_open_address(pair):
    """A line says that nothing is encrypted, and how to come through ssh; on the loopback it is not there."""
    assert not any("ssh" in line for line in pair[0].lines)
    worker = subprocess.Popen([BIN, "worker", "--secret-file", pair[0].secret, "--listen", "0.0.0.0:0", "--keep", "0",
                               "--device", "cpu"], stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    try:
        port = re.search(r"listening on 0\.0\.0\.0:(\d+)", worker.stderr.readline())[1]
        assert f"'ssh -N -L {port}:127.0.0.1:{port} HOST'" in worker.stderr.readline()
    finally:
        worker.terminate()
        assert worker.wait(timeout=20) == 0
        worker.stderr.close()


def test_one_client(pair):
    a = pair[0]
    child = subprocess.Popen([BIN, "run", "-m", LAYERS, "-p", "The sea", "-n", "100000", "--ignore-eos", "--context-shift",
                              "-t", "1", "-q", *map(str, a.options())], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL)
    try:
        assert child.stdout.read(20)
        assert "refuses: it serves another client" in refused(*a.options())
    finally:
        child.kill()
        child.communicate()
    a.wait_for("client .* was lost")
    assert run("run", "-m", SMALL, "-p", "a", "-n", 4, "-q", "-t", 1, *a.options()).stdout


def hello_of(worker):
    s = worker.connect()
    theirs = s.recv(HELLO.size, socket.MSG_WAITALL)
    return s, theirs


def fake(answer):
    """The address of somebody that says this to whoever comes, and the socket."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve():
        with contextlib.suppress(OSError):
            s, _ = server.accept()
            with s:
                s.sendall(answer)
                while s.recv(4096):
                    pass

    threading.Thread(target=serve, daemon=True).start()
    return f"127.0.0.1:{server.getsockname()[1]}", server


@pytest.mark.parametrize("change,says", [
    ("build", "is another build of godwit"), ("order", "has the other byte order"),
    ("magic", "no godwit worker listens there"), ("proof", "does not know the secret"), ("verdict", "is not understood")])
def test_other_workers(pair, change, says):
    s, theirs = hello_of(pair[0])
    s.close()
    magic, order, zero, build, nonce = HELLO.unpack(theirs)
    if change == "build":
        build = b"0.0.9" + build[5:]
    elif change == "order":
        order = int.from_bytes(order.to_bytes(4, "little"), "big")
    elif change == "magic":
        magic = b"GET / HT"
    tail = struct.pack("=II32s", 0 if change != "verdict" else 77, 0, b"p" * 32)
    address, server = fake(HELLO.pack(magic, order, zero, build, nonce) + tail)
    with server:
        assert says in refused("--workers", address, "--secret-file", pair[0].secret)


def test_other_clients(pair):
    """Another build, the other byte order, an old proof: refused by the worker, too."""
    a = pair[0]
    for change, code in (("build", 2), ("order", 2), ("proof", 1)):
        s, theirs = hello_of(a)
        magic, order, zero, build, nonce = HELLO.unpack(theirs)
        build = b"0.0.9" + build[5:] if change == "build" else build
        order = int.from_bytes(order.to_bytes(4, "little"), "big") if change == "order" else order
        mine = HELLO.pack(magic, order, zero, build, b"n" * 32)
        proof = hmac.digest(SECRET, b"client\0\0" + mine + HELLO.pack(magic, order, zero, build, b"o" * 32), hashlib.sha256)
        s.sendall(mine + proof)
        answer = s.recv(40, socket.MSG_WAITALL)
        assert struct.unpack("=II32s", answer) == (code, 0, bytes(32)), change
        assert s.recv(1) == b""
        s.close()


# ---- who is lost ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["killed", "told"])
def test_lost(how, tmp_path):
    """In less than five seconds, in one line, and with exit code 1."""
    w = Worker(tmp_path / "w")
    try:
        child = subprocess.Popen([BIN, "run", "-m", LAYERS, "-p", "The sea", "-n", "100000", "--ignore-eos", "--context-shift",
                                  "-t", "1", "-q", *map(str, w.options())], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert child.stdout.read(20)  # it writes
        begin = time.monotonic()
        w.stop(signal.SIGKILL if how == "killed" else signal.SIGTERM)
        _, said = child.communicate(timeout=30)
        took = time.monotonic() - begin
    finally:
        child.kill()
        w.stop(signal.SIGKILL)
    assert re.fullmatch(r"godwit: error: (mpi: )?worker 127\.0\.0\.1:\d+ on \S+ was lost: [a-z ]+\n", said), said
    assert child.returncode == 1 and took < 5


def test_lost_while_serving(tmp_path):
    w = Worker(tmp_path / "w")
    server = None
    try:
        with contextlib.suppress(AssertionError):
            with serving("-c", 512, *w.options(), model=LAYERS) as server:
                stream = threading.Thread(target=w.stop, args=(signal.SIGKILL,))
                begin = time.monotonic()
                stream.start()
                status, _, text = server.ask("POST", "/v1/completions", {"prompt": "The sea", "max_tokens": 400, "ignore_eos": True})
                stream.join()
                assert status == 500 and "was lost" in text and time.monotonic() - begin < 5, text
                assert server.get("/health")[0] == 500
    finally:
        w.stop(signal.SIGKILL)
    assert server is not None and any("was lost" in line for line in server.lines)


# ---- clients that mean harm ----------------------------------------------------------------------------------


def enter(worker):
    """A connection of somebody who knows the secret, once nobody else is served."""
    for _ in range(200):
        s, theirs = hello_of(worker)
        magic, order, zero, build, _ = HELLO.unpack(theirs)
        mine = HELLO.pack(magic, order, zero, build, os.urandom(32))
        s.sendall(mine + hmac.digest(SECRET, b"client\0\0" + mine + theirs, hashlib.sha256))
        code, _, proof = struct.unpack("=II32s", s.recv(40, socket.MSG_WAITALL))
        if code == 0:
            assert proof == hmac.digest(SECRET, b"worker\0\0" + theirs + mine, hashlib.sha256)
            return s
        assert code == 3
        s.close()
        time.sleep(0.05)
    raise AssertionError("always busy")


def message(*numbers, tail=b"", size=None):
    body = b"".join(n if isinstance(n, bytes) else struct.pack("=Q", n % 2**64) for n in numbers) + tail
    return struct.pack("=QII", len(body) if size is None else size, 0x67776D31, 0) + body


# Commands by their names, in the order of backends/mpi/mpi.h.
NAMED = re.findall(r"GW_MPI_([A-Z]+)(?=,| +/\*)", (ROOT / "backends/mpi/mpi.h").read_text().split("typedef enum gw_mpi_command {")[1].split("}")[0])


def do(name, *numbers, device=0, **more):
    return message(NAMED.index(name), device, *numbers, **more)


OPEN = do("OPEN", 0, 0, 0)
ALLOC = OPEN + do("ALLOC", 1, 64, 0)
HARM = {
    "nothing": b"",
    "other things": b"\xff" * 64,
    "too long": do("OPEN", size=2**62),
    "half a message": do("OPEN", size=4096),
    "no such command": message(999, 0),
    "no such device": do("OPEN", 0, 0, 0, device=77),
    "not open": do("WRITE", 1, 0, b"x"),
    "no such buffer": OPEN + do("WRITE", 2**40, 0, b"x") + do("READ", 3, 0, 2**63) + do("STOW", 5),
    "outside a buffer": ALLOC + do("WRITE", 1, 2**64 - 8, b"x" * 64) + do("READ", 1, 0, 2**64 - 1),
    "a number too large": OPEN + do("ALLOC", 2**62, 64, 0),
    "too much memory": OPEN + do("ALLOC", 1, 2**62, 0),
    "to nobody": ALLOC + do("HAND", 1, 0, 64, 1000, 0, 1, 0) + do("ACCEPT", 1, 0, 64, 2**31) + do("WAIT"),
    "noise as nodes": OPEN + do("CHOOSE", b"\x01" * 900) + do("FREEZE", 1, 4, b"\xfe" * 900),
    "noise as a weight": OPEN + do("LOAD", b"\x7f" * 300),
    "a digest of nothing": OPEN + do("HAVE", b"\0" * 32, 2**63) + do("HAVE", b"\0"),
}


@pytest.mark.parametrize("kind", HARM)
def test_harm(pair, kind):
    """Whatever somebody sends who knows the secret, the worker is there for the next one."""
    with enter(pair[1]) as s:
        with contextlib.suppress(OSError):
            s.sendall(HARM[kind])
            s.shutdown(socket.SHUT_WR)
            s.settimeout(10)
            while s.recv(65536):
                pass
    assert pair[1].process.poll() is None
    assert not any("AddressSanitizer" in line or "runtime error" in line for line in pair[1].lines), pair[1].lines


def test_strangers(pair):
    """Who does not know the secret is heard for seconds, and keeps nobody out."""
    b = pair[1]
    idle = [b.connect() for _ in range(8)]
    for data in (b"", b"GET / HTTP/1.1\r\n\r\n", os.urandom(HELLO.size + 32), b"godwit1\0" + bytes(200)):
        with b.connect() as s:
            with contextlib.suppress(OSError):  # it may have closed by then
                s.sendall(data)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
    assert run("run", "-m", SMALL, "-p", "a", "-n", 4, "-q", "-t", 1, *b.options()).stdout
    for s in idle:
        s.close()
