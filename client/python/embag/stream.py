"""A stream of lookups: many requests on one gRPC call, answered in any order."""

from __future__ import annotations

import queue
import threading
from concurrent.futures import Future
from typing import Any

import grpc
from numpy.typing import ArrayLike

from embag import errors
from embag.answer import Answer
from embag.channel import Channel, readable, seconds
from embag.in_flight import InFlight
from embag.request import Asked, LookupFields, Request
from embag.typed import Unpack


class _Call:
    """One LookupStream call, from its first request to its end."""

    def __init__(self, channel: Channel) -> None:
        self.requests: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self.in_flight = InFlight(self.requests.put, lambda f: f.set_running_or_notify_cancel())
        metadata = channel.metadata()
        self._channel = channel
        self._methods = channel.begin()
        self.replies = self._methods.lookup_stream(
            iter(self.requests.get, None), metadata=metadata)
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
            # Releases the thread of grpc that waits for requests.
            self.requests.put(None)
            for unused in self._channel.end(self._methods):
                unused.close()

    def close(self, timeout: float | None) -> None:
        """Ends the requests, waits up to `timeout` seconds for the answers, and ends the call."""
        self.requests.put(None)
        self.reader.join(timeout)
        self.replies.cancel()
        self.reader.join()


class LookupStream:
    """Many lookups on one gRPC call, created by `Client.stream()`.

    Any number of threads may use it.

    If the connection is lost, requests without an answer fail with `Unavailable` and may be
    retried, and the next request starts a new gRPC call. The caller must limit the number of
    requests in flight: those that the server has not read yet wait in the client's memory.
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
        """Sends the lookup and returns a future, without waiting for the answer.

        `result()` of the future returns the answer or raises what `Client.lookup` raises.
        `cancel()` cancels the request. The server enforces the timeout, so pass one to `result()`
        too if the server may become unreachable. Raises ValueError if the stream or its client is
        closed.
        """
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
        """Waits for lookups in flight, for the client's timeout at most, and ends the call."""
        with self._lock:
            self._closed = True
            call, self._call = self._call, None
        if call is not None:
            call.close(self._timeout)
