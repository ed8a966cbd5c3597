"""The closing line of a program of tests, as tests/count_tests.py reads it."""

import sys
import unittest


def count(result):
    """How many tests passed, and how many faults there were: a test may have several."""
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    failed_tests = {test.id().split(' ')[0] for test, _ in result.failures + result.errors}
    passed = result.testsRun - len(result.skipped) - len(failed_tests)
    return max(passed, 0), failed


def say(passed, failed):
    """Prints the line; returns the exit status."""
    print('%d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


def run_tests(*names):
    """All tests of the program's own module, or those named; returns the exit status."""
    program = unittest.main(argv=[sys.argv[0], *names], exit=False, verbosity=2)
    return say(*count(program.result))
