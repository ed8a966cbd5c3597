"""Measures a lookup through a router next to a Redis Cluster with the same rows.

    cluster_redis.py [--build DIR] [--rounds N] [--seconds S] [--scale N] [PLACEMENT...]

A request is one sample of dlrm-v2. There are four part servers, with the placements of
cluster_run.py, and four nodes of Redis, which hold every row as f32. embag-peer-redis fetches a
request's rows with one MGET from each node, pipelined, and pools them. The keys of a node share a
hash tag, as otherwise every row would need a command of its own. Both loads have 64 requests in
flight, and take turns. The CPU time is that of all processes, the load included. Bytes are those
between the load and the nodes; those between the load, the router and its parts; and those between
the router and its parts alone, which cross the network if the router is beside its caller.
tests/lib and DIR/python, which the network tests fill, must be on PYTHONPATH.
"""

import os
import shutil
import statistics
import subprocess
import sys

from cluster_run import (WORKLOAD, Case, LegBytes, make_parser, program, read_placement,
                         run_load, spread, use_build)
from http_peer import Metrics
from redis_cluster import RedisCluster

NODES = 4
PLACEMENTS = ('whole', 'rows')
# Few different requests, so that making them takes little of the loads' CPU time.
LOAD_FLAGS = ('--samples', '1', '--in-flight', '64', '--requests', '1024')


def find_missing():
    """Returns what is missing for Redis, as text; None if nothing is."""
    for name in ('redis-server', 'redis-cli'):
        if not shutil.which(name):
            return '%s is missing: install the Debian package redis-server' % name
    if not os.path.exists(program('embag-peer-redis')):
        return ('%s is missing: install the Debian package libhiredis-dev and configure the build '
                'with -DEMBAG_BENCH_PEERS=ON' % program('embag-peer-redis'))
    return None


def client_bytes(case):
    """Returns the bytes that the router has received from its callers and sent to them."""
    metrics = Metrics(case.plain.server)
    return metrics.sum('embag_received_bytes_total') + metrics.sum('embag_sent_bytes_total')


class Redis:
    """A Redis Cluster with the rows of the workload."""

    def __init__(self, options):
        self.options = options
        self.cluster = RedisCluster(NODES)
        self.command = [program('embag-peer-redis'), '--server', self.cluster.addresses,
                        '--workload', WORKLOAD, '--scale', str(options.scale)]
        try:
            subprocess.run([*self.command, '--fill'], check=True, capture_output=True, timeout=300)
            self.load('--verify', seconds=1)
        except BaseException:
            self.cluster.stop()
            raise

    def load(self, *flags, seconds=None):
        """Runs a closed load. Returns its report, with CPU times."""
        return run_load([*self.command, '--duration', str(seconds or self.options.seconds),
                         '--warmup', '0', *LOAD_FLAGS, *flags], self.cluster.pids)

    def bytes_per_request(self):
        """Returns the bytes of a request and its answer."""
        before = self.cluster.bytes()
        answers = self.load(seconds=1)['answers']
        return (self.cluster.bytes() - before) / answers


def count_bytes(case):
    """Returns the bytes of a request and its answer: all, and those of its legs."""
    legs, before = LegBytes(case), client_bytes(case)
    answers = case.load(case.plain, seconds=1)['answers']
    leg_bytes = legs.read().in_sockets / answers
    return leg_bytes + (client_bytes(case) - before) / answers, leg_bytes


def measure(case, redis):
    """Prints the figures of a placement."""
    rounds = [(case.load(case.plain), redis.load()) for _ in range(case.options.rounds)]
    ours, theirs = zip(*([report['all_us'] for report in turn] for turn in rounds))
    all_bytes, leg_bytes = count_bytes(case)
    redis_bytes = redis.bytes_per_request()
    print('CPU of all processes: %.1f us, Redis Cluster %.1f us; ours to theirs %s, bar 0.5'
          % (statistics.median(ours), statistics.median(theirs),
             spread([mine / other for mine, other in zip(ours, theirs)])))
    print('  bytes per request: %.0f, of which %.0f to and from parts; Redis Cluster %.0f; ours to '
          'theirs %.3f, to and from parts alone %.3f, bar 0.2'
          % (all_bytes, leg_bytes, redis_bytes, all_bytes / redis_bytes,
             leg_bytes / redis_bytes), flush=True)


def main():
    """Measures the placements."""
    parser = make_parser(__doc__)
    parser.add_argument('placements', nargs='*', type=read_placement, default=PLACEMENTS,
                        metavar='PLACEMENT')
    options = parser.parse_args()
    use_build(options.build)
    missing = find_missing()
    if missing:
        print('skipped: ' + missing)
        return
    redis = Redis(options)
    try:
        for kind in options.placements:
            case = Case(kind, NODES, options, LOAD_FLAGS)
            try:
                print('%s, scale %d' % (kind, options.scale), end=': ', flush=True)
                measure(case, redis)
            finally:
                case.close()
    finally:
        redis.cluster.stop()


if __name__ == '__main__':
    sys.exit(main())
