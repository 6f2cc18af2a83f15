# tests/test_library.py - libgodwit as other programs get it: what is installed, what it shows, the
# examples of docs/ built and run against it, and the Debian packages.
import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from program import DATA, EMULATOR, ROOT, SANITIZED, run

BUILD = pathlib.Path(os.environ.get("GODWIT_BUILD", ROOT / "build/release"))
MODEL = DATA / "tales-2m-q4_0.gguf"
PROMPT = "Once upon a time"

pytestmark = pytest.mark.skipif(SANITIZED or bool(EMULATOR) or not (BUILD / "build.ninja").is_file(),
                                reason="SKIP: an installation is tested from a plain build")


def call(*command, **more):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True,
                          timeout=600, stdin=subprocess.DEVNULL, **more)
    assert done.returncode == 0, f"{command}: {done.stdout[-1500:]} {done.stderr[-3000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory):
    """An installation in a folder of its own."""
    folder = tmp_path_factory.mktemp("prefix")
    call("cmake", "--install", BUILD, "--prefix", folder)
    return folder


def library_folder(prefix):
    return next(prefix.rglob("godwit.pc")).parent.parent


def environment(prefix):
    folder = library_folder(prefix)
    return dict(os.environ, LD_LIBRARY_PATH=str(folder), PKG_CONFIG_PATH=str(folder / "pkgconfig"))


def story():
    """What the examples must print."""
    return run("run", "-m", MODEL, "-q", "-p", PROMPT, "-n", "32", "--seed", "1",
               "--no-display-prompt").stdout.lstrip(" ")


def compiler():
    return shutil.which("cc") or shutil.which("gcc") or pytest.skip("SKIP: no C compiler")


# ---- what is there -------------------------------------------------------------------------------

def test_files(prefix):
    there = {str(path.relative_to(prefix)) for path in prefix.rglob("*")}
    for name in ("bin/godwit", "include/godwit.h", "include/godwit_cards.h", "include/godwit_encoder.h",
                 "include/godwit_bind.h", "include/godwit_hosts.h", "include/godwit_quantize.h", "include/godwit_writer.h"):
        assert name in there
    names = {pathlib.Path(path).name for path in there}
    assert {"libgodwit.a", "libgodwit.so", "libgodwit.so.0", "godwit.pc", "godwitConfig.cmake",
            "godwitConfigVersion.cmake"} <= names


def declared():
    header = "".join(path.read_text() for path in sorted((ROOT / "include").glob("*.h")))
    header = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    header = re.sub(r"^static inline [^{]*\{[^}]*\}", "", header, flags=re.M)  # the programs' own
    return set(re.findall(r"\b(gw_\w+)\(", header))


def test_only_public_names(prefix):
    """Every function of the header, and nothing else, can be seen from outside."""
    out = call("nm", "-D", "--defined-only", library_folder(prefix) / "libgodwit.so.0")
    assert {line.split()[-1].split("@")[0] for line in out.splitlines()} == declared()


def test_the_library_is_silent_and_never_exits(prefix):
    out = call("nm", "-D", "--undefined-only", library_folder(prefix) / "libgodwit.so.0")
    used = {line.split()[-1].split("@")[0] for line in out.splitlines()}
    enders = {str(p.relative_to(ROOT)) for folder in ("core", "backends", "cpu") for p in (ROOT / folder).rglob("*.c")
              if re.search(r"\b_exit\(", p.read_text())}
    assert enders <= {"backends/mpi/worker.c"}  # of processes that it forks itself, one for each client
    assert not used & {"exit", "abort", "__assert_fail", "printf", "puts", "putchar",
                       "perror", "stdout", "stderr", "__printf_chk", "system", "popen"}, used


# ---- the examples --------------------------------------------------------------------------------

@pytest.mark.parametrize("how", [(), ("--static",)], ids=["shared", "static"])
def test_c_example(prefix, tmp_path, how):
    env = environment(prefix)
    flags = call("pkg-config", "--cflags", "--libs", *how, "godwit", env=env).split()
    if how:
        flags = [str(library_folder(prefix) / "libgodwit.a") if f == "-lgodwit" else f for f in flags]
    program = tmp_path / "example"
    call(compiler(), "-std=c11", "-Wall", "-Wextra", "-Werror", ROOT / "docs/example.c", "-o", program,
         *flags)
    assert call(program, MODEL, PROMPT, env=env) == story()
    done = subprocess.run([program, "/dev/null"], env=env, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.startswith("example: /dev/null: ")


def test_cmake_package(prefix, tmp_path):
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.25)\nproject(example C)\nfind_package(godwit 0.1 REQUIRED)\n"
        f"add_executable(example {ROOT}/docs/example.c)\n"
        "target_link_libraries(example PRIVATE godwit::godwit)\n")
    call("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={prefix}")
    call("cmake", "--build", tmp_path / "build")
    assert call(tmp_path / "build/example", MODEL, PROMPT) == story()


def test_python_example(prefix):
    env = environment(prefix)
    assert call(sys.executable, ROOT / "docs/example.py", MODEL, PROMPT, env=env) == story()
    done = subprocess.run([sys.executable, ROOT / "docs/example.py", "/dev/null", PROMPT], env=env,
                          capture_output=True, text=True)
    assert done.returncode == 1 and "example: /dev/null: " in done.stderr


def test_header_in_cpp(tmp_path):
    compiler_of_cpp = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
    if compiler_of_cpp is None:
        pytest.skip("SKIP: no C++ compiler")
    source = tmp_path / "x.cpp"
    source.write_text("#include <godwit.h>\nint main() { return gw_error_text()[0]; }\n")
    call(compiler_of_cpp, "-std=c++11", "-Wall", "-Wextra", "-Werror", "-fsyntax-only",
         f"-I{ROOT / 'include'}", source)


# ---- packages ------------------------------------------------------------------------------------

@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    for tool in ("dpkg-deb", "dpkg-shlibdeps"):
        if shutil.which(tool) is None:
            pytest.skip(f"SKIP: {tool} is missing")
    folder = tmp_path_factory.mktemp("packages")
    # What packs fast: a release packs with xz.
    call("cpack", "--config", BUILD / "CPackConfig.cmake", "-B", folder, "-D",
         "CPACK_DEBIAN_COMPRESSION_TYPE=gzip", cwd=folder)
    found = {path.name.split("_")[0]: path for path in folder.glob("*.deb")}
    assert set(found) == {"godwit", "libgodwit0", "libgodwit-dev"}
    return found


def test_packages_say_what_they_need(packages):
    depends = {name: call("dpkg-deb", "-f", path, "Depends") for name, path in packages.items()}
    for name in ("godwit", "libgodwit0"):
        for library in ("libc6", "libjansson4", "libpcre2-8-0", "libutf8proc"):
            assert library in depends[name], depends[name]
    assert re.search(r"libgodwit0 \(= 0\.1\.0-1\)", depends["libgodwit-dev"])


def test_packages_belong_to_root(packages):
    """Whoever made them."""
    for path in packages.values():
        owners = {line.split()[1] for line in call("dpkg-deb", "-c", path).splitlines()}
        assert owners == {"root/root"}


def test_packages_run_where_they_are_unpacked(packages, tmp_path):
    for path in packages.values():
        call("dpkg-deb", "-x", path, tmp_path)
    done = subprocess.run([tmp_path / "usr/bin/godwit", "run", "-q", "-n", "8", "--temp", "0"],
                          capture_output=True, text=True, timeout=120)
    assert done.returncode == 0 and done.stdout.startswith("Once upon a time")
    for name in packages:
        assert (tmp_path / f"usr/share/doc/{name}/copyright").is_file()
        assert (tmp_path / f"usr/share/doc/{name}/changelog.Debian.gz").is_file()


def test_lintian(packages):
    if shutil.which("lintian") is None:
        pytest.skip("SKIP: lintian is missing")
    done = subprocess.run(["lintian", "--allow-root", "--tag-display-limit", "0",
                           *map(str, packages.values())], capture_output=True, text=True, timeout=600)
    errors = [line for line in done.stdout.splitlines() if line.startswith("E:")]
    assert not errors, "\n".join(errors)
    assert done.returncode == 0, done.stdout + done.stderr
