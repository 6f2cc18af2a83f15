# tests/test_grammars.py - text of a given form, by the program: tests/data/grammars at temperature
# 1.5 without filters. Every text is judged by somebody else: a Python regular expression or matcher
# named in the grammar's first line, the jsonschema package for schemas.
import datetime
import json
import re
import subprocess
import uuid

import pytest

from program import BIN, DATA, EMULATOR, SLOW, run

SMALL = DATA / "tales-2m-q4_0.gguf"
FOLDER = DATA / "grammars"
SEEDS = (1,) if SLOW else (1, 3, 4)  # whose texts of any length end in time
WILD = ("--temp", "1.5", "--top-k", "0", "--top-p", "1", "--min-p", "0")
PROMPT = "Once upon a time there was a little "


def write(*args, prompt=PROMPT, n=900):
    done = run("run", "-m", SMALL, "-p", prompt, "-n", n, "--no-display-prompt", "-t", "1",
               "--stats", "json", *args)
    stats = json.loads(done.stderr.strip().splitlines()[-1])
    return done.stdout, stats["text"]["ended"]


# ---- grammars --------------------------------------------------------------------------------------

def brackets(text):
    """Balanced () and [], letters between."""
    stack = []
    for c in text:
        if c in "([":
            stack.append(c)
        elif c in ")]":
            if not stack or stack.pop() + c not in ("()", "[]"):
                return False
        elif not ("a" <= c <= "z" and stack):
            return False
    return not stack and text != ""


def arithmetic(text):
    left, equals, right = text.rpartition("=")
    number = r"(0|[1-9]\d{0,2})"
    term = rf"({number}|\({number}[-+]{number}\))"
    return bool(equals and re.fullmatch(r"\d{1,3}", right) and re.fullmatch(rf"{term}([-+*/]{term}){{0,3}}", left))


def mirror(text):
    return text == text[::-1] and bool(re.fullmatch(r"[abc]*\|{3}[abc]*", text))


GRAMMARS = sorted(FOLDER.glob("*.gbnf"))
SCHEMAS = sorted(FOLDER.glob("*.json"))


def test_there_are_twenty_each():
    assert len(GRAMMARS) == 20 and len(SCHEMAS) == 20


def pattern_of(name):
    rule = (FOLDER / f"{name}.gbnf").read_text().splitlines()[0].removeprefix("# check: ")
    return globals()[rule[1:]] if rule.startswith("@") else re.compile(rule).fullmatch


@pytest.mark.parametrize("path", GRAMMARS, ids=lambda p: p.stem)
def test_grammar(path):
    fits = pattern_of(path.stem)
    for seed in SEEDS:
        text, ended = write("--grammar", path, *WILD, "--seed", seed)
        assert ended == "end of text", text
        # the program ends a last line that the text leaves open
        assert fits(text) or (text.endswith("\n") and fits(text[:-1])), (seed, text)


# ---- schemas ---------------------------------------------------------------------------------------

@pytest.mark.parametrize("path", SCHEMAS, ids=lambda p: p.stem)
def test_schema(path):
    jsonschema = pytest.importorskip("jsonschema", reason="no python3-jsonschema")
    schema = json.loads(path.read_text())
    judge = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.draft202012_format_checker)
    judge.check_schema(schema)
    for seed in SEEDS:
        text, ended = write("--json-schema", path, *WILD, "--seed", seed)
        assert ended == "end of text", text
        judge.validate(json.loads(text))
        if path.stem == "formats":
            check_times(json.loads(text))


def check_times(value):
    """What the validator looks at only with a package of its own."""
    datetime.date.fromisoformat(value["day"])
    for text in (value["at"], value["when"].partition("T")[2]):
        found = re.fullmatch(r"(\d\d):(\d\d):(\d\d)(\.\d{1,6})?(Z|[+-](\d\d):(\d\d))", text)
        assert found and int(found[1]) < 24 and int(found[2]) < 60 and int(found[3]) < 60, text
        assert found[5] == "Z" or (int(found[6]) < 24 and int(found[7]) < 60), text
    datetime.date.fromisoformat(value["when"].partition("T")[0])
    uuid.UUID(value["id"])


def test_schema_as_text():
    text, _ = write("--json-schema", '{"type": "object", "properties": {"a": {"const": [1, null]}}, "required": ["a"]}')
    assert json.loads(text) == {"a": [1, None]}


@pytest.mark.parametrize("text", ("true", " {}", "true\n"))
def test_any_value(text):
    write("--json-schema", text, "--temp", "0", n=4)


def test_schema_file_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "schema.json"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"enum": ["x", 0.10]}')
    text, _ = write("--json-schema", path)
    assert text in ('"x"\n', "0.10\n")


def member(name, **schema):
    return {"type": "object", "properties": {name: schema}, "required": [name], "additionalProperties": False}


# What people's schemas have, several keywords of a kind in each; texts of them end.
KINDS = {
    "bounds": member("n", type="number", exclusiveMinimum=-0.75, maximum=1.25),
    "large bounds": member("n", type="integer", minimum=18446744073709551600, maximum=18446744073709551615),
    "multiples": {"allOf": [{"type": "integer", "multipleOf": 4}, {"multipleOf": 6}], "minimum": 1, "maximum": 500},
    "machine integers": member("n", type="integer", format="int16"),
    "values": member("v", enum=[0.1, 2.50, 10**25, None, {"k": [1.0]}]),
    "addresses": {"type": "array", "maxItems": 7, "minItems": 7, "prefixItems": [
        {"format": f} for f in ("email", "hostname", "ipv4", "ipv6", "uri", "uri-reference", "json-pointer")]},
    "times": {"type": "array", "minItems": 3, "maxItems": 3, "items": {"type": "string"}, "prefixItems": [
        {"format": f} for f in ("date", "duration", "date-time")]},
    "pattern and length": member("s", type="string", pattern="[A-Z].*[0-9]$", minLength=3, maxLength=12),
    "looks ahead": member("s", type="string", pattern="^(?=.*[0-9])(?!.*aa)[a-z0-9]{4,8}$"),
    "patterns of names": {"type": "object", "patternProperties": {"^n_": {"type": "integer", "maximum": 9}},
                          "additionalProperties": {"type": "boolean"}, "propertyNames": {"maxLength": 6},
                          "maxProperties": 3, "minProperties": 2},
    "names": {"type": "object", "propertyNames": {"pattern": "^[a-z]{3,5}$"}, "minProperties": 1, "maxProperties": 2,
              "additionalProperties": {"type": "null"}},
    "no element twice": {"type": "array", "items": {"enum": list("abcdefgh")}, "uniqueItems": True, "minItems": 4},
    "no word begins twice alike": {"type": "array", "items": {"type": "string", "maxLength": 8}, "uniqueItems": True,
                                   "minItems": 2, "maxItems": 5},
    "contains": {"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": 20}, "contains": {"const": 7},
                 "maxItems": 4},
    "if": {"type": "object", "properties": {"kind": {"enum": ["cat", "car"]}, "legs": {"type": "integer"}},
           "required": ["kind", "legs"], "additionalProperties": False,
           "if": {"properties": {"kind": {"const": "cat"}}}, "then": {"properties": {"legs": {"const": 4}}},
           "else": {"properties": {"legs": {"maximum": 0, "minimum": -5}}}},
    "one of": {"oneOf": [{"type": "integer", "multipleOf": 3, "minimum": 0, "maximum": 60},
                         {"type": "integer", "minimum": 50, "maximum": 90}]},
    "not": {"not": {"type": ["object", "array", "string"]}, "maximum": 100},
    "nullable": member("pet", anyOf=[member("type", const="dog"), {"type": "null"}], discriminator={"propertyName": "type"}),
    "depends": {"type": "object", "properties": {"card": {"type": "integer", "minimum": 1, "maximum": 9},
                                                 "code": {"type": "integer", "minimum": 100, "maximum": 999}},
                "dependentRequired": {"card": ["code"]}, "minProperties": 1, "additionalProperties": False},
}


@pytest.mark.parametrize("kind", KINDS)
def test_kinds_of_schemas(kind):
    jsonschema = pytest.importorskip("jsonschema", reason="no python3-jsonschema")
    judge = jsonschema.Draft202012Validator(KINDS[kind], format_checker=jsonschema.draft202012_format_checker)
    for seed in SEEDS[:2]:
        text, ended = write("--json-schema", json.dumps(KINDS[kind]), *WILD, "--seed", seed)
        assert ended == "end of text", text
        judge.validate(json.loads(text))


# ---- with everything else --------------------------------------------------------------------------

COMBINED = {
    "greedy": ("--temp", "0"),
    "penalties": ("--temp", "1.2", "--repeat-penalty", "1.5", "--frequency-penalty", "1"),
    "filters": ("--temp", "2", "--top-k", "3", "--top-p", "0.5", "--min-p", "0.3", "--typical", "0.5"),
    "new filters": ("--temp", "2", "--top-n-sigma", "1", "--tfs", "0.9", "--xtc-probability", "1", "--xtc-threshold", "0.05"),
    "mirostat 1": ("--mirostat", "1", "--temp", "1.5"),
    "mirostat 2": ("--mirostat", "2", "--mirostat-lr", "0.5", "--temp", "1.5"),
    "repetition": ("--temp", "1", "--dry-multiplier", "2", "--dry-allowed-length", "1", "--dynatemp-range", "0.9"),
    "fsd": ("--temp", "1", "--fsd", "0.6"),
    "no end": ("--temp", "1", "--ignore-eos"),
}


@pytest.mark.parametrize("how", COMBINED)
def test_samplers(how):
    for name, fits in (("sentence", pattern_of("sentence")), ("mirror", mirror)):
        text, ended = write("--grammar", FOLDER / f"{name}.gbnf", *COMBINED[how], "--seed", "7")
        assert ended == "end of text" and fits(text.rstrip("\n")), text


@pytest.mark.parametrize("draft", (["--draft", SMALL], ["--draft", "ngram"], ["--draft", "suffix"],
                                   ["--draft", DATA / "tales-2m-q4_k_m.gguf", "--draft-length", "fixed:7"]),
                         ids=("itself", "lookup", "suffix", "other"))
def test_drafts_change_nothing(draft):
    for path in (FOLDER / "dialogue.gbnf", FOLDER / "greek.gbnf", FOLDER / "array_of_objects.json", FOLDER / "strings.json"):
        option = "--grammar" if path.suffix == ".gbnf" else "--json-schema"
        for temperature in ("0", "1.5"):
            plain = write(option, path, "--temp", temperature, "--seed", "5")
            assert write(option, path, "--temp", temperature, "--seed", "5", *draft) == plain


OPEN = {"members": {"type": "object", "patternProperties": {"^x-[a-z]{1,3}$": {"type": "boolean"}}, "additionalProperties": False},
        "values": {}, "texts": {"type": "array", "minItems": 2, "items": {"type": "string", "minLength": 4}},
        "nested": {"type": "object", "properties": {"a": {"type": "array", "items": {"$ref": "#"}}, "b": {"type": "string"}},
                   "required": ["a", "b"], "additionalProperties": False}}


@pytest.mark.parametrize("kind", OPEN)
def test_whole_within_n(kind):
    """A document of any length ends in time, with drafts as without; where it cannot it is cut."""
    options = ("--json-schema", json.dumps(OPEN[kind]), *WILD, "--seed", "2")
    for n in (20, 45, 90):
        text, ended = write(*options, n=n)
        json.loads(text)
        assert ended in ("end of text", "as long as asked for")
    assert write(*options, "--draft", "ngram", n=45) == write(*options, n=45)
    if kind == "members":  # of more than a context as well
        json.loads(write(*options, "-c", "32", prompt="Once", n=-1)[0])
    if kind == "nested":
        with pytest.raises(ValueError):
            json.loads(write(*options, n=3)[0])


def test_first_space_is_the_grammars():
    """The decoder drops a space at the beginning of a text; not one that the grammar asked for."""
    text, _ = write("--grammar", 'root ::= "  x" | " y"', prompt="")
    assert text in ("  x\n", " y\n")


def test_chat():
    """Every answer is a text of the grammar, and messages between them are not bound by it."""
    done = subprocess.run([*EMULATOR, BIN, "chat", "-m", str(SMALL), "-q", "--temp", "1.5", "--seed", "3",
                           "--grammar", str(FOLDER / "hex_colour.gbnf")], input="Which one?\nAnd now?\nAgain!\n",
                          capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == 3 and all(re.fullmatch(r"#([0-9a-f]{3}){1,2}", a) for a in answers), answers


# ---- errors ----------------------------------------------------------------------------------------

def refused(*args):
    done = run("run", "-m", SMALL, "-n", "8", "-q", "--no-display-prompt", *args, check=False)
    lines = done.stderr.strip().splitlines()
    assert done.returncode != 0 and len(lines) == 1 and lines[0].startswith("godwit: error: "), done.stderr
    return lines[0]


def test_errors(tmp_path):
    assert "line 1 column 10: there is no rule 'x'" in refused("--grammar", "root ::= x")
    assert "at #/properties/a: \"$dynamicRef\" is not supported" in refused(
        "--json-schema", '{"properties": {"a": {"$dynamicRef": "#x"}}}')
    assert "at #/allOf/0: no value is possible: it is false" in refused("--json-schema", '{"allOf": [false]}')
    assert "at #: no value is possible: it is false" in refused("--json-schema", " false ")
    assert "cannot open" in refused("--grammar", tmp_path / "none.gbnf")
    assert "cannot open" in refused("--json-schema", tmp_path / "none.json")
    assert "exclude each other" in refused("--grammar", 'root ::= "a"', "--json-schema", "{}")


def test_nothing_left():
    """What the grammar allows is forbidden: an error that says so, and no text."""
    bans = [x for i in range(4096) for x in ("-l", f"{i}=-inf")]
    assert "the grammar: it allows" in refused("--grammar", 'root ::= "ab"', *bans)
