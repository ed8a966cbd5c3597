"""The command embag-import: imports a checkpoint into a model repository."""

from __future__ import annotations

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from io import TextIOWrapper
from types import FrameType

from embag.importer.model_yaml import REDUCTIONS, STORAGES
from embag.importer.optional import need
from embag.importer.plan import Choices, Plan, make_plan
from embag.importer.progress import Progress, printable, readable
from embag.importer.read_options import ReadOptions
from embag.importer.readers import READERS, open_source
from embag.importer.source import CheckpointError
from embag.importer.writer import (Imported, check_config, check_key_names, find_version,
                                   table_bytes, write_version)

_FAILED = 1
# The signals that end an import, and what its error then says.
_SIGNALS = {signal.SIGINT: 'interrupted', signal.SIGTERM: 'terminated', signal.SIGHUP: 'hung up'}
# Protects the terminal: names in a checkpoint may have millions of characters.
_PROBLEM_MAX = 2000
# Tensors that are named if many are left for the same reason.
_NAMED_MAX = 3
_EXAMPLES = '''
kinds of SOURCE, by the names for --format:
%s

examples:
  embag-import model.pt --out models/dlrm
  embag-import checkpoint/ --out models/dlrm --storage int8 --dry-run
  embag-import model.safetensors --out models/shop --tables '*.user.*' --tables '*.item.*'
  embag-import model.pt --out models/dlrm --name 'ebc.embedding_bags.*.weight=*'
  embag-import model.pt --out models/dlrm --model-yaml described.yaml
  embag-import dump/ --out models/shop --format raw --dim 64
  embag-import users.parquet --out models/shop --key-column id --vector-column vector

PATTERN is a shell pattern (*, ?, [a-z]). It matches a tensor's name, its module's name, the last
part of that, or the name of a table.

exit status: 0 if the version was written, 1 if not, 2 for a wrong command line, 130, 143 and 129
after Ctrl-C, SIGTERM and SIGHUP. Nothing is left behind unless it is 0.
'''


class _Signalled(BaseException):
    """A signal arrived, whose number is the argument."""


def _stop(number: int, frame: FrameType | None) -> None:
    # Another signal must not interrupt the removal of what was written.
    for each in _SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    raise _Signalled(number)


def _version(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) < 2**63):
        raise argparse.ArgumentTypeError('"%.40s" is not a number of 1 or more' % text)
    return int(text)


def _dim(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) < 2**32):
        raise argparse.ArgumentTypeError('"%.40s" is not a number from 1 to 2^32 - 1' % text)
    return int(text)


def _name(text: str) -> tuple[str, str]:
    old, sign, new = text.rpartition('=')
    if not sign or not old or not new or old.count('*') > 1 or new.count('*') > old.count('*'):
        raise argparse.ArgumentTypeError(
            '"%.80s" is not OLD=NEW, with at most one * in each' % text)
    return old, new


def _add_selection(parser: argparse.ArgumentParser) -> None:
    parser.add_argument('--tables', metavar='PATTERN', action='append', default=[],
                        help='import these tensors, and no others; may be repeated. By default '
                             'tables are found by their names and shapes')
    parser.add_argument('--exclude', metavar='PATTERN', action='append', default=[],
                        help='leave these tensors out; may be repeated')
    parser.add_argument('--name', metavar='OLD=NEW', action='append', default=[], type=_name,
                        help='name of a table; a * in both stands for the same text. By default '
                             "tensors' names without their common prefix and .weight")
    parser.add_argument('--storage', choices=STORAGES,
                        help='how the server keeps the tables: written into model.yaml')
    parser.add_argument('--reduction', choices=REDUCTIONS,
                        help='define a feature with this reduction for each table. The feature has '
                             "the table's name, and the table the suffix _table")
    parser.add_argument('--model-yaml', metavar='FILE',
                        help='import the tables that this model.yaml describes, and use it')


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    kinds = '\n'.join('  %-12s %s' % (reader.format, reader.what) for reader in READERS)
    parser = argparse.ArgumentParser(
        'embag-import', formatter_class=argparse.RawDescriptionHelpFormatter,
        description='Imports the embedding tables of a checkpoint as a version of a model.',
        epilog=(_EXAMPLES % kinds.replace('%', '%%')))
    parser.add_argument('source', metavar='SOURCE', help='a file or directory; kinds see below')
    parser.add_argument('--out', metavar='REPOSITORY/MODEL', required=True,
                        help="the model's directory, which is created if need be")
    parser.add_argument('--version', metavar='N', type=_version,
                        help='default: the number after the highest version, or 1')
    parser.add_argument('--format', choices=[reader.format for reader in READERS],
                        help='kind of SOURCE. By default it is recognised')
    parser.add_argument('--dry-run', action='store_true',
                        help='print what would be imported and left, and model.yaml')
    parser.add_argument('--replace-config', action='store_true',
                        help='replace an existing model.yaml that differs')
    _add_selection(parser)
    parser.add_argument('--dim', metavar='N', type=_dim,
                        help='values in a row of raw files. By default their sizes say it')
    parser.add_argument('--type', choices=('F32', 'F16', 'BF16', 'F64'), default='F32',
                        type=str.upper, help='type of the values in raw files (F32)')
    parser.add_argument('--key-type', choices=('I64', 'U64', 'I32', 'U32'), default='I64',
                        type=str.upper, help='type of the keys in raw files (I64)')
    parser.add_argument('--key-column', metavar='NAME',
                        help='column of keys. By default the only one of integers')
    parser.add_argument('--vector-column', metavar='NAME',
                        help='column of vectors. By default the only one of lists of numbers')
    return parser.parse_args(arguments)


def _say(text: str) -> None:
    print(printable(text))


def _print_plan(plan: Plan, is_long: bool) -> None:
    """Prints what is taken and left. Tensors that are left for the same reason share a line, unless
    `is_long` is set."""
    _say('found: %s' % plan.kind)
    _say('tables:')
    for taken in plan.taken:
        table = taken.table
        shape = ' x '.join(map(str, table.tensor.shape))
        quantised = ' %s' % table.format if table.format else ''
        _say('  %s  %s %s%s, %s%s  from %s: %s' % (
            table.name, shape, table.tensor.dtype, quantised, readable(table_bytes(taken)),
            ', with keys' if table.keys else '', table.tensor.name, taken.reason))
    if plan.features:
        _say('features:')
    for feature in plan.features:
        _say('  %s  %s of %s' % (feature.name, feature.reduction, feature.table))
    if plan.groups:
        _say('groups:')
    for name, members in plan.groups.items():
        _say('  %s  %s' % (name, ', '.join(members)))
    if plan.left:
        _say('left:')
    by_reason: dict[str, list[str]] = {}
    for name, reason in plan.left:
        by_reason.setdefault(reason, []).append(name)
    for reason, names in by_reason.items():
        count = len(names) if is_long else _NAMED_MAX
        more = ' and %d more' % (len(names) - count) if len(names) > count else ''
        _say('  %s%s: %s' % (', '.join(names[:count]), more, reason))


def _print_result(result: Imported, seconds: float) -> None:
    size = sum(file.bytes for file in result.files)
    count = len(result.plan.taken)
    print('wrote %s: %d table%s, %s in %.1f s (%s/s)' % (
        result.directory, count, '' if count == 1 else 's', readable(size), seconds,
        readable(size / max(seconds, 1e-9))))


def _import(options: argparse.Namespace) -> None:
    need('xxhash', 'writing a manifest')
    read_options = ReadOptions(options.dim, options.type, options.key_type, options.key_column,
                               options.vector_column)
    choices = Choices(options.tables, options.exclude, options.name, options.storage,
                      options.reduction, options.model_yaml)
    plan = make_plan(open_source(options.source, options.format, read_options), choices)
    _print_plan(plan, options.dry_run)
    sys.stdout.flush()
    version = options.version or find_version(options.out)
    if options.dry_run:
        check_key_names(plan)
        check_config(options.out, plan.config, options.replace_config)
        print('model.yaml:\n%swould write %s: %s' % (
            plan.config, os.path.join(options.out, str(version)),
            readable(sum(map(table_bytes, plan.taken)))))
        return
    with Progress(sum(map(table_bytes, plan.taken))) as progress:
        result = write_version(plan, options.out, version, options.replace_config,
                               progress.advance)
    _print_result(result, progress.seconds())


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    options = _parse(arguments)
    # A signal that the parent ignores, as nohup does, stays ignored.
    before = {each: signal.signal(each, _stop) for each in _SIGNALS
              if signal.getsignal(each) not in (signal.SIG_IGN, None)}
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')
    status, problem = 0, ''
    try:
        _import(options)
        sys.stdout.flush()
    except CheckpointError as error:
        status, problem = _FAILED, str(error)
    except OSError as error:
        where = '%s: ' % error.filename if error.filename else ''
        status, problem = _FAILED, '%s%s' % (where, error.strerror or error)
    except _Signalled as error:
        number = error.args[0]
        status, problem = 128 + number, '%s; nothing was written' % _SIGNALS[number]
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
    if status != 0:
        cut = ' ...' if len(problem) > _PROBLEM_MAX else ''
        print('embag-import: %s%s' % (printable(problem[:_PROBLEM_MAX]), cut), file=sys.stderr)
    return status


if __name__ == '__main__':
    sys.exit(main())
