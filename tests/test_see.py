# tests/test_see.py - `godwit run --image`: a small random model that sees, with a vocabulary of words and a
# template, tells pictures apart, takes several in their order, and says what is wrong in one line.
import json
import re
import shutil
import signal
import subprocess
import time

import pytest

from program import BIN, DATA, EMULATOR, run
from seeing import PICTURES, seeing_model, slow_picture


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return seeing_model(tmp_path_factory.mktemp("see") / "qwen3vl")


def text(folder, *pictures, prompt="w5 w6 w7", check=True, more=()):
    files = [argument for p in pictures for argument in ("--image", p)]
    return run("run", "-m", folder, *files, "-p", prompt, "-n", "12", "--temp", "0", "--no-display-prompt",
               "--no-stats", "--ignore-eos", *more, check=check)


def test_pictures_matter(folder):
    one, other = PICTURES / "rgb.png", PICTURES / "grey.png"
    seen = {order: text(folder, *order).stdout for order in [(one,), (other,), (one, other), (other, one)]}
    assert len(set(seen.values())) == 4, seen
    assert seen[(one,)] == text(folder, one, more=("-b", "3", "-t", "2")).stdout
    shutil.copy(one, folder / "copy.png")
    assert seen[(one,)] == text(folder, folder / "copy.png").stdout


def test_typed_placeholders_are_text(folder):
    """What a user types is no place of a picture."""
    done = text(folder, PICTURES / "rgb.png", prompt="<|image_pad|> w5")
    assert done.stdout


def test_what_is_wrong(folder, tmp_path):
    (tmp_path / "cut.png").write_bytes((PICTURES / "rgb.png").read_bytes()[:-20])
    for picture, words in ((tmp_path / "cut.png", "cut.png"), (tmp_path / "none.png", "none.png")):
        done = text(folder, picture, check=False)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1
    done = text(DATA / "tales-2m-q4_0.gguf", PICTURES / "rgb.png", check=False)
    assert done.returncode == 1 and not done.stdout
    for picture, words in (("", "empty"), ("/dev/zero", "the picture has more than 512 MiB")):
        done = text(folder, picture, check=False)
        assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr


def test_prompt_cache(folder, tmp_path):
    """The picture is read once, and not taken for another; a text after it is read anew."""
    one, other, cache = PICTURES / "rgb.png", PICTURES / "grey.png", tmp_path / "cache"

    def cached(picture, prompt):
        done = run("run", "-m", folder, "--image", picture, "-p", prompt, "-n", "12", "--temp", "0", "--ignore-eos",
                   "--no-display-prompt", "--prompt-cache", cache, "--stats", "json")
        return done.stdout, json.loads(done.stderr.splitlines()[-1])["prompt"]["cached"]

    plain = {(p, t): text(folder, p, prompt=t).stdout for p in (one, other) for t in ("w5 w6 w7", "w5 w9 w8 w4")}
    assert cached(one, "w5 w6 w7") == (plain[one, "w5 w6 w7"], 0)
    written = cache.read_bytes()
    answer, again = cached(one, "w5 w6 w7")
    assert answer == plain[one, "w5 w6 w7"] and again > 4 and cache.read_bytes() == written
    answer, held = cached(one, "w5 w9 w8 w4")
    assert answer == plain[one, "w5 w9 w8 w4"] and 2 < held < again
    answer, held = cached(other, "w5 w9 w8 w4")
    assert answer == plain[other, "w5 w9 w8 w4"] and held <= 1
    done = run("run", "-m", folder, "-p", "w5", "-n", "2", "--no-stats", "--prompt-cache", cache)
    assert "without its vision tower" in done.stderr and done.stdout


def test_beams(folder):
    """One beam is the greedy text; of several the best is no worse, and the picture matters."""
    def beams(picture, n):
        done = run("run", "-m", folder, "--image", picture, "-p", "w5 w6 w7", "-n", "6", "--no-display-prompt",
                   "--beams", str(n), "--stats", "json")
        return done.stdout, json.loads(done.stderr.splitlines()[-1])["logprob"]

    one, other = PICTURES / "rgb.png", PICTURES / "grey.png"
    greedy = run("run", "-m", folder, "--image", one, "-p", "w5 w6 w7", "-n", "6", "--temp", "0",
                 "--no-display-prompt", "--no-stats").stdout
    text_of_one, least = beams(one, 1)
    assert text_of_one == greedy
    assert beams(one, 4)[1] >= least and beams(other, 4) != beams(one, 4)


def test_plan(folder):
    """What the tower takes is named next to what layers take."""
    say = ("plan", "-m", folder, "--device", "cpu", "-c", "64")
    found = json.loads(run(*say, "-o", "json").stdout)["pictures"]
    assert found["device"] == "cpu" and found["patches"] >= 64 and found["weight_bytes"] > 10000
    assert found["scratch_bytes"] > found["patches"] * 16 * 4
    assert "Pictures: the vision tower is on cpu, " in run(*say).stdout
    assert json.loads(run(*say, "--no-mmproj", "-o", "json").stdout)["pictures"] is None
    assert "Pictures" not in run("plan", "-m", DATA / "tales-2m-q4_0.gguf", "--device", "cpu", "-c", "64").stdout
    done = run(*say, "--mmproj", DATA / "tales-2m-q4_0.gguf", check=False)
    assert done.returncode == 1 and "projector_type" in done.stderr


def test_wrong_words(folder):
    done = text(folder, PICTURES / "rgb.png", check=False, more=("--suffix", "w3"))
    assert done.returncode == 2 and "--suffix" in done.stderr


def test_tower_without_pictures(folder, tmp_path):
    """--mmproj is looked at though nothing is to be seen."""
    tower = folder / "mmproj.gguf"
    ways = (("run", "-m", folder, "-p", "w5", "-n", "2", "--no-stats"), ("bench", "-m", folder, "-p", "4", "-n", "1", "-r", "1"))
    for way in ways:
        assert run(*way, "--mmproj", tower).stdout
        for wrong, words in ((tmp_path / "none.gguf", "none.gguf"), (DATA / "tales-2m-q4_0.gguf", "projector_type")):
            done = run(*way, "--mmproj", wrong, check=False)
            assert done.returncode == 1 and words in done.stderr and done.stderr.count("\n") == 1, done.stderr
            assert not done.stdout


def test_inspect_tower(folder, tmp_path):
    tower = folder / "mmproj.gguf"
    said = run("inspect", tower, "--check-tensors").stdout
    assert "no model: --mmproj gives it to a model of the families qwen3vl qwen3vlmoe qwen35\n" in said
    assert "3 layers, width 16, 2 heads over 2 of 8, feed-forward 16\n" in said and said.endswith("valid\n")
    found = json.loads(run("inspect", tower, "--json").stdout)
    assert found["valid"] and found["architecture"] == "clip" and found["layers"] == 3
    data = tower.read_bytes()
    (tmp_path / "new.gguf").write_bytes(data.replace(b"qwen3vl_merger", b"qwen9vl_merger"))
    done = run("inspect", tmp_path / "new.gguf", "-q", check=False)
    assert done.returncode == 1 and "no vision tower is known of 'qwen9vl_merger'" in done.stderr
    assert "a vision tower (mmproj)" in done.stdout and "valid" not in done.stdout
    (tmp_path / "cut.gguf").write_bytes(data[:-200])
    done = run("inspect", tmp_path / "cut.gguf", "-q", check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    done = run("run", "-m", tower, "-n", "1", check=False)
    assert done.returncode == 1 and "not a model" in done.stderr


def test_interrupted(tmp_path):
    """Ctrl-C ends a picture that is being seen between two layers or four."""
    model = seeing_model(tmp_path / "qwen3vl")
    slow = slow_picture(tmp_path / "slow.png", model)
    start = time.monotonic()
    text(model, slow, more=("-c", "4096"))
    whole = time.monotonic() - start
    start = time.monotonic()
    done = subprocess.Popen([*EMULATOR, BIN, "run", "-m", model, "--image", slow, "-p", "w5", "-n", "12", "-c", "4096"],
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    time.sleep(0.3 * whole)
    done.send_signal(signal.SIGINT)
    out, _ = done.communicate(timeout=60)
    assert done.returncode == 130 and time.monotonic() - start < 0.8 * whole, whole
    assert "w" not in out


@pytest.mark.parametrize("name,value,words", [("patch_size", 8, "reads 96"),
                                              ("merge_size", 1, "joins 2 x 2")])
def test_settings_of_another_model(tmp_path, name, value, words):
    path = seeing_model(tmp_path / "other")
    settings = json.loads((path / "preprocessor_config.json").read_text())
    (path / "preprocessor_config.json").write_text(json.dumps({**settings, name: value}))
    done = text(path, PICTURES / "rgb.png", check=False)
    assert done.returncode == 1 and done.stderr.count("\n") == 1, done.stderr
    assert re.search(rf"other/preprocessor_config.json: .*makes .*tower of .*other.*{words}", done.stderr), done.stderr


def test_bench(folder):
    """Pictures of 64 x 48 pixels are 12 x 16 patches of 4, and four of those a row; the operations are those of its
    linear layers."""
    say = ("bench", "-m", folder, "--device", "cpu", "-t", "1", "--image", "64x48,2", "-r", "2")
    found, = json.loads(run(*say, "-o", "json").stdout)
    size = found["patches"]
    assert found["pictures"] == 2 and found["tiles"] == 1 and size == 4 * found["rows"] > 4
    products = 96 * 16 + 3 * (4 + 2) * 16 * 16 + 3 * (64 * 64 + 64 * 32) // 4  # of a patch
    for step in ("prepare", "tower"):
        assert found[f"{step}_patches_s"] == pytest.approx(size / (1e-9 * found[f"{step}_ns"]), rel=1e-3)
    assert found["gops"] * found["tower_ns"] == pytest.approx(2 * size * products, rel=0.02)
    lines = run(*say).stdout.splitlines()
    assert "vision tower of 3 layers of 16" in lines[0] and [line.split()[1] for line in lines[-2:]] == ["pictures", "tower"]
    done = run("bench", "-m", DATA / "tales-2m-q4_0.gguf", "--image", "64x48", check=False)
    assert done.returncode == 1 and "mmproj" in done.stderr


def talk(folder, lines, *more, check=True, env=()):
    return run("chat", "-m", folder, "-n", "12", "--temp", "0", "--no-stats", "--ignore-eos", "-c", "512", *more,
               check=check, env=dict(env), input="".join(f"{line}\n" for line in lines))


def test_chat(folder, tmp_path):
    """/image and --image show the next message what `run` shows; later turns still see it, and read no more than they
    need."""
    one, other = PICTURES / "rgb.png", PICTURES / "grey.png"
    seen = text(folder, one, other).stdout.lstrip()
    assert talk(folder, [f"/image {one}", f"/image {other}", "w5 w6 w7"]).stdout == seen
    assert talk(folder, ["w5 w6 w7"], "--image", one, "--image", other).stdout == seen
    shutil.copy(one, tmp_path / "a b.png")
    spelled = str(tmp_path / "a b.png")
    for typed in (f'"{spelled}"', f"'{spelled}'  ", spelled.replace(" ", "\\ "), "file://" + spelled.replace(" ", "%20"), "~/a b.png "):
        assert talk(folder, [f"/image {typed}", f"/image {other}", "w5 w6 w7"], env={"HOME": str(tmp_path)}).stdout == seen, typed
    turns = [f"/image {one}", "w5 w6 w7", f"/image {other}", "w8 w9", "w10"]
    whole = talk(folder, turns).stdout
    assert whole != talk(folder, [turns[0], turns[1], f"/image {PICTURES / 'rgb.jpg'}", *turns[3:]]).stdout
    assert whole == talk(folder, turns, "-b", "3").stdout == talk(folder, turns, "--draft", "ngram").stdout
    kept = re.findall(r"turn +(\d+) tokens kept, (\d+) read", talk(folder, [*turns, "/stats"]).stderr)
    assert int(kept[0][0]) > 20 and int(kept[0][1]) < 20
    saved = tmp_path / "talk.json"
    half = talk(folder, [*turns[:4], f"/save {saved}"]).stdout
    assert whole == half + talk(folder, ["w10"], "--load", saved).stdout
    assert json.loads(saved.read_text())["messages"][0]["images"] == [str(one)]
    assert talk(folder, ["/stats", turns[0], "/reset", "w5 w6 w7"]).stdout == talk(folder, ["w5 w6 w7"]).stdout


def test_chat_that_forgets(folder):
    """A full context: answers shift it, and old messages with their pictures go."""
    lines = [line for i in range(6) for line in (f"/image {PICTURES / ('rgb.png', 'grey.png')[i % 2]}", f"w{i + 5} w6")]
    done = talk(folder, lines, "-c", "64", "-n", "20")
    assert len(done.stdout.splitlines()) == 6 and "out of the model's sight" in done.stderr
    assert done.stdout == talk(folder, lines, "-c", "64", "-n", "20", "-b", "5").stdout
    talk(folder, [f"/image {PICTURES / 'rgb.png'}", "w5"], "-c", "64", "-n", "150")


def test_chat_says_what_is_wrong(folder, tmp_path):
    (tmp_path / "bad.json").write_text('{"messages": [{"role": "user", "content": "a", "images": [3]}]}')
    (tmp_path / "gone.json").write_text('{"messages": [{"role": "user", "content": "a", "images": ["gone.png"]}]}')
    for line, words in ((f"/image {tmp_path / 'none.png'}", "none.png"), ("/image", "file name"),
                        (f"/load {tmp_path / 'bad.json'}", "images"), (f"/load {tmp_path / 'gone.json'}", "gone.png")):
        done = talk(folder, [line], check=False)
        assert done.returncode == 1 and words in done.stderr, (line, done.stderr)
    done = talk(DATA / "tales-2m-q4_0.gguf", [f"/image {PICTURES / 'rgb.png'}"], check=False)
    assert done.returncode == 1 and "takes no pictures" in done.stderr
    done = talk(folder, [f"/image {PICTURES / 'rgb.png'}"], "--no-mmproj", check=False)
    assert done.returncode == 1 and "takes no pictures" in done.stderr
