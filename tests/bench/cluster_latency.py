"""Measures how much later an answer comes through a router: one request at a time.

    cluster_latency.py [--build DIR] [--rounds N] [--seconds S] [--scale N]

There are one router, one part with the five largest tables of dlrm-v2, one caller, and one server
with the same tables. embag-echo-server and embag-echo-load exchange as many bytes as the router and
its part do for one request. All three are measured in turns; printed are the medians of the median
latencies. The bar for the router is that of one server, and 1.25 times that of the echo, and 25 us.
With cores for all processes, the rest idle, the figures are those of the servers; on fewer they are
also those of the scheduler. tests/lib and DIR/python, which the network tests fill, must be on
PYTHONPATH.
"""

import json
import os
import statistics
import subprocess
import sys

from cluster_run import Case, LegBytes, make_parser, program, spread, use_build
from service_run import Server

ECHO_SHARE, SPARE_US = 1.25, 25
ECHO = ('embag-echo-server', 'embag-echo-load')


def echo_p50(server, sizes, seconds):
    """Returns the median latency of an echo."""
    done = subprocess.run([program('embag-echo-load'), server.port, *sizes, '1', str(seconds)],
                          capture_output=True, text=True, timeout=60, check=True)
    return json.loads(done.stdout)['p50_us']


def measure(case):
    """Prints the figures."""
    count = LegBytes(case)
    answers = case.load(case.plain, seconds=1)['answers']
    count.read()
    sizes = [str(round(bytes_ / answers)) for bytes_ in (count.sent, count.received)]
    log = case.cluster.repository.join('echo.log')
    with Server([program('embag-echo-server'), 'libuv', *sizes, '1'], log,
                os.sched_getaffinity(0)) as echo:
        rounds = [(*(case.load(target)['p50_us'] for target in (case.single, case.plain)),
                   echo_p50(echo, sizes, case.options.seconds)) for _ in range(case.options.rounds)]
    single, routed, echoed = map(statistics.median, zip(*rounds))
    beyond = [routed - single - ECHO_SHARE * echoed for single, routed, echoed in rounds]
    print('p50: one server %.1f us, router %.1f us, echo of %s and %s bytes %.1f us; bar %.1f us'
          % (single, routed, *sizes, echoed, single + ECHO_SHARE * echoed + SPARE_US))
    print('beyond one server and %g echoes: %s us, bar %d us on %d cores'
          % (ECHO_SHARE, spread(beyond), SPARE_US, len(os.sched_getaffinity(0))))


def main():
    """Measures one request at a time."""
    options = make_parser(__doc__).parse_args()
    use_build(options.build)
    missing = [name for name in ECHO if not os.path.exists(program(name))]
    if missing:
        print('skipped: %s is missing: configure the build with -DEMBAG_BENCH_PEERS=ON'
              % program(missing[0]))
        return
    case = Case('whole', 1, options, ('--samples', '1', '--in-flight', '1'))
    try:
        measure(case)
    finally:
        case.close()


if __name__ == '__main__':
    sys.exit(main())
