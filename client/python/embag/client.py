"""The client that blocks."""

from __future__ import annotations

from typing import Any, Unpack

import grpc
from numpy.typing import ArrayLike

from embag import answer, errors
from embag.answer import Answer
from embag.channel import Channel, ConnectFields, readable, seconds
from embag.request import Asked, LookupFields, Request
from embag.stream import LookupStream
from embag.v1 import embedding_bag_pb2 as pb


class Client:
    """One connection to a server, for any number of threads.

    - address: 'HOST:PORT', or 'unix:PATH'
    - timeout: seconds that a call may take where it does not say so itself; None, and infinity, of
      a call too: no bound
    - the rest: see `embag.channel.ConnectFields`

    It connects with the first call, and again whenever the connection is lost; nothing is asked
    twice. Every call raises an `EmbagError` where it fails: `Unavailable` without a connection,
    `DeadlineExceeded` after the timeout, `Internal` for an answer that does not fit what was asked.
    ValueError: the client is closed.
    """

    def __init__(self, address: str, *, timeout: float | None = 10.0,
                 **fields: Unpack[ConnectFields]) -> None:
        self.timeout = timeout
        self._channel = Channel(grpc, address, **fields)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection; calls under way raise `Cancelled`."""
        self._channel.channel.close()

    def lookup(self, asked: str | Asked, indices: ArrayLike | None = None, *,
               timeout: float | None = None, **fields: Unpack[LookupFields]) -> Answer:
        """Looks up bags: `asked` is a table's or feature's name, with indices and the fields of a
        `Query`; or a query, a group, or a sequence of both, answered together. See
        `embag.request.RequestFields` for what else can be said.

        Raises `NotFound`, `OutOfRange`, `InvalidArgument`, `ResourceExhausted`, `Unavailable`,
        `DeadlineExceeded`; TypeError and ValueError where nothing was sent.
        """
        request = Request(asked, indices, fields)
        reply = self._call(self._channel.lookup, request.message, timeout, request.places)
        return answer.of_message(reply, request.expected)

    def stream(self) -> LookupStream:
        """A stream: many lookups under way from one thread."""
        return LookupStream(self._channel, self.timeout)

    def models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """All models with their versions, tables, features and groups, ordered by name."""
        reply = self._call(self._channel.list_models, pb.ListModelsRequest(), timeout)
        return list(reply.models)

    def model(self, name: str = '', version: int = 0, *,
              timeout: float | None = None) -> pb.Model:
        """One model: of its versions this one, or with 0 all. Raises `NotFound`."""
        request = pb.GetModelRequest(model=name, version=version)
        model: pb.Model = self._call(self._channel.get_model, request, timeout)
        return model

    def server(self, *, timeout: float | None = None) -> pb.Server:
        """The server itself: its version, limits and threads."""
        server: pb.Server = self._call(self._channel.get_server, pb.GetServerRequest(), timeout)
        return server

    def _call(self, method: Any, message: Any, timeout: float | None,
              places: errors.Places = errors.Places()) -> Any:
        try:
            return readable(method(message, timeout=seconds(timeout, self.timeout),
                                   metadata=self._channel.metadata()))
        except grpc.RpcError as error:
            raise errors.of_call(error, places) from None
