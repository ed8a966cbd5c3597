#!/usr/bin/python3
"""Runs the tests that speak to embagd over the network: conformance and integration.

    tests/integration/run.py --embagd PATH --embag PATH --build DIR [--quick] [--only PATTERN]
        [--claims DIR] [--long]

Ends with a line "N passed, N failed"; exit status 0 if none failed.
"""

import argparse
import fnmatch
import os
import re
import subprocess
import sys
import tempfile
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
    parser.add_argument('--long', action='store_true',
                        help='the modules long_*.py alone, which take minutes each')
    parser.add_argument('--claims', metavar='DIR',
                        help='a directory that is empty at first, shared with other runs: each '
                             'module is run by the one that comes to it first')
    return parser.parse_args()


def generate_messages(build):
    """The Python messages, made by protoc in the build folder; puts them on the path. File by file
    they are the same, and whole, for whoever runs beside this."""
    out = os.path.join(build, 'python')
    with tempfile.TemporaryDirectory(dir=build) as made:
        subprocess.run(['protoc', '-I', os.path.join(SOURCE, 'proto'), '--python_out', made,
                        'embag/v1/embedding_bag.proto', 'embag/v1/model_admin.proto',
                        'inference/open_inference.proto'],
                       cwd=os.path.join(SOURCE, 'proto'), check=True)
        for folder, _, names in os.walk(made):
            target = os.path.join(out, os.path.relpath(folder, made))
            os.makedirs(target, exist_ok=True)
            for name in names:
                os.replace(os.path.join(folder, name), os.path.join(target, name))
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


class Modules(unittest.TestSuite):
    """The tests of several modules, the largest first, each of which is claimed when its turn
    comes. So runs side by side end at much the same time."""

    _cleanup = False    # of the base class: tests are not in its list

    def __init__(self, modules, claims):
        super().__init__()
        self.modules = sorted(modules, key=lambda tests: -len(tests))
        self.claims = claims

    def claim(self, tests):
        """Whether no other run has claimed the module of these tests. A module goes by its first
        test: those that cannot be imported have no name of their own."""
        if self.claims is None:
            return True
        try:
            with open(os.path.join(self.claims, tests[0].id()), 'x', encoding='utf-8'):
                return True
        except FileExistsError:
            return False

    def __iter__(self):
        for tests in self.modules:
            if self.claim(tests):
                yield from tests


def select(pattern, files):
    """All tests whose name matches, by modules whose file name matches `files`; a module that
    cannot be imported is a failing test. What one module needs for itself in the build folder is
    one process's."""
    modules = [module for folder in ('conformance', 'integration')
               for module in unittest.TestLoader().discover(os.path.join(TESTS, folder), files)]
    for module in modules:
        tests = [test for test in all_tests(module) if fnmatch.fnmatch(test.id(), pattern)]
        if tests:
            yield tests


def run(tests):
    """Runs them and stops the shared server; returns how many passed and failed."""
    import served
    import summary
    print('EMBAG_TEST_SEED=%d' % served.SEED, flush=True)
    result = unittest.TextTestRunner(sys.stdout, verbosity=2).run(tests)
    passed, failed = summary.count(result)
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
    import summary
    set_up(arguments)
    files = 'long_*.py' if arguments.long else 'test*.py'
    return summary.say(*run(Modules(select(arguments.only, files), arguments.claims)))


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    sys.exit(main())
