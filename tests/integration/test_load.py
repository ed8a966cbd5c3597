"""embag-load: short runs against a real server, whose figures must be present and plausible."""

import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import unittest
import xml.dom.minidom

import numpy as np

import guide
import served
from embagd_process import Embagd, Repository, wait_until
from table_files import Table, write_model

FIGURES = ('requests', 'answers', 'requests_per_s', 'goodput_per_s', 'mean_us', 'p50_us', 'p90_us',
           'p99_us', 'p999_us', 'max_us', 'answer_bytes', 'seconds')
COUNTS = ('errors', 'unsent', 'lost', 'wrong', 'late_p99_us', 'queue_us', 'compute_us')
SHORT = ('--duration', '0.4', '--warmup', '0.1')
# A timeout that no request exceeds, even on a slow machine.
PATIENT = ('--timeout-us', '60000000')
SECONDS = 120


def program():
    """Returns the path of embag-load."""
    return os.path.join(served.BUILD, 'embag-load')


def load(address, *arguments):
    """Runs embag-load; returns its exit status, output and messages."""
    done = subprocess.run([program(), '--server', address, *arguments], capture_output=True,
                          text=True, timeout=SECONDS, check=False)
    return done.returncode, done.stdout, done.stderr


def listed_keys():
    """Returns the table of keys in LOAD.md, as --help-json prints it."""
    section = guide.section(guide.read('client', 'cli', 'LOAD.md'), 'Putting load on a server')
    rows = re.findall(r'^\| `(\w+)` \| (setting|figure|sweep) \| (.*?) \| (.*?) ?\| (.*) \|$',
                      section, re.M)
    return {key: {'kind': kind, 'type': types, 'unit': unit or None,
                  'description': text.replace('`', '')}
            for key, kind, types, unit, text in rows}


def described_keys():
    """Returns what --help-json prints."""
    done = subprocess.run([program(), '--help-json'], capture_output=True, text=True,
                          timeout=SECONDS, check=True)
    return json.loads(done.stdout)


def keys_of(*kinds):
    """Returns the keys that --help-json describes as settings, figures or sweeps."""
    return sorted(key for key, facts in described_keys().items() if facts['kind'] in kinds)


TYPES = {'string': str, 'integer': int, 'number': (int, float), 'boolean': bool, 'object': dict,
         'array': list, 'null': type(None)}


def is_of(value, types):
    """Returns whether a JSON value has one of the types, such as "string or null"."""
    return any(isinstance(value, TYPES[each]) and isinstance(value, bool) == (each == 'boolean')
               for each in types.split(' or '))


class LoadTest(unittest.TestCase):
    """A server of three small workloads, and of a table of another type."""

    @classmethod
    def setUpClass(cls):
        cls.repository = Repository()
        cls.addClassCleanup(cls.repository.remove)
        for workload, scale in (('dlrm-v2', '1000000'), ('rows', '10000'), ('wide-200', '100')):
            subprocess.run([served.EMBAG, 'make-model', '--workload', workload, '--scale', scale,
                            cls.repository.path], check=True, capture_output=True, timeout=60)
        write_model(cls.repository.path, 'small', 1,
                    [Table.of_values('half', 'f16', np.zeros((10, 8)))])
        cls.folder = cls.repository.join('keyed', '1')
        os.makedirs(cls.folder)
        np.save(os.path.join(cls.folder, 't.npy'), np.zeros((50, 8), '<f4'))
        np.save(os.path.join(cls.folder, 't.keys.npy'), np.arange(50, dtype='<i8') * 10**12 - 7)
        cls.server = Embagd(cls.repository.path).wait_ready()
        cls.addClassCleanup(cls.server.stop)

    def measure(self, *arguments, status=0):
        """Returns the JSON object that a run prints."""
        patience = () if '--timeout-us' in arguments else PATIENT
        got, out, messages = load(self.server.address, '--json', *SHORT, *patience, *arguments)
        self.assertEqual(got, status, messages + out)
        self.assertEqual(out.count('\n'), 1)
        figures = json.loads(out)
        self.assertNotIn('has no LookupStream', messages)
        self.assertEqual(figures['mode'], 'unary' if 'unary' in arguments else 'stream')
        return figures

    def check(self, figures):
        """Checks a run in which every request was answered."""
        for key in FIGURES:
            self.assertGreater(figures[key], 0, key)
        for key in COUNTS:
            self.assertGreaterEqual(figures[key], 0, key)
        self.assertEqual((figures['errors'], figures['errors_by_code'], figures['wrong']),
                         (0, {}, 0))
        self.assertEqual(figures['requests'], figures['answers'] + figures['unsent'])
        # The server's time is part of the latency.
        self.assertLessEqual(figures['queue_us'] + figures['compute_us'], figures['mean_us'])
        times = [figures[key] for key in ('p50_us', 'p90_us', 'p99_us', 'p999_us', 'max_us')]
        self.assertEqual(times, sorted(times))

    def test_asks_for_keys_that_are_there(self):
        rows, keys = (os.path.join(self.folder, name) for name in ('t.npy', 't.keys.npy'))
        keyed = ('--model', 'keyed', '--tables', 't', '--indices-per-bag', '20')
        with tempfile.TemporaryDirectory() as folder:
            packed = os.path.join(folder, 't.embag')
            subprocess.run([served.EMBAG, 'pack', '--keys', keys, rows, packed], check=True,
                           capture_output=True, timeout=60)
            for path in keys, packed:
                self.check(self.measure(*keyed, '--keys-file', path))
        status, _, messages = load(self.server.address, *keyed)
        self.assertEqual(status, 1, messages)
        self.assertIn('table "t" is keyed: give its keys with --keys-file', messages)


class Runs(LoadTest):
    """The figures of a run."""

    def test_measures_and_verifies_a_closed_load_in_either_mode(self):
        for mode in ('stream', 'unary'):
            for connections in ('1', '4'):
                with self.subTest(mode=mode, connections=connections):
                    figures = self.measure(
                        '--workload', 'dlrm-v2', '--mode', mode, '--in-flight', '8',
                        '--connections', connections, '--requests', '64', '--verify')
                    self.check(figures)
                    self.assertEqual(figures['mode'], mode)
                    self.assertEqual((figures['arrival'], figures['in_flight']), ('closed', 8))
                    self.assertEqual(figures['answer_bytes'], 26 * 128 * 4)
                    self.assertEqual(figures['rows_per_request'], 214)

    def test_measures_several_samples_in_other_types(self):
        figures = self.measure('--workload', 'dlrm-v2', '--samples', '5', '--output-type', 'bf16',
                               '--verify', '--in-flight', '2', '--requests', '16', '--distribution',
                               'zipf:1.05')
        self.check(figures)
        self.assertEqual(figures['answer_bytes'], 5 * 26 * 128 * 2)

    def test_measures_and_verifies_all_tables_as_one_group(self):
        for arguments, size in ((('dlrm-v2', '--samples', '3'), 3 * 26 * 128 * 4),
                                (('dlrm-v2', '--samples', '3', '--output-type', 'bf16'),
                                 3 * 26 * 128 * 2),
                                (('wide-200', '--mode', 'unary'), 200 * 64 * 4)):
            with self.subTest(arguments=arguments):
                figures = self.measure('--workload', *arguments, '--groups', '--verify',
                                       '--in-flight', '4', '--requests', '16')
                self.check(figures)
                self.assertIs(figures['groups'], True)
                self.assertEqual(figures['answer_bytes'], size)

    def test_sends_with_the_priority_that_was_asked_for(self):
        for priority in ('interactive', 'batch'):
            figures = self.measure('--workload', 'rows', '--priority', priority, '--in-flight', '2')
            self.check(figures)
            self.assertEqual((figures['priority'], figures['groups']), (priority, False))

    def test_measures_tables_by_name(self):
        figures = self.measure('--model', 'small', '--tables', 'half', '--bags', '3',
                               '--indices-per-bag', '7')
        self.check(figures)
        self.assertEqual((figures['rows_per_request'], figures['answer_bytes']), (21, 3 * 8 * 2))

    def test_sends_as_often_as_the_rate_says(self):
        figures = self.measure('--workload', 'rows', '--rate', '500', '--connections', '2',
                               '--threads', '2', '--deadline-us', '60000000')
        self.check(figures)
        # 200 requests are due, plus or minus six standard deviations.
        self.assertLess(abs(figures['requests'] - 200), 6 * 200 ** 0.5)
        self.assertEqual((figures['rate'], figures['arrival']), (500, 'open'))
        self.assertEqual(figures['unsent'], 0)

    def test_asks_the_same_again_from_the_same_seed(self):
        first, again = (self.measure('--workload', 'rows', '--rate', '300', '--seed', '5')
                        for _ in range(2))
        self.assertEqual(first['requests'], again['requests'])

    def test_counts_errors_by_code_and_fails_where_all_fail(self):
        figures = self.measure('--workload', 'dlrm-v2', '--timeout-us', '1', status=1)
        self.assertEqual(figures['answers'], 0)
        # In so short a run, some requests may not have been sent.
        self.assertGreater(figures['errors'] + figures['unsent'], 0, figures)
        self.assertEqual(sum(figures['errors_by_code'].values()), figures['errors'])
        self.assertLessEqual(set(figures['errors_by_code']), {'DEADLINE_EXCEEDED'})

    def test_counts_what_was_not_answered_in_the_percentiles(self):
        # No machine can answer this many requests of this many bags.
        _, out, _ = load(self.server.address, '--json', *SHORT, '--workload', 'dlrm-v2',
                         '--samples', '64', '--rate', '200000', '--deadline-us', '200000')
        figures = json.loads(out)
        self.assertGreater(figures['unsent'], 0)
        self.assertEqual(figures['requests'],
                         figures['answers'] + figures['errors'] + figures['unsent'])
        for key in ('p50_us', 'p90_us', 'p99_us', 'p999_us', 'max_us'):
            self.assertGreaterEqual(figures[key], 200000, key)

    def test_says_whether_the_client_withheld_requests(self):
        for arguments in ((), ('--unpaced',)):
            figures = self.measure('--workload', 'rows', '--rate', '200', *arguments)
            self.assertIs(figures['unpaced'], bool(arguments))
            self.assertGreater(figures['answers'], 0)

    def test_tells_people(self):
        status, out, messages = load(self.server.address, '--workload', 'rows', '--verify',
                                     '--requests', '64', '--duration', '1.5', '--warmup', '0.2')
        self.assertEqual(status, 0, messages)
        for pattern in (r'model rows, version 1: 1 table', r'closed load, 32 in flight',
                        r'\d answers/s in 1.50 s', r'p99.9 \d+', r'every value as published'):
            self.assertRegex(out, pattern)
        # One line a second if stderr is not a terminal.
        self.assertRegex(messages, r'of 1.5 s: \d+/s, p50 \d+ us(.*)in flight\n')

    def test_sweeps_and_draws(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'curve.svg')
            figures = self.measure('--workload', 'rows', '--sweep', '100:300:3', '--svg', path)
            drawing = xml.dom.minidom.parse(path)
        # A slow machine may be saturated early.
        rates = [step['rate'] for step in figures['steps']]
        self.assertEqual(rates, [100, 200, 300][:len(rates)])
        self.assertTrue(len(rates) == 3 or figures['saturated'])
        self.assertGreater(figures['best_per_s'], 0)
        self.assertEqual(figures['svg'], path)
        self.assertEqual(len(drawing.getElementsByTagName('polyline')), 3)
        self.assertIn('rows: latency against rate', drawing.toxml())

    def test_lists_the_keys_that_it_describes(self):
        self.assertEqual(list(listed_keys().items()), list(described_keys().items()))

    def test_prints_the_keys_that_it_describes(self):
        rows = ('--workload', 'rows', '--in-flight', '2')
        closed = keys_of('setting', 'figure')
        closed.remove('rate')
        self.assertEqual(sorted(self.measure(*rows)), closed)
        self.assertEqual(sorted(self.measure(*rows, '--rate', '100')), keys_of('setting', 'figure'))
        swept = self.measure(*rows, '--sweep', '100:101:2', '--svg', '/dev/null')
        self.assertEqual(sorted(swept), keys_of('setting', 'figure', 'sweep'))
        for step in swept['steps']:
            self.assertEqual(sorted(step), keys_of('figure'))
        self.assertEqual({key: swept[key] for key in keys_of('figure')}, swept['steps'][-1])
        for key, facts in described_keys().items():
            self.assertTrue(is_of(swept[key], facts['type']), (key, swept[key], facts['type']))
        named = self.measure('--model', 'rows', '--tables', 't00')
        self.assertIsNone(named['workload'])

    def test_names_the_curve_only_where_it_could_be_written(self):
        sweep = ('--workload', 'rows', '--sweep', '100:101:2', '--svg', '/dev/full')
        self.assertIsNone(self.measure(*sweep, status=1)['svg'])
        status, out, messages = load(self.server.address, *SHORT, *PATIENT, *sweep)
        self.assertEqual(status, 1, out)
        self.assertNotIn('/dev/full', out)
        self.assertIn('embag-load: cannot write /dev/full: No space left on device', messages)

    def test_runs_no_step_of_a_sweep_whose_curve_cannot_be_written(self):
        # The steps would take an hour; none of them is run.
        for more in ((), ('--json',)):
            status, out, messages = load(
                self.server.address, '--workload', 'rows', '--sweep', '100:200:2', '--duration',
                '1800', '--svg', '/nonexistent/b.svg', *more)
            self.assertEqual(status, 1, messages)
            self.assertNotIn('b.svg', out)
            self.assertNotIn('due/s', out)
            self.assertIn('embag-load: cannot write /nonexistent/b.svg: No such file or directory; '
                          'name another with --svg', messages)

    def test_stops_a_sweep_where_the_server_is_saturated(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, 'curve.svg')
            status, out, messages = load(
                self.server.address, '--workload', 'dlrm-v2', '--samples', '64', '--sweep',
                '1000000:3000000:3', '--svg', path, '--in-flight', '4', *SHORT)
        self.assertEqual(status, 0, messages)
        self.assertIn('saturated at the first step', out)
        self.assertEqual(len(re.findall(r'^ *\d+\.\d ', out, re.M)), 1, out)


class Ends(LoadTest):
    """How a run ends when something goes wrong or it is interrupted."""

    def start(self, server, *arguments):
        """Starts a run of a minute and waits for its first answers. Returns the process and a list
        of its messages, which grows."""
        process = subprocess.Popen(
            [program(), '--server', server.address, '--json', '--duration', '60', '--warmup',
             '0', *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        lines = []
        reader = threading.Thread(target=lambda: lines.extend(process.stderr), daemon=True)
        reader.start()
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(reader.join)
        self.addCleanup(process.kill)
        self.wait_said(process, lines, r' of 60 s: (?!0\.0/)')
        return process, lines

    @staticmethod
    def wait_said(process, lines, pattern):
        """Waits until the run has printed the pattern, or has exited."""
        wait_until(lambda: any(re.search(pattern, line) for line in lines)
                   or process.poll() is not None, 60, pattern)

    def interrupt(self, process):
        """Interrupts a run; returns the JSON object that it prints."""
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        self.assertEqual(process.wait(30), 0)
        return json.loads(out)

    def test_reports_what_was_measured_when_interrupted(self):
        for arguments in (('--in-flight', '4'), ('--rate', '200')):
            with self.subTest(arguments=arguments):
                process, _ = self.start(self.server, *PATIENT, '--workload', 'rows', *arguments)
                figures = self.interrupt(process)
                self.assertIs(figures['interrupted'], True)
                self.assertLess(figures['seconds'], 50)
                self.check(figures)

    def test_goes_on_when_the_server_is_gone(self):
        server = Embagd(self.repository.path).wait_ready()
        self.addCleanup(server.stop)
        process, lines = self.start(server, *PATIENT, '--workload', 'rows')
        server.kill()
        self.wait_said(process, lines, r' [1-9]\d* errors?')
        figures = self.interrupt(process)
        self.assertGreater(figures['answers'], 0)
        self.assertGreater(figures['errors'], 0)

    def test_sees_a_wrong_value(self):
        repository = Repository()
        self.addCleanup(repository.remove)
        subprocess.run([served.EMBAG, 'make-model', '--workload', 'rows', '--scale', '1000000',
                        repository.path], check=True, capture_output=True, timeout=60)
        path = repository.join('rows', '1', 't00.npy')
        table = np.load(path)
        table[:, 63] += 1
        np.save(path, table)
        server = Embagd(repository.path).wait_ready()
        self.addCleanup(server.stop)
        for verify, expected in ((('--verify',), 1), (('--verify', '--groups'), 1), ((), 0)):
            status, out, messages = load(
                server.address, '--json', '--workload', 'rows', '--requests', '64', *SHORT,
                *PATIENT, *verify)
            self.assertEqual(status, expected, messages)
            figures = json.loads(out)
            self.assertEqual(figures['wrong'] > 0, bool(verify))


class Refusals(LoadTest):
    """Runs that embag-load refuses, and its messages."""

    def test_says_what_is_wrong_and_what_to_do(self):
        for status, hint, arguments in (
                (2, '--workload NAME', ()),
                (2, 'dlrm-v2', ('--workload', 'x')),
                (2, 'FROM:TO:STEPS', ('--workload', 'rows', '--sweep', '1:2')),
                (2, '--svg c.png: the curve is written as SVG',
                 ('--workload', 'rows', '--sweep', '1:2:3', '--svg', 'c.png')),
                (1, 'make-model', ('--workload', 'rm1')),
                (1, '--model', ('--tables', 'half')),
                (1, 'embag models', ('--model', 'small', '--tables', 'x')),
                (1, '--verify', ('--model', 'small', '--tables', 'half', '--verify')),
                (1, '--requests 10 ', ('--workload', 'rows', '--samples', '100000', '--requests',
                                       '11', '--verify'))):
            with self.subTest(arguments=arguments):
                got, out, messages = load(self.server.address, *arguments)
                self.assertEqual((got, out), (status, ''))
                self.assertIn(hint, messages)

    def test_speaks_in_its_own_name(self):
        for message, arguments in (
                ('embag-load: --samples 0: not in 1..', ('--samples', '0')),
                ('embag-load: unexpected argument "extra"', ('extra',)),
                ("embag-load: unrecognized option '--nothing'", ('--nothing',))):
            status, _, messages = load(self.server.address, *arguments)
            self.assertEqual(status, 2)
            self.assertTrue(messages.startswith(message), messages)

    def test_says_which_version_it_is(self):
        told = subprocess.run([served.EMBAG, '--version'], check=True, capture_output=True,
                              text=True, timeout=SECONDS).stdout
        done = subprocess.run([program(), '--version'], check=True, capture_output=True, text=True,
                              timeout=SECONDS)
        self.assertEqual(done.stdout, told.replace('embag ', 'embag-load '))

    def test_fails_where_nobody_listens(self):
        status, out, messages = load('127.0.0.1:1', '--workload', 'rows')
        self.assertEqual((status, out), (1, ''))
        self.assertTrue(messages.startswith('embag-load: UNAVAILABLE'), messages)

    def test_names_all_its_flags(self):
        status, out, _ = load('x', '--help')
        self.assertEqual(status, 0)
        for flag in ('--workload', '--in-flight', '--rate', '--sweep', '--verify', '--deadline-us',
                     '--groups', '--priority', '--unpaced', 'Progress goes to stderr',
                     'LOAD.md'):
            self.assertIn(flag, out)


if __name__ == '__main__':
    unittest.main()
