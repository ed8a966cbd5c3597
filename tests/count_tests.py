"""Counts the single tests in a section's output: count_tests.py FILE prints "PASSED FAILED".

It reads the output of ctest --verbose, in which each test of a cmocka program counts as one and any
other program counts as one test, and lines "N passed, N failed".
"""

import re
import sys


def count_ctest(text):
    """Returns the number of tests passed and failed in the output of ctest."""
    passed = failed = 0
    for number, outcome in re.findall(r"^ *\d+/\d+ Test +#(\d+): \S+ \.+ *(.*?) +\d", text, re.M):
        right = len(re.findall(rf"^{number}: \[ +OK +\]", text, re.M))
        # cmocka lists each failed test again at the end.
        wrong = len(set(re.findall(rf"^{number}: \[  FAILED  \] (?!\d+ test)(\S+)", text, re.M)))
        if "Passed" in outcome:
            passed += right or 1
        else:
            passed += right
            failed += wrong or 1
    return passed, failed


def main():
    with open(sys.argv[1], encoding="utf-8", errors="replace") as file:
        text = file.read()
    passed, failed = count_ctest(text)
    for line in re.findall(r"^(\d+) passed, (\d+) failed$", text, re.M):
        passed += int(line[0])
        failed += int(line[1])
    print(passed, failed)


if __name__ == "__main__":
    main()
