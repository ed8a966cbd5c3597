"""Runs one load against a cluster and against one server with the same tables.

The five largest tables of dlrm-v2 lie whole in a part (placement `whole`) or are divided (`rows`),
and all others are everywhere; with `all`, all are divided. Router and part servers have one loop
and one thread each, like the one server, and share the machine with the load. tests/lib and
BUILD/python must be on PYTHONPATH.
"""

import argparse
import json
import os
import re
import resource
import statistics
import subprocess

import numpy as np

import embagd_process
import served
from certificates import HERE, Authority
from cluster import Cluster, wait_served
from embagd_process import Embagd
from figure_options import no_less
from http_peer import Metrics
from rpc import Client, SecureClient
from sample_request import INDICES_BY_TABLE

WORKLOAD = 'dlrm-v2'
KINDS = ('whole', 'rows', 'all')
LARGE = 5
ROW_BYTES = 128 * 4     # of a partial sum
INDEX_BYTES = 4
LEG_BYTES = 60          # that a leg may have beside its queries and sums
QUERY_BYTES = 30        # that a query of a leg may have beside its sums
PLAIN, SECURE = 0, 1    # number of the replica of each part that a router uses


def make_parser(what):
    """Returns a parser for options that all programs have; the caller adds the others."""
    parser = argparse.ArgumentParser(description=what.splitlines()[0], allow_abbrev=False)
    parser.add_argument('--build', default='build/release',
                        help='folder of the build; default %(default)s')
    parser.add_argument('--rounds', type=no_less(1), default=5,
                        help='turns of each; default %(default)s')
    parser.add_argument('--seconds', type=no_less(0.1, float), default=3,
                        help='length of a turn; default %(default)s')
    parser.add_argument('--scale', type=no_less(1), default=2000,
                        help='divisor of the rows of dlrm-v2; default %(default)s')
    return parser


def read_placement(text):
    """Returns a placement: the argparse type of one."""
    if text not in KINDS:
        raise argparse.ArgumentTypeError('invalid placement %r: expected %s'
                                         % (text, ' or '.join(KINDS)))
    return text


def use_build(folder):
    """Takes programs from the folder of a build."""
    served.BUILD = os.path.abspath(folder)
    served.EMBAG = program('embag')
    embagd_process.EMBAGD = program('embagd')


def program(name):
    """Returns the path of a program of the build."""
    return os.path.join(served.BUILD, name)


def cpu_seconds(pids):
    """Returns the CPU time of processes."""
    ticks = 0
    for pid in pids:
        with open('/proc/%d/stat' % pid, encoding='ascii') as file:
            fields = file.read().rpartition(')')[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf('SC_CLK_TCK')


def run_load(command, pids):
    """Runs a load. Returns its report.

    Added to the report is the CPU time per answer of the processes `pids`, `servers_us`, and of
    these and the load, `all_us`.
    """
    def load_seconds():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before, load_before = cpu_seconds(pids), load_seconds()
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    servers, load = cpu_seconds(pids) - before, load_seconds() - load_before
    if done.returncode != 0:
        raise AssertionError('%s failed:\n%s%s' % (command[0], done.stderr, done.stdout))
    report = json.loads(done.stdout)
    if report['errors']:
        raise AssertionError('%s had errors:\n%s' % (command[0], done.stdout))
    return {**report, 'servers_us': 1e6 * servers / report['answers'],
            'all_us': 1e6 * (servers + load) / report['answers']}


def socket_bytes(ports):
    """Returns the bytes that clients of TCP ports have sent and received, as the kernel counts
    them, without headers of TCP and IP."""
    wanted = ' or '.join('dport = :%d' % port for port in ports)
    listed = subprocess.run(['ss', '-tinHO', 'state', 'established', '( %s )' % wanted],
                            capture_output=True, text=True, timeout=60, check=True).stdout
    return [sum(map(int, re.findall(r'\b%s:(\d+)' % key, listed)))
            for key in ('bytes_acked', 'bytes_received')]


def spread(values):
    """Returns the median, the least and the largest value as text."""
    return '%.2f (%.2f, %.2f)' % (statistics.median(values), min(values), max(values))


class Tables:
    """The tables of the workload and their placement.

    - rows: number of rows of each table by name
    - large: names of the largest tables
    """

    def __init__(self, source, kind, parts):
        folder = os.path.join(source, WORKLOAD, '1')
        self.rows = {name[:-4]: np.load(os.path.join(folder, name), mmap_mode='r').shape[0]
                     for name in sorted(os.listdir(folder)) if name.endswith('.npy')}
        self.large = sorted(self.rows, key=self.rows.get)[-LARGE:]
        self.kind = kind
        self.parts = parts

    def placement(self):
        """Returns the placement of each table."""
        places = {}
        for name in self.rows:
            if self.is_divided(name):
                places[name] = 'placement: rows'
            elif name in self.large:
                places[name] = 'placement: whole, part: %d' % self.part_of(name)
            else:
                places[name] = 'placement: everywhere'
        return places

    def is_divided(self, name):
        """Returns whether the rows of a table are divided."""
        return self.kind == 'all' or (self.kind == 'rows' and name in self.large)

    def part_of(self, name):
        """Returns the part in which a table lies whole."""
        return self.large.index(name) % self.parts

    def shares(self, name):
        """Returns which share of a table's rows each part has."""
        if self.is_divided(name):
            rows = self.rows[name]
            return [len(range(part, rows, self.parts)) / rows for part in range(self.parts)]
        is_large = name in self.large
        return [float(is_large and part == self.part_of(name)) for part in range(self.parts)]

    def expect(self, samples):
        """Returns how many partial sums, queries and indices the legs of a request have on average
        if indices are uniform: a bag has a partial sum of each part that has a row of it."""
        partials = queries = indices = 0
        for name, count in zip(self.rows, INDICES_BY_TABLE):
            for share in self.shares(name):
                partials += samples * (1 - (1 - share) ** count)
                queries += 1 - (1 - share) ** (count * samples)
                indices += samples * share * count
        return partials, queries, indices


class Target:
    """Servers under load.

    - server: the one that answers
    - pids: the processes that take part
    - flags: flags of the load to connect
    """

    def __init__(self, server, others=(), flags=()):
        self.server = server
        self.pids = [each.pid for each in (server, *others)]
        self.flags = flags


class Case:
    """A cluster and one server with the same tables. `close` stops all."""

    def __init__(self, kind, parts, options, load_flags=(), is_secure=False):
        self.options = options
        self.load_flags = load_flags
        self.authority = None
        self.single = None
        self.cluster = Cluster(parts, replicas=2 if is_secure else 1)
        try:
            self.cluster.make_model(WORKLOAD, 1, options.scale)
            self.tables = Tables(self.cluster.source, kind, parts)
            self.cluster.split(WORKLOAD, 1, placement=self.tables.placement())
            self.single = Target(
                Embagd(self.cluster.source, '--loops', '1', '--threads', '1').wait_ready())
            self.plain = self._start_routed(PLAIN)
            if is_secure:
                self.secure = self._start_secure()
        except BaseException:
            self.close()
            raise

    def _start_routed(self, replica, part_flags=(), router_flags=(), load_flags=()):
        servers = [self.cluster.start_part(part, replica, *part_flags)
                   for part in range(self.cluster.parts)]
        for server in servers:
            server.wait_ready()
        route = ','.join('127.0.0.1:%d' % self.cluster.ports[part, replica]
                         for part in range(self.cluster.parts))
        router = self.cluster.start_router('--loops', '1', *router_flags, route=route)
        client = (SecureClient(router.address, self.authority) if load_flags
                  else Client(router.address))
        with client:
            wait_served(client, 1, WORKLOAD)
        target = Target(router, servers, load_flags)
        self.load(target, '--verify', seconds=1)
        return target

    def _start_secure(self):
        self.authority = Authority()
        self.authority.issue('server', names=HERE)
        ca_file = self.authority.path('ca.pem')
        serve = ('--tls-cert', self.authority.path('server.pem'),
                 '--tls-key', self.authority.path('server.key'))
        return self._start_routed(SECURE, serve, (*serve, '--route-tls-ca', ca_file),
                                  ('--tls-ca', ca_file))

    def load(self, target, *flags, seconds=None):
        """Runs a closed load. Returns its report, with CPU times."""
        return run_load(
            [program('embag-load'), '--server', target.server.address, '--workload', WORKLOAD,
             '--duration', str(seconds or self.options.seconds), '--warmup', '0', '--json',
             *target.flags, *self.load_flags, *flags], target.pids)

    def take_turns(self, *targets):
        """Measures targets in turns. Returns the reports of each turn."""
        return [[self.load(target) for target in targets] for _ in range(self.options.rounds)]

    def close(self):
        """Stops everything and deletes all files."""
        try:
            if self.single:
                self.single.server.stop()
        finally:
            if self.authority:
                self.authority.remove()
            self.cluster.remove()


class LegBytes:
    """The bytes between the router without TLS and its part servers, since the object was made.

    - legs: number of legs
    - sent, received: bytes of messages, as the router counts them
    - in_sockets: all bytes both ways, as the kernel counts them
    - bags: bags that part servers have looked up
    """

    def __init__(self, case):
        self.case = case
        self.before = self._read()
        self.legs = self.sent = self.received = self.in_sockets = self.bags = 0

    def _read(self):
        cluster = self.case.cluster
        parts = range(cluster.parts)
        router = Metrics(self.case.plain.server)
        return np.array([
            router.sum('embag_route_legs_total'),
            router.sum('embag_route_leg_bytes_total', direction='sent'),
            router.sum('embag_route_leg_bytes_total', direction='received'),
            sum(socket_bytes([cluster.ports[part, PLAIN] for part in parts])),
            sum(Metrics(cluster.servers[part, PLAIN]).sum('embag_table_bags_total')
                for part in parts)])

    def read(self):
        """Counts what was sent and received. Returns self."""
        self.legs, self.sent, self.received, self.in_sockets, self.bags = (
            self._read() - self.before)
        return self

    def print(self, answers, samples):
        """Prints the bytes of one answer next to the arithmetic of what they should be."""
        partials, queries, indices = self.case.tables.expect(samples)
        legs = self.legs / answers
        if abs(self.bags / answers / partials - 1) > 0.02:
            raise AssertionError('part servers looked up %.2f bags per request, expected %.2f'
                                 % (self.bags / answers, partials))
        expected = partials * ROW_BYTES + legs * LEG_BYTES + queries * QUERY_BYTES
        in_sockets = self.in_sockets / answers
        print('  bytes per request between router and parts: %.0f in sockets, %.0f in messages '
              '(%.0f sent, %.0f received), %.0f by the arithmetic (%.1f sums, %.1f legs, %.1f '
              'queries): ratio %.3f, bar 1.05; %.3f if %d bytes for each of %.0f indices are added'
              % (in_sockets, (self.sent + self.received) / answers, self.sent / answers,
                 self.received / answers, expected, partials, legs, queries,
                 in_sockets / expected, in_sockets / (expected + INDEX_BYTES * indices),
                 INDEX_BYTES, indices), flush=True)
