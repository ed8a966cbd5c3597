#!/usr/bin/python3
"""Runs the tests that talk to embagd over the network: conformance and integration.

    tests/integration/run.py --embagd PATH --embag PATH --build DIR [--quick] [--only PATTERN]
        [--routed] [--claims DIR] [--long]

Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
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
    """Parses the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--embagd', required=True, help='the server')
    parser.add_argument('--embag', required=True, help='the command-line tool')
    parser.add_argument('--build', required=True, help='build folder; generated files go there too')
    parser.add_argument('--quick', action='store_true', help='fewer requests, for slow servers')
    parser.add_argument('--routed', action='store_true',
                        help='the server that most tests share is a router with part servers')
    parser.add_argument('--only', default='*', help='pattern of test names, such as *spec*')
    parser.add_argument('--long', action='store_true',
                        help='run only the modules long_*.py, which take minutes each')
    parser.add_argument('--claims', metavar='DIR',
                        help='a directory, empty at first, shared with other runs: each module '
                             'is run by the first run that claims it')
    return parser.parse_args()


def generate_messages(build):
    """Generates the Python messages with protoc in the build folder and puts them on the path. Each
    file is replaced atomically by identical content, so runs that share the folder can do this at
    the same time."""
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
    """Returns the sanitizers with which the build folder was configured, or None."""
    with open(os.path.join(build, 'CMakeCache.txt'), encoding='utf-8') as file:
        found = re.search(r'^EMBAG_SANITIZE:\w+=(.+)$', file.read(), re.M)
    return found and found.group(1)


def all_tests(suite):
    """Yields the single tests of a nested suite."""
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from all_tests(test)
        else:
            yield test


class Modules(unittest.TestSuite):
    """The tests of several modules, the largest first. Each module is claimed when its turn comes,
    so that runs side by side end at about the same time."""

    _cleanup = False    # for the base class: tests are not in its list

    def __init__(self, modules, claims):
        super().__init__()
        self.modules = sorted(modules, key=lambda tests: -len(tests))
        self.claims = claims

    def claim(self, tests):
        """Returns whether this run claimed the module of these tests. A module is identified by its
        first test, because modules that cannot be imported have no name of their own."""
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
    """Yields, module by module, all tests whose name matches, from the modules whose file name
    matches `files`. A module that cannot be imported is a failing test. Modules stay whole, because
    the tests of one module may share files in the build folder."""
    modules = [module for folder in ('conformance', 'integration')
               for module in unittest.TestLoader().discover(os.path.join(TESTS, folder), files)]
    for module in modules:
        tests = [test for test in all_tests(module) if fnmatch.fnmatch(test.id(), pattern)]
        if tests:
            yield tests


def run(tests):
    """Runs the tests and stops the shared server; returns how many passed and how many failed."""
    import served
    import summary
    print('EMBAG_TEST_SEED=%d' % served.SEED, flush=True)
    result = unittest.TextTestRunner(sys.stdout, verbosity=2).run(tests)
    passed, failed = summary.count(result)
    try:
        passed += served.finish()
    except AssertionError as error:
        print('FAIL: the shared server did not exit cleanly\n%s' % error)
        failed += 1
    return passed, failed


def set_up(arguments):
    """Tells the tests which programs to run."""
    os.environ['PYTHONDONTWRITEBYTECODE'] = '1'
    # An idle channel of grpcio looks at its connection every 5 s by default: only then does it
    # notice that its server drains, and every such server would wait for it.
    os.environ['GRPC_CLIENT_CHANNEL_BACKUP_POLL_INTERVAL_MS'] = '100'
    import embagd_process
    import served
    embagd_process.EMBAGD = os.path.abspath(arguments.embagd)
    embagd_process.SANITIZE = sanitizer(arguments.build)
    served.EMBAG = os.path.abspath(arguments.embag)
    served.BUILD = os.path.abspath(arguments.build)
    served.QUICK = arguments.quick
    served.ROUTED = arguments.routed


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
