# tests/test_count.py - the totals of tools/test: what its counter makes of each kind of output; tests that take
# several times their cost; what --since leaves out; what .ci/run asks for.
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from program import ROOT

CMOCKA = """[==========] Running 3 test(s).
[ RUN      ] a
[       OK ] a
[==========] 3 test(s) run.
[  PASSED  ] 1 test(s).
[  SKIPPED ] 1 test(s), listed below:
[  FAILED  ] 1 test(s), listed below:
"""
CASES = {
    "cmocka": ("fail", "", CMOCKA, "1 1 1"),
    "two cmocka groups": ("fail", "", CMOCKA * 2, "2 2 2"),
    "cmocka that dies in a group": ("fail", "", CMOCKA.split("[==========] 3")[0], "0 1 0"),
    "dies after its totals": ("fail", "", CMOCKA.rsplit("[  FAILED", 1)[0], "1 1 1"),
    "pytest": ("fail", "", ".sF\n1 failed, 2 passed, 3 skipped in 0.50s\n", "2 1 3"),
    "pytest, an error in collection": ("fail", "", "1 error in 0.10s\n", "0 1 0"),
    "pytest, a whole file skipped": ("notrun", "<skipped/>",
                                     "SKIPPED [1] t.py:3: no data\n1 skipped in 0.01s\n", "0 0 1"),
    "a check": ("run", "", "ok a\nok b\nSKIP c: no compiler\n", "2 0 1"),
    "a check that fails": ("fail", "", "    place\nFAIL a\nok b\n", "1 1 0"),
    "a plain program": ("run", "", "hello\n", "1 0 0"),
    "a crash": ("fail", "", "", "0 1 0"),
    "not built": ("notrun", "<skipped/>", "Unable to find executable: x\n", "0 1 0"),
}


@pytest.mark.parametrize("name", CASES)
def test_count(name, tmp_path):
    status, inside, output, want = CASES[name]
    results = tmp_path / "results.xml"
    results.write_text(f'<testsuite><testcase name="t" status="{status}">{inside}'
                       f"<system-out>{output}</system-out></testcase></testsuite>")
    done = subprocess.run([sys.executable, ROOT / "tools/count_tests.py", results],
                          capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == want + " 0"


def tool(name):
    spec = importlib.util.spec_from_file_location(name, ROOT / f"tools/{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_what_a_test_took():
    """A test's status and output stay, a line about the processor comes last; that of its children counts."""
    done = subprocess.run([ROOT / "tests/timed", "sh", "-c", "echo out; python3 -c 'sum(range(3000000))'; exit 3"],
                          capture_output=True, text=True)
    assert done.returncode == 3 and done.stdout == "out\n"
    assert 0.02 < tool("count_tests").processor(done.stderr) < 60


COSTS = {f"test_{name}": {"hip": cost} for name, cost in zip("abcdefg", (300, 100, 50, 20, 10, 6, 5))}


@pytest.mark.parametrize("took,failed,slow", [
    ({}, [], []),                                          # as their costs say
    ({"test_b": 199}, [], []),
    ({"test_b": 299}, [], ["test_b"]),
    ({"test_b": 320}, ["test_b"], []),
    ({"test_g": 24}, [], ["test_g"]),                      # seconds of grace for small ones
    ({"test_g": 26}, ["test_g"], []),
    ({"test_new": 69}, [], ["test_new"]),                  # without a row
    ({"test_new": 71}, ["test_new"], []),
    ({name: 4 * row["hip"] for name, row in COSTS.items()}, [], []),  # a slow or busy machine
    ({name: 4 * row["hip"] for name, row in COSTS.items()} | {"test_c": 650}, ["test_c"], []),
    ({name: 0.2 * row["hip"] for name, row in COSTS.items()}, [], []),
], ids=range(11))
def test_costs(took, failed, slow, monkeypatch, capsys):
    count_tests = tool("count_tests")
    monkeypatch.setattr(count_tests, "read_costs", lambda: COSTS)
    usual = {name: row["hip"] for name, row in COSTS.items()}
    assert count_tests.hold_to_costs("hip", usual | took) == len(failed)
    said = [line.split()[:2] for line in capsys.readouterr().out.splitlines()]
    assert [name for word, name in said if word == "FAIL"] == failed
    assert [name for word, name in said if word == "SLOW"] == slow


def test_few_costs_fail_nothing(monkeypatch, capsys):
    """Where a stage has few tests that cost much, nothing tells how fast the machine is."""
    count_tests = tool("count_tests")
    monkeypatch.setattr(count_tests, "read_costs", lambda: {"test_a": {"tsan": 10}})
    assert count_tests.hold_to_costs("tsan", {"test_a": 500}) == 0
    assert "dearest of tsan" in capsys.readouterr().out


def test_costs_are_of_tests_and_stages():
    stages = {line.split(";")[0] for line in (ROOT / "tools/stages").read_text().splitlines() if line[0] != "#"}
    for name, row in tool("count_tests").read_costs().items():
        assert any((ROOT / f"tests/{name}.{kind}").is_file() for kind in ("c", "py")), f"{name} is no test"
        assert row and set(row) <= stages | {"any"} and all(n > 0 for n in row.values()), name


BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", "none"))


@pytest.mark.skipif(not (BUILD / ".ninja_deps").is_file() or not (BUILD / "tests/test_ops").is_file()
                    or not (BUILD / "tests/test_session").is_file(), reason="no build folder of ninja with tests")
def test_what_a_change_cannot_touch():
    """By objects in programs, so also through a header; whatever it does not know touches everything."""
    touched = tool("touched")
    for changed, stays, runs in [
            (["apps/options.c"], ["test_ops", "test_session"], ["test_options", "test_cli"]),
            (["core/engine/run/session.c"], ["test_ops", "test_gguf"], ["test_session", "test_cli"]),
            (["core/tensor/formats.h"], ["test_sha256"], ["test_ops", "test_session", "test_cli"]),
            (["tests/op_cases.h", "README.md"], ["test_session"], ["test_ops"]),
            (["kernels_hip/params.h"], ["test_gguf", "test_cli"], ["test_hip", "test_hip_ops"])]:
        names = touched.untouched(changed, BUILD, "release")
        assert set(stays) <= set(names), (changed, names)
        assert not set(runs) & set(names), (changed, names)
    assert touched.untouched(["core/engine/run/session.c", "tests/data/README.txt"], BUILD, "release") == []
    assert touched.untouched(["core/engine/run/gone.c"], BUILD, "release") == []
    assert not [name for name in touched.untouched(["kernels_cl/walk.cl"], BUILD, "opencl") if "opencl" in name]


def git(folder, *words):
    return subprocess.run(["git", "-c", "user.name=n", "-c", "user.email=e", *words], cwd=folder, check=True,
                          capture_output=True, text=True).stdout.strip()


def test_what_continuous_integration_runs(tmp_path):
    """A branch is tested since it left the main one; everything where that is not known."""
    origin, clone = tmp_path / "origin", tmp_path / "clone"
    (origin / ".ci").mkdir(parents=True)
    (origin / "tools").mkdir()
    shutil.copy(ROOT / ".ci/run", origin / ".ci/run")
    (origin / "tools/test").write_text("#!/bin/sh\necho asked for: $*\n")
    (origin / "tools/test").chmod(0o755)
    git(origin, "init", "-q", "-b", "main")
    git(origin, "add", ".")
    git(origin, "commit", "-qm", "one")
    base = git(origin, "rev-parse", "HEAD")

    def asked(folder, **environment):
        kept = {k: v for k, v in os.environ.items() if k not in ("CI_BASE", "GITHUB_BASE_REF")}
        done = subprocess.run([".ci/run"], cwd=folder, capture_output=True, text=True, env=kept | environment)
        return done.stdout.strip().removeprefix("asked for:").strip()

    assert asked(origin) == ""  # no remote
    git(tmp_path, "clone", "-q", f"file://{origin}", "clone")
    assert asked(clone) == ""  # the main branch itself
    git(clone, "switch", "-qc", "work")
    git(clone, "commit", "-qm", "two", "--allow-empty")
    assert asked(clone) == f"--since {base}"
    assert asked(clone, CI_BASE="nothing-of-that-name") == ""
    git(clone, "push", "-q", "origin", "work")
    git(tmp_path, "clone", "-q", "--depth", "1", "-b", "work", f"file://{origin}", "shallow")
    assert asked(tmp_path / "shallow") == ""
    assert asked(tmp_path / "shallow", GITHUB_BASE_REF="main") == ""
    assert asked(clone, GITHUB_BASE_REF="main") == f"--since {base}"
