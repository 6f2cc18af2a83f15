#!/usr/bin/env python3
# tests/check_stages.py - tools/stages, CMakePresets.json and .github/workflows/portability.yml speak of
# the same stages: every stage of the full run has its job, and every preset is there.
import json
import re

import tree

rows = [line.split(";") for line in (tree.ROOT / "tools/stages").read_text().splitlines()
        if line and line[0] != "#"]
presets = {p["name"] for p in json.loads((tree.ROOT / "CMakePresets.json").read_text())["configurePresets"]}
workflow = (tree.ROOT / ".github/workflows/portability.yml").read_text()
jobs = re.findall(r"^ +- stages: (.+)$", workflow, re.M)
ran = {name for job in jobs for name in job.split()}
full = {row[0] for row in rows if row[1] == "yes"}


def problems():
    for row in rows:
        if len(row) != 6:
            yield f"tools/stages: {row[0]} has {len(row)} columns, not 6"
        elif row[2] not in presets:
            yield f"tools/stages: {row[0]}: CMakePresets.json has no preset {row[2]}"
    for name in sorted(full - ran):
        yield f"portability.yml: no job runs the stage {name}"
    for name in sorted(ran - {row[0] for row in rows}):
        yield f"portability.yml: tools/stages has no stage {name}"
    for preset in re.findall(r"cmake --preset ([a-z0-9-]+)", workflow):
        if preset not in presets:
            yield f"portability.yml: CMakePresets.json has no preset {preset}"


tree.report("stages, presets and the workflow agree", problems())
tree.finish()
