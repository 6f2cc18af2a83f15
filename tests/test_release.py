# tests/test_release.py - parts of tools/release: one version everywhere; the bill of materials of a small made-up
# build, and what it refuses; the unit's exposure; under GODWIT_NIGHTLY=1 the whole, twice, in two folders, to equal bytes.
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from program import EMULATOR, ROOT, SANITIZED, run

pytestmark = pytest.mark.skipif(bool(EMULATOR) or SANITIZED, reason="nothing of the program's code")
VERSION = re.search(r'GW_VERSION "(.*)"', (ROOT / "include/godwit.h").read_text()).group(1)


def test_one_version():
    assert run("--version").stdout.split()[-1] == VERSION
    for name in ("CMakeLists.txt", "pyproject.toml", "cmake/library.cmake"):
        assert VERSION not in (ROOT / name).read_text(), f"{name} has a version of its own"


@pytest.fixture
def build(tmp_path):
    """A portable build as far as the bill reads it: a library and a program of one archive from a made-up root."""
    if not (shutil.which("readelf") and shutil.which("cc")):
        pytest.skip("SKIP: no compiler")
    root, made = tmp_path / "root", tmp_path / "build"
    lib = root / "usr/lib"
    lib.mkdir(parents=True)
    made.mkdir()
    (tmp_path / "z.c").write_text("int z(void) { return 1; }")
    (tmp_path / "p.c").write_text("int z(void); int p(void) { return z(); }")
    flags = ["cc", "-shared", "-fPIC", "-nostdlib"]
    subprocess.run([*flags, "-Wl,-soname,libz.so.1", "-o", lib / "libz.so.1", tmp_path / "z.c"], check=True)
    subprocess.run([*flags, "-Wl,-soname,libpng16.so.16", "-o", lib / "libpng16.so.16", tmp_path / "p.c", lib / "libz.so.1"], check=True)
    (tmp_path / "g.c").write_text("int p(void); int g(void) { return p(); }")
    subprocess.run([*flags, "-o", made / "libgodwit.so.0", tmp_path / "g.c", lib / "libpng16.so.16",
                    f"-Wl,-rpath-link,{lib}"], check=True)
    (lib / "libjansson.a").write_text("")
    (root / ".packages").write_text("zlib 1:1.2.11-2 usr/lib/libz.so.1\nlibpng1.6 1.6.37-3 usr/lib/libpng16.so.16\n"
                                    "jansson 2.13.1-1.1 usr/lib/libjansson.a\n")
    (made / "CMakeCache.txt").write_text(f"GODWIT_OLD_ROOT:PATH={root}\n")
    (made / "godwit.map").write_text("Archive member included to satisfy reference by file (symbol)\n\n"
                                     f"{lib}/libjansson.a(load.o)\n                      core/x.o (json_loads)\n\nMemory Configuration\n")
    return made


def bill(build, *files, check=True, env=None):
    return subprocess.run([sys.executable, ROOT / "tools/sbom.py", build, *files], capture_output=True, text=True, check=check, env=env)


def test_bill_of_materials(build, tmp_path):
    (tmp_path / "godwit.tar.gz").write_bytes(b"bytes")
    bom = json.loads(bill(build, tmp_path / "godwit.tar.gz").stdout)
    assert bom["bomFormat"] == "CycloneDX" and bom["metadata"]["component"]["version"] == VERSION
    libraries = {c["name"]: (c["version"], c["licenses"][0]["expression"], c["properties"][0]["value"])
                 for c in bom["components"] if c["type"] == "library"}
    assert libraries == {"jansson": ("2.13.1", "MIT", "program"), "libpng1.6": ("1.6.37", "libpng-2.0", "wheel's library"),
                         "zlib": ("1.2.11", "Zlib", "wheel's library")}
    sha = subprocess.run(["sha256sum", tmp_path / "godwit.tar.gz"], capture_output=True, text=True).stdout.split()[0]
    assert [c["hashes"][0]["content"] for c in bom["components"] if c["type"] == "file"] == [sha]
    assert bill(build).stdout == bill(build).stdout


def test_bill_of_other_systems(build, tmp_path):
    """What an archive for Windows has inside, by the versions of tools/cross-libraries."""
    versions = tmp_path / "versions"
    versions.write_text("cmocka 1.1.7-3\npcre2 10.42-1\nlibjpeg-turbo 1:2.1.5-2\n")
    made = tmp_path / "godwit-1-windows-x86_64.zip"
    made.write_bytes(b"bytes")
    found = {c["name"]: (c["version"], c["properties"][0]["value"])
             for c in json.loads(bill(build, made, env=dict(os.environ, GODWIT_CROSS_VERSIONS=str(versions),
                                                            GODWIT_MINGW_VERSIONS="mingw-w64 10.0.0-3\ngcc-mingw-w64 25.2"))
                                 .stdout)["components"]
             if c["type"] == "library"}
    assert found["pcre2"] == ("10.42", "other processors and systems")
    assert found["libjpeg-turbo"][0] == "2.1.5" and "ziglang" in found and "cmocka" not in found
    assert found["mingw-w64"][0] == "10.0.0" and found["gcc-mingw-w64"] == ("25.2", "Windows: run time of C, threads, libgcc")


def test_unknown_licence_is_refused(build):
    packages = build.parent / "root/.packages"
    packages.write_text(packages.read_text().replace("zlib ", "zlib-other "))
    done = bill(build, check=False)
    assert done.returncode == 1 and "licence of zlib-other" in done.stderr and done.stderr.count("\n") == 1


def test_unit_is_hardened():
    if not shutil.which("systemd-analyze"):
        pytest.skip("SKIP: no systemd-analyze")
    done = subprocess.run(["systemd-analyze", "security", "--offline=true", "--threshold=40", ROOT / "packaging/godwit.service"],
                          capture_output=True, text=True)
    found = re.search(r"exposure level for godwit.service: ([0-9.]+)", done.stdout)
    assert found and float(found.group(1)) < 4 and done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(os.environ.get("GODWIT_NIGHTLY") != "1", reason="GODWIT_NIGHTLY is not 1")
def test_two_builds_are_equal(tmp_path):
    """Without a cache of compilers: two compilations of everything, in folders of different names."""
    for name in ("one", "another-one"):
        subprocess.run(["git", "clone", "-q", ROOT, tmp_path / name], check=True)
        done = subprocess.run(["tools/release", tmp_path / f"of-{name}"], cwd=tmp_path / name, capture_output=True, text=True)
        if "GODWIT_DEBIAN" in done.stderr or "Could not" in done.stderr:
            pytest.skip("SKIP: no mirror of Debian")
        assert done.returncode == 0, done.stdout + done.stderr
    done = subprocess.run(["tools/release", "--compare", tmp_path / "of-one", tmp_path / "of-another-one"], cwd=ROOT,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    cross = os.uname().machine == "x86_64"
    assert len(list(pathlib.Path(tmp_path / "of-one").iterdir())) == (10 if cross else 6)
