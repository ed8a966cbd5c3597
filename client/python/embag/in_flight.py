"""Requests of a stream that wait for their answers. Threads and asyncio both use it."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from typing import Any

from embag import answer, errors
from embag.expected import Expected
from embag.request import Request
from embag.v1 import embedding_bag_pb2 as pb


class InFlight:
    """The requests in flight on one gRPC call.

    - send: queues an encoded message; may be called at any time and from any thread
    - claim: returns whether the outcome of a future may be set, which is False if the future has
      been cancelled; called at most once for each future
    """

    def __init__(self, send: Callable[[bytes], None],
                 claim: Callable[[Any], bool]) -> None:
        self._send = send
        self._claim = claim
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._waiting: dict[int, tuple[Any, Expected]] = {}
        self._end: errors.EmbagError | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, request: Request, future: Any, timeout: float | None) -> bool:
        """Sends a request, whose answer or error `future` receives.

        `timeout` is in seconds; None means no limit. Returns False if the call has ended.
        """
        timeout_us = 0 if timeout is None else max(int(timeout * 1e6), 1)
        with self._lock:
            if self._end is not None:
                return False
            number = next(self._ids)
            self._waiting[number] = future, request.expected
            # Fields of a message may be encoded in any order.
            own = pb.LookupRequest(request_id=number, timeout_us=timeout_us)
            self._send(own.SerializeToString() + request.data)
        future.add_done_callback(lambda done: self._forget(number, done))
        return True

    def _forget(self, number: int, future: Any) -> None:
        if future.cancelled() and self._take(number) is not None:
            self._send(pb.LookupRequest(request_id=number, cancel=True).SerializeToString())

    def _take(self, number: int) -> tuple[Any, Expected] | None:
        with self._lock:
            return self._waiting.pop(number, None)

    def settle(self, message: pb.LookupResponse) -> None:
        """Gives an answer that arrived, or the error in it, to the future that waits for it."""
        taken = self._take(message.request_id)
        if taken is None or not self._claim(taken[0]):
            return
        future, expected = taken
        try:
            future.set_result(answer.of_message(message, expected))
        except Exception as error:
            # The future is no longer in `_waiting`, so nothing else would ever complete it.
            future.set_exception(error)

    def end(self, error: errors.EmbagError) -> None:
        """Ends the call: fails all requests in flight with `error` and accepts no more."""
        with self._lock:
            self._end = error
            left = list(self._waiting.values())
            self._waiting.clear()
        for future, _ in left:
            if self._claim(future):
                future.set_exception(errors.of_status(error.code, str(error)))
