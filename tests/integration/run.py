#!/usr/bin/python3
"""Runs the tests that speak to embagd over the network: conformance and integration.

    tests/integration/run.py --embagd PATH --embag PATH --build DIR [--quick] [--only PATTERN]
        [--part I/N] [--long]

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
    parser.add_argument('--part', type=read_part, default=(1, 1),
                        help='I/N: each Nth module from the Ith on; parts may run side by side')
    return parser.parse_args()


def read_part(text):
    """1/2 as (1, 2)."""
    number, count = (int(word) for word in text.split('/'))
    if not 1 <= number <= count:
        raise ValueError(text)
    return number, count


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


def select(pattern, part, files):
    """All tests of the part whose name matches, from modules whose file name matches `files`; a
    module that cannot be imported is a failing test. What one module needs for itself in the build
    folder is one process's."""
    number, count = part
    modules = [module for folder in ('conformance', 'integration')
               for module in unittest.TestLoader().discover(os.path.join(TESTS, folder), files)]
    return unittest.TestSuite(test for module in modules[number - 1::count]
                              for test in all_tests(module) if fnmatch.fnmatch(test.id(), pattern))


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
    return summary.say(*run(select(arguments.only, arguments.part, files)))


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    sys.exit(main())
