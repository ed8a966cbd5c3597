"""Shows how far an import or a copy is."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any, TextIO

_LINE_SECONDS = 5.0
_UNITS = ('bytes', 'kB', 'MB', 'GB', 'TB', 'PB')


def readable(size: float) -> str:
    """Returns a number of bytes with a unit, such as '1.5 GB'."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return '%d %s' % (size, _UNITS[unit]) if unit == 0 else '%.1f %s' % (size, _UNITS[unit])


def printable(text: str) -> str:
    """Returns a text of a checkpoint with escapes in place of what a terminal could act upon."""
    return ''.join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _open_bar(total: int, stream: TextIO) -> Any | None:
    """Returns tqdm's bar if the stream is a terminal and tqdm is installed."""
    if not stream.isatty():
        return None
    try:
        tqdm = importlib.import_module('tqdm')
    except ModuleNotFoundError:
        return None
    return tqdm.tqdm(total=total, unit='B', unit_scale=True, file=stream, leave=False)


class Progress:
    """Shows progress on a stream: a bar on a terminal, and otherwise a line every few seconds.

    Each has the bytes written, their rate and the time left.
    """

    def __init__(self, total: int, stream: TextIO = sys.stderr,
                 clock: Callable[[], float] = time.monotonic,
                 program: str = 'embag-import') -> None:
        self._total = total
        self._program = program
        self._stream = stream
        self._clock = clock
        self._done = 0
        self._start = self._told = clock()
        self._bar = _open_bar(total, stream)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        if self._bar is not None:
            self._bar.close()

    def seconds(self) -> float:
        """Returns the time since the start."""
        return self._clock() - self._start

    def advance(self, size: int) -> None:
        """Counts bytes that were written. Less than 0: they must be written again."""
        self._done += size
        if self._bar is not None:
            self._bar.update(size)
            return
        now = self._clock()
        if now - self._told < _LINE_SECONDS or self._done <= 0:
            return
        self._told = now
        rate = self._done / (now - self._start)
        print('%s: %s of %s (%d %%), %s/s, %d s left' % (
            self._program, readable(self._done), readable(self._total),
            100 * self._done // max(self._total, 1), readable(rate),
            (self._total - self._done) / rate), file=self._stream, flush=True)
