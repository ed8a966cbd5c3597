"""`embag demo`, which the quickstart shows: it must detect wrong values, not only confirm right
ones."""

import json
import os
import subprocess
import tempfile
import unittest

import numpy as np

import served
from embagd_process import Embagd, Repository
from table_files import Table, write_model

CASES = os.path.join(served.TESTS, 'conformance', 'spec_examples.json')


def demo(address, *arguments):
    """Runs embag demo; returns its exit status, output and messages."""
    done = subprocess.run([served.EMBAG, 'demo', '--server', address, *arguments],
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def demo_of_cases(text):
    """Runs the demo on a case file of its own."""
    with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
        file.write(text)
        file.flush()
        return demo(served.shared().address, '--cases', file.name)


class DemoCases(unittest.TestCase):
    """embag demo --cases."""

    def test_prints_all_examples_as_published(self):
        status, out, _ = demo(served.shared().address, '--cases', CASES)
        self.assertEqual(status, 0, out)
        self.assertIn('13 of 13 examples as published', out)

    def test_fails_where_a_value_differs(self):
        case = served.spec_cases()[0]
        case['expected'][1][0] += 0.1
        status, out, _ = demo_of_cases(json.dumps([case]))
        self.assertEqual((status, out.count('WRONG')), (1, 1))

    def test_fails_where_the_server_refuses(self):
        case = served.spec_cases()[0]
        case['indices'][0] = 5
        status, _, messages = demo_of_cases(json.dumps([case]))
        self.assertEqual(status, 1)
        self.assertIn('OUT_OF_RANGE', messages)

    def test_names_what_is_wrong_with_a_file(self):
        case = served.spec_cases()[0]
        broken = [{**case, 'reduction': 'max'}, {**case, 'weights': ['a']},
                  {**case, 'indices': [0] * 65}, {**case, 'expected': [[1, 2], [3]]},
                  {**case, 'offsets': None}, {}, 7]
        for text in ['', '{}', '[]', '[1', *(json.dumps([entry]) for entry in broken)]:
            with self.subTest(text=text):
                status, _, messages = demo_of_cases(text)
                self.assertEqual(status, 1)
                self.assertTrue(messages)

    def test_fails_without_the_file(self):
        status, _, messages = demo(served.shared().address, '--cases', '/nowhere.json')
        self.assertEqual(status, 1)
        self.assertIn('/nowhere.json', messages)


class DemoLookups(unittest.TestCase):
    """embag demo --lookups."""

    def setUp(self):
        self.repository = Repository()
        self.addCleanup(self.repository.remove)

    def serve(self):
        """Starts a server of the repository."""
        server = Embagd(self.repository.path).wait_ready()
        self.addCleanup(server.stop)
        return server.address

    def make_model(self):
        """Makes a very small dlrm-v2; returns its directory."""
        subprocess.run([served.EMBAG, 'make-model', '--workload', 'dlrm-v2', '--scale', '1000000',
                        self.repository.path], check=True, capture_output=True, timeout=60)
        return self.repository.join('dlrm-v2', '1')

    def test_verifies_and_times_lookups(self):
        self.make_model()
        status, out, messages = demo(self.serve(), '--lookups', '3')
        self.assertEqual(status, 0, messages)
        self.assertRegex(out, r'3 lookups of 26 tables(.|\n)*latency: min \d+ us')

    def test_shows_the_first_five_lookups(self):
        self.make_model()
        address = self.serve()
        for count, shown in ((3, 3), (7, 5)):
            status, out, messages = demo(address, '--lookups', str(count))
            self.assertEqual(status, 0, messages)
            lines = out.splitlines()
            self.assertEqual(len(lines), shown + 2, out)
            for number, line in enumerate(lines[:shown], 1):
                self.assertRegex(
                    line, r'^lookup %d: 26 tables, 214 rows, \d+ us, verified$' % number)

    def test_sees_a_wrong_value(self):
        path = os.path.join(self.make_model(), 't05.npy')
        table = np.load(path)
        table[:, 100] += 1
        np.save(path, table)
        status, out, messages = demo(self.serve())
        self.assertEqual((status, out), (1, ''))
        self.assertIn('differs', messages)

    def test_says_how_to_get_the_model(self):
        write_model(self.repository.path, 'dlrm-v2', 1,
                    [Table.of_values('t00', 'f32', np.zeros((4, 128)))])
        status, _, messages = demo(self.serve())
        self.assertEqual(status, 1)
        self.assertIn('make-model', messages)


class DemoUsage(unittest.TestCase):
    """Flags that are invalid."""

    def test_refuses_faulty_flags(self):
        for arguments in (['--lookups', '0'], ['--lookups', 'x'], ['--lookups', '100001'],
                          ['--lookups', '-1'], ['--lookups', '1', '--lookups', '1'],
                          ['--unknown'], ['extra']):
            with self.subTest(arguments=arguments):
                status, _, messages = demo('127.0.0.1:1', *arguments)
                self.assertEqual(status, 2)
                self.assertTrue(messages)

    def test_wants_a_server(self):
        done = subprocess.run([served.EMBAG, 'demo', '--lookups', '1'], capture_output=True,
                              text=True, timeout=60, check=False)
        self.assertEqual((done.returncode, done.stderr), (2, 'embag: demo: --server is missing\n'))

    def test_fails_where_nobody_listens(self):
        status, _, messages = demo('127.0.0.1:1')
        self.assertEqual(status, 1)
        self.assertIn('UNAVAILABLE', messages)
