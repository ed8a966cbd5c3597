"""The command lines of service.sh and models.sh.

As a program, figure_options.py SCRIPT ARGUMENT... prints the folder of the build, or help, or what
is wrong: before anything is looked for that a build makes.
"""

import argparse
import sys

ROWS_ASKED = 100000000          # the keyed table for which 6 GiB are asked
SERVICE_FIGURES = ('overhead', 'small', 'batches', 'wide', 'latency', 'overload', 'idle',
                   'single', 'disturbed')
MODELS_FIGURES = ('swap', 'many', 'wide', 'large', 'keys', 'pack')


def no_less(least, kind=int):
    """The type of an argument that is a number, and no less."""
    def read(text):
        try:
            value = kind(text)
        except ValueError:
            value = -1
        if not least <= value < float('inf'):
            raise argparse.ArgumentTypeError('%r is not a%s number of at least %g' % (
                text, ' whole' if kind is int else '', least))
        return value
    return read


def make_parser(script, what, figures):
    """Reads the names of figures, and the folder of the build; the caller adds the rest."""
    parser = argparse.ArgumentParser(prog=script, description=what, allow_abbrev=False)
    parser.add_argument('figures', nargs='*', metavar='FIGURE',
                        help='%s; all unless given' % ', '.join(figures))
    parser.add_argument('--build', default='build/release', help='%(default)s unless given')
    return parser


def service_parser():
    """service.sh's."""
    parser = make_parser('service.sh', 'Measures embagd on one core, load on another.',
                         SERVICE_FIGURES)
    count = no_less(1)
    parser.add_argument('--rounds', type=count, default=3, help='turns of each; %(default)s')
    parser.add_argument('--seconds', type=no_less(0.1, float), default=1,
                        help='of a turn; %(default)s')
    parser.add_argument('--overload-seconds', type=no_less(1, float), default=30,
                        help='of overload with pacing, without it a third; %(default)s')
    parser.add_argument('--scale', type=count, default=100,
                        help='divides the rows of dlrm-v2; %(default)s')
    parser.add_argument('--rm2-scale', type=count, default=4,
                        help='divides the rows of rm2; %(default)s')
    return parser


def models_parser():
    """models.sh's."""
    parser = make_parser('models.sh', 'Measures models: versions, keys, files.', MODELS_FIGURES)
    count = no_less(1)
    parser.add_argument('--work', help='where files are made; BUILD/bench unless given')
    parser.add_argument('--rounds', type=count, default=3, help='of swaps; %(default)s')
    parser.add_argument('--seconds', type=no_less(1, float), default=30,
                        help='of a round, and swaps in it; %(default)s')
    parser.add_argument('--scale', type=count, default=1000,
                        help='divides the rows of dlrm-v2; %(default)s')
    parser.add_argument('--rows', type=count, default=ROWS_ASKED,
                        help='of the large table: %(default)s')
    parser.add_argument('--keyed-bytes', type=count, default=2 << 30,
                        help='of the tables that are looked up by key: %(default)s')
    parser.add_argument('--pack-rows', type=count, default=4000000, help='%(default)s')
    return parser


SCRIPTS = {'service.sh': (service_parser, SERVICE_FIGURES),
           'models.sh': (models_parser, MODELS_FIGURES)}


def read_options(script, arguments):
    """The command line of a script; names that are no figures end the run."""
    make, figures = SCRIPTS[script]
    parser = make()
    options = parser.parse_args(arguments)
    unknown = set(options.figures) - set(figures)
    if unknown:
        parser.error('%s: not one of %s' % (', '.join(sorted(unknown)), ', '.join(figures)))
    options.figures = options.figures or figures
    return options


if __name__ == '__main__':
    print(read_options(sys.argv[1], sys.argv[2:]).build)
