#!/usr/bin/python3
"""Runs the tests that speak to embagd over the network: conformance and integration.

    tests/integration/run.py --embagd PATH --embag PATH --build DIR [--quick] [--only PATTERN]

Ends with a line "N passed, N failed"; exit status 0 if none failed.
"""

import argparse
import fnmatch
import os
import re
import subprocess
import sys
import unittest

TESTS = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = os.path.dirname(TESTS)


def parse_arguments():
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--embagd', required=True, help='the server')
    parser.add_argument('--embag', required=True, help='the command-line tool')
    parser.add_argument('--build', required=True, help='build folder; generated files go there too')
    parser.add_argument('--quick', action='store_true', help='fewer requests, for slow servers')
    parser.add_argument('--only', default='*', help='pattern of test names, such as *spec*')
    return parser.parse_args()


def generate_messages(build):
    """The Python messages, made by protoc in the build folder; puts them on the path."""
    out = os.path.join(build, 'python')
    os.makedirs(out, exist_ok=True)
    subprocess.run(['protoc', '-I', os.path.join(SOURCE, 'proto'), '--python_out', out,
                    'embag/v1/embedding_bag.proto', 'embag/v1/model_admin.proto',
                    'inference/open_inference.proto'],
                   cwd=os.path.join(SOURCE, 'proto'), check=True)
    sys.path[:0] = [out, os.path.join(TESTS, 'lib')]


def sanitizer(build):
    """What the build folder's programs are sanitized with, or None."""
    with open(os.path.join(build, 'CMakeCache.txt'), encoding='utf-8') as file:
        found = re.search(r'^EMBAG_SANITIZE:\w+=(.+)$', file.read(), re.M)
    return found and found.group(1)


def all_tests(suite):
    """Single tests of a nested suite."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from all_tests(test)
        else:
            yield test


def select(pattern):
    """All tests whose name matches; a module that cannot be imported is a failing test."""
    chosen = unittest.TestSuite()
    for folder in ('conformance', 'integration'):
        found = unittest.TestLoader().discover(os.path.join(TESTS, folder))
        chosen.addTests(t for t in all_tests(found) if fnmatch.fnmatch(t.id(), pattern))
    return chosen


def run(tests):
    """Runs them and stops the shared server; returns how many passed and failed."""
    import served
    print('EMBAG_TEST_SEED=%d' % served.SEED, flush=True)
    result = unittest.TextTestRunner(sys.stdout, verbosity=2).run(tests)
    failed = len(result.failures) + len(result.errors) + len(result.unexpectedSuccesses)
    failed_tests = {test.id().split(' ')[0] for test, _ in result.failures + result.errors}
    passed = max(result.testsRun - len(result.skipped) - len(failed_tests), 0)
    try:
        passed += served.finish()
    except AssertionError as error:
        print('FAIL: the shared server did not end well\n%s' % error)
        failed += 1
    return passed, failed


def set_up(arguments):
    """Tells the tests what they are to run."""
    os.environ['PYTHONDONTWRITEBYTECODE'] = '1'
    import embagd_process
    import served
    embagd_process.EMBAGD = os.path.abspath(arguments.embagd)
    embagd_process.SANITIZE = sanitizer(arguments.build)
    served.EMBAG = os.path.abspath(arguments.embag)
    served.BUILD = os.path.abspath(arguments.build)
    served.QUICK = arguments.quick


def main():
    """Returns the exit status."""
    arguments = parse_arguments()
    generate_messages(os.path.abspath(arguments.build))
    set_up(arguments)
    passed, failed = run(select(arguments.only))
    print('%d passed, %d failed' % (passed, failed))
    return 1 if failed else 0


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    sys.exit(main())
