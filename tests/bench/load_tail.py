"""Measures lookups while a large version loads: percentiles of an open load at half of saturation.

    load_tail.py --build DIR --work DIR [--rounds N] [--seconds S] [--gib N] NAME=EMBAGD,FLAG,...

Every NAME is a server with flags of its own, such as `before=/old/embagd` and
`two=build/release/embagd,--load-threads,2`. In a round each server takes one turn without a load
of tables, and one during which a version of some GiB is loaded and unloaded over and over. The
first server is the one that others are compared with. The files must fit into the page cache.
tests/bench must be on PYTHONPATH.
"""

import argparse
import os
import subprocess
import threading

import numpy as np

from service_run import Bench, Server, fail, median, note

WORKLOAD, SCALE = 'dlrm-v2', 100
LARGE, TABLES, DIM = 'large', 4, 128
SMALL_VERSION, LARGE_VERSION = '1', '2'
COMMAND_SECONDS = 120


def read_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description='Measures lookups while tables load.')
    parser.add_argument('--build', default='build/release')
    parser.add_argument('--work', required=True)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=8)
    parser.add_argument('--gib', type=float, default=4)
    parser.add_argument('servers', nargs='+', metavar='NAME=EMBAGD,FLAG,...')
    return parser.parse_args()


def write_version(folder, row_count):
    """Writes the tables of a version."""
    os.makedirs(folder)
    rows = np.random.default_rng(7).random((1 << 14, DIM), dtype='<f4')
    for table in range(TABLES):
        path = os.path.join(folder, 't%d.npy' % table)
        out = np.lib.format.open_memmap(path, 'w+', '<f4', (row_count, DIM))
        for first in range(0, row_count, len(rows)):
            count = min(len(rows), row_count - first)
            out[first:first + count] = rows[:count]
        out.flush()


class Repository:
    """The model that is looked up, and a large one beside it."""

    def __init__(self, bench, gib):
        self.path = os.path.join(bench.work, 'load-tail')
        if os.path.isdir(self.path):
            return
        note('  writing %g GiB of tables' % gib)
        subprocess.run([bench.program('embag'), 'make-model', '--workload', WORKLOAD, '--scale',
                        str(SCALE), self.path], check=True, stdout=subprocess.DEVNULL,
                       stderr=subprocess.DEVNULL)
        large = os.path.join(self.path, LARGE)
        write_version(os.path.join(large, SMALL_VERSION), 10)
        row_count = int(gib * (1 << 30)) // (TABLES * DIM * 4)
        write_version(os.path.join(large, LARGE_VERSION), row_count)
        with open(os.path.join(large, 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {serve: %s, keep: 1}\n' % SMALL_VERSION)


class Reloader(threading.Thread):
    """Loads and unloads the large version until it is stopped."""

    def __init__(self, bench, server):
        super().__init__(daemon=True)
        self.embag = bench.program('embag')
        self.address = server.address
        self.is_over = threading.Event()
        self.load_count = 0
        self.error = None

    def run(self):
        while not self.is_over.is_set() and not self.error:
            self._command('load')
            self.load_count += not self.error
            self._command('unload')

    def _command(self, command):
        done = subprocess.run([self.embag, 'models', command, LARGE, LARGE_VERSION, '--server',
                               self.address], capture_output=True, text=True, check=False,
                              timeout=COMMAND_SECONDS)
        if done.returncode:
            self.error = 'embag models %s failed:\n%s' % (command, done.stderr)

    def stop(self):
        """Ends after the load that is running. Returns the number of loads."""
        self.is_over.set()
        self.join()
        if self.error:
            fail(self.error)
        return self.load_count


def start(bench, repository, command):
    """Starts a server on all CPUs."""
    return Server([command[0], '--model-repository', repository.path, '--listen', '127.0.0.1:0',
                   '--http-listen', 'none', '--watch', 'off', '--admin-on-data-port', 'true',
                   *command[1:]], os.path.join(bench.work, 'embagd.log'),
                  sorted(os.sched_getaffinity(0)))


def run_load(bench, server, *arguments):
    """Runs a load. Returns its report."""
    report = bench.load_report(bench.start_load(
        server.address, ['--model', WORKLOAD, '--workload', WORKLOAD, '--requests', '1000',
                         '--connections', '2', '--timeout-us', '20000000', *arguments]))
    if report['errors'] or not report['answers']:
        fail('requests failed: %s' % report)
    return report


def take_turn(bench, repository, command, rate, seconds):
    """Returns p99 in us without and with loads, and the number of loads."""
    with start(bench, repository, command) as server:
        asked = ['--rate', '%.1f' % rate, '--duration', str(seconds)]
        calm = run_load(bench, server, *asked)
        reloader = Reloader(bench, server)
        reloader.start()
        loaded = run_load(bench, server, *asked)
        count = reloader.stop()
    return {'calm_us': calm['p99_us'], 'load_us': loaded['p99_us'],
            'calm_p50_us': calm['p50_us'], 'load_p50_us': loaded['p50_us'],
            'unsent': loaded['unsent'], 'loads': count}


def main():
    """Measures in turns, and prints a table."""
    options = read_options()
    servers = {name: command.split(',') for name, _, command in
               (text.partition('=') for text in options.servers)}
    bench = Bench(options.build, options.work, {}, 'load-tail')
    repository = Repository(bench, options.gib)
    with start(bench, repository, next(iter(servers.values()))) as server:
        rate = run_load(bench, server, '--in-flight', '32', '--duration', '3')['requests_per_s'] / 2
    note('  %.0f requests/s, half of saturation' % rate)
    taken = {name: [] for name in servers}
    for number in range(options.rounds):
        for name, command in servers.items():
            turn = take_turn(bench, repository, command, rate, options.seconds)
            taken[name].append(turn)
            bench.record('load_tail', server=name, rate=rate, **turn)
            note('  round %d, %s: %s' % (number + 1, name, turn))
    first = next(iter(servers))
    print('server, p99 in us without loads, with loads, loads in a turn, with / without, with / %s'
          % first)
    for name, turns in taken.items():
        print('%-12s %8.0f %8.0f %5.1f %6.2f %6.2f' % (
            name, median(turn['calm_us'] for turn in turns),
            median(turn['load_us'] for turn in turns), median(turn['loads'] for turn in turns),
            median(turn['load_us'] / turn['calm_us'] for turn in turns),
            median(turn['load_us'] / before['load_us']
                   for turn, before in zip(turns, taken[first]))))


if __name__ == '__main__':
    main()
