#!/bin/sh
# findings/tokenizers-added-token-twice.sh - tokenizers gives one character of a text to two added tokens
# packages: tokenizers==0.23.3
# seen: 2026-11-29
# what: "<a>\n" is ['<a>\n', '\n'] at [(0, 4), (3, 4)], where <a> is added with rstrip=True and "\n" without
# instead: spans of an encoding follow one another (offsets of the same library without rstrip): (0, 4) alone
set -u
folder=$(mktemp -d) || exit 77
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/venv" && "$folder/venv/bin/pip" -q install tokenizers==0.23.3 > "$folder/log" 2>&1 || {
    tail -n 3 "$folder/log" >&2
    exit 77
}
"$folder/venv/bin/python" - <<'PYTHON'
import sys

import tokenizers
from tokenizers import AddedToken, Tokenizer, models

tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
tokenizer.add_tokens([AddedToken("<a>", rstrip=True, normalized=False), AddedToken("\n", normalized=False)])
found = tokenizer.encode("<a>\n")
print("tokenizers", tokenizers.__version__, found.tokens, found.offsets)
sys.exit(0 if (found.tokens, found.offsets) == (["<a>\n", "\n"], [(0, 4), (3, 4)]) else 1)
PYTHON
