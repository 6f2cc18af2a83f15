# tests/test_docs.py - what people read is true: every option of the table is in the help of its
# commands, README.md and the docs name no option and no command that does not exist, and the
# examples of every --help run.
import re
import shlex

import pytest

from program import EMULATOR, ROOT, SLOW, run

TABLE = (ROOT / "apps/option_table.c").read_text()
OPTIONS = set(" ".join(re.findall(r'^    \{"(-[^"]*)"', TABLE, re.M)).split())
COMMANDS = ("run", "chat", "serve", "bench", "perplexity", "evaluate", "logits", "tokenize", "inspect", "quantize", "calibrate", "devices", "doctor",
            "plan", "embed", "rerank", "template", "pull", "ls", "rm", "worker")
# cmake, mpirun, program
OF_OTHERS = {"--help", "--version", "--preset", "--install", "--build", "--target", "--bind-to", "--map-by"}

pytestmark = pytest.mark.skipif(bool(EMULATOR), reason="the words are those of the native build")


def help_of(command):
    return run(command, "--help", "all").stdout


def test_overview_names_all_commands():
    overview = run("--help").stdout
    assert set(re.findall(r"^  ([a-z]+) ", overview, re.M)) == set(COMMANDS)


def test_every_option_is_in_a_help():
    shown = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", "\n".join(map(help_of, COMMANDS))))
    assert OPTIONS <= shown, OPTIONS - shown


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_an_example(command):
    assert re.search(rf"^  godwit {command}\b", help_of(command), re.M)


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md", "docs/performance.md", "docs/chat.md", "docs/gpu.md", "docs/server.md", "docs/hosts.md", "docs/pull.md", "docs/python.md", "docs/evaluate.md",
                                  "docs/howto/option.md", "docs/howto/sampler.md",
                                  "models/README.md"])
def test_documents(name):
    for line in (ROOT / name).read_text().splitlines():
        parts = line.split(" : ")  # mpirun has a colon between two programs
        for words in [w for part in parts for w in re.findall(r"godwit ([a-z]+ [^`|#]*)", part)]:
            command = words.split()[0]
            if command in COMMANDS:
                used = set(re.findall(r"(?<![\w-])--?[a-zA-Z][a-z0-9-]*", words))
                known = set(re.findall(r"(?<![\w-])--?[a-z][a-z0-9-]*", help_of(command)))
                assert used <= known, f"{name}: {line}"
        for option in re.findall(r"`(--[a-z][a-z-]*)[ `]", line):
            assert option in OPTIONS | OF_OTHERS, f"{name}: {line}"


@pytest.mark.skipif(SLOW, reason="speed matters here")
def test_examples_of_readme(tmp_path):
    """The examples that need no file of the reader's, as written."""
    text = (ROOT / "README.md").read_text()
    ran = 0
    for line in re.findall(r"^godwit (.*)$", text, re.M):
        arguments = shlex.split(line, comments=True)
        if "-m" in arguments or "model.gguf" in arguments or arguments[0] == "serve":
            continue
        run(*arguments, cwd=tmp_path)
        ran += 1
    assert ran >= 2
