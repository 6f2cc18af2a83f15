# tests/test_bans.py - --ban: no banned string in what the program writes, whatever stands beside it:
# sampling, drafts, grammars, stop strings, a full context, chat, Ctrl-C.
import json
import random
import signal
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, run

SMALL, DRAFT = DATA / "tales-2m-q4_0.gguf", DATA / "tales-2m-q4_k_m.gguf"
PROMPT = "Once upon a time"
NEVER = "\x01"  # no token that is sampled
SAMPLED = ("--temp", "0.9", "--seed", "11", "--ignore-eos")
GREEDY = ("--temp", "0", "--ignore-eos")


def write(*args, n=60, check=True):
    done = run("run", "-m", SMALL, "-p", PROMPT, "-n", n, "-t", "1", "--no-display-prompt",
               "--stats", "json", *args, check=check)
    return done.stdout.removesuffix("\n"), done


def bans(strings):
    return [x for s in strings for x in ("--ban", s)]


def pieces(text, seed):
    """Parts of a text that begin and end anywhere in its words."""
    rng = random.Random(seed)
    for _ in range(3):
        at = rng.randrange(len(text) - 8)
        yield text[at:at + rng.randrange(2, 9)]


@pytest.mark.parametrize("how", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
def test_what_is_banned_never_comes(how):
    text, banned, taken = write(*how)[0], [], 0
    for round in range(5):
        banned += pieces(text, round)
        text, done = write(*how, *bans(banned))
        assert len(text) > 50 and not any(b in text for b in banned), (banned, text)
        stats = json.loads(done.stderr.strip().splitlines()[-1])
        assert stats["text"]["tokens"] == 60
        taken += stats["banned"]["tokens_taken_back"]
    assert taken > 0
    for draft in (("--draft", DRAFT, "--draft-length", "fixed:4"),
                  ("--draft", "ngram", "--draft-length", "fixed:6")):
        assert write(*how, *bans(banned), *draft)[0] == text
    for draft in ("rejection", "pool"):
        other, _ = write(*how, *bans(banned), "--draft", DRAFT, "--draft-accept", draft)
        assert not any(b in other for b in banned)


def test_strings_that_never_come_change_nothing():
    """Also where the text ends while it could still become one."""
    for how in (GREEDY, SAMPLED):
        text, _ = write(*how)
        for begin, end in ((0, len(text)), (20, 30), (len(text) - 5, len(text))):
            assert write(*how, "--ban", text[begin:end] + NEVER)[0] == text
    text, _ = write(*GREEDY, "-c", "24", n=-1)
    assert write(*GREEDY, "-c", "24", "--ban", text + NEVER, n=-1)[0] == text


def test_bytes_are_exact_and_the_prompt_is_not_searched():
    text, _ = write(*GREEDY)
    word = max(text.replace(",", " ").split(), key=len)
    assert write(*GREEDY, "--ban", word.upper())[0] == text
    assert word not in write(*GREEDY, "--ban", word)[0]
    assert write(*GREEDY, "--ban", PROMPT + text[:3])[0] == text


def test_stop_strings_cut_the_text_without_banned_ones():
    text, _ = write(*GREEDY)
    banned = text[10:14]
    whole, _ = write(*GREEDY, "--ban", banned)
    stop = whole[60:66]
    for more in ((), ("--draft", "ngram", "--draft-length", "fixed:4")):
        cut, _ = write(*GREEDY, "--ban", banned, "--stop", stop, *more)
        assert cut == whole[:whole.index(stop)]


def test_grammar_and_ban():
    grammar = 'root ::= ("cat" | "dog" | "cow" | "hen") (", " root)?'
    args = ("--temp", "1.5", "--seed", "3", "--grammar", grammar)
    free, _ = write(*args)
    banned = ["cat, do", "at, c", "hen"]
    text, _ = write(*args, *bans(banned))
    assert "hen" in free or "cat, do" in free or "at, c" in free
    assert not any(b in text for b in banned)
    assert set(text.rstrip(", ").split(", ")[:-1]) <= {"cat", "dog", "cow"}
    assert write(*args, *bans(banned), "--draft", "ngram", "--draft-length", "fixed:4")[0] == text


def test_no_way_out_is_one_line():
    for banned in ("a", "cat", "t"):
        _, done = write("--grammar", 'root ::= "cat"', "--ban", banned, check=False)
        assert done.returncode == 1
        lines = [x for x in done.stderr.splitlines() if x.startswith("godwit")]
        assert len(lines) == 1 and "error: --ban: the grammar" in lines[0], done.stderr


def test_context_shift():
    for how in (GREEDY, SAMPLED):
        args = (*how, "-c", "32", "--context-shift")
        text, _ = write(*args, n=150)
        banned = [text[30:34], text[150:155], text[250:256]]
        text, _ = write(*args, *bans(banned), n=150)
        assert not any(b in text for b in banned)
        for draft in (("--draft", DRAFT), ("--draft", "ngram")):
            assert write(*args, *bans(banned), *draft, "--draft-length", "fixed:5", n=150)[0] == text
        # held back over several shifts: tokens that are gone cannot be taken back, and yet
        far = [text[:k] for k in range(200, 260, 7)]
        other, _ = write(*args, *bans(far), n=150)
        assert not any(b in other for b in far)


def test_prompt_cache(tmp_path):
    banned = write(*GREEDY)[0][:4]  # the first token is taken back: the prompt's logits again
    text, _ = write(*GREEDY, "--ban", banned)
    for _ in range(2):
        assert write(*GREEDY, "--ban", banned, "--prompt-cache", tmp_path / "cache")[0] == text


def talk(lines, *args):
    done = subprocess.run([*EMULATOR, BIN, "chat", "-m", str(SMALL), "-t", "1", "-n", "30", "-q",
                           "--chat-template", "chatml", *map(str, args)],
                          input=lines, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_chat():
    lines = "Tell me a story.\nGo on.\nAnd then?\n"
    for how in (GREEDY, SAMPLED):
        free = talk(lines, *how)
        banned = [free[8:12], free[40:45], free[90:93].strip() or "the"]
        text = talk(lines, *how, *bans(banned))
        assert len(text) > 60 and not any(b in text for b in banned)
        assert talk(lines, *how, *bans(banned), "--draft", DRAFT) == text
        shifted = talk(lines, *how, *bans(banned), "-c", "80", "--context-shift")
        assert not any(b in shifted for b in banned)
        assert talk(lines, *how, *bans(banned), "-c", "80", "--context-shift", "--draft",
                    "ngram") == shifted


def test_special_tokens_count_where_they_are_shown():
    end = run("tokenize", "-m", SMALL, "-p", "</s>", "--special", "--no-bos", "--ids").stdout
    args = ("--special", "-l", f"{json.loads(end)[0]}=100", *GREEDY[:2])
    assert write(*args)[0] == "</s>"
    text, done = write(*args, "--ban", "</s>")
    assert "</s>" not in text and '"tokens":60' in done.stderr


def test_ctrl_c_shows_what_was_held_back():
    text, _ = write(*GREEDY, n=40)
    for seconds in (0.5, 1, 2, 4, 8, 16, 32):
        child = subprocess.Popen([*EMULATOR, BIN, "run", "-m", str(SMALL), "-p", PROMPT, "-t", "1",
                                  "--no-display-prompt", *GREEDY, "--no-stats", "-n", "-1",
                                  "--context-shift", "--ban", text[0] * 999,
                                  "--ban", text[:30] + NEVER],
                                 stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        time.sleep(seconds)
        child.send_signal(signal.SIGINT)
        out, _ = child.communicate(timeout=120)
        assert child.returncode == 130
        assert out.rstrip("\n").startswith(text[:len(out.rstrip("\n"))])
        if len(out) > 1:
            return
    pytest.fail("nothing was written in 32 seconds")


def test_strings_are_checked():
    for text, says in (("", "0 bytes"), ("x" * 1001, "1001 bytes")):
        done = run("run", "-m", SMALL, "--ban", text, check=False)
        assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1
