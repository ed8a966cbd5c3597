"""The figures of tests/bench/service.sh: what they make of what a played server answers."""

import contextlib
import os
import sys
import types
import unittest

BENCH = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), 'bench')
sys.path.append(BENCH)

import service_figures

OPTIONS = types.SimpleNamespace(rounds=2, seconds=1, overload_seconds=30)


class PlayedBench:
    """In place of service_run.Bench: each load has the report that `play` makes of its
    arguments."""

    work = 'nowhere'

    def __init__(self, play):
        self.play = play
        self.asked = []

    def serve(self, workload):
        """A server of nothing."""
        return contextlib.nullcontext(workload)

    def load(self, server, arguments, _):
        """A load on it."""
        self.asked.append((server, arguments))
        return self.play(server, arguments)

    def record(self, figure, **values):
        """Nothing is kept."""


def rows(figure, bench):
    """The rows that a figure yields."""
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
