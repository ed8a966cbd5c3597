"""Measures what the slowest lookups wait for: the machine, the server or something else.

    late_lookups.py --build DIR --work DIR [--rates R,R,...] [--seconds S] [--rounds N]
                    [NAME=FLAG,FLAG,...]

Every NAME is a server on one CPU with flags of its own; without one, it has one loop and one
thread. The load runs on another CPU. It is open: a latency counts from when the lookup was due.
embag-clock-gaps notes meanwhile when the machine was late by more than 0.2 ms. A lookup that was in
flight during such a gap, or within the gap's length after it, counts as delayed by the machine. The
table has the percentiles of all lookups and of the others. The probe has real-time priority, so it
does not see when an ordinary thread keeps a CPU. `server` is the time that the server itself knows
of. --svg FILE draws the curves. tests/bench and tests/lib must be on PYTHONPATH. The probe needs
CAP_SYS_NICE.
"""

import argparse
import os
import subprocess

import numpy as np

import compare_chart
from failover_load import FailoverLoad
from service_run import LOAD_CPU, Bench, Server, fail, median, note
from table_files import Table, write_model

ROWS, DIM = 100000, 64
LOOKUP = {'rows': ROWS, 'bags': 32, 'indices': 20, 'timeout_us': 10000000}
RATES = '500,1000,3000,10000,20000,30000'
LATE_US = 1000
WARMUP_SECONDS = 1
PERCENTILES = (50, 99, 99.9)
COLUMNS = ('server', 'lookups/s', 'p50 / p99 / p99.9 us, all', 'outside pauses that the probe saw',
           'late', 'of those in such pauses', 'server us of the other late ones, median')


def read_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description='Measures what the slowest lookups wait for.')
    parser.add_argument('--build', default='build/release')
    parser.add_argument('--work', required=True)
    parser.add_argument('--rates', default=RATES)
    parser.add_argument('--seconds', type=float, default=10)
    parser.add_argument('--rounds', type=int, default=3)
    parser.add_argument('--svg')
    parser.add_argument('servers', nargs='*', metavar='NAME=FLAG,FLAG,...')
    return parser.parse_args()


def overlaps(begin, end, gaps):
    """Returns for each interval whether one of the gaps [begin, end] overlaps it."""
    if not len(gaps):
        return np.zeros(len(begin), bool)
    gaps = gaps[np.argsort(gaps[:, 0])]
    ends = np.maximum.accumulate(gaps[:, 1])
    before = np.searchsorted(gaps[:, 0], end, 'right')      # gaps that begin by then
    return (before > 0) & (ends[np.maximum(before - 1, 0)] >= begin)


class Turn:
    """What a load has measured: int64 arrays in ns."""

    def __init__(self, path, gap_lines):
        times = np.fromfile(path, '<i8').reshape(-1, 3)
        if (times[:, 1] < 0).any():
            fail('lookups failed')
        times = times[times[:, 0] >= times[0, 0] + int(WARMUP_SECONDS * 1e9)]
        due, self.latency, self.server = times.T
        gaps = np.array([tuple(map(int, line.split())) for line in gap_lines]).reshape(-1, 2)
        gaps[:, 1] = gaps[:, 0] + 2 * gaps[:, 1]
        self.is_delayed = overlaps(due, due + self.latency, gaps)
        if self.is_delayed.all():
            fail('the machine has delayed every lookup')

    def percentiles(self, of):
        """Returns the percentiles in us of the lookups that the mask `of` selects."""
        return [float(np.percentile(self.latency[of], share)) / 1e3 for share in PERCENTILES]

    def figures(self):
        """Returns the figures of the turn."""
        late = self.latency > LATE_US * 1000
        own = late & ~self.is_delayed
        return {'all': self.percentiles(np.ones(len(late), bool)),
                'quiet': self.percentiles(~self.is_delayed),
                'late': int(late.sum()), 'by_machine': int((late & self.is_delayed).sum()),
                'lookups': len(late),
                'server_us': float(np.median(self.server[own])) / 1e3 if own.any() else None}


def take(bench, server, rate, options):
    """Runs one load. Returns its figures."""
    path = os.path.join(bench.work, 'times')
    probe = subprocess.Popen([bench.program('embag-clock-gaps'), '--each'], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
    try:
        load = FailoverLoad(bench.build, [server.address], latencies=path, rate=rate,
                            lookups=int(rate * (options.seconds + WARMUP_SECONDS)),
                            under=('taskset', '-c', str(LOAD_CPU)), **LOOKUP)
        load.wait()
        out, _ = probe.communicate()
    finally:
        probe.kill()
    if probe.returncode:
        fail('embag-clock-gaps failed')
    return Turn(path, out.splitlines()).figures()


def merge(turns):
    """Returns the medians of several turns."""
    known = [turn['server_us'] for turn in turns if turn['server_us'] is not None]
    return {'all': [median(values) for values in zip(*(turn['all'] for turn in turns))],
            'quiet': [median(values) for values in zip(*(turn['quiet'] for turn in turns))],
            **{key: sum(turn[key] for turn in turns) for key in ('late', 'by_machine', 'lookups')},
            'server_us': median(known) if known else None}


def row_of(name, rate, merged):
    """Returns a row of the table."""
    return (name, str(rate), ' / '.join('%.0f' % value for value in merged['all']),
            ' / '.join('%.0f' % value for value in merged['quiet']),
            '%d of %d' % (merged['late'], merged['lookups']), str(merged['by_machine']),
            '-' if merged['server_us'] is None else '%.0f' % merged['server_us'])


def main():
    """Measures in turns, and prints a table."""
    options = read_options()
    rates = [int(rate) for rate in options.rates.split(',')]
    flags = {name: [flag for flag in text.split(',') if flag] for name, _, text in
             (server.partition('=') for server in options.servers or ['embagd='])}
    bench = Bench(options.build, options.work, {}, 'late-lookups')
    repository = os.path.join(options.work, 'late-lookups')
    if not os.path.isdir(repository):
        values = np.repeat(np.arange(ROWS), DIM).reshape(ROWS, DIM)
        write_model(repository, 'm', 1, [Table.of_values('t', 'f32', values)])
    turns = {(name, rate): [] for name in flags for rate in rates}
    for number in range(options.rounds):
        for name in flags:
            command = [bench.program('embagd'), '--model-repository', repository, '--listen',
                       '127.0.0.1:0', '--http-listen', 'none', '--watch', 'off', '--loops', '1',
                       '--threads', '1', *flags[name]]
            with Server(command, os.path.join(bench.work, 'embagd.log')) as server:
                for rate in rates:
                    turn = take(bench, server, rate, options)
                    note('  round %d: %s at %d/s: %s' % (number + 1, name, rate, turn))
                    bench.record('late_lookups', server=name, rate=rate, **turn)
                    turns[name, rate].append(turn)
    merged = {key: merge(list_of_turns) for key, list_of_turns in turns.items()}
    print('| ' + ' | '.join(COLUMNS) + ' |')
    print('|' + '---|' * len(COLUMNS))
    for (name, rate), figures in merged.items():
        print('| ' + ' | '.join(row_of(name, rate, figures)) + ' |')
    if options.svg:
        panels = []
        for key, title in ('all', 'all lookups'), ('quiet', 'outside pauses that the probe saw'):
            curves = {'%s, p%g' % (name, share): [(rate, merged[name, rate][key][place])
                                                  for rate in rates]
                      for name in flags for place, share in enumerate(PERCENTILES)}
            panels.append(compare_chart.Panel(title, curves))
        with open(options.svg, 'w', encoding='utf-8') as file:
            file.write(compare_chart.draw(panels, '%d bags of %d rows' % (
                LOOKUP['bags'], LOOKUP['indices'])))


if __name__ == '__main__':
    main()
