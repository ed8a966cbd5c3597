"""The programs of tests/bench that measure clusters: their command lines, and their arithmetic."""

import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

import numpy as np

import served

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'bench')
sys.path.append(BENCH)

import cluster_run

NOWHERE = '/nonexistent'
COUNTS = (3, 1, 20)   # indices per bag of the tables
ROWS = (500, 1, 30)
DRAWS = 4000


def run(name, *arguments, environment=None):
    """Runs a program. Returns its exit status, output and messages."""
    done = subprocess.run(
        [sys.executable, os.path.join(BENCH, name), *arguments], capture_output=True, text=True,
        timeout=60, check=False, env={
            **os.environ, 'PYTHONPATH': os.pathsep.join(
                (os.path.join(served.TESTS, 'lib'), os.path.join(served.BUILD, 'python'))),
            **(environment or {})})
    return done.returncode, done.stdout, done.stderr


class CommandLines(unittest.TestCase):
    """What the programs refuse or skip before they start servers."""

    def test_refuse_what_cannot_be_measured(self):
        for name, argument, text in (
                ('cluster_cost.py', 'rows:4:1', 'invalid case .*whole:4:1:64'),
                ('cluster_cost.py', 'rows:0:1:64', 'invalid case'),
                ('cluster_cost.py', 'columns:4:1:64', 'invalid case'),
                ('cluster_redis.py', 'columns', 'expected whole or rows or all'),
                ('cluster_redis.py', '--rounds=0', '--rounds.*at least 1'),
                ('cluster_latency.py', '--seconds=0', '--seconds.*at least 0.1')):
            with self.subTest(name=name, argument=argument):
                status, out, messages = run(name, argument)
                self.assertEqual((status, out), (2, ''), messages)
                self.assertRegex(messages, text)

    def test_name_what_is_missing_and_skip(self):
        for name, environment, text in (
                ('cluster_redis.py', {'PATH': NOWHERE}, 'Debian package redis-server'),
                ('cluster_latency.py', {}, 'embag-echo-server is missing')):
            with self.subTest(name=name):
                status, out, messages = run(name, '--build', NOWHERE, environment=environment)
                self.assertEqual(status, 0, messages)
                self.assertRegex(out, '^skipped: .*' + text)


class Arithmetic(unittest.TestCase):
    """How many sums, queries and indices a request's legs should have."""

    def count(self, tables, samples):
        """Returns the means of drawn requests."""
        rng = np.random.default_rng(served.SEED)
        found = np.zeros(3)
        for name, count in zip(tables.rows, COUNTS):
            rows = rng.integers(tables.rows[name], size=(DRAWS, samples, count))
            if not tables.is_divided(name):
                found += (samples, 1, samples * count) if name in tables.large else (0, 0, 0)
                continue
            for part in range(tables.parts):
                is_here = rows % tables.parts == part
                found += (is_here.any(2).sum() / DRAWS, is_here.any((1, 2)).sum() / DRAWS,
                          is_here.sum() / DRAWS)
        return found

    def test_equals_what_is_drawn(self):
        with tempfile.TemporaryDirectory() as source, \
                mock.patch.object(cluster_run, 'INDICES_BY_TABLE', COUNTS), \
                mock.patch.object(cluster_run, 'LARGE', 2):
            folder = os.path.join(source, cluster_run.WORKLOAD, '1')
            os.makedirs(folder)
            for number, rows in enumerate(ROWS):
                np.save(os.path.join(folder, 't%02d.npy' % number), np.zeros((rows, 1), '<f4'))
            for kind in cluster_run.KINDS:
                for parts, samples in ((1, 1), (4, 1), (4, 5), (7, 2)):
                    tables = cluster_run.Tables(source, kind, parts)
                    self.assertEqual(set(tables.large), {'t00', 't02'})
                    np.testing.assert_allclose(tables.expect(samples), self.count(tables, samples),
                                               rtol=0.03, err_msg='%s %d' % (kind, parts))
