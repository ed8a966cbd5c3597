#!/usr/bin/python3
"""Runs the tests of one framework with the Python package that is installed for this interpreter.

    framework_tests.py FILES --embagd PATH --embag PATH --build DIR [--quick] [--only PATTERN]

FILES is a pattern of file names in this folder. Prints "N passed, N failed" at the end; the exit
status is 0 if none failed. run.sh creates the environments.
"""

import fnmatch
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
INTEGRATION = os.path.dirname(HERE)
LIB = os.path.join(os.path.dirname(INTEGRATION), 'lib')


def main():
    """Returns the exit status."""
    sys.path[:0] = [INTEGRATION, LIB]
    files = sys.argv.pop(1)
    import run
    import summary
    arguments = run.parse_arguments()
    run.set_up(arguments)
    found = run.all_tests(unittest.TestLoader().discover(HERE, files))
    chosen = unittest.TestSuite(t for t in found if fnmatch.fnmatch(t.id(), arguments.only))
    return summary.say(*run.run(chosen))


if __name__ == '__main__':
    sys.dont_write_bytecode = True
    sys.exit(main())
