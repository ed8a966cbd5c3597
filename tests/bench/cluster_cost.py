"""Measures what a lookup costs through a router, next to one server with the same tables.

    cluster_cost.py [--build DIR] [--rounds N] [--seconds S] [--scale N] [--tls] [CASE...]

A case is PLACEMENT:PARTS:SAMPLES:IN_FLIGHT, with the placements of cluster_run.py. The CPU time is
that of all servers together, from /proc. Bytes are those between the router and its part servers:
counted by the router, by the kernel for its sockets, and as they should be: the sums of the bags'
rows in each part, 60 bytes for a leg and 30 for each query in it. One server and the cluster are
measured in turns; printed are the medians, and the least and the largest ratio. With --tls there is
a second cluster, in the same turns, with TLS from the load to the router and from there to the
parts. tests/lib and DIR/python, which the network tests fill, must be on PYTHONPATH.
"""

import argparse
import statistics
import sys

from cluster_run import Case, LegBytes, make_parser, read_placement, spread, use_build
from figure_options import no_less

CASES = ('whole:4:1:64', 'rows:4:1:64', 'rows:16:1:64', 'all:4:128:8', 'whole:1:1:1')


def read_case(text):
    """Returns placement, parts, samples and requests in flight: the argparse type of a case."""
    try:
        kind, *numbers = text.split(':')
        parts, samples, in_flight = map(no_less(1), numbers)
        return read_placement(kind), parts, samples, in_flight
    except (ValueError, argparse.ArgumentTypeError):
        raise argparse.ArgumentTypeError(
            'invalid case %r: expected PLACEMENT:PARTS:SAMPLES:IN_FLIGHT, such as %s'
            % (text, CASES[0])) from None


def medians(reports, key):
    """Returns the median of a figure for each target."""
    return tuple(statistics.median(report[key] for report in column) for column in zip(*reports))


def print_secure(reports):
    """Prints the figures of the cluster with TLS, which is the third target."""
    ratios = [[secure[key] / plain[key] for _, plain, secure in reports]
              for key in ('servers_us', 'all_us')]
    print('  TLS: ratio to plain %s, bar 1.6; all servers %.1f us; with the load %s'
          % (spread(ratios[0]), medians(reports, 'servers_us')[2], spread(ratios[1])), flush=True)


def measure(case, samples):
    """Prints the figures of a case."""
    targets = (case.single, case.plain, *((case.secure,) if case.options.tls else ()))
    count = LegBytes(case)
    reports = case.take_turns(*targets)
    count.read()
    print('ratio %s, one server %.1f us, all servers %.1f us, p50 %.0f and %.0f us'
          % (spread([plain['servers_us'] / single['servers_us'] for single, plain, *_ in reports]),
             *medians(reports, 'servers_us')[:2], *medians(reports, 'p50_us')[:2]), flush=True)
    count.print(sum(plain['answers'] for _, plain, *_ in reports), samples)
    if case.options.tls:
        print_secure(reports)


def main():
    """Measures the cases."""
    parser = make_parser(__doc__)
    parser.add_argument('--tls', action='store_true', help='measure a cluster with TLS as well')
    parser.add_argument('cases', nargs='*', type=read_case, metavar='CASE',
                        help='default: ' + ' '.join(CASES))
    options = parser.parse_args()
    use_build(options.build)
    for kind, parts, samples, in_flight in options.cases or map(read_case, CASES):
        case = Case(kind, parts, options,
                    ('--samples', str(samples), '--in-flight', str(in_flight)), options.tls)
        try:
            print('%s:%d:%d:%d' % (kind, parts, samples, in_flight), end=': ', flush=True)
            measure(case, samples)
        finally:
            case.close()


if __name__ == '__main__':
    sys.exit(main())
