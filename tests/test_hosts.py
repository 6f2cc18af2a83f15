# tests/test_hosts.py - one model over the processes of an MPI job, here all on this machine: the text
# and the bits of one process, and one line from those that are left when one is killed.
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, ROOT, SANITIZED, logits_hash, run, some_ids

MPIRUN = shutil.which("mpirun")
SMALL = DATA / "tales-2m-q4_0.gguf"
LAYERS = ROOT / "models/tales-21m-q4_k_m.gguf"  # more of them than ranks
# All on one machine, as whoever runs the tests, with nothing but the loopback between them.
JOB = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_plm": "isolated",
       "OMPI_MCA_btl": "self,tcp", "OMPI_MCA_btl_tcp_if_include": "lo",
       "OMPI_MCA_rmaps_base_oversubscribe": "1", "OMPI_MCA_hwloc_base_binding_policy": "none"}
LOST = re.compile(r"^godwit: error: (rank \d) on \S+ was lost: its process has ended$", re.M)


def test_other_launchers():
    done = run("logits", "-m", SMALL, "--ids", "1", env={"PMI_SIZE": "2", "PMI_RANK": "0"}, check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert "use the mpirun of Open MPI" in done.stderr


def job(n):
    """The beginning of a command line; what follows are the program's arguments."""
    if EMULATOR or SANITIZED:
        pytest.skip("Open MPI's library runs neither emulated nor under sanitizers")
    if MPIRUN is None or "Open MPI" not in run("--version", binary=MPIRUN).stdout:
        pytest.skip("no mpirun of Open MPI")
    return [MPIRUN, "-n", str(n), BIN]


def among(n, *args, **more):
    """Standard output of n processes: rank 0's, for the others say nothing."""
    command = job(n)
    return run(*command[1:], *args, binary=command[0], env=JOB, timeout=120, **more).stdout


@pytest.mark.parametrize("n,rows", [(2, "decode"), (3, "prefill")])
def test_bits(n, rows):
    ids = some_ids(70)
    args = ("logits", "-m", LAYERS, "--ids", ",".join(map(str, ids)), "--rows", rows, "-b", 24, "-t", 1)
    there = among(n, *args)
    assert logits_hash(LAYERS, ids, "--rows", rows, "-t", 1) in there


def several(text):
    return [("run", "-m", LAYERS, "-p", "The sea", "-n", 40, "--draft", SMALL, "-q"),
            ("perplexity", "-m", SMALL, "-f", text, "-c", 128),
            ("chat", "-m", SMALL, "-n", 12, "-q")]


def test_commands(tmp_path):
    text = tmp_path / "text"
    text.write_text("The sea was calm and the old ship went on. " * 30)
    for args in several(text):
        said = {"input": "Hello\nAnd then?\n"} if args[0] == "chat" else {}
        assert among(2, *args, "-t", 1, "--split", "1,2", **said) == run(*args, "-t", 1, **said).stdout, args


def test_cache_of_both(tmp_path):
    """A prompt cache that two processes have written is one that a single one takes."""
    args = ("run", "-m", SMALL, "-p", "The sea was calm and", "-n", 8, "-t", 1, "-q", "--prompt-cache", tmp_path / "c")
    want = run(*args[:-2]).stdout
    assert among(2, *args) == want
    done = run(*(x for x in args if x != "-q"))
    assert done.stdout == want and re.search(r"^cache +[1-9]", done.stderr, re.M), done.stderr


def ranks_of(launcher):
    """{rank: process} of the program under this mpirun."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        try:
            parent = entry.name.isdigit() and int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if parent != launcher:
                continue
            for line in (entry / "environ").read_bytes().split(b"\0"):
                if line.startswith(b"OMPI_COMM_WORLD_RANK="):
                    found[int(line.split(b"=")[1])] = int(entry.name)
        except OSError:
            continue  # it has ended meanwhile
    return found


@pytest.mark.parametrize("killed", [0, 1])
def test_killed(killed, tmp_path):
    command = job(2)
    with open(tmp_path / "said", "w+") as said:
        child = subprocess.Popen([*map(str, command), "run", "-m", str(LAYERS), "-p", "The sea", "-n", "100000",
                                  "--ignore-eos", "--context-shift", "-t", "1", "-q"], stdin=subprocess.DEVNULL,
                                 stdout=subprocess.PIPE, stderr=said, env=dict(os.environ, **JOB))
        try:
            assert child.stdout.read(20)  # it writes
            os.kill(ranks_of(child.pid)[killed], signal.SIGKILL)
            begin = time.monotonic()
            child.communicate(timeout=30)
            took = time.monotonic() - begin
        finally:
            child.kill()
        said.seek(0)
        lines = said.read()
    assert LOST.findall(lines) == [f"rank {killed}"], lines
    assert child.returncode != 0 and took < 10


def test_refused():
    command = job(2)
    done = run(*command[1:], "run", "-m", SMALL, "--device", "nothing", binary=command[0], env=JOB, check=False)
    assert done.returncode == 1
    assert re.findall("^godwit: .*$", done.stderr, re.M) == [
        "godwit: error: rank 1: device: device: 'nothing' is not on this host"], done.stderr
