"""Measures lookups on three servers while servers, connections and packets fail.

    failover.py --build DIR --work DIR [--seconds S] [--rounds N] [CASE...]

Three servers and the load share the machine. The rate is half of that at which the servers together
saturate in the same run. Each case first runs the load undisturbed and then with the disturbance;
the latencies count from when a lookup was due. Only those count that were due in a second in which
embag-clock-gaps saw the machine late by at most 0.2 ms, which needs CAP_SYS_NICE. tests/bench and
tests/lib must be on PYTHONPATH.
"""

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
from collections import namedtuple

import numpy as np

from failover_load import FailoverLoad, server_of
from figure_options import make_parser, no_less
from figure_table import Row, at_least, at_most, print_table, stated
from service_run import Bench, Server, fail, median, note
from table_files import Table, write_model
from tcp_proxy import TcpProxy

ROWS, DIM = 100000, 64
LOOKUP = {'rows': ROWS, 'bags': 32, 'indices': 20, 'timeout_us': 1000000}
GAP_US_MAX = 200
PROXY_RATE = 1500           # the proxies are slow, and share the machine too
FLOOD_RATE, FLOOD_LOOKUPS = 1000000, 50000
STOP_SECONDS = 5
STALL_SECONDS = 0.05
SETTLE_SECONDS = 5          # until the shares of servers are those of the measured latencies
SHARE_LOOKUPS = 200000
SLOWER = 10
HEDGE = 5

# What a load has measured: its last report, latencies in us of the lookups that count, when they
# were due by the monotonic clock, and the number of seconds that count.
Run = namedtuple('Run', 'report latency due seconds')


class ClockGaps:
    """Finds the seconds in which the machine was on time."""

    def __init__(self, bench):
        self.process = subprocess.Popen([bench.program('embag-clock-gaps')], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.process.kill()
        self.process.communicate()

    def good_seconds(self):
        """Ends the probe. Returns the numbers of the seconds without a gap."""
        out, _ = self.process.communicate()
        if self.process.returncode:
            fail('embag-clock-gaps failed')
        lines = [tuple(map(int, line.split())) for line in out.splitlines()]
        return {second for second, gap_us in lines if gap_us <= GAP_US_MAX}


class Disturbance(threading.Thread):
    """Disturbs the servers after some seconds. `error` says why it could not."""

    def __init__(self, disturb, load, seconds):
        super().__init__()
        self.disturb, self.load, self.seconds = disturb, load, seconds
        self.error = None

    def run(self):
        time.sleep(self.seconds)
        try:
            if self.disturb:
                self.disturb(self.load)
        except AssertionError as error:
            self.error = error


class Group:
    """Three servers and loads on them."""

    def __init__(self, bench, count=3):
        self.bench = bench
        self.servers = [self.start() for _ in range(count)]
        self.addresses = [server.address for server in self.servers]

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        for server in self.servers:
            server.stop()

    def start(self, *flags, listen='127.0.0.1:0'):
        """Starts a server."""
        log = os.path.join(self.bench.work, 'embagd-%d.log' % time.monotonic_ns())
        return Server([self.bench.program('embagd'), '--model-repository',
                       os.path.join(self.bench.work, 'failover'), '--listen', listen,
                       '--http-listen', 'none', '--loops', '1', '--threads', '1', '--watch', 'off',
                       *flags], log, sorted(os.sched_getaffinity(0)))

    def restart(self, number):
        """Starts a server anew on its address."""
        self.servers[number] = self.start(listen=self.addresses[number])

    def saturation(self):
        """Returns the lookups per second that the servers answer together at most."""
        path = os.path.join(self.bench.work, 'flood')
        load = FailoverLoad(self.bench.build, self.addresses, wait=len(self.addresses),
                            rate=FLOOD_RATE, lookups=FLOOD_LOOKUPS, latencies=path,
                            **{**LOOKUP, 'timeout_us': 60000000})
        load.wait()
        due, latency = read_latencies(path)
        ended = np.sort((due + latency)[latency >= 0])
        middle = ended[len(ended) // 4:len(ended) * 3 // 4]
        return len(middle) / (middle[-1] - middle[0]) * 1e9

    def run(self, rate, seconds, disturb=None, addresses=None, **options):
        """Runs a load, and a disturbance that begins after a quarter of it."""
        path = os.path.join(self.bench.work, 'latencies')
        addresses = addresses or self.addresses
        with ClockGaps(self.bench) as gaps:
            load = FailoverLoad(
                self.bench.build, addresses, rate=int(rate), lookups=int(rate * seconds),
                wait=options.pop('wait', len(addresses)), latencies=path, **{**LOOKUP, **options})
            load.report()    # The client is open.
            disturbance = Disturbance(disturb, load, seconds / 4)
            disturbance.start()
            # Both read what the load prints.
            disturbance.join()
            report = load.wait()
            if disturbance.error:
                fail('the load was over before its disturbance: the machine is too busy\n%s'
                     % disturbance.error)
            good = gaps.good_seconds()
        due, latency = read_latencies(path)
        counts = np.isin(due // 10**9, list(good)) & (latency >= 0)
        return Run(report, latency[counts] / 1e3, due[counts] / 1e9, len(good))


def read_latencies(path):
    """Returns when lookups were due and their latencies, both int64 in ns."""
    times = np.fromfile(path, '<i8').reshape(-1, 3)
    return times[:, 0], times[:, 1]


def percentile(run, share):
    """Returns a percentile of a run in us; NaN if no second counts."""
    return float(np.percentile(run.latency, share)) if len(run.latency) else float('nan')


def failed(run):
    """Returns the number of lookups that have failed, in all seconds."""
    return run.report['begun'] - run.report['statuses'].get('OK', 0)


def signal_for(process, seconds):
    """Stops a process for some seconds."""
    process.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        process.send_signal(signal.SIGCONT)


class Cases:
    """The cases. Each yields rows of the table."""

    def __init__(self, bench, group, rate, seconds):
        self.bench, self.group, self.rate, self.seconds = bench, group, rate, seconds

    def compare(self, name, disturb, rate=None, **options):
        """Yields the rows of a case in which at most 0.1 % of lookups may be late."""
        calm = self.group.run(rate or self.rate, self.seconds, **options)
        run = self.group.run(rate or self.rate, self.seconds, disturb, **options)
        p99 = percentile(calm, 99)
        late = 100 * float(np.mean(run.latency > 2 * p99 + 1000)) if len(run.latency) else None
        yield Row(name + ': failed lookups', at_most(0, ''), failed(run), remark_of(run))
        yield Row(name + ': later than 2 x p99 + 1 ms', at_most(0.1, '%'), late,
                  'p99 undisturbed %.0f us' % p99)

    def kill(self):
        """kill -9, and a restart."""
        def disturb(_):
            self.group.servers[2].stop()
            time.sleep(1)
            self.group.restart(2)
        yield from self.compare('kill -9', disturb)

    def drain(self):
        """SIGTERM, and a restart."""
        def disturb(_):
            self.group.servers[1].process.send_signal(signal.SIGTERM)
            self.group.servers[1].process.wait()
            self.group.restart(1)
        yield from self.compare('drain', disturb)

    def reset(self):
        """Connections through proxies that are reset, each server's each second."""
        proxies = [TcpProxy(server.port) for server in self.group.servers]

        def disturb(_):
            for proxy in proxies:
                proxy.reset()
                time.sleep(1)
        with contextlib.ExitStack() as stack:
            for proxy in proxies:
                stack.callback(proxy.close)
            yield from self.compare('resets', disturb, min(self.rate, PROXY_RATE),
                                    addresses=[proxy.address for proxy in proxies])

    def silent(self):
        """A fourth address that never answers."""
        with socket.create_server(('127.0.0.1', 0)) as listener:
            address = '127.0.0.1:%d' % listener.getsockname()[1]
            yield from self.compare('an address that never answers', None, wait=3,
                                    addresses=[*self.group.addresses, address])

    def stop(self):
        """SIGSTOP for some seconds, with hedging and without."""
        def disturb(_):
            signal_for(self.group.servers[0].process, STOP_SECONDS)
        for hedge in HEDGE, 0:
            calm = self.group.run(self.rate, self.seconds, hedge=hedge)
            run = self.group.run(self.rate, self.seconds, disturb, hedge=hedge)
            name = 'SIGSTOP, hedging %d %%' % hedge
            # The delay of hedges is the p98, at least 300 us.
            delay = max(percentile(calm, 98), 300)
            bound = delay + 2 * percentile(calm, 99) + 1000
            asked = at_most(round(bound), 'us') if hedge and bound == bound else stated('us')
            yield Row(name + ': failed lookups', at_most(0, ''), failed(run), remark_of(run))
            yield Row(name + ': p99.9', asked, percentile(run, 99.9), '')

    def stall(self):
        """One server stalls each second."""
        def disturb(load):
            while load.process.poll() is None:
                signal_for(self.group.servers[0].process, STALL_SECONDS)
                time.sleep(1 - STALL_SECONDS)
        calm = self.group.run(self.rate, self.seconds, hedge=HEDGE)
        run = self.group.run(self.rate, self.seconds, disturb, hedge=HEDGE)
        yield Row('stalls: failed lookups', at_most(0, ''), failed(run), remark_of(run))
        yield Row('stalls: p99.9 / that without stalls', at_most(2.5, ''),
                  percentile(run, 99.9) / percentile(calm, 99.9), '')
        extra = run.report['hedges'] + run.report['resends']
        yield Row('stalls: more requests', at_most(5, '%'), 100 * extra / run.report['begun'], '')

    def slow(self):
        """All servers become slow."""
        proxies = [TcpProxy(server.port) for server in self.group.servers]
        marks = {}

        def disturb(load):
            for proxy in proxies:
                proxy.delay_seconds = SLOWER * marks['p50_us'] / 1e6
            time.sleep(10)
            marks['before'] = load.report()
        addresses = [proxy.address for proxy in proxies]
        with contextlib.ExitStack() as stack:
            for proxy in proxies:
                stack.callback(proxy.close)
            rate = min(self.rate, PROXY_RATE)
            calm = self.group.run(rate, 4, addresses=addresses, hedge=HEDGE)
            marks['p50_us'] = calm.report['p50_us']
            run = self.group.run(rate, max(self.seconds, 20), disturb,
                                 addresses=addresses, hedge=HEDGE)
        before = marks['before']
        yield Row('all slow: hedges from 10 s after the change', at_most(1, '%'),
                  100 * (run.report['hedges'] - before['hedges'])
                  / max(run.report['begun'] - before['begun'], 1), remark_of(run))

    def shares(self):
        """The shares of equal servers."""
        marks = {}

        def disturb(load):
            time.sleep(max(SETTLE_SECONDS - seconds / 4, 0))
            marks['before'] = load.report()
        seconds = SETTLE_SECONDS + SHARE_LOOKUPS / self.rate
        run = self.group.run(self.rate, seconds, disturb)
        sent = np.array([server['sent'] for server in run.report['servers']])
        sent -= [server['sent'] for server in marks['before']['servers']]
        yield Row('shares: largest distance from a third', at_most(5, '%'),
                  float(100 * np.abs(3 * sent / sent.sum() - 1).max()), remark_of(run))

    def errors(self):
        """A server that answers errors at once."""
        marks = {}

        def disturb(load):
            marks['before'] = load.report()
        bad = self.group.start('--indices-max', '1')
        try:
            run = self.group.run(self.rate, max(self.seconds, 4), disturb,
                                 addresses=[*self.group.addresses[:2], bad.address])
        finally:
            bad.stop()
        before = server_of(marks['before'], bad.address)['sent']
        sent = server_of(run.report, bad.address)['sent'] - before
        yield Row('errors at once: share after a second', at_most(2, '%'),
                  100 * sent / (run.report['begun'] - marks['before']['begun']), '')


CASES = ('kill', 'drain', 'reset', 'silent', 'stop', 'stall', 'slow', 'shares', 'errors')


def remark_of(run):
    """Returns what a reader must know of a run."""
    return '%d seconds count' % run.seconds


def read_options():
    """Returns the options of the command line."""
    parser = make_parser('failover.py', 'Measures three servers that fail.', CASES)
    parser.add_argument('--work', required=True, help='folder for files')
    parser.add_argument('--seconds', type=no_less(4, float), default=30,
                        help='length of a load; default %(default)s')
    parser.add_argument('--rounds', type=no_less(1), default=3,
                        help='number of rounds; default %(default)s')
    options = parser.parse_args()
    unknown = set(options.figures) - set(CASES)
    if unknown:
        parser.error('unknown case %s: expected %s' % (', '.join(sorted(unknown)),
                                                       ', '.join(CASES)))
    return options


def merge(rounds):
    """Returns one row for each figure: the median of its rounds, and the most failed lookups."""
    for rows in zip(*rounds):
        # Without a second that counts, a figure is None, or NaN if it was computed from others.
        known = [row.measured for row in rows if row.measured is not None
                 and row.measured == row.measured]
        best = max(known) if 'failed' in rows[0].name else median(known) if known else None
        yield rows[-1]._replace(measured=best)


def main():
    """Runs the cases, and prints the table."""
    options = read_options()
    bench = Bench(options.build, options.work, {}, 'failover')
    repository = os.path.join(options.work, 'failover')
    if not os.path.isdir(repository):
        values = np.repeat(np.arange(ROWS), DIM).reshape(ROWS, DIM)
        write_model(repository, 'm', 1, [Table.of_values('t', 'f32', values)])
    rounds = []
    for number in range(options.rounds):
        rows = []
        with Group(bench) as group:
            rate = group.saturation() / 2
            rows.append(Row('rate: half of saturation', at_least(0, '/s'), rate, ''))
            for name in options.figures or CASES:
                for row in getattr(Cases(bench, group, rate, options.seconds), name)():
                    note('  round %d: %s: %s' % (number + 1, row.name, row.measured))
                    bench.record(row.name, round=number + 1, measured=row.measured)
                    rows.append(row)
        rounds.append(rows)
    print_table(list(merge(rounds)))


if __name__ == '__main__':
    main()
