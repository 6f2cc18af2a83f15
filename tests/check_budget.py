#!/usr/bin/env python3
"""tests/check_budget.py [--write | --grow] - what a folder may have: lines of code, and words that
docs/words.md has retired. tests/budget.txt is the table: a row a folder, the most of each.

More of a retired word than the row says fails: say it in the words of docs/words.md. More lines fail too: find
what can go, or raise the row in the commit that needs it and say why there. A folder without a row has
LINES_OF_NEW lines and no retired word. `--write` takes down what has become less and never raises anything;
`--grow` writes the counts as they are, with room for lines.
"""
import collections
import re
import sys

import tree

TABLE = tree.ROOT / "tests/budget.txt"
PAGE = tree.ROOT / "docs/words.md"
FOLDERS = (*tree.CODE, *tree.KERNELS, "tools", "findings")
SUFFIXES = (".c", ".h", ".hip", ".cl", ".cpp", ".hpp", ".py", ".js", ".sh")
LINES_OF_NEW = 1500
ROOM, LEAST_ROOM, ROOM_OF_ALL = 0.12, 300, 8000  # of lines, when a row is written; all folders together

# Rows of the page's last table: what is counted of each, everyday uses too; None: so common in its everyday
# meaning that a count would say nothing. Those of DEVICES are counted where devices are driven or written for.
DEVICES = {"turn", "way", "halves", "apart", "alive", "leaves"}
OF_DEVICES = ("backends", "cpu", "kernels_hip", "kernels_cl", "core/plan")
WORDS = {
    "thaw": r"thaw\w*",
    "want a kernel": None,
    "take, give (memory)": None,
    "arrived": r"arriv(?:e|es|ed|al|als)",
    "turn (of rope)": r"turn(?:s|ed|ing)?",
    "leaves": r"leaves",
    "apart": r"apart",
    "alive": r"alive",
    "asks for": r"ask(?:s|ed)? (?:for|ahead)",
    "way (of attention)": r"ways?",
    "roomy, spares, carves": r"roomy|spares|carves",
    "halves (of the hardware)": r"halves",
    "gauge, blame": r"gauges?|blame[ds]?",
    "behind": r"behind",
    "beside": r"beside",
}


def folder_of(path):
    parts = tree.rel(path).split("/")
    return "/".join(parts[:2]) if parts[0] == "core" and len(parts) > 2 else parts[0]


def keys():
    """The word that stands for a row in the table: its first."""
    return {re.split(r"[ ,]", word)[0]: pattern for word, pattern in WORDS.items() if pattern}


def counted():
    """{folder: {"lines" or a word: number}}"""
    every = re.compile(r"(?<![A-Za-z])(?:%s)(?![A-Za-z])" % "|".join(
        f"(?P<{key}>{pattern})" for key, pattern in keys().items()), re.I)
    found = collections.defaultdict(collections.Counter)
    for path in tree.files(FOLDERS, SUFFIXES):
        if "data" in path.parts or path.name == "check_budget.py":
            continue
        text, folder = path.read_text(errors="replace"), folder_of(path)
        found[folder]["lines"] += text.count("\n")
        for word in every.finditer(text):
            if word.lastgroup not in DEVICES or folder in OF_DEVICES:
                found[folder][word.lastgroup] += 1
    return found


def read():
    rows = [line.split() for line in TABLE.read_text().splitlines() if line and line[0] != "#"]
    return {row[0]: {key: int(n) for key, n in (word.split("=") for word in row[1:])} for row in rows}


def write(rows):
    head = [line for line in TABLE.read_text().splitlines() if line.startswith("#")]
    lines = [" ".join([folder, *(f"{key}={n}" for key, n in sorted(row.items()) if n or key == "lines")])
             for folder, row in sorted(rows.items())]
    TABLE.write_text("\n".join(head + lines) + "\n")


def room(lines):
    return round(lines + max(lines * ROOM, LEAST_ROOM), -2)


def grown(found):
    rows = {folder: {**row, "lines": int(room(row["lines"]))} for folder, row in found.items()}
    rows["all"] = {"lines": int(round(sum(row["lines"] for row in found.values()) + ROOM_OF_ALL, -2))}
    return rows


def lessened(found, most):
    rows = {}
    for folder, row in most.items():
        now = found.get(folder, {}) if folder != "all" else {"lines": row["lines"]}
        rows[folder] = {key: min(n, now.get(key, 0)) if key != "lines" else min(n, int(room(now.get(key, 0))))
                        for key, n in row.items()} if folder != "all" else row
    return {folder: row for folder, row in rows.items() if folder in found or folder == "all"}


def too_many_lines(found, most):
    for folder, row in sorted(found.items()):
        limit = most.get(folder, {}).get("lines", LINES_OF_NEW)
        if row["lines"] > limit:
            yield f"{folder}/: {row['lines']} lines, more than {limit} (tests/budget.txt)"
    total = sum(row["lines"] for row in found.values())
    if total > most["all"]["lines"]:
        yield f"{total} lines in all folders, more than {most['all']['lines']} (tests/budget.txt)"


def more_words(found, most):
    for folder, row in sorted(found.items()):
        for key in keys():
            limit = most.get(folder, {}).get(key, 0)
            if row[key] > limit:
                yield f"{folder}/: '{key}' {row[key]} times, not {limit}: docs/words.md has what to say instead"


def table_of_page():
    """Every retired word of the page is counted here, or is said to be not."""
    rows = re.findall(r"^\| ([^|]+) \| [^|]+ \|$", PAGE.read_text().partition("## Not used any more")[2], re.M)
    rows = [row for row in rows if row not in ("not", "---")]
    for row in sorted({row.strip() for row in rows} ^ set(WORDS)):
        yield f"docs/words.md and WORDS of tests/check_budget.py do not both have '{row}'"


def main():
    found, most = counted(), read()
    if "--grow" in sys.argv:
        write(grown(found))
    elif "--write" in sys.argv:
        write(lessened(found, most))
    else:
        tree.report("folders keep to their lines", too_many_lines(found, most))
        tree.report("retired words become no more", more_words(found, most))
        tree.report("retired words are those of docs/words.md", table_of_page())
        fewer = sum(max(0, n - found[folder][key]) for folder, row in most.items() for key, n in row.items()
                    if folder in found and key != "lines")
        if fewer:
            print(f"{fewer} retired words fewer than tests/budget.txt says: tests/check_budget.py --write")
        tree.finish()


if __name__ == "__main__":
    main()
