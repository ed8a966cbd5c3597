"""The error of a copy, and how long to wait before it is tried again."""

from __future__ import annotations

import importlib
import random
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from embag.importer.optional import need as need_to_import
from embag.importer.source import CheckpointError

# Attempts without any progress before a copy fails.
ATTEMPTS_MAX = 6
_DELAY_S, _DELAY_S_MAX = 0.5, 30.0
# After these, the delay is the longest one.
_DOUBLINGS_MAX = 6

Result = TypeVar('Result')


class SyncError(Exception):
    """A copy that failed. The text says which object or file, and what is wrong.

    `is_transient` is set if the same may succeed later, as when a connection was lost.
    """

    def __init__(self, text: str, is_transient: bool = False) -> None:
        super().__init__(text)
        self.is_transient = is_transient


class WrongFile(SyncError):
    """The bytes cannot be those of the file that the manifest names, and none of them is of use."""


def error_text(error: SyncError | OSError) -> str:
    """Returns what is wrong, with the file that the system names."""
    if not isinstance(error, OSError):
        return str(error)
    where = '%s: ' % error.filename if error.filename else ''
    return '%s%s' % (where, error.strerror or error)


class Stopped(BaseException):
    """The copy was asked to end."""


def need(module: str, purpose: str) -> Any:
    """Returns the module. Raises SyncError, which says how to install it, if it is missing."""
    try:
        need_to_import(module, purpose)
    except CheckpointError as error:
        raise SyncError(str(error)) from None
    return importlib.import_module(module)


def delay_s(failures: int) -> float:
    """Returns the seconds to wait after `failures` (at least 1) failures in a row. They double, and
    are spread so that many servers do not come back at once."""
    doublings = min(failures - 1, _DOUBLINGS_MAX)
    return min(_DELAY_S * 2.0 ** doublings, _DELAY_S_MAX) * random.uniform(0.5, 1)


def pause(seconds: float, stop: threading.Event) -> None:
    """Waits. Raises Stopped if `stop` is set before."""
    if stop.wait(seconds):
        raise Stopped


def retry(action: Callable[[], Result], stop: threading.Event) -> Result:
    """Returns the result of an action, which is repeated after transient errors."""
    for failures in range(1, ATTEMPTS_MAX):
        try:
            return action()
        except SyncError as error:
            if not error.is_transient:
                raise
        pause(delay_s(failures), stop)
    return action()
