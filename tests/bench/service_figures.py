"""Measures the figures of the service.

Each figure and what it is compared with are measured in alternating rounds. The table shows the
minimum of CPU times, and the median of rates and latencies.

service.sh starts it. A figure is a method that yields rows of the table at the end. The raw
measurements go to the file of JSON lines that the table names.
"""

import json
import os
import subprocess
import sys

import wire_bytes
from figure_options import read_options
from figure_table import Row, at_least, at_most, stated
from service_run import (LOAD_CPU, SERVER_CPU, Bench, Sampler, fail, median, note, on_load_cpu,
                         print_figures)

IN_FLIGHT = 32
SMALL_TABLE = 't02'        # a table of dlrm-v2 with 87 KiB at scale 100, so that it is cached
DEADLINE_US = {1: 20000, 128: 100000}
IDLE_COUNT = 10000
WIDE = (26, 200, 856)      # numbers of features, each with a small table
HERE = os.path.dirname(os.path.abspath(__file__))


def dlrm(samples=1, mode='stream', *more):
    """Returns embag-load's arguments for dlrm-v2."""
    return ['--workload', 'dlrm-v2', '--samples', str(samples), '--mode', mode, *more]


def closed(in_flight=IN_FLIGHT):
    """Returns embag-load's arguments for a number of requests in flight, with a long timeout."""
    return ['--in-flight', str(in_flight), '--timeout-us', '20000000']


def open_load(seconds, rate):
    """Returns embag-load's arguments for a rate, after a warm-up."""
    return ['--rate', '%.1f' % rate, '--duration', str(seconds), '--warmup', '1']


def in_time(samples):
    """Returns embag-load's arguments for answers that are useless after their deadline."""
    deadline = str(DEADLINE_US[samples])
    return ['--deadline-us', deadline, '--timeout-us', deadline]


class Figures:
    """The options of the command line, and the figures."""

    def __init__(self, bench, options):
        self.bench = bench
        self.rounds = options.rounds
        self.seconds = options.seconds
        self.overload_seconds = options.overload_seconds
        self.request = os.path.join(bench.work, 'service-request')

    def make_request(self):
        """Writes the lookup that the other load programs send."""
        model = os.path.join(self.bench.models('dlrm-v2'), 'dlrm-v2', '1')
        subprocess.run(
            [sys.executable, os.path.join(HERE, 'sample_request.py'),
             os.path.join(self.bench.work, 'messages'), model, self.request],
            check=True, stdout=subprocess.DEVNULL)

    def show_round(self, name, number, values):
        """Prints a line of progress."""
        note('  %s %d/%d: %s' % (name, number + 1, self.rounds, ', '.join(
            '%s %.4g' % pair for pair in values.items())))

    def has_groups(self):
        """Returns whether embag-load can send feature groups."""
        done = subprocess.run([self.bench.program('embag-load'), '--help'], check=True,
                              stdout=subprocess.PIPE, text=True)
        return '--groups' in done.stdout

    def echo_us(self, mode, sizes, in_flight=IN_FLIGHT):
        """Returns the CPU time of an echo server per answer."""
        with self.bench.echo(mode, sizes, in_flight) as echo:
            return self.bench.echo_load(echo, sizes, in_flight, self.seconds / 2)['cpu_us']

    def floor_us(self, workload, sizes, in_flight, *arguments):
        """Returns the CPU time per answer of kernels and echo in one process."""
        with self.bench.floor(workload, sizes, in_flight, *arguments) as floor:
            return self.bench.echo_load(floor, sizes, in_flight, self.seconds / 2)['cpu_us']

    # Overhead.

    def overhead(self):
        """CPU time per lookup, minus kernel and echo."""
        ways = {'unary': (dlrm(1, 'unary'), 5), 'stream': (dlrm(), 2),
                'group': (dlrm(1, 'stream', '--groups'), 1.2)}
        if not self.has_groups():
            del ways['group']
        taken = {way: [] for way in ways}
        with self.bench.serve('dlrm-v2') as server:
            sizes = {way: wire_bytes.count(self.bench, server, [*arguments, '--requests', '1'])
                     for way, (arguments, _) in ways.items()}
            for number in range(self.rounds):
                kernel = self.bench.workload_kernel_us('dlrm-v2', '--state', 'hot')
                for way, (arguments, _) in ways.items():
                    report = self.bench.load(
                        server, [*arguments, '--requests', '1', *closed()], self.seconds)
                    echo = self.echo_us('raw', sizes[way])
                    floor = self.floor_us('dlrm-v2', sizes[way], IN_FLIGHT, '--state', 'hot')
                    values = {'server_us': report['cpu_us'], 'kernel_us': kernel,
                              'echo_us': echo, 'floor_us': floor,
                              'overhead_us': report['cpu_us'] - kernel - echo}
                    self.show_round(way, number, values)
                    self.bench.record('overhead', way=way, bytes=sizes[way], load=report, **values)
                    taken[way].append(values)
        for way, (_, bound) in ways.items():
            lowest = least(taken[way], 'server_us', 'kernel_us', 'echo_us', 'floor_us')
            above_floor = lowest['server_us'] - lowest['floor_us']
            yield Row('overhead, ' + way, at_most(bound, 'us'),
                      lowest['server_us'] - lowest['kernel_us'] - lowest['echo_us'],
                      'server %(server_us).2f - kernel %(kernel_us).2f - echo %(echo_us).2f'
                      % lowest + '; %.2f above kernels and echo in one process, %.2f'
                      % (above_floor, lowest['floor_us']))
        if 'group' not in ways:
            yield Row('overhead, group', at_most(1.2, 'us'), None, 'embag-load has no --groups')

    # Small lookups.

    def small(self):
        """CPU time per lookup of one bag of 20 rows."""
        bounds = {'stream': 1.6, 'unary': 4}
        taken = {mode: [] for mode in bounds}
        with self.bench.serve('dlrm-v2') as server:
            for number in range(self.rounds):
                for mode in bounds:
                    report = self.bench.load(
                        server, [*small_lookup(), '--mode', mode, *closed()], self.seconds)
                    taken[mode].append(report)
                    self.show_round(mode, number, pick(report, 'cpu_us', 'requests_per_s', 'busy'))
                    self.bench.record('small', mode=mode, load=report)
        for mode, bound in bounds.items():
            yield Row('small, ' + mode, at_most(bound, 'us'),
                      least(taken[mode], 'cpu_us')['cpu_us'],
                      '%.0f lookups/s, server %.0f %% busy' % (
                          median(report['requests_per_s'] for report in taken[mode]),
                          median(100 * report['busy'] for report in taken[mode])))

    # Batches.

    def batches(self):
        """Throughput of requests of 128 samples, against the kernels in a process of their own.

        It is also compared with the kernels plus a bare write of the answer. The upper limit is
        measured with kernels and echo in one process (the floor).
        """
        cases = (('rm2', 'f32', 4, 0.9), ('dlrm-v2', 'bf16', 8, 0.8), ('dlrm-v2', 'f32', 8, None))
        for workload, output_type, in_flight, bound in cases:
            shape = ['--samples', '128', '--output-type', output_type]
            arguments = ['--workload', workload, *shape]
            taken = []
            with self.bench.serve(workload) as server:
                sizes = wire_bytes.count(self.bench, server, arguments)
                for number in range(self.rounds):
                    taken.append(self._batch(server, arguments, sizes, in_flight))
                    self.show_round('%s %s' % (workload, output_type), number, taken[-1])
                    self.bench.record('batches', workload=workload, output_type=output_type,
                                      bytes=sizes, **taken[-1])
            yield from batch_rows('%s, %s' % (workload, output_type), taken, bound)

    def _batch(self, server, arguments, sizes, in_flight):
        kernel = self.bench.workload_kernel_us(arguments[1], *arguments[2:])
        report = self.bench.load(server, [*arguments, *closed(in_flight)], self.seconds)
        write = self.echo_us('raw', (64, sizes[1]), in_flight)
        exchange = self.echo_us('raw', sizes, in_flight)
        floor = self.floor_us(arguments[1], sizes, in_flight, *arguments[2:])
        return {'kernel_us': kernel, 'write_us': write, 'exchange_us': exchange,
                'floor_us': floor, 'server_us': report['cpu_us'],
                'per_s': report['requests_per_s'], 'busy': report['busy']}

    # Many features.

    def wide(self):
        """CPU time per lookup of all features at once, as one group and as queries."""
        ways = {'queries': (), 'group': ('--groups',)}
        for features in WIDE:
            workload = 'wide-%d' % features
            taken = []
            with self.bench.serve(workload) as server:
                for number in range(self.rounds):
                    reports = {way: self.bench.load(
                        server, ['--workload', workload, '--requests', '64', *more, *closed()],
                        self.seconds) for way, more in ways.items()}
                    taken.append({way: report['cpu_us'] for way, report in reports.items()})
                    self.show_round(workload, number, taken[-1])
                    self.bench.record('wide', features=features, **reports)
            lowest = least(taken, *ways)
            yield Row('%d features: as one group / as queries' % features, stated('x'),
                      lowest['group'] / lowest['queries'],
                      'server %(group).3g us as one group, %(queries).3g as queries' % lowest)

    # Open loads.

    def latency(self):
        """p99 over p50 of an open load at 70 % of saturation."""
        for samples, mode in ((1, 'stream'), (1, 'unary'), (128, 'stream')):
            taken = []
            with self.bench.serve('dlrm-v2') as server:
                for number in range(self.rounds):
                    peak, _ = self._peak(server, samples, mode)
                    report = self.bench.load_report(self.bench.start_load(server.address, [
                        *dlrm(samples, mode), *open_load(2 * self.seconds, 0.7 * peak)]))
                    report['ratio'] = report['p99_us'] / report['p50_us']
                    taken.append(report)
                    self.show_round('%d sample(s), %s' % (samples, mode), number,
                                    pick(report, 'p50_us', 'p99_us', 'ratio', 'late_p99_us'))
                    self.bench.record('latency', samples=samples, mode=mode, peak=peak, load=report)
            yield Row('p99 / p50 at 70 %%, %d sample(s), %s' % (samples, mode), at_most(5, 'x'),
                      median(report['ratio'] for report in taken),
                      'p50 %.0f us, p99 %.0f us, sent late p99 %.0f us' % tuple(
                          median(report[key] for report in taken)
                          for key in ('p50_us', 'p99_us', 'late_p99_us')))

    def _peak(self, server, samples, mode):
        """Returns the lookups per second of a closed loop, and the server's CPU time for each."""
        report = self.bench.load(server, [*dlrm(samples, mode), *closed()], self.seconds)
        return report['requests_per_s'], report['cpu_us']

    # Overload.

    def overload(self):
        """Goodput at twice saturation, late answers, memory; then goodput without pacing."""
        for samples, mode, bound in ((128, 'stream', 0.9), (1, 'stream', 0.7), (1, 'unary', 0.7)):
            name = 'twice saturation, %d sample(s), %s' % (samples, mode)
            with self.bench.serve('dlrm-v2') as server:
                peak, peak_us = self._peak(server, samples, mode)
                report, probe, memory = self._overload(server, samples, mode, 2 * peak)
                unpaced = self._unpaced(server, samples, mode, 2 * peak)
            note('  %s: peak %.0f/s, good %.0f/s paced and %.0f/s unpaced, errors %s, unsent %d, '
                 'server %.0f %% busy, probe %s' % (
                     name, peak, report['goodput_per_s'], unpaced['goodput_per_s'],
                     report['errors_by_code'], report['unsent'], 100 * report['busy'], probe))
            self.bench.record('overload', samples=samples, mode=mode, peak=peak, load=report,
                              unpaced=unpaced, probe=probe, memory_kib=memory)
            # The fraction of its CPU time that the server spent on answers that came in time.
            by_time = report['goodput_per_s'] * peak_us / 1e6 / report['busy']
            yield Row(name + ': goodput', at_least(bound, 'x'), report['goodput_per_s'] / peak,
                      'paced: the client does not send what would be late; peak %.0f/s, good '
                      '%.0f/s; by the server\'s CPU time: %.2f' % (
                          peak, report['goodput_per_s'], by_time))
            yield Row('  goodput of clients without pacing', stated('x'),
                      unpaced['goodput_per_s'] / peak,
                      'unpaced: good %.0f/s, server %.0f %% busy; sent late p99 %.1f ms, %d of %d '
                      'not sent' % (unpaced['goodput_per_s'], 100 * unpaced['busy'],
                                    unpaced['late_p99_us'] / 1e3, unpaced['unsent'],
                                    unpaced['requests']))
            yield Row('  answers after their deadline', at_most(0, ''), probe['late'],
                      'paced: %d of %d answered, at most after %.1f ms (served in %.1f); deadline '
                      '%.0f' % (probe['answered'], probe['sent'], probe['longest_us'] / 1e3,
                                probe['longest_served_us'] / 1e3, DEADLINE_US[samples] / 1e3))
            yield Row('  memory at the end / after 5 s', at_most(1.05, 'x'),
                      memory[1] / memory[0], 'paced: %.0f MiB, %.0f MiB' % (
                          memory[0] / 1024, memory[1] / 1024))

    def _overload(self, server, samples, mode, rate):
        deadline = str(DEADLINE_US[samples])
        load = self.bench.start_load(server.address, [
            *dlrm(samples, mode), *open_load(self.overload_seconds, rate), *in_time(samples)])
        before = server.cpu_ns()
        with Sampler(server) as sampler:
            probe = self._python('late_probe.py', server, deadline, '50',
                                 str(self.overload_seconds))
            report = self.bench.load_report(load)
        report['busy'] = (server.cpu_ns() - before) / 1e9 / (self.overload_seconds + 1)
        return report, json.loads(probe.communicate()[0]), (
            sampler.at(5), sampler.at(self.overload_seconds))

    def _unpaced(self, server, samples, mode, rate):
        """Runs a load that sends everything, so that the server must shed load."""
        seconds, before = self.overload_seconds / 3, server.cpu_ns()
        report = self.bench.load_report(self.bench.start_load(server.address, [
            *dlrm(samples, mode), *open_load(seconds, rate), *in_time(samples), '--unpaced']))
        report['busy'] = (server.cpu_ns() - before) / 1e9 / (seconds + 1)
        return report

    def _python(self, script, server, *arguments, gives_way=False):
        """Starts a script on the CPU of the load."""
        words = [sys.executable, os.path.join(HERE, script)]
        kind, rest = ([arguments[0]], arguments[1:]) if script == 'disturb.py' else ([], arguments)
        return subprocess.Popen(
            on_load_cpu([*words, *kind, server.port, self.request, *rest], gives_way),
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    # Idle connections.

    def idle(self):
        """Memory of idle connections, and their effect on others."""
        arguments = dlrm(1, 'stream', '--requests', '1', *closed())
        taken = []
        with self.bench.serve('dlrm-v2', '--connections-max', str(IDLE_COUNT + 100)) as server:
            self.bench.load(server, arguments, self.seconds)
            for number in range(self.rounds):
                alone = self.bench.load(server, arguments, self.seconds)
                before, sockets = server.resident_kib(), server.socket_count()
                crowd = self._disturb(server, 'idle', str(IDLE_COUNT))
                each = (server.resident_kib() - before) / IDLE_COUNT
                beside = self.bench.load(server, arguments, self.seconds)
                if server.socket_count() - sockets < IDLE_COUNT:
                    fail('idle connections were closed')
                end(crowd)
                values = {'kib_each': each, 'rate': beside['requests_per_s'] /
                          alone['requests_per_s'], 'cpu': alone['cpu_us'] / beside['cpu_us']}
                taken.append(values)
                self.show_round('%d idle' % IDLE_COUNT, number, values)
                self.bench.record('idle', alone=alone, beside=beside, **values)
        yield Row('10 000 idle connections, each', at_most(40, 'KiB'), taken[0]['kib_each'],
                  'each after one lookup; in the first round')
        yield Row('  lookups/s beside them / without', at_least(0.95, 'x'),
                  median(values['rate'] for values in taken), 'by the server\'s CPU time: %.3f' %
                  median(values['cpu'] for values in taken))

    def _disturb(self, server, *arguments):
        """Starts a disturbance, and waits until it is ready."""
        process = self._python('disturb.py', server, *arguments, gives_way=True)
        if process.stdout.readline() != 'ready\n':
            fail('disturb.py %s did not start' % arguments[0])
        return process

    # A single lookup.

    def single(self):
        """p50 of one lookup at a time, minus an echo of its bytes."""
        cases = {'small': [*small_lookup(), '--mode', 'stream'], 'dlrm-v2': dlrm()}
        taken = {name: [] for name in cases}
        with self.bench.serve('dlrm-v2') as server:
            for name, arguments in cases.items():
                once = [*arguments, '--requests', '1']
                sizes = wire_bytes.count(self.bench, server, once)
                for number in range(2 * self.rounds):
                    lookup = self.bench.load(server, [*once, *closed(1)], self.seconds / 2, True)
                    with self.bench.echo('libuv', sizes, 1) as echo:
                        report = self.bench.echo_load(echo, sizes, 1, self.seconds / 2)
                    values = {'lookup_us': lookup['p50_us'], 'echo_us': report['p50_us'],
                              'above_us': lookup['p50_us'] - report['p50_us']}
                    taken[name].append(values)
                    self.show_round(name, number // 2, values)
                    self.bench.record('single', name=name, bytes=sizes, load=lookup, **values)
        for name, rounds in taken.items():
            middle = {key: median(values[key] for values in rounds) for key in rounds[0]}
            yield Row('one in flight above an echo, ' + name, at_most(15, 'us'),
                      middle['above_us'], 'p50: lookup %(lookup_us).1f us, echo %(echo_us).1f us'
                      % middle)

    # Disturbances.

    def disturbed(self):
        """p99 of an open load during a slow reader, cancels and a flood."""
        kinds = {'a slow reader': ('slow-reader',), '3000 cancels in 4 s': ('cancels', '750'),
                 'a flood': None}
        taken = {kind: [] for kind in kinds}
        with self.bench.serve('dlrm-v2') as server:
            rate = 0.2 * self._peak(server, 1, 'stream')[0]
            for number in range(self.rounds):
                for kind, arguments in kinds.items():
                    values = self._disturbed(server, rate, arguments)
                    taken[kind].append(values)
                    self.show_round(kind, number, values)
                    self.bench.record('disturbed', kind=kind, rate=rate, **values)
        for kind, rounds in taken.items():
            middle = {key: median(values[key] for values in rounds) for key in rounds[0]}
            yield Row('others\' p99 beside ' + kind, at_most(2, 'x'), middle['ratio'],
                      'alone %(alone_us).0f us, beside it %(beside_us).0f us' % middle)

    def _disturbed(self, server, rate, arguments):
        """Returns the p99 without the disturbance and with it."""
        calm = [*dlrm(), *open_load(4, rate)]
        alone = self.bench.load_report(
            self.bench.start_load(server.address, [*dlrm(), *open_load(2, rate)]))
        if arguments is None:
            other = self.bench.start_load(server.address, [*dlrm(), *closed(256)],
                                          gives_way=True)
        else:
            other = self._disturb(server, *arguments)
        beside = self.bench.load_report(self.bench.start_load(server.address, calm))
        if arguments is None:
            other.kill()
            other.communicate()
        else:
            end(other)
        return {'alone_us': alone['p99_us'], 'beside_us': beside['p99_us'],
                'ratio': beside['p99_us'] / alone['p99_us'],
                'errors': beside['errors'] + beside['unsent']}


def small_lookup():
    """Returns embag-load's arguments for one bag of 20 rows of a cached table."""
    return ['--model', 'dlrm-v2', '--tables', SMALL_TABLE, '--bags', '1', '--indices-per-bag',
            '20']


def pick(report, *keys):
    """Returns some of a report's values."""
    return {key: report[key] for key in keys}


def least(taken, *keys):
    """Returns the minimum of some CPU times over the rounds.

    Other programs on the machine can only lengthen CPU times.
    """
    return {key: min(values[key] for values in taken) for key in keys}


def end(process):
    """Ends a disturbance."""
    process.communicate()
    if process.returncode:
        fail('disturb.py failed')


def batch_rows(name, taken, bound):
    """Yields the rows of one workload of 128 samples."""
    lowest = least(taken, 'server_us', 'kernel_us', 'write_us', 'exchange_us', 'floor_us')
    rate = median(values['per_s'] for values in taken) / 1e6
    busy = 100 * median(values['busy'] for values in taken)
    remark = ('server %(server_us).0f us, kernel %(kernel_us).0f, write %(write_us).0f, '
              'read and write %(exchange_us).0f, in one process %(floor_us).0f' % lowest)
    by_rate = 'by lookups/s: %.2f, server %.0f %% busy; at most %.2f'
    kernel = lowest['kernel_us']
    both = kernel + lowest['write_us']
    if bound:
        yield Row('128 samples of %s: kernel / server' % name, at_least(bound, 'x'),
                  kernel / lowest['server_us'],
                  by_rate % (rate * kernel, busy, kernel / lowest['floor_us']))
    yield Row('128 samples of %s: kernel + write / server' % name, at_least(0.9, 'x'),
              both / lowest['server_us'],
              remark + '; ' + by_rate % (rate * both, busy, both / lowest['floor_us']))


def main():
    options = read_options('service.sh', sys.argv[1:])
    bench = Bench(options.build, os.path.join(options.build, 'bench'),
                  {'dlrm-v2': options.scale, 'rm2': options.rm2_scale,
                   **{'wide-%d' % features: 1 for features in WIDE}})
    figures = Figures(bench, options)
    if SERVER_CPU == LOAD_CPU:
        note('there is only one core: server and load share it')
    figures.make_request()
    print_figures(figures, options.figures, bench)


if __name__ == '__main__':
    main()
