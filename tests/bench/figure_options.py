"""The command lines of service.sh and models.sh.

Run as a program, figure_options.py SCRIPT ARGUMENT... prints the folder of the build, or help, or
an error. The scripts run it before they look for programs of a build.
"""

import argparse
import sys

ROWS_ASKED = 100000000          # rows of the keyed table that must fit into 6 GiB
SERVICE_FIGURES = ('overhead', 'small', 'batches', 'wide', 'latency', 'overload', 'idle',
                   'single', 'disturbed')
MODELS_FIGURES = ('swap', 'many', 'wide', 'large', 'keys', 'pack')


def no_less(least, kind=int):
    """Returns an argparse type for numbers that are at least `least`."""
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if not least <= value < float('inf'):
            raise argparse.ArgumentTypeError('invalid value %r: expected a%s number of at least %g'
                                             % (text, ' whole' if kind is int else '', least))
        return value
    return read


def make_parser(script, what, figures):
    """Returns a parser for names of figures and the folder of the build.

    The caller adds the other options.
    """
    parser = argparse.ArgumentParser(prog=script, description=what, allow_abbrev=False)
    parser.add_argument('figures', nargs='*', metavar='FIGURE',
                        help='%s; default: all' % ', '.join(figures))
    parser.add_argument('--build', default='build/release',
                        help='folder of the build; default %(default)s')
    return parser


def service_parser():
    """Returns the parser of service.sh."""
    parser = make_parser('service.sh', 'Measures embagd on one core, with the load on another.',
                         SERVICE_FIGURES)
    count = no_less(1)
    parser.add_argument('--rounds', type=count, default=3,
                        help='number of turns for each figure; default %(default)s')
    parser.add_argument('--seconds', type=no_less(0.1, float), default=1,
                        help='length of a turn; default %(default)s')
    parser.add_argument('--overload-seconds', type=no_less(1, float), default=30,
                        help='length of overload with pacing; without pacing it is a third; '
                             'default %(default)s')
    parser.add_argument('--scale', type=count, default=100,
                        help='divisor of the rows of dlrm-v2; default %(default)s')
    parser.add_argument('--rm2-scale', type=count, default=4,
                        help='divisor of the rows of rm2; default %(default)s')
    return parser


def models_parser():
    """Returns the parser of models.sh."""
    parser = make_parser('models.sh', 'Measures models: versions, keys, files.', MODELS_FIGURES)
    count = no_less(1)
    parser.add_argument('--work', help='folder for large files; default BUILD/bench')
    parser.add_argument('--rounds', type=count, default=3,
                        help='number of rounds of swaps; default %(default)s')
    parser.add_argument('--seconds', type=no_less(1, float), default=30,
                        help='seconds of a round, with one swap a second; default %(default)s')
    parser.add_argument('--scale', type=count, default=1000,
                        help='divisor of the rows of dlrm-v2; default %(default)s')
    parser.add_argument('--rows', type=count, default=ROWS_ASKED,
                        help='rows of the large table; default %(default)s')
    parser.add_argument('--keyed-bytes', type=count, default=2 << 30,
                        help='size of tables that are looked up by key; default %(default)s')
    parser.add_argument('--pack-rows', type=count, default=4000000,
                        help='rows of the table to pack; default %(default)s')
    return parser


SCRIPTS = {'service.sh': (service_parser, SERVICE_FIGURES),
           'models.sh': (models_parser, MODELS_FIGURES)}


def read_options(script, arguments):
    """Returns the options of a script. Ends the process if the command line is invalid."""
    make, figures = SCRIPTS[script]
    parser = make()
    options = parser.parse_args(arguments)
    unknown = set(options.figures) - set(figures)
    if unknown:
        parser.error('unknown figure %s: expected %s' % (', '.join(sorted(unknown)),
                                                         ', '.join(figures)))
    options.figures = options.figures or figures
    return options


if __name__ == '__main__':
    print(read_options(sys.argv[1], sys.argv[2:]).build)
