"""A stream of lookups: many requests on one call, answered in any order."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any, Unpack

import grpc
from numpy.typing import ArrayLike

from embag import errors
from embag.answer import Answer
from embag.channel import Channel, readable, seconds
from embag.in_flight import InFlight
from embag.request import Asked, LookupFields, Request


class _Call:
    """One LookupStream call, from its first request to its end."""

    def __init__(self, channel: Channel) -> None:
        self.requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.in_flight = InFlight(self.requests.put, lambda f: f.set_running_or_notify_cancel())
        self.replies = channel.lookup_stream(
            iter(self.requests.get, None), metadata=channel.metadata())
        self.reader = threading.Thread(target=self._read, name='embag-stream', daemon=True)
        self.reader.start()

    def _read(self) -> None:
        end: errors.EmbagError = errors.Unavailable('the stream has ended')
        try:
            for reply in self.replies:
                self.in_flight.settle(readable(reply))
        except errors.Internal as error:
            end = error
            self.replies.cancel()
        except grpc.RpcError as error:
            end = errors.of_call(error)
        finally:
            self.in_flight.end(end)
            # Lets go of grpc's thread that waits for requests.
            self.requests.put(None)

    def close(self, timeout: float | None) -> None:
        """Waits for the answers that are due."""
        self.requests.put(None)
        self.reader.join(timeout)
        self.replies.cancel()
        self.reader.join()


class LookupStream:
    """Made by `Client.stream()`; for any number of threads.

    A stream whose connection is lost begins anew with the next request; what was not answered by
    then fails with `Unavailable` and may be asked again. How many requests are under way at once is
    the caller's to bound: what the server does not take waits in memory here.
    """

    def __init__(self, channel: Channel, timeout: float | None) -> None:
        self._channel = channel
        self._timeout = seconds(timeout)
        self._lock = threading.Lock()
        self._call: _Call | None = None
        self._closed = False

    def __enter__(self) -> LookupStream:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def submit(self, asked: str | Asked, indices: ArrayLike | None = None, *,
               timeout: float | None = None, **fields: Unpack[LookupFields]) -> Future[Answer]:
        """`Client.lookup` without waiting: `result()` of the future is the answer, or raises what
        `lookup` does. `cancel()` withdraws the request. The timeout is the server's to keep: pass
        one to `result()` too where it may be out of reach. ValueError: the stream, or its client,
        is closed."""
        request = Request(asked, indices, fields)
        future: Future[Answer] = Future()
        wait = seconds(timeout, self._timeout)
        with self._lock:
            if self._closed:
                raise ValueError('the stream is closed')
            while self._call is None or not self._call.in_flight.add(request, future, wait):
                self._call = _Call(self._channel)
        return future

    def close(self) -> None:
        """Waits for what is under way, no longer than the client's timeout, and ends the call."""
        with self._lock:
            self._closed = True
            call, self._call = self._call, None
        if call is not None:
            call.close(self._timeout)
