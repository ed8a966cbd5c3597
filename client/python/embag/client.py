"""The blocking client."""

from __future__ import annotations

from typing import Any

import grpc
from numpy.typing import ArrayLike

from embag import answer, errors
from embag.answer import Answer
from embag.channel import Channel, ConnectFields, readable, seconds
from embag.request import Asked, LookupFields, Request
from embag.stream import LookupStream
from embag.typed import Unpack
from embag.v1 import embedding_bag_pb2 as pb


class Client:
    """Connects to a server. Any number of threads may share a client.

    - address: 'HOST:PORT', or 'unix:PATH'
    - timeout: seconds that a call may take if it has no timeout of its own; None here, or infinity
      here or for a call, means no limit
    - the rest: see `embag.channel.ConnectFields`

    The client connects on the first call, and again when the connection is lost. It never repeats a
    request. Every call that fails raises an `EmbagError`: `Unavailable` without a connection,
    `DeadlineExceeded` after the timeout, `Internal` for an answer that does not fit the request. A
    call on a closed client raises ValueError.
    """

    def __init__(self, address: str, *, timeout: float | None = 10.0,
                 **fields: Unpack[ConnectFields]) -> None:
        self.timeout = timeout
        self.address = address
        # Keyword arguments that make another client like this one.
        self.settings: dict[str, Any] = {'timeout': timeout, **fields}
        self._channel = Channel(grpc, address, **fields)

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connections. Calls in flight raise `Cancelled`."""
        for channel in self._channel.close():
            channel.close()

    def lookup(self, asked: str | Asked, indices: ArrayLike | None = None, *,
               timeout: float | None = None, **fields: Unpack[LookupFields]) -> Answer:
        """Looks up bags and returns their pooled vectors.

        - asked: name of a table or feature, with `indices` and the fields of a `Query`; or a query,
          a group, or a sequence of queries and groups, which are answered together
        - timeout: seconds for this call; None: the client's timeout
        - the rest: see `embag.request.RequestFields`

        Raises `NotFound`, `OutOfRange`, `InvalidArgument`, `ResourceExhausted`, `Unavailable`,
        `DeadlineExceeded`. Raises TypeError and ValueError for invalid arguments, without sending
        anything.
        """
        request = Request(asked, indices, fields)
        reply = self._call('lookup', request.data, timeout, request.places)
        return answer.of_message(reply, request.expected)

    def stream(self) -> LookupStream:
        """Returns a new stream, which keeps many lookups in flight from one thread."""
        return LookupStream(self._channel, self.timeout)

    def models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """Returns all models with their versions, tables, features and groups, sorted by name."""
        reply = self._call('list_models', pb.ListModelsRequest(), timeout)
        return list(reply.models)

    def model(self, name: str = '', version: int = 0, *,
              timeout: float | None = None) -> pb.Model:
        """Returns one model with the given version, or with all versions if `version` is 0.

        Raises `NotFound` if there is no such model or version.
        """
        request = pb.GetModelRequest(model=name, version=version)
        model: pb.Model = self._call('get_model', request, timeout)
        return model

    def server(self, *, timeout: float | None = None) -> pb.Server:
        """Returns the server's software version, limits and threads."""
        server: pb.Server = self._call('get_server', pb.GetServerRequest(), timeout)
        return server

    def _call(self, method: str, message: Any, timeout: float | None,
              places: errors.Places | None = None) -> Any:
        metadata = self._channel.metadata()
        methods = self._channel.begin()
        try:
            return readable(getattr(methods, method)(
                message, timeout=seconds(timeout, self.timeout), metadata=metadata))
        except grpc.RpcError as error:
            raise errors.of_call(error, places) from None
        finally:
            for unused in self._channel.end(methods):
                unused.close()
