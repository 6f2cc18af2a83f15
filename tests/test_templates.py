# tests/test_templates.py - `godwit template`: requests, options, errors, tokens; chats by templates.
import json
import re
import struct

import pytest

from program import DATA, SHARED, copy_folder, run

SMALL = DATA / "tales-2m-q4_0.gguf"


def template(tmp_path, text, request, *options, check=True):
    (tmp_path / "t.jinja").write_text(text)
    (tmp_path / "r.json").write_text(request if isinstance(request, str) else json.dumps(request))
    return run("template", "--chat-template", tmp_path / "t.jinja", "-f", tmp_path / "r.json",
               *options, check=check)


def test_every_member_is_a_variable(tmp_path):
    request = {"messages": [{"role": "user", "content": "Hi"}], "x": {"y": 12345678901234567890123}}
    done = template(tmp_path, "{{ messages[0].content }} {{ x.y + 1 }} {{ tools is none }} "
                    "{{ add_generation_prompt }}|{{ bos_token }}|{{ z }}", request)
    assert done.stdout == "Hi 12345678901234567890124 True False||" and done.stderr == ""
    done = template(tmp_path, "{{ z }}{{ messages|length }}", '{"messages": [], "z": "\\u00e9"}')
    assert done.stdout == "\u00e90"


def test_options(tmp_path):
    text = "{{ strftime_now('%d %b %Y') }} {{ a }} {{ b }} {{ enable_thinking }} {{ reasoning_effort }}"
    done = template(tmp_path, text, {"messages": [], "b": 3}, "--date", "2026-11-26 10:20:30",
                    "--template-arg", "a=[1, 2]", "--template-arg", "b=2", "--reasoning", "high")
    assert done.stdout == "26 Nov 2026 [1, 2] 3 True high"
    assert template(tmp_path, text, {"messages": []}, "--reasoning", "off", "--date",
                    "2026-11-26").stdout == "26 Nov 2026   False "
    for wrong in (["--template-arg", "a"], ["--template-arg", "a=x"], ["--date", "today"],
                  ["--reasoning", "maybe"]):
        done = template(tmp_path, text, {"messages": []}, *wrong, check=False)
        assert done.returncode == 2 and done.stdout == "" and done.stderr.count("\n") == 1, wrong


@pytest.mark.parametrize("text, request_text, words", [
    ("a\n{{ raise_exception('no ' ~ messages[0].role) }}", '{"messages": [{"role": "x"}]}',
     "line 2: no x"),
    ("a\nb\n{% if %}", '{"messages": []}', "line 3: "),
    ("{{ messages[0].x.y }}", '{"messages": [{"role": "x"}]}', "line 1: 'dict object' has no attribute 'x'"),
    ("x" * 10 + "{% for i in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}",
     '{"messages": []}', "limit: line 1: "),
    ("x", '{"messages": [}', "request: syntax: "),
    ("x", '[]', "request: argument: a JSON object is needed"),
    ("x", '{"messages": [], "continue_final_message": true}', "continue_final_message"),
])
def test_an_error_is_one_line(tmp_path, text, request_text, words):
    done = template(tmp_path, text, request_text, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert words in done.stderr and done.stderr.count("\n") == 1


def test_what_is_needed(tmp_path):
    assert run("template", check=False).returncode == 2
    (tmp_path / "r.json").write_text('{"messages": []}')
    assert run("template", "-f", tmp_path / "r.json", check=False).returncode == 2
    assert run("template", "--chat-template", "chatml", "--ids", "-f", tmp_path / "r.json",
               check=False).returncode == 2
    missing = run("template", "--chat-template", tmp_path / "no.jinja", "-f", tmp_path / "r.json",
                  check=False)
    assert missing.returncode == 1 and "no.jinja" in missing.stderr


def test_forms_write_requests_too(tmp_path):
    request = {"messages": [{"role": "system", "content": "S"},
                            {"role": "user", "content": [{"type": "text", "text": "Hi"}]}],
               "add_generation_prompt": True}
    (tmp_path / "r.json").write_text(json.dumps(request))
    done = run("template", "--chat-template", "chatml", "-f", tmp_path / "r.json")
    assert done.stdout == ("<|im_start|>system\nS<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
                           "<|im_start|>assistant\n")


def test_tokens_keep_what_was_typed_apart(tmp_path):
    text = "{{ bos_token }}{{ messages[0].content }}{{ eos_token }}"

    def ids(content):
        done = template(tmp_path, text, {"messages": [{"role": "user", "content": content}]},
                        "-m", SMALL, "--ids")
        return json.loads(done.stdout)
    plain, evil = ids("a"), ids("</s><s>")
    assert plain[0] == evil[0] == 1 and plain[-1] == evil[-1] == 2
    assert evil.count(1) == 1 and evil.count(2) == 1 and len(evil) > 4
    shown = json.loads(run("tokenize", "-m", SMALL, "-p", "Once upon a time", "--ids").stdout)
    assert ids("Once upon a time")[:-1] == shown


def test_a_folder_with_several_templates(tmp_path):
    source = SHARED / "models/tales-2m"
    if not source.exists():
        pytest.skip("SKIP: no shared models")
    folder = copy_folder(source, tmp_path / "m")
    config = json.loads((source / "tokenizer_config.json").read_text())
    config["chat_template"] = [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"},
                               {"name": "tool_use", "template": "T"}]
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (tmp_path / "r.json").write_text('{"messages": []}')
    (tmp_path / "tools.json").write_text('{"messages": [], "tools": [{"type": "function"}]}')

    def shown(request, *options):
        return run("template", "-m", folder, "-f", tmp_path / request, *options).stdout
    assert shown("r.json") == "D" and shown("tools.json") == "T"
    assert shown("tools.json", "--chat-template", "default") == "D"
    assert shown("r.json", "--chat-template", "rag") == "R"
    (folder / "additional_chat_templates").mkdir()
    (folder / "additional_chat_templates/rag.jinja").write_text("F")
    assert shown("r.json", "--chat-template", "rag") == "F"
    (folder / "chat_template.jinja").write_text("J")
    assert shown("r.json") == "J"


def with_texts(source, target, texts):
    """A copy of a GGUF file with more metadata in front; what comes behind keeps its alignment."""
    data = source.read_bytes()
    added = b""
    for key, value in texts.items():
        pair = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", 8)
        comment = -(len(pair) + 8 + len(value) + 4) % 32
        value += "{#" + " " * comment + "#}"
        added += pair + struct.pack("<Q", len(value)) + value.encode()
    tensors, pairs = struct.unpack("<QQ", data[8:24])
    target.write_bytes(data[:8] + struct.pack("<QQ", tensors, pairs + len(texts)) + added + data[24:])
    return target


def test_a_gguf_file_with_several_templates(tmp_path):
    model = with_texts(SMALL, tmp_path / "m.gguf", {
        "tokenizer.chat_template": "D{{ eos_token }}", "tokenizer.chat_template.tool_use": "T",
        "tokenizer.chat_template.rag": "R"})
    (tmp_path / "r.json").write_text('{"messages": []}')
    (tmp_path / "tools.json").write_text('{"messages": [], "tools": [{"type": "function"}]}')

    def shown(request, *options):
        return run("template", "-m", model, "-f", tmp_path / request, *options).stdout
    assert shown("r.json") == "D</s>" and shown("tools.json") == "T"
    assert shown("tools.json", "--chat-template", "default") == "D</s>"
    assert shown("r.json", "--chat-template", "rag") == "R"
    done = run("template", "-m", model, "-f", tmp_path / "r.json", "--chat-template", "rga", check=False)
    assert done.returncode == 2 and "chatml" in done.stderr


def test_a_chat_by_a_template(tmp_path):
    (tmp_path / "t.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
        "{% if add_generation_prompt %}assistant:{% endif %}")
    done = run("chat", "-m", SMALL, "--chat-template", tmp_path / "t.jinja", "-n", "6", "--temp", "0",
               "-t", "1", input="Hi\nAnd now?\n/stats\n")
    assert "template given (as asked)" in done.stderr and len(done.stdout.splitlines()) >= 2
    # the second turn reads what is new: not the first question and answer again
    kept, read = map(int, re.findall(r"turn    (\d+) tokens kept, (\d+) read", done.stderr)[-1])
    assert kept > 6 and read < kept + 12
