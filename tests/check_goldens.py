#!/usr/bin/env python3
# tests/check_goldens.py - tests/data/golden_blocks.h is what tools/golden_blocks.py prints.
import subprocess
import sys

import tree

HEADER, SCRIPT = "tests/data/golden_blocks.h", "tools/golden_blocks.py"

made = subprocess.run([sys.executable, str(tree.ROOT / SCRIPT)], capture_output=True, text=True)
same = made.returncode == 0 and made.stdout == (tree.ROOT / HEADER).read_text()
tree.report("golden blocks are what their script makes",
            [] if same else [f"{HEADER} differs from the output of {SCRIPT} (rc {made.returncode})"])
tree.finish()
