"""What a lookup can fail with: one class for each gRPC status, all of them EmbagError, and of
Python's own class too where it has one that means the same."""

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

    `code` is the gRPC status number. `query` says which of the queries and groups that were asked
    is at fault, counted from 0, None where it is the request as a whole. `retry_after` are the
    seconds after which to come again, where the server says so. The text says what was wrong, where
    and which value.
    """

    code = 2

    def __init__(self, message: str, *, code: int | None = None, query: int | None = None,
                 retry_after: float | None = None) -> None:
        super().__init__(message)
        self.code = self.code if code is None else code
        self.query = query
        self.retry_after = retry_after


class Cancelled(EmbagError):
    """The call was given up, as when its client is closed."""

    code = 1


class InvalidArgument(EmbagError, ValueError):
    """Sizes that do not fit, offsets that decrease, weights with `mean`, and the like."""

    code = 3


class DeadlineExceeded(EmbagError, TimeoutError):
    """No answer within the timeout, or the server says that there will be none."""

    code = 4


class NotFound(EmbagError, LookupError):
    """No such model, version, table, feature or group."""

    code = 5


class PermissionDenied(EmbagError):
    """Known, and not allowed."""

    code = 7


class ResourceExhausted(EmbagError):
    """Over a limit, or the server has too much to do: see `retry_after`."""

    code = 8


class FailedPrecondition(EmbagError):
    """Not in the state that the server is in."""

    code = 9


class OutOfRange(EmbagError, IndexError):
    """An index, segment id or default index that names no row or bag."""

    code = 11


class Unimplemented(EmbagError):
    """The server does not know how."""

    code = 12


class Internal(EmbagError):
    """The answer could not be decoded, or does not fit the request: it has other bags or another
    type, for example, or one that this version of the package does not know."""

    code = 13


class Unavailable(EmbagError, ConnectionError):
    """No connection, or the server is starting or shutting down: it is safe to ask again."""

    code = 14


class Unauthenticated(EmbagError):
    """No token or certificate that the server knows."""

    code = 16


_CLASSES: dict[int, type[EmbagError]] = {each.code: each for each in EmbagError.__subclasses__()}


class Places(NamedTuple):
    """Where in what was asked the queries and the groups stand, each in the server's order."""

    queries: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()

    def failing_query(self, message: str) -> int | None:
        """The one that an error's text begins with."""
        named = _NAMED.match(message)
        if named is None:
            return None
        places = self.queries if named.group(1) == 'queries' else self.groups
        number = int(named.group(2))
        return places[number] if number < len(places) else None


def of_status(code: int, message: str, places: Places = Places(),
              retry_after_ms: int = 0) -> EmbagError:
    """The exception for a status and its text; a number that gRPC does not define is UNKNOWN."""
    code = code if code <= _CODE_MAX else EmbagError.code
    return _CLASSES.get(code, EmbagError)(
        message, code=code, query=places.failing_query(message),
        retry_after=retry_after_ms / 1000 if retry_after_ms else None)


def of_call(error: grpc.RpcError, places: Places = Places()) -> EmbagError:
    """The exception for a call that failed."""
    call: Any = error
    trailers = dict(call.trailing_metadata() or ())
    wait = str(trailers.get('grpc-retry-pushback-ms', ''))
    return of_status(call.code().value[0], call.details() or call.code().name, places,
                     int(wait) if _MILLISECONDS.fullmatch(wait) else 0)
