# tests/test_chat_program.py - `godwit chat` as people and scripts use it: through a pseudo-terminal
# with Ctrl-C, history and commands, and down a pipe; and --stop in `godwit run`.
import fcntl
import json
import os
import pty
import re
import select
import signal
import subprocess
import termios
import time

import pytest

from program import BIN, DATA, EMULATOR, SANITIZED, SLOW, run

SMALL = DATA / "tales-2m-q4_0.gguf"
PROGRAM = [*EMULATOR, BIN]
GREEDY = ["chat", "-m", SMALL, "--temp", "0", "-t", "1"]
WAIT = 120 if SLOW else 30


def chat(text, *args, check=True, **env):
    """Lines down a pipe; what came back."""
    done = subprocess.run([*PROGRAM, *map(str, [*GREEDY, *args])], input=text, timeout=300,
                          capture_output=True, text=True, env=dict(os.environ, **env))
    if check:
        assert done.returncode == 0, done.stderr
    return done


class Terminal:
    """The program on a pseudo-terminal that is its controlling one, so that ^C is a signal."""

    def __init__(self, *args, state, **env):
        self.fd, theirs = pty.openpty()
        self.child = subprocess.Popen(
            [*PROGRAM, *map(str, [*GREEDY, *args])], stdin=theirs, stdout=theirs, stderr=theirs,
            env={k: v for k, v in os.environ.items() if k != "NO_COLOR"} |
                {"TERM": "xterm", "XDG_STATE_HOME": str(state)} | env,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
        os.close(theirs)
        self.seen, self.marked = "", False

    def type(self, text):
        self.seen = ""
        os.write(self.fd, text.encode())

    def expect(self, pattern, seconds=WAIT):
        """Read until the pattern comes; all that came since the last `type`."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.seen):
            left = end - time.monotonic()
            assert left > 0, f"no {pattern!r} in {self.seen!r}"
            if not select.select([self.fd], [], [], left)[0]:
                continue
            try:
                block = os.read(self.fd, 65536)
            except OSError:
                block = b""
            assert block, f"the program ended before {pattern!r}: {self.seen!r}"
            self.seen += block.decode("utf-8", "replace")
            self.marked |= "\x1b[?2004h" in self.seen  # asks for marks around pastes: nothing to see
            self.seen = re.sub(r"\x1b\[\?2004[hl]", "", self.seen)
        return self.seen

    def end(self):
        end = time.monotonic() + WAIT
        while self.child.poll() is None and time.monotonic() < end:
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    os.read(self.fd, 65536)
                except OSError:
                    pass
        code = self.child.poll()
        if code is None:
            self.child.kill()
            self.child.wait()
        os.close(self.fd)
        return code


PROMPT = r"> $"


# ---- a pipe --------------------------------------------------------------------------------------

def test_pipe_gives_answers_only():
    done = chat("Hello, who are you?\nAnd then?\n", "-n", "12")
    assert done.stdout.count("\n") >= 2 and "> " not in done.stdout and "\033" not in done.stdout
    assert "template plain" in done.stderr
    quiet = chat("Hello, who are you?\nAnd then?\n", "-n", "12", "-q")
    assert quiet.stdout == done.stdout and quiet.stderr == ""
    first = chat("Hello, who are you?", "-n", "12", "-q").stdout  # no newline at the end
    assert done.stdout.startswith(first) and len(done.stdout) > len(first)


def test_only_what_is_new_is_read():
    done = chat("One day the king went to the sea.\n/stats\nAnd then?\n/stats\n", "-n", "20")
    turns = re.findall(r"turn    (\d+) tokens kept, (\d+) read", done.stderr)
    kept, read = map(int, turns[1])
    assert int(turns[0][0]) == 0 and kept >= int(turns[0][1]) + 19 and 0 < read < 15


@pytest.mark.parametrize("draft", [["--draft", "ngram"],
                                   ["--draft", DATA / "tales-2m-q4_k_m.gguf"]])
def test_speculation_changes_nothing(draft):
    text = "The king and the queen\nand the king and the queen\nWhat then?\n"
    plain = chat(text, "-n", "30", "-q").stdout
    assert chat(text, "-n", "30", "-q", *draft).stdout == plain
    sampled = ["-n", "30", "-q", "--temp", "0.9", "--seed", "5", "--repeat-penalty", "1.2"]
    assert chat(text, *sampled).stdout == chat(text, *sampled, *draft).stdout != plain


def test_reset_begins_anew():
    done = chat("The old king\n/reset\nThe old king\n", "-n", "16", "-q").stdout
    half = chat("The old king\n", "-n", "16", "-q").stdout
    assert done == half + half


def test_system_message():
    plain = chat("The old king\n", "-n", "16", "-q").stdout
    told = chat("The old king\n", "-n", "16", "-q", "--system", "All kings are cats.").stdout
    assert told != plain
    assert chat("/system All kings are cats.\nThe old king\n", "-n", "16", "-q").stdout == told
    shown = chat("/system\n/system Be brief.\n/system\n", "-q").stderr
    assert shown == "no system message\nBe brief.\n"


def test_several_lines():
    told = chat("", "--load", "/dev/stdin", check=False)  # nothing to load is an error, not a hang
    assert told.returncode == 1
    one = chat('"""The king\nand the queen"""\n', "-n", "8", "-q").stdout
    assert one == chat("The king\\\nand the queen\n", "-n", "8", "-q").stdout
    assert one == chat('"""\nThe king\nand the queen"""\n', "-n", "8", "-q").stdout


def test_save_and_load(tmp_path):
    path = tmp_path / "talk.json"
    chat(f"The old king\nAnd the queen?\n/save {path}\n", "-n", "16", "-q")
    talk = json.loads(path.read_text())
    assert [m["role"] for m in talk["messages"]] == ["user", "assistant"] * 2
    assert talk["messages"][2]["content"] == "And the queen?" and talk["template"] == "plain"
    further = chat(f"/load {path}\nAnd then?\n", "-n", "16", "-q").stdout
    assert further == chat("And then?\n", "-n", "16", "-q", "--load", path).stdout
    path.write_text(json.dumps(talk["messages"][:3]))  # a plain list; the last waits for an answer
    assert chat("", "-n", "16", "-q", "--load", path).stdout.strip() == \
        talk["messages"][3]["content"].strip()


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"messages": 1}', '[{"role": "user"}]',
                                  '[{"role": "wizard", "content": "x"}]', "[" * 3000,
                                  '[{"role": "user", "content": 1}]', '[1]',
                                  '{"messages": [], "messages": []}', "\udcff"])
def test_load_refuses(tmp_path, text):
    path = tmp_path / "broken.json"
    path.write_text(text, errors="surrogateescape")
    done = chat(f"/load {path}\n", "-q", check=False)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done.stderr
    assert "broken.json" in done.stderr


def test_bytes_that_are_not_utf8_can_be_saved(tmp_path):
    path = tmp_path / "bytes.json"
    done = subprocess.run([*PROGRAM, *map(str, GREEDY), "-n", "4", "-q"],
                          input=b"a\xff\xe9b\0c\xf0\x9f\x99\x82\n/save " + os.fsencode(path) + b"\n",
                          capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert json.loads(path.read_text())["messages"][0]["content"] == "a\ufffd\ufffdb\0c🙂"


def test_a_conversation_that_cannot_be_saved(tmp_path):
    """Every way to the disk: what was there before stays, and nothing lies beside it."""
    old = tmp_path / "talk.json"
    old.write_text("precious")
    limited = "ulimit -f 0; exec \"$0\" \"$@\""
    for path, words in ((tmp_path / "no/such/talk.json", "No such file"),
                        ("/dev/full", "No space left"), (tmp_path, "Is a directory")):
        done = chat(f"Hi.\n/save {path}\n", "-n", "4", "-q", check=False)
        assert done.returncode == 1 and words in done.stderr and str(path) in done.stderr
    if SANITIZED:  # libomp wants shared memory, which is a file, too
        return
    done = subprocess.run(["sh", "-c", limited, *PROGRAM, *map(str, GREEDY), "-n", "4", "-q"],
                          input=f"Hi.\n/save {old}\n", capture_output=True, text=True, timeout=300,
                          env=dict(os.environ, XDG_STATE_HOME="/dev/null"))
    assert done.returncode == 1 and str(old) in done.stderr, done.stderr
    assert old.read_text() == "precious" and [p.name for p in tmp_path.iterdir()] == ["talk.json"]


@pytest.mark.parametrize("line,words", [
    ("/rest", "/rest is no command"), ("/load", "/load needs a file"), ("/save", "/save needs"),
    ("/load /dev/null/y", "/dev/null/y"), ("/save /dev/null/x", "/dev/null/x"),
    ("/reset now", "takes no value"), ("/stats x", "takes no value")])
def test_commands_that_fail_end_a_script(line, words):
    done = chat(f"{line}\nHello\n", "-q", check=False)
    assert done.returncode == 1 and done.stdout == "" and words in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_slash_can_be_text():
    assert chat(" /reset\n", "-n", "4", "-q").stdout.strip()


def test_full_context():
    done = chat("The king\n" * 40, "-n", "40", "-c", "128", "-q", "--no-context-shift", check=False)
    assert done.returncode == 1 and "context is 128" in done.stderr and "/reset" in done.stderr
    cut = chat("The king\n", "-n", "-1", "-c", "64", "--ignore-eos", "--no-context-shift")
    assert "context of 64 tokens is full: the answer is cut" in cut.stderr
    assert chat("The king\n/reset\nThe king\n", "-n", "40", "-c", "64", "-q").stdout


def test_context_shift():
    """The talk goes on: within an answer, and from turn to turn; /save still has all of it."""
    long = chat("The king\n", "-n", "150", "-c", "64", "--ignore-eos", "--context-shift")
    assert "150 written" in long.stderr and "error" not in long.stderr
    args = ["-n", "30", "-c", "128", "--context-shift", "--system", "Be brief."]
    done = chat("The king went to the sea.\n" * 12 + "/stats\n", *args)
    assert "out of the model's sight" in done.stderr and "25 messages" in done.stderr
    assert done.stdout.count("\n") >= 12
    drafted = chat("The king went to the sea.\n" * 12, *args, "-q", "--draft", "ngram").stdout
    assert drafted == done.stdout
    small = chat("The king went to the sea. " * 20, *args, check=False)
    assert small.returncode == 1 and "context is 128" in small.stderr


def test_template_by_name():
    done = chat("Hi\n", "-n", "8", "--chat-template", "Llama-2")
    assert "template llama2 (as asked)" in done.stderr
    done = chat("Hi\n", "--chat-template", "chatlm", check=False)
    assert done.returncode == 2 and "chatml" in done.stderr


def test_sigterm_at_a_silent_pipe():
    child = subprocess.Popen([*PROGRAM, *map(str, GREEDY)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    child.stderr.readline()
    child.stderr.readline()
    time.sleep(0.3)
    child.send_signal(signal.SIGTERM)
    child.communicate(timeout=WAIT)
    assert child.returncode == 143


# ---- a terminal ----------------------------------------------------------------------------------

@pytest.fixture
def terminal(tmp_path):
    opened = []

    def start(*args, **env):
        opened.append(Terminal(*args, state=tmp_path / "state", **env))
        return opened[-1]
    yield start
    for t in opened:
        if t.child.poll() is None:
            t.child.kill()
            t.child.wait()


ENDLESS = ["-n", "-1", "-c", "30000", "--ignore-eos"]


def test_terminal_talk_and_ctrl_d(terminal, tmp_path):
    t = terminal("-n", "10", "-q")
    t.expect(PROMPT)
    t.type("The old king\r")
    shown = t.expect(r"\n> $")
    answer = chat("The old king\n", "-n", "10", "-q").stdout
    assert answer.replace("\n", "\r\n") in shown
    t.type("\x04")
    assert t.end() == 0


def test_ctrl_c_stops_the_answer_only(terminal, tmp_path):
    t = terminal(*ENDLESS)
    t.expect(PROMPT)
    t.type("Once upon a time\r")
    t.expect(r"time\r\n(.|\r|\n){100}")
    start = time.monotonic()
    t.type("\x03")
    t.expect(r"\[stopped\]\r\n> $")
    assert time.monotonic() - start < (20 if SLOW else 2)
    path = tmp_path / "after.json"
    t.type(f"/save {path}\r")
    t.expect(r"2 messages saved\r\n> $")
    messages = json.loads(path.read_text())["messages"]
    assert len(messages[1]["content"]) > 50  # what there was of the answer is kept
    t.type("/stats\r")
    held = int(re.search(r"2 messages, (\d+) of 30000", t.expect(r"all (.|\n)*\n> $"))[1])
    t.type("And then?\r")
    t.expect(r"then\?\r\n(.|\r|\n){20}")
    t.type("\x03\x03")  # impatience ends no program either
    t.expect(r"\[stopped\]\r\n> $")
    t.type("/stats\r")
    kept = int(re.search(r"turn    (\d+) tokens kept", t.expect(r"all (.|\n)*\n> $"))[1])
    assert kept == held
    t.type("/exit\r")
    assert t.end() == 0


def test_ctrl_c_shows_what_a_ban_held_back(terminal, tmp_path):
    whole, kept = tmp_path / "whole.json", tmp_path / "kept.json"
    chat(f"Once upon a time\n/save {whole}\n", "-c", "30000", "--ignore-eos", "-n", "900")
    text = json.loads(whole.read_text())["messages"][1]["content"]
    bans = [x for k in range(0, len(text), 100) for x in ("--ban", text[k:k + 300] + "\x01")]
    t = terminal(*ENDLESS, *bans)  # of what is written 200 characters or more are always held back
    t.expect(PROMPT)
    t.type("Once upon a time\r")
    t.expect(r"time\r\n(.|\r|\n){90}")
    t.type("\x03")
    assert len(t.expect(r"\[stopped\]\r\n> $")) > 200
    t.type(f"/save {kept}\r")
    t.expect(r"2 messages saved\r\n> $")
    said = json.loads(kept.read_text())["messages"][1]["content"]
    assert len(said) > 290 and said[:len(text)] == text[:len(said)]
    t.type("And then?\r")  # the session holds what was said
    t.expect(r"then\?\r\n(.|\r|\n){20}")
    t.type("\x03")
    t.expect(r"\[stopped\]\r\n> $")
    t.type("/exit\r")
    assert t.end() == 0


def test_ctrl_c_while_a_message_is_read(terminal, tmp_path):
    talk = [{"role": "user", "content": "The king and the queen had a daughter. " * 1500},
            {"role": "assistant", "content": "Yes."}]
    (tmp_path / "long.json").write_text(json.dumps(talk))
    t = terminal(*ENDLESS, "-b", "32", "--load", tmp_path / "long.json")
    t.expect(PROMPT)
    t.type("And then?\r")
    time.sleep(0.7)
    t.type("\x03")
    t.expect(r"\[stopped before the answer\]\r\n> $")
    t.type("/exit\r")
    assert t.end() == 0


def test_ctrl_c_at_the_prompt(terminal):
    t = terminal()
    t.expect(PROMPT)
    t.type("some words")
    t.expect("words")
    t.type("\x03")  # throws the line away
    assert "again" not in t.expect(r"\n> $")
    t.type("\x03")
    t.expect(r"Ctrl-C again.*\r\n> $")
    t.type("/stats\r")  # anything else begins the count anew
    t.expect(r"template plain(.|\n)*\n> $")
    t.type("\x03")
    t.expect(r"Ctrl-C again.*\r\n> $")
    t.type("\x03")
    assert t.end() == 130


def test_history_is_kept(terminal, tmp_path):
    kept = tmp_path / "state/godwit/chat_history"
    for call in range(2):
        t = terminal("-n", "2", "-q")
        t.expect(PROMPT)
        if call == 1 and kept.exists():
            t.type("\x1b[A")  # the line before, of the call before
            t.expect("grüße an den könig")
            t.type("\x01alte \r")
            t.expect(r"\n> $")
        else:
            t.type("grüße an den könig\r")
            t.expect(r"\n> $")
        t.type("\x04")
        assert t.end() == 0
        if not kept.exists():
            pytest.skip("SKIP: built without libedit")
    assert "alte" in kept.read_text()
    assert kept.stat().st_mode & 0o777 == 0o600


def test_no_colour(terminal):
    t = terminal("-n", "2", NO_COLOR="1")
    t.expect(PROMPT)
    t.type("/nonsense\r")
    assert "\033[1;31m" not in t.expect(r"no command(.|\n)*> $")
    t.type("\x04")
    assert t.end() == 0


def test_pasted_lines_are_one_message(terminal, tmp_path):
    """Bracketed paste: line ends, tabs and a slash are text; a slash that was typed is a command."""
    t = terminal("-n", "2", "-q")
    t.expect(PROMPT)
    t.type("x\x7f")
    t.expect("x")
    if not t.marked:
        pytest.skip("SKIP: built without libedit")
    t.type("\x1b[200~/one\r\ttwo\\\rthree\x1b[201~\r")
    t.expect(r"\n> $")
    t.type("plain\r")
    t.expect(r"\n> $")
    t.type(f"/save \x1b[200~{tmp_path / 'said.json'}\x1b[201~\r")
    t.expect(r"\n> $")
    t.type("\x04")
    assert t.end() == 0
    messages = json.loads((tmp_path / "said.json").read_text())["messages"]
    assert [m["content"] for m in messages if m["role"] == "user"] == ["/one\n\ttwo\\\nthree", "plain"]


def test_no_dead_end():
    """Without -n and --context-shift: an answer is no longer than the context, and the next message
    is answered; one that cannot fit is refused."""
    said = chat("Once\nTwice\n" + "many words " * 60 + "\n", "-c", "64", "--ignore-eos", check=False)
    assert said.stderr.count("as long as the context") == 2 and "the message needs" in said.stderr
    plain = chat("Once\nTwice\n", "-c", "64", "--ignore-eos", "--no-context-shift", check=False)
    assert plain.returncode == 1 and "--no-context-shift" in plain.stderr


def test_base_model_is_named():
    assert "cannot talk" in run("chat", "-p", "Hello", "-n", 1, "-t", 1, "--single-turn").stderr
    assert "does not follow instructions" in chat("Hello\n", "-n", "1").stderr
    assert "instructions" not in chat("Hello\n", "-n", "1", "--chat-template", "chatml").stderr


def test_dumb_terminal(terminal):
    t = terminal("-n", "4", "-q", TERM="dumb")
    t.expect(PROMPT)
    t.type("Hello\n")
    assert "\033" not in t.expect(r"\n> $")
    t.type("\x04")
    assert t.end() == 0


# ---- stop strings in run -------------------------------------------------------------------------

def test_run_stops_before_the_string():
    args = ["run", "-m", SMALL, "-p", "Once upon a time", "-n", "60", "--temp", "0"]
    whole = run(*args, "-q").stdout.rstrip("\n")
    for begin, end in ((30, 33), (41, 60), (25, 26)):
        stop = whole[begin:end]
        done = run(*args, "--stop", stop, "--stop", "never in it")
        cut = len("Once upon a time") + whole[len("Once upon a time"):].index(stop)
        assert done.stdout.rstrip("\n") == whole[:cut].rstrip("\n")
        assert "stop string" in done.stderr
        assert run(*args, "--stop", stop, "-q", "--draft", "ngram").stdout == done.stdout
    half = whole[30:33] + "\x01"  # begins like the text, never comes: all of the text is there
    assert run(*args, "-q", "--stop", half).stdout.rstrip("\n") == whole


def test_stop_strings_are_checked():
    done = run("run", "-m", SMALL, "--stop", "", check=False)
    assert done.returncode == 2 and "stop" in done.stderr
