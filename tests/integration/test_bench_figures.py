"""The figures of tests/bench/service.sh, computed from reports that a stand-in supplies."""

import contextlib
import json
import os
import sys
import types
import unittest
from unittest import mock

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'bench')
sys.path.append(BENCH)

import service_figures

PROBE = {'late': 0, 'answered': 5, 'sent': 5, 'longest_us': 9, 'longest_served_us': 8}
OPTIONS = types.SimpleNamespace(rounds=2, seconds=1, overload_seconds=30)


class PlayedBench:
    """A stand-in for service_run.Bench: `play` returns the report of each load from its
    arguments."""

    work = 'nowhere'

    def __init__(self, play, server=None):
        self.play = play
        self.server = server
        self.asked = []

    def serve(self, workload):
        """Returns a server, or the name of the workload in its place."""
        return contextlib.nullcontext(self.server or workload)

    def load(self, server, arguments, _):
        """Runs a load on the server."""
        self.asked.append((server, arguments))
        return self.play(server, arguments)

    def start_load(self, address, arguments):
        """Starts a load that runs in the background."""
        return address, arguments

    def load_report(self, load):
        """Returns the report of that load."""
        return self.load(*load, None)

    def record(self, figure, **values):
        """Records nothing."""


def rows(figure, bench):
    """Returns the rows that a figure yields, without its progress messages."""
    with mock.patch.object(service_figures, 'note'):
        return list(getattr(service_figures.Figures(bench, OPTIONS), figure)())


class Wide(unittest.TestCase):
    """Lookups of many features at once."""

    def test_tells_the_group_against_queries(self):
        rounds = {True: iter((3, 2) * 3), False: iter((8, 9) * 3)}
        bench = PlayedBench(lambda _, arguments: {'cpu_us': next(rounds['--groups' in arguments])})
        found = rows('wide', bench)
        self.assertEqual([row.name for row in found], [
            '%d features: as one group / as queries' % count for count in (26, 200, 856)])
        for row in found:
            self.assertEqual((row.asked.bound, row.measured), (None, 0.25))
            self.assertEqual(row.remark, 'server 2 us as one group, 8 as queries')

    def test_asks_for_all_features_of_one_model(self):
        bench = PlayedBench(lambda *_: {'cpu_us': 1})
        rows('wide', bench)
        self.assertEqual(len(bench.asked), 3 * 2 * OPTIONS.rounds)
        for workload, arguments in bench.asked:
            self.assertEqual(arguments[:4], ['--workload', workload, '--requests', '64'])


class PlayedServer:
    """A stand-in for service_run.Server; each load takes one second of CPU time."""

    address = 'nowhere:1'

    def __init__(self):
        self.cpu_s = 0

    def cpu_ns(self):
        """Returns one second more at each call."""
        self.cpu_s += 1
        return self.cpu_s * 10**9

    def resident_kib(self):
        """Returns a constant."""
        return 1024


class Overload(unittest.TestCase):
    """Twice the load that the server can handle."""

    def setUp(self):
        self.enterContext(mock.patch.object(
            service_figures.Figures, '_python',
            lambda *_: mock.Mock(communicate=lambda: (json.dumps(PROBE), None))))
        self.enterContext(mock.patch.object(service_figures.Sampler, 'at', lambda *_: 1024))
        self.bench = PlayedBench(self.play, PlayedServer())
        self.rows = rows('overload', self.bench)

    def play(self, _, arguments):
        """Reports a peak of 100 answers a second. At twice that rate, reports 90 a second in time
        with pacing, and 20 without."""
        if '--rate' not in arguments:
            return {'requests_per_s': 100, 'cpu_us': 10}
        return {'goodput_per_s': 20 if '--unpaced' in arguments else 90, 'errors_by_code': {},
                'unsent': 1, 'requests': 7, 'late_p99_us': 1500}

    def test_tells_goodput_with_and_without_pacing(self):
        paced, unpaced = self.rows[0], self.rows[1]
        self.assertEqual((paced.measured, paced.asked.bound), (0.9, 0.9))
        self.assertRegex(paced.remark, '^paced: ')
        self.assertEqual((unpaced.measured, unpaced.asked.bound), (0.2, None))
        self.assertRegex(unpaced.remark, '^unpaced: good 20/s, .* 1.5 ms, 1 of 7 not sent$')

    def test_loads_without_pacing_for_a_third_of_the_time(self):
        loads = [arguments for _, arguments in self.bench.asked if '--rate' in arguments]
        self.assertEqual(len(loads), 2 * 3)
        for paced, unpaced in zip(loads[::2], loads[1::2]):
            at = paced.index('--duration') + 1
            self.assertEqual([float(load[at]) for load in (paced, unpaced)], [30, 10])
            self.assertEqual([*paced[:at], *paced[at + 1:], '--unpaced'],
                             [*unpaced[:at], *unpaced[at + 1:]])
