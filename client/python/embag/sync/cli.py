"""The command embag-sync: copies what a server needs from an object store."""

from __future__ import annotations

import argparse
import signal
import sys
import threading
import time
from collections.abc import Sequence
from io import TextIOWrapper
from queue import SimpleQueue
from types import FrameType

from embag.importer.progress import printable
from embag.sync.errors import Stopped, SyncError, delay_s, error_text
from embag.sync.local_repository import LocalRepository
from embag.sync.mirror import Mirror, Options, Summary
from embag.sync.stores import open_store
from embag.sync.version_files import Role, is_name, parse_part

_FAILED = 1
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_LINE_MAX = 2000
_EXAMPLES = '''
examples:
  embag-sync s3://models/parts /var/lib/embag/parts --part 3/16
  embag-sync s3://models/parts /models --part hostname/16 --versions 2 --every 10
  embag-sync s3://models/parts /models --router --every 10 --endpoint http://seaweed:8333

A version of the model ranking is then s3://models/parts/ranking/8. It is copied when the store has
its manifest.yaml, which must therefore be uploaded last.
Credentials and region are those of AWS's own tools: the environment, ~/.aws, or the role of the
machine or pod.

exit status: 0 if everything was copied or, with --until-present, if there is a version to start
with; 1 otherwise; 2 for a wrong command line; 130, 143 and 129 after Ctrl-C, SIGTERM and SIGHUP.
The directory has whole versions only, whatever happens.
'''


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and int(text) <= 1000000):
        raise argparse.ArgumentTypeError('"%.40s": expected a number from 0 to 1000000' % text)
    return int(text)


def _connections(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and 1 <= int(text) <= 64):
        raise argparse.ArgumentTypeError('"%.40s": expected a number from 1 to 64' % text)
    return int(text)


def _seconds(text: str, least: int = 0) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not least <= value <= 1e7:
        raise argparse.ArgumentTypeError(
            '"%.40s": expected seconds from %d to 10000000' % (text, least))
    return value


def _pause(text: str) -> float:
    return _seconds(text, 1)


def _part(text: str) -> Role:
    try:
        return parse_part(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError('"%.40s": %s' % (text, error)) from None


def _model(text: str) -> str:
    if not is_name(text):
        raise argparse.ArgumentTypeError(
            '"%.80s": expected the name of a model: from 1 to 255 bytes of UTF-8, without slashes '
            'and control characters, and no dot at the start' % text)
    return text


def _parse(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        'embag-sync', formatter_class=argparse.RawDescriptionHelpFormatter, epilog=_EXAMPLES,
        description='Copies what one server needs of a model repository from an object store: the '
                    'files that changed, by their digests. Without --part or --router, copies '
                    'versions without parts in full.')
    parser.add_argument('source', metavar='SOURCE',
                        help='the repository: s3://BUCKET/PREFIX, or file:///DIRECTORY')
    parser.add_argument('directory', metavar='DIRECTORY', help='the repository of the server')
    role = parser.add_mutually_exclusive_group()
    role.add_argument('--part', metavar='K/P', type=_part, dest='role', default=Role(),
                      help="copy this part, as the server's --part: K/P or hostname/P")
    role.add_argument('--router', action='store_const', const=Role(is_router=True), dest='role',
                      help='copy manifests and the tables that are placed everywhere')
    parser.add_argument('--model', metavar='NAME', action='append', default=[], type=_model,
                        help='copy this model; may be repeated. By default all')
    parser.add_argument('--versions', metavar='N', type=_count, default=0,
                        help='copy the highest N versions, and those that model.yaml serves or '
                             'gives labels; 0, the default, copies all')
    parser.add_argument('--every', metavar='SECONDS', type=_pause,
                        help='copy again and again: a round begins this long after the one '
                             'before began, at least 1. By default once')
    parser.add_argument('--grace', metavar='SECONDS', type=_seconds, default=3600.0,
                        help='time for which a copied version stays when the store, or --versions, '
                             'no longer has it (3600)')
    parser.add_argument('--until-present', action='store_true',
                        help='repeat rounds until each model that was asked for, or any, has a '
                             'version for this role, including one copied earlier, so the source '
                             'may be unreachable. For the time before a server starts; not with '
                             '--every')
    parser.add_argument('--endpoint', metavar='URL',
                        help='a service with the interface of S3. By default AWS_ENDPOINT_URL, or '
                             'AWS')
    parser.add_argument('--connections', metavar='N', type=_connections, default=4,
                        help='number of files that are copied at the same time (4)')
    options = parser.parse_args(arguments)
    if options.until_present and options.every is not None:
        parser.error('--until-present cannot be combined with --every')
    return options


def _log(text: str, is_error: bool) -> None:
    cut = ' ...' if len(text) > _LINE_MAX else ''
    print('embag-sync: %s%s' % (printable(text[:_LINE_MAX]), cut),
          file=sys.stderr if is_error else sys.stdout, flush=True)


def _try_round(mirror: Mirror) -> Summary:
    """Runs a round. Its error, if it fails, counts as a problem."""
    try:
        return mirror.run_round()
    except (SyncError, OSError) as error:
        _log(error_text(error), True)
    return Summary(problems=1)


def _run_rounds(mirror: Mirror, every_s: float) -> None:
    """Copies until it is stopped."""
    failures = 0
    while True:
        begin = time.monotonic()
        failures = failures + 1 if _try_round(mirror).problems else 0
        rest = max(every_s - (time.monotonic() - begin), 0.0)
        mirror.pause(max(rest, delay_s(failures) if failures else 0.0))


def _has_versions(mirror: Mirror, local: LocalRepository, models: list[str]) -> bool:
    wanted = models or local.models()
    # One model is enough for a server to start, unless the user knows better.
    return (all if models else any)(mirror.has_version(model) for model in wanted)


def _run_until_present(mirror: Mirror, local: LocalRepository, models: list[str]) -> None:
    """Copies until there is something that a server can start with."""
    rounds, is_told = 1, False
    while True:
        summary = _try_round(mirror)
        if _has_versions(mirror, local, models):
            break
        if not is_told and not summary.problems:
            _log('waiting for a version in the source', False)
            is_told = True
        mirror.pause(delay_s(rounds))
        rounds += 1
    if summary.problems:
        _log('continuing with the versions that are already here', True)


def _run_once(mirror: Mirror) -> int:
    summary = _try_round(mirror)
    if summary.problems:
        return _FAILED
    _log('%d versions copied, %d were there, %d removed' % (
        summary.copied, summary.present, summary.removed), False)
    return 0


def _sync(options: argparse.Namespace) -> int:
    store = open_store(options.source, options.endpoint)
    local = LocalRepository(options.directory)
    number = 0
    # The handler of a signal must take no lock, which the thread that it interrupts may have.
    signalled: SimpleQueue[int] = SimpleQueue()

    def note(which: int, frame: FrameType | None) -> None:
        signalled.put(which)

    def stop() -> None:
        nonlocal number
        while which := signalled.get():
            number = which
            mirror.stop()

    mirror = Mirror(store, local, Options(
        options.role, tuple(dict.fromkeys(options.model)), options.versions, options.grace,
        options.connections), _log)
    # A signal that the parent ignores, as nohup does, stays ignored.
    stopper = threading.Thread(target=stop, daemon=True)
    stopper.start()
    before = {each: signal.signal(each, note) for each in _SIGNALS
              if signal.getsignal(each) not in (signal.SIG_IGN, None)}
    try:
        if options.until_present:
            _run_until_present(mirror, local, options.model)
            return 0
        if options.every is None:
            return _run_once(mirror)
        _log('copying for %s every %g s' % (options.role, options.every), False)
        _run_rounds(mirror, options.every)
        return 0
    except Stopped:
        return 128 + number
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)
        signalled.put(0)
        stopper.join()
        local.close()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command. Returns the exit status."""
    options = _parse(arguments)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors='backslashreplace')
    try:
        return _sync(options)
    except (SyncError, OSError) as error:
        _log(error_text(error), True)
    return _FAILED


if __name__ == '__main__':
    sys.exit(main())
