"""Exceptions of a lookup: one subclass of EmbagError for each gRPC status.

If Python has a built-in exception with the same meaning, the class derives from that one too.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

import grpc

# Numbers as the server writes them; other text in brackets does not refer to a query or group.
_NAMED = re.compile(r'(queries|groups)\[([0-9]{1,9})\]')
_MILLISECONDS = re.compile(r'[0-9]{1,9}')
_CODE_MAX = 16


class EmbagError(Exception):
    """A request was refused, or could not be answered.

    - code: gRPC status number
    - query: position, from 0, of the query or group in the request that caused the error; None if
      the error concerns the request as a whole
    - retry_after: seconds to wait before a retry, or None if the server did not send any

    The text says which value was wrong, where, and why.
    """

    code = 2

    def __init__(self, message: str, *, code: int | None = None, query: int | None = None,
                 retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = self.code if code is None else code
        self.query = query
        self.retry_after = retry_after


class Cancelled(EmbagError):
    """The call was cancelled, for example because its client was closed."""

    code = 1


class InvalidArgument(EmbagError, ValueError):
    """An invalid request: mismatched sizes, decreasing offsets, weights with `mean`, and so on."""

    code = 3


class DeadlineExceeded(EmbagError, TimeoutError):
    """No answer came within the timeout, or the server reports that it cannot answer in time."""

    code = 4


class NotFound(EmbagError, LookupError):
    """There is no such model, version, table, feature or group."""

    code = 5


class PermissionDenied(EmbagError):
    """The server knows the caller but does not allow the call."""

    code = 7


class ResourceExhausted(EmbagError):
    """The request is over a limit, or the server is overloaded: see `retry_after`."""

    code = 8


class FailedPrecondition(EmbagError):
    """The server cannot carry out the request in its present state."""

    code = 9


class OutOfRange(EmbagError, IndexError):
    """An index, segment id or default index that names no row or bag."""

    code = 11


class Unimplemented(EmbagError):
    """The server does not support the request."""

    code = 12


class Internal(EmbagError):
    """The answer could not be decoded, or does not fit the request.

    For example, it has another number of bags, another type, or a type that this version of the
    package does not know.
    """

    code = 13


class Unavailable(EmbagError, ConnectionError):
    """There is no connection, or the server is starting or shutting down. A retry is safe."""

    code = 14


class Unauthenticated(EmbagError):
    """The client sent no token or certificate that the server accepts."""

    code = 16


_CLASSES: dict[int, type[EmbagError]] = {each.code: each for each in EmbagError.__subclasses__()}


class Places(NamedTuple):
    """Positions, in the caller's arguments, of the queries and groups in the order of the wire."""

    queries: list[int]
    groups: list[int]

    def failing_query(self, message: str) -> int | None:
        """Returns the position of the query or group that begins the text of an error, or None."""
        named = _NAMED.match(message)
        if named is None:
            return None
        places = self.queries if named.group(1) == 'queries' else self.groups
        number = int(named.group(2))
        return places[number] if number < len(places) else None


def of_status(code: int, message: str, places: Places | None = None,
              retry_after_ms: int = 0) -> EmbagError:
    """Returns the exception for a status and its text.

    Numbers that gRPC does not define become UNKNOWN.
    """
    code = code if code <= _CODE_MAX else EmbagError.code
    return _CLASSES.get(code, EmbagError)(
        message, code=code, query=places.failing_query(message) if places else None,
        retry_after=retry_after_ms / 1000 if retry_after_ms else None)


def of_call(error: grpc.RpcError, places: Places | None = None) -> EmbagError:
    """Returns the exception for a call that failed."""
    call: Any = error
    trailers = dict(call.trailing_metadata() or ())
    wait = str(trailers.get('grpc-retry-pushback-ms', ''))
    return of_status(call.code().value[0], call.details() or call.code().name, places,
                     int(wait) if _MILLISECONDS.fullmatch(wait) else 0)
