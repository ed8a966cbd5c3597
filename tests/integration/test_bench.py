"""embag-bench: small runs, whose figures must be present and plausible."""

import json
import os
import re
import socket
import subprocess
import tempfile
import unittest

import numpy as np

import served

POSITIVE = ('ns_per_row', 'gb_per_s', 'check_ns_per_row', 'us_per_call', 'roofline_ns_per_row',
            'roofline_fraction', 'calls_per_reading')
PEER = ('peer_ns_per_row', 'ratio', 'ratio_low', 'ratio_high', 'ratio_checked')
TABLES, DIM = 26, 128   # of dlrm-v2
SMALL = ('--rows', '500', '--repeats', '2', '--reading-us', '20')


def bench(*arguments):
    """Runs embag-bench; returns its exit status, output and messages."""
    done = subprocess.run([os.path.join(served.BUILD, 'embag-bench'), *arguments],
                          capture_output=True, text=True, timeout=120, check=False)
    return done.returncode, done.stdout, done.stderr


def cells(*arguments):
    """Returns the JSON objects that embag-bench prints."""
    status, out, messages = bench('--json', *arguments)
    if status != 0:
        raise AssertionError(messages)
    return [json.loads(line) for line in out.splitlines()]


class LoadRead(unittest.TestCase):
    """The program that reads a file as a load does."""

    def run_on(self, *arguments):
        """Runs embag-load-read; returns its exit status and output."""
        done = subprocess.run([os.path.join(served.BUILD, 'embag-load-read'), *arguments],
                              capture_output=True, text=True, timeout=120, check=False)
        return done.returncode, done.stdout

    def test_reads_all_bytes_with_any_number_of_threads(self):
        with tempfile.NamedTemporaryFile() as file:
            file.write(bytes(3000000))
            file.flush()
            for threads in ('1', '3'):
                status, out = self.run_on(file.name, threads)
                self.assertEqual(status, 0)
                counts = [int(count) for count in
                          re.findall(r'(?:cached|direct|plain) (\d+)', out)]
                self.assertEqual(len(counts), 3)
                self.assertGreaterEqual(sum(counts), 3000000 - 128)

    def test_refuses_what_it_cannot_read(self):
        self.assertEqual(self.run_on('/nowhere', '1')[0], 1)
        self.assertEqual(self.run_on('/dev/null')[0], 2)
        self.assertEqual(self.run_on('/dev/null', '0')[0], 2)
        self.assertEqual(self.run_on('/dev/null', '65')[0], 2)


class QuantizeRows(unittest.TestCase):
    """The program that measures the conversion of rows."""

    def run_turns(self, *arguments):
        """Runs embag-quantize-rows; returns its exit status and output."""
        done = subprocess.run([os.path.join(served.BUILD, 'embag-quantize-rows'), *arguments],
                              capture_output=True, text=True, timeout=240, check=False)
        return done.returncode, done.stdout

    def test_prints_the_time_of_each_variant(self):
        for turns in ('1', '51'):
            status, out = self.run_turns(turns)
            self.assertEqual(status, 0)
            self.assertEqual(len(out.splitlines()), 25)
            for line in out.splitlines():
                self.assertRegex(
                    line, r'^\w+ dim \d+: ref [\d.]+ ns \(1\.00\)( \w+ [\d.]+ ns \([\d.]+\))*$')

    def test_refuses_other_numbers_of_turns(self):
        for arguments in ((), ('0',), ('52',), ('x',), ('1', '1')):
            self.assertEqual(self.run_turns(*arguments)[0], 2)


class Bench(unittest.TestCase):
    """The benchmark as people run it."""

    def check_figures(self, cell):
        """Checks that the figures are positive and consistent."""
        for key in POSITIVE + (PEER if 'peer' in cell else ()):
            self.assertGreater(cell[key], 0, key)
        us = cell['ns_per_row'] * cell['rows_per_call'] * cell['threads'] / 1e3
        self.assertAlmostEqual(cell['us_per_call'] / us, 1, delta=1e-3)
        if 'peer' in cell:
            self.assertLessEqual(cell['ratio_low'], cell['ratio'])
            self.assertLessEqual(cell['ratio'], cell['ratio_high'])

    def test_measures_each_combination(self):
        found = cells(*SMALL, '--row-type', 'f32,int4', '--dim', '16,33', '--bags', '1,8',
                      '--indices-per-bag', '3', '--state', 'hot,steady,flushed')
        self.assertEqual(
            [(c['row_type'], c['dim'], c['state'], c['bags']) for c in found],
            [(row_type, dim, state, bags) for row_type in ('f32', 'int4') for dim in (16, 33)
             for state in ('hot', 'steady', 'flushed') for bags in (1, 8)])
        for cell in found:
            self.assertEqual((cell['rows'], cell['indices_per_bag']), (500, 3))
            self.check_figures(cell)

    def test_measures_every_type(self):
        for row_types in ('f32,f64,f16,bf16,f8_e4m3,f8_e5m2,int8,int4,int2',
                          'i8,u8,i16,u16,i32,u32,i64,u64'):
            found = cells(*SMALL, '--weighted', '--row-type', row_types, '--dim', '5',
                          '--bags', '4')
            self.assertEqual([c['row_type'] for c in found], row_types.split(','))
            for cell in found:
                self.check_figures(cell)

    def test_measures_distributions_threads_and_reductions(self):
        for reduction in ('mean', 'weighted_mean', 'sqrtn', 'max', 'min', 'none'):
            found = cells(*SMALL, '--distribution', 'uniform,zipf:1.05,meta2021', '--threads',
                          '1,2', '--reduction', reduction, '--output-type', 'bf16', '--ahead',
                          '--bags', '3')
            self.assertEqual([(c['distribution'], c['threads']) for c in found],
                             [(d, t) for d in ('uniform', 'zipf:1.05', 'meta2021')
                              for t in (1, 2)])
            for cell in found:
                self.assertEqual((cell['reduction'], cell['output_type']),
                                 (reduction.upper(), 'bf16'))
                self.check_figures(cell)

    def test_measures_a_workload_in_one_call(self):
        found = cells('--workload', 'dlrm-v2', '--scale', '100000', '--samples', '2',
                      '--repeats', '2', '--reading-us', '20')
        self.assertEqual(len(found), 1)
        cell = found[0]
        self.assertEqual((cell['workload'], cell['tables'], cell['bags'], cell['rows_per_call']),
                         ('dlrm-v2', 26, 2, 428))
        self.check_figures(cell)

    def test_measures_keys_beside_rows(self):
        found = cells(*SMALL, '--keyed', '--dim', '16', '--bags', '1,8', '--state', 'hot,steady')
        self.assertEqual(len(found), 4)
        for cell in found:
            self.check_figures(cell)
            self.assertGreater(cell['keyed_check_ns_per_row'], 0)
            self.assertGreater(cell['key_build_ns_per_row'], 0)
            self.assertGreater(cell['keyed_ratio'], 0)
        status, out, _ = bench(*SMALL, '--dim', '16', '--no-roofline', '--keyed')
        self.assertEqual((status, out.count('by key: check')), (0, 1))
        status, _, messages = bench('--workload', 'dlrm-v2', '--keyed')
        self.assertEqual(status, 2)
        self.assertIn('--keyed', messages)

    def test_tells_which_pages_it_asked_for_and_got(self):
        cell, = cells('--table-bytes', '4m', '--dim', '64', '--pages', '4k', '--repeats', '1',
                      '--reading-us', '20')
        self.assertEqual((cell['pages'], cell['pages_got'], cell['rows']), ('4k', '4k', 16384))

    def serve(self, sizes, *arguments):
        """Serves samples of dlrm-v2; returns the port."""
        process = subprocess.Popen(
            [os.path.join(served.BUILD, 'embag-bench'), '--workload', 'dlrm-v2', '--scale',
             '100000', '--serve', '%d:%d:%d' % sizes, *arguments], stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        said = ''
        while 'event=ready' not in said:
            line = process.stderr.readline()
            self.assertTrue(line, said)
            said += line
        return int(re.search(r'event=listening address=127\.0\.0\.1:(\d+)', said)[1])

    def ask(self, port, sizes, count):
        """Sends this many requests at once; returns the heads of the answers, and their values."""
        with socket.create_connection(('127.0.0.1', port), timeout=120) as connection:
            connection.sendall(bytes(count * sizes[0]))
            with connection.makefile('rb') as stream:
                data = stream.read(count * sizes[1])
        answers = np.frombuffer(data, np.uint8).reshape(count, sizes[1])
        head = sizes[1] - TABLES * DIM * 4
        values = np.ascontiguousarray(answers[:, head:]).view('<f4')
        return answers[:, :head], values

    def test_serves_answers_that_it_computes(self):
        sizes, count = (100, 37 + TABLES * DIM * 4, 3), 10
        heads, values = self.ask(self.serve(sizes), sizes, count)
        self.assertTrue((heads == 1).all())
        self.assertTrue(np.isfinite(values).all())
        self.assertTrue(np.any(values.reshape(count, TABLES, DIM), axis=2).all())
        self.assertEqual(len(np.unique(values, axis=0)), count)
        slow = self.serve(sizes, '--isa', 'ref')
        np.testing.assert_allclose(self.ask(slow, sizes, count)[1], values, 1e-4, 1e-4)
        hot = self.ask(self.serve(sizes, '--state', 'hot'), sizes, count)[1]
        np.testing.assert_array_equal(hot, np.repeat(values[:1], count, axis=0))

    def test_serves_on_when_a_peer_is_gone_before_its_answers(self):
        sizes = (1, 4 * TABLES * DIM * 4, 2)
        port = self.serve(sizes, '--samples', '4')
        with socket.create_connection(('127.0.0.1', port), timeout=120) as connection:
            connection.sendall(bytes(10000))
            # The later reset then makes a write of the server fail with a broken pipe.
            connection.shutdown(socket.SHUT_WR)
            connection.recv(1)
        self.assertEqual(self.ask(port, sizes, 3)[0].shape[0], 3)

    def test_refuses_answers_without_room_for_results(self):
        needed = TABLES * DIM * 4
        status, _, messages = bench('--workload', 'dlrm-v2', '--scale', '100000', '--serve',
                                    '100:%d:1' % (needed - 1))
        self.assertEqual(status, 1)
        self.assertIn(str(needed), messages)

    def test_prints_a_table_for_people(self):
        status, out, _ = bench(*SMALL, '--dim', '16,32', '--no-roofline')
        self.assertEqual(status, 0)
        lines = [line.split() for line in out.splitlines()]
        self.assertEqual([line[:2] for line in lines[-2:]], [['f32', '16'], ['f32', '32']])
        self.assertIn('seed 1', out)

    def test_refuses_what_it_cannot_measure(self):
        for arguments, status in ((('--dim', '0'), 2), (('--reduction', 'mode'), 2),
                                  (('--row-type', 'i8', '--reduction', 'sqrtn'), 1),
                                  (('--table-bytes', '1', '--dim', '16'), 1)):
            got, out, messages = bench('--json', *SMALL[2:], *arguments)
            self.assertEqual((got, out), (status, ''), arguments)
            self.assertIn('embag', messages)

    def test_names_all_its_flags(self):
        status, out, _ = bench('--help')
        self.assertEqual(status, 0)
        for flag in ('--row-type', '--workload', '--distribution', '--json', '--keyed', '--serve'):
            self.assertIn(flag, out)


if __name__ == '__main__':
    unittest.main()
