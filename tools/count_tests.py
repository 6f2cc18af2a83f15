#!/usr/bin/env python3
# tools/count_tests.py RESULTS.xml - count test cases in what ctest --output-junit wrote.
# One ctest entry holds many cases: cmocka programs, pytest runs and check_*.py each print their own
# totals, which are added up; an entry that prints none is one case. Prints the output of what
# failed, then "PASSED FAILED SKIPPED" as the last line.
import re
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


def main(path):
    total = dict.fromkeys(CMOCKA, 0)
    for case in ET.parse(path).getroot().iter("testcase"):
        output = "".join(case.findtext(tag) or "" for tag in ("system-out", "system-err"))
        status = case.get("status")
        found = count(output)
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
    print(total["passed"], total["failed"], total["skipped"])


main(sys.argv[1])
