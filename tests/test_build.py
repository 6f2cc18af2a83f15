# tests/test_build.py - the build on a machine that lacks what only tests need.
import os
import pathlib
import shutil
import subprocess

import pytest

from program import EMULATOR, ROOT, SANITIZED

pytestmark = pytest.mark.skipif(bool(EMULATOR) or SANITIZED or shutil.which("pkg-config") is None,
                                reason="asked of the native release")


def test_without_cmocka(tmp_path):
    """As `cmake -S . -B build` without options: one line says that tests are left out."""
    paths = subprocess.run(["pkg-config", "--variable=pc_path", "pkg-config"], check=True, text=True,
                           capture_output=True).stdout.strip().split(":")
    (tmp_path / "pc").mkdir()
    for file in (f for folder in reversed(paths) for f in pathlib.Path(folder).glob("*.pc")):
        if file.stem != "cmocka":
            link = tmp_path / "pc" / file.name
            link.unlink(missing_ok=True)
            link.symlink_to(file)
    env = dict(os.environ, PKG_CONFIG_LIBDIR=str(tmp_path / "pc"), PKG_CONFIG_PATH="")
    build = tmp_path / "build"
    done = subprocess.run(["cmake", "-S", ROOT, "-B", build, "-G", "Ninja"], env=env, text=True, check=True,
                          capture_output=True)
    said = [line for line in done.stdout.splitlines() if "cmocka is" in line]
    assert said == ["-- cmocka is not here: built without tests (libcmocka-dev has it)"]
    rules = (build / "build.ninja").read_text()
    assert "godwit: " in rules and "tests/test_" not in rules
