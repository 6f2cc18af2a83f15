#!/usr/bin/env python3
# tools/count_tests.py RESULTS.xml [STAGE] - count test cases in what ctest --output-junit wrote.
# One ctest entry holds many cases: cmocka programs, pytest runs and check_*.py each print their own
# totals, which are added up; an entry that prints none is one case. Prints the output of what
# failed, then "PASSED FAILED SKIPPED PROCESSOR" as the last line; the latter in seconds.
#
# With a STAGE it also prints the ten tests that took most of the processor, and holds every test to its
# cost in tests/costs.txt (hold_to_costs below).
#
# tools/count_tests.py --costs results-STAGE.xml ... - writes tests/costs.txt anew from those results.
import math
import pathlib
import re
import statistics
import sys
import xml.etree.ElementTree as ET

CMOCKA_TOTAL = re.compile(r"\[=+\] (\d+) test\(s\) run\.")
CMOCKA = {"passed": re.compile(r"\[\s+PASSED\s+\] (\d+) test\(s\)\."),
          "failed": re.compile(r"\[\s+FAILED\s+\] (\d+) test\(s\), listed"),
          "skipped": re.compile(r"\[\s+SKIPPED\s+\] (\d+) test\(s\), listed")}
PYTEST = re.compile(r"^(?=.*\bin [\d.]+s\b)(?:=+ )?((?:\d+ \w+(?:, )?)+)", re.M)
PYTEST_WORDS = {"passed": "passed", "failed": "failed", "error": "failed", "errors": "failed",
                "skipped": "skipped", "xfailed": "passed", "xpassed": "failed"}
CHECK = {"passed": re.compile(r"^ok ", re.M), "failed": re.compile(r"^FAIL ", re.M),
         "skipped": re.compile(r"^SKIP ", re.M)}
PROCESSOR = re.compile(r"^processor seconds: (\d+)[.,](\d+) (\d+)[.,](\d+)$", re.M)  # tests/timed

COSTS = pathlib.Path(__file__).resolve().parent.parent / "tests/costs.txt"
NO_ROW = 20   # the cost of a test without one
NAMED = 5     # tests with so much tell how fast the machine is, and fewer are no row
ENOUGH = 5    # of such tests; with fewer in a stage nothing fails
SLOW, TOO_SLOW, GRACE = 2, 3, 10


def count(output):
    """Cases by result that the output speaks of."""
    found = dict.fromkeys(CMOCKA, 0)
    if CMOCKA_TOTAL.search(output):
        for word, pattern in CMOCKA.items():
            found[word] = sum(int(n) for n in pattern.findall(output))
        return found
    summaries = PYTEST.findall(output)
    if summaries:
        for number, word in re.findall(r"(\d+) (\w+)", summaries[-1]):
            if word in PYTEST_WORDS:
                found[PYTEST_WORDS[word]] += int(number)
        return found
    return {word: len(pattern.findall(output)) for word, pattern in CHECK.items()}


def output_of(case):
    return "".join(case.findtext(tag) or "" for tag in ("system-out", "system-err"))


def processor(output):
    """Seconds that tests/timed has printed, or None."""
    found = PROCESSOR.findall(output)
    return sum(float(f"{a}.{b}") for a, b in (found[-1][:2], found[-1][2:])) if found else None


def read_costs():
    """{test: {stage: seconds}}"""
    rows = (line.split() for line in COSTS.read_text().splitlines() if line and line[0] != "#")
    return {row[0]: {stage: int(n) for stage, n in (word.split("=") for word in row[1:])} for row in rows}


def cost_of(costs, name, stage):
    row = costs.get(name, {})
    return row.get(stage, row.get("any", NO_ROW))


def hold_to_costs(stage, took):
    """Prints the dearest of {test: seconds}; returns how many took far more than they cost.

    Costs are of one machine. Another one, or one that is busy (threads of a core share it, caches are shared),
    is slower by about the same for all tests: the median of seconds through cost, over the tests that cost
    NAMED or more, is taken off where it is above 1. Beyond SLOW times its cost a test is named, and it fails
    beyond TOO_SLOW times and GRACE seconds, in a stage with ENOUGH such tests."""
    costs = read_costs()
    ratios = [took[name] / cost_of(costs, name, stage) for name in took
              if name in costs and cost_of(costs, name, stage) >= NAMED]
    scale = max(1.0, statistics.median(ratios)) if ratios else 1.0
    print(f"dearest of {stage}: seconds of a processor, cost (tests/costs.txt); this machine: {scale:.1f} times")
    for name in sorted(took, key=took.get, reverse=True)[:10]:
        print(f"  {took[name]:8.1f} {cost_of(costs, name, stage):6} {name}")
    failed = 0
    for name in sorted(took):
        cost = scale * cost_of(costs, name, stage)
        if took[name] > TOO_SLOW * cost + GRACE and len(ratios) >= ENOUGH:
            failed += 1
            print(f"FAIL {name} takes {took[name]:.0f} s of a processor in the stage {stage}, {took[name] / cost:.1f} "
                  "times its cost: make it cheaper, or raise its row of tests/costs.txt with the reason")
        elif took[name] > SLOW * cost + GRACE:
            print(f"SLOW {name} takes {took[name]:.0f} s of a processor, {took[name] / cost:.1f} times its cost")
    return failed


def cases_of(path):
    return list(ET.parse(path).getroot().iter("testcase"))


def write_costs(paths):
    head = [line for line in COSTS.read_text().splitlines() if line.startswith("#")]
    costs = read_costs()
    for path in paths:
        stage = pathlib.Path(path).stem.partition("results-")[2]
        for case in cases_of(path):
            seconds, name = processor(output_of(case)), case.get("name")
            if seconds is None or case.get("status") != "run":
                continue
            row = costs.setdefault(name, {})
            row.pop("any", None)
            row.pop(stage, None)
            if seconds >= NAMED:
                row[stage] = math.ceil(seconds)
    rows = [" ".join([name, *(f"{stage}={n}" for stage, n in row.items())])
            for name, row in sorted(costs.items()) if row]
    COSTS.write_text("\n".join(head + rows) + "\n")


def main(path, stage=None):
    total, took = dict.fromkeys(CMOCKA, 0), {}
    for case in cases_of(path):
        output = output_of(case)
        status = case.get("status")
        found = count(output)
        seconds = processor(output)
        if seconds is not None:
            took[case.get("name")] = seconds
        if status == "run":  # ctest saw exit status 0
            if not any(found.values()):
                found["passed"] = 1
        elif status in ("notrun", "disabled"):
            found = {"passed": 0, "failed": 0, "skipped": 1}
            if case.find("skipped") is not None and "SKIP" not in output:
                found = {"passed": 0, "failed": 1, "skipped": 0}  # its program was not built
        elif found["failed"] == 0:  # it died, or ran out of time, without saying so
            found["failed"] = 1
        for word, n in found.items():
            total[word] += n
        if found["failed"]:
            print(f"---- {case.get('name')} failed:")
            print("\n".join(output.splitlines()[-60:]))
        for line in output.splitlines():
            if re.match(r"SKIP(PED)? ", line):
                print(f"{case.get('name')}: {line}")
    if stage and took:
        total["failed"] += hold_to_costs(stage, took)
    print(total["passed"], total["failed"], total["skipped"], round(sum(took.values())))


if __name__ == "__main__":
    if sys.argv[1] == "--costs":
        write_costs(sys.argv[2:])
    else:
        main(*sys.argv[1:])
