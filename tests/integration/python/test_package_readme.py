"""Runs the examples of the package's README as they are printed there, and checks the package's
types."""

import importlib.util
import os
import re
import subprocess
import sys
import unittest

import embag
import served
from served import OwnServerTest

PACKAGE = os.path.join(served.SOURCE, 'client', 'python')
ADDRESS = '127.0.0.1:8600'
# The output of each example.
PRINTED = [
    '[[-2.1 -2.4] [ 0. 0. ] [-0.2 0.8]]'
    '[[-0.15 -0.5 ] [-1.45 -0.15]] [[-0.2 -0.6] [ 2. -1.75]] [[-0.1 -0.4]]'
    'missing positions: [1] version: 1'
    'query 0 failed: queries[0] "emb_table": indices[0] = 7 is outside the table\'s 5 rows'
    '[-0.2, -0.1, -1.9, -1.0, 0.8]',
    '(4, 2) [2 2] (2, 4, 2) [[0.8 -0.7] [-1.9 -1.8] [0.8 -0.7]]',
    '[[[-0.2, -0.6]], [[-0.1, -0.4]], [[-1.9, -1.8]], [[-1.0, 1.5]], [[0.8, -0.7]]]',
]


def plain(text):
    """Returns the text without spaces, and with its numbers rounded to at most four decimals."""
    rounded = re.sub(r'-?\d+\.\d*', lambda m: '%g' % round(float(m[0]), 4), text)
    return re.sub(r'\s', '', rounded)


class Readme(OwnServerTest):
    """The README's examples, on a server at an arbitrary port."""

    def test_examples_print_what_they_should(self):
        with open(os.path.join(PACKAGE, 'README.md'), encoding='utf-8') as file:
            examples = re.findall(r'^```python\n(.*?)^```', file.read(), re.M | re.S)
        self.assertEqual(len(examples), len(PRINTED))
        address = self.serve().address
        for example, expected in zip(examples, PRINTED):
            done = subprocess.run(
                [sys.executable, '-I', '-c', example.replace(ADDRESS, address)],
                capture_output=True, text=True, timeout=60, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(plain(done.stdout), plain(expected))


class Installed(unittest.TestCase):
    """The package as pip installed it."""

    def test_is_not_the_source(self):
        self.assertFalse(embag.__file__.startswith(served.SOURCE + '/client'))
        self.assertTrue(os.path.exists(os.path.join(os.path.dirname(embag.__file__), 'py.typed')))

    def test_says_what_each_of_its_names_is(self):
        for name in embag.__all__:
            if name != 'BFLOAT16':
                self.assertTrue(getattr(embag, name).__doc__, name)

    @unittest.skipUnless(importlib.util.find_spec('mypy'), 'mypy is not installed')
    def test_types_hold(self):
        done = subprocess.run(
            [sys.executable, '-I', '-m', 'mypy', '--config-file',
             os.path.join(PACKAGE, 'pyproject.toml'), '--cache-dir', os.devnull, '-p', 'embag'],
            capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
