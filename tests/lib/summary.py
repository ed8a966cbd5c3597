"""Prints the last line of a test program, which tests/count_tests.py reads."""

import sys
import unittest


def count(result):
    """Returns the number of tests passed and the number of failures. A test may fail repeatedly."""
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    failed_tests = {test.id().split(' ')[0] for test, _ in result.failures + result.errors}
    passed = result.testsRun - len(result.skipped) - len(failed_tests)
    return max(passed, 0), failed


def say(passed, failed):
    """Prints the line. Returns the exit status."""
    print('%d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


def run_tests(*names):
    """Runs all tests of the main module, or the named ones. Returns the exit status."""
    program = unittest.main(argv=[sys.argv[0], *names], exit=False, verbosity=2)
    return say(*count(program.result))
