"""Measures lookups while thousands of TLS clients connect at once, in an open load.

    handshake_tail.py --build DIR --work DIR [--rounds N] [--seconds S] [--clients N] [--rate R]
                      NAME=EMBAGD,FLAG,...

Every NAME is a server with flags of its own, such as `before=/old/embagd` and
`slow=build/release/embagd,--handshakes-per-s-max,100`. Each has one loop. In a round each server
takes one turn: a load alone, then the same load while embag-tls-storm connects. Both loads use TLS.
The first server is the one that others are compared with. The rate is by default half of what that
server answers at saturation. The clients of embag-tls-storm have a lower priority than the load, so
that they take no CPU time from it. tests/bench and tests/lib must be on PYTHONPATH.
"""

import argparse
import json
import os
import subprocess
import time

from certificates import HERE, Authority
from service_run import Bench, Server, fail, median, note

WORKLOAD, SCALE = 'dlrm-v2', 1000
FIGURES = ('p50_us', 'p99_us', 'p999_us')
PRIORITY = '10'  # nice value of the clients that connect
WARMUP_SECONDS = 2  # time of load before the measurement, so that it has its connection


def read_options():
    """Returns the options of the command line."""
    parser = argparse.ArgumentParser(description='Measures lookups during many TLS handshakes.')
    parser.add_argument('--build', default='build/release')
    parser.add_argument('--work', required=True)
    parser.add_argument('--rounds', type=int, default=5)
    parser.add_argument('--seconds', type=float, default=6)
    parser.add_argument('--clients', type=int, default=2000)
    parser.add_argument('--rate', type=float, default=0)
    parser.add_argument('servers', nargs='+', metavar='NAME=EMBAGD,FLAG,...')
    return parser.parse_args()


class Storm:
    """Clients that connect when they are told to."""

    def __init__(self, bench, server, count):
        self.process = subprocess.Popen(
            ['nice', '-n', PRIORITY, bench.program('embag-tls-storm'), server.port, str(count)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != 'ready\n':
            fail('embag-tls-storm did not start')

    def begin(self):
        """Makes the clients connect."""
        self.process.stdin.write('\n')
        self.process.stdin.flush()

    def end(self):
        """Waits until each client was served or has failed. Returns the report."""
        report = json.loads(self.process.stdout.readline())
        self.process.stdin.close()
        self.process.wait()
        return report


class Turns:
    """Runs loads against servers with TLS."""

    def __init__(self, options, authority):
        self.options = options
        self.authority = authority
        self.bench = Bench(options.build, options.work, {WORKLOAD: SCALE}, 'handshake-tail')
        self.rate = options.rate

    def start(self, command):
        """Starts a server."""
        return Server([command[0], '--model-repository', self.bench.models(WORKLOAD), '--listen',
                       '127.0.0.1:0', '--http-listen', 'none', '--loops', '1', '--tls-cert',
                       self.authority.path('server.pem'), '--tls-key',
                       self.authority.path('server.key'), *command[1:]],
                      os.path.join(self.bench.work, 'embagd.log'),
                      sorted(os.sched_getaffinity(0)))

    def load(self, server, *arguments):
        """Starts a load on one connection."""
        return self.bench.start_load(
            server.address, ['--workload', WORKLOAD, '--requests', '1000', '--warmup',
                             str(WARMUP_SECONDS), '--timeout-us', '20000000', '--tls-ca',
                             self.authority.path('ca.pem'), *arguments])

    def find_rate(self, command):
        """Finds half of the rate at saturation, if no rate was given."""
        if not self.rate:
            with self.start(command) as server:
                report = self.bench.load_report(
                    self.load(server, '--in-flight', '32', '--duration', '3'))
            self.rate = report['requests_per_s'] / 2
        note('  %.0f requests/s' % self.rate)

    def take(self, name, command):
        """Takes one turn. Returns its figures."""
        open_load = ['--rate', '%.1f' % self.rate, '--duration', str(self.options.seconds)]
        with self.start(command) as server:
            calm = self.bench.load_report(self.load(server, *open_load))
            storm = Storm(self.bench, server, self.options.clients)
            process = self.load(server, *open_load)
            time.sleep(WARMUP_SECONDS)
            storm.begin()
            busy = self.bench.load_report(process)
            clients = storm.end()
        turn = {**{'calm_' + key: calm[key] for key in FIGURES},
                **{'storm_' + key: busy[key] for key in FIGURES},
                'errors': calm['errors'] + busy['errors'],
                'p99_ratio': busy['p99_us'] / calm['p99_us'], **clients}
        note('  %s: %s' % (name, json.dumps(turn)))
        self.bench.record('handshake_tail', server=name, **turn)
        return turn


def main():
    """Measures in turns, and prints a line for each server."""
    options = read_options()
    servers = {name: command.split(',') for name, _, command in
               (text.partition('=') for text in options.servers)}
    authority = Authority()
    try:
        authority.issue('server', names=HERE)
        turns = Turns(options, authority)
        turns.find_rate(next(iter(servers.values())))
        taken = {name: [] for name in servers}
        for _ in range(options.rounds):
            for name, command in servers.items():
                taken[name].append(turns.take(name, command))
    finally:
        authority.remove()
    for name, list_of_turns in taken.items():
        print(name, json.dumps({key: median(turn[key] for turn in list_of_turns)
                                for key in list_of_turns[0]}))


if __name__ == '__main__':
    main()
