"""The asyncio counterparts of `embag.Client`, `LookupStream` and `RemoteEmbeddingBagCollection`."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any

import grpc
import grpc.aio
from numpy.typing import ArrayLike

from embag import answer, errors
from embag.answer import Answer
from embag.channel import Channel, ConnectFields, readable, seconds
from embag.in_flight import InFlight
from embag.jagged import (CollectionFields, Features, KeyedJagged, KeyedVectors, collection_of,
                          converted)
from embag.request import Asked, LookupFields, Request
from embag.typed import Unpack
from embag.v1 import embedding_bag_pb2 as pb

__all__ = ['Client', 'LookupStream', 'RemoteEmbeddingBagCollection']


class Client:
    """Counterpart of `embag.Client`; create it and use it in one running event loop.

    Cancelling the task that awaits a call cancels the call.
    """

    def __init__(self, address: str, *, timeout: float | None = 10.0,
                 **fields: Unpack[ConnectFields]) -> None:
        self.timeout = timeout
        self._channel = Channel(grpc.aio, address, **fields)
        self._is_closed = False

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connections. Calls in flight raise `Cancelled`."""
        self._is_closed = True
        for channel in self._channel.close():
            await channel.close()

    async def lookup(self, asked: str | Asked, indices: ArrayLike | None = None, *,
                     timeout: float | None = None, **fields: Unpack[LookupFields]) -> Answer:
        """Looks up bags, as `embag.Client.lookup` does."""
        request = Request(asked, indices, fields)
        reply = await self._call('lookup', request.data, timeout, request.places)
        return answer.of_message(reply, request.expected)

    def stream(self) -> LookupStream:
        """Returns a new stream, which sends lookups as messages of one gRPC call."""
        return LookupStream(self._channel, self.timeout)

    async def models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """Returns all models with their versions, tables, features and groups, sorted by name."""
        reply = await self._call('list_models', pb.ListModelsRequest(), timeout)
        return list(reply.models)

    async def model(self, name: str = '', version: int = 0, *,
                    timeout: float | None = None) -> pb.Model:
        """Returns one model with the given version, or with all versions if `version` is 0.

        Raises `NotFound` if there is no such model or version.
        """
        request = pb.GetModelRequest(model=name, version=version)
        model: pb.Model = await self._call('get_model', request, timeout)
        return model

    async def server(self, *, timeout: float | None = None) -> pb.Server:
        """Returns the server's software version, limits and threads."""
        server: pb.Server = await self._call('get_server', pb.GetServerRequest(), timeout)
        return server

    async def _call(self, method: str, message: Any, timeout: float | None,
                    places: errors.Places | None = None) -> Any:
        metadata = self._channel.metadata()
        methods = self._channel.begin()
        try:
            return readable(await getattr(methods, method)(
                message, timeout=seconds(timeout, self.timeout), metadata=metadata))
        except grpc.RpcError as error:
            raise errors.of_call(error, places) from None
        except grpc.aio.UsageError as error:
            raise ValueError(str(error)) from None
        except asyncio.CancelledError:
            # Closing a channel makes grpc.aio raise CancelledError in calls whose task is not
            # being cancelled.
            if _is_being_cancelled(self._is_closed):
                raise
            raise errors.Cancelled('the client was closed') from None
        finally:
            for unused in self._channel.end(methods):
                await unused.close()


def _is_being_cancelled(is_closed: bool) -> bool:
    """Returns whether this task, and not the closing of its client, was cancelled."""
    if sys.version_info < (3, 11):
        # Python does not say. A task that is cancelled while its client is closed is taken for one
        # that is not.
        return not is_closed
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class _Call:
    """One LookupStream call, from its first request to its end."""

    def __init__(self, channel: Channel) -> None:
        self.requests: asyncio.Queue[Any] = asyncio.Queue()
        self.in_flight = InFlight(self.requests.put_nowait, lambda future: not future.done())
        metadata = channel.metadata()
        self._channel = channel
        self._methods = channel.begin()
        self.replies = self._methods.lookup_stream(self._written(), metadata=metadata)
        self.reader = asyncio.create_task(self._read())

    async def _written(self) -> AsyncIterator[bytes]:
        while (message := await self.requests.get()) is not None:
            yield message

    async def _read(self) -> None:
        end: errors.EmbagError = errors.Unavailable('the stream has ended')
        try:
            async for reply in self.replies:
                self.in_flight.settle(readable(reply))
        except errors.Internal as error:
            end = error
            self.replies.cancel()
        except grpc.RpcError as error:
            end = errors.of_call(error)
        except asyncio.CancelledError:
            end = errors.Cancelled('the stream was closed')
        finally:
            self.in_flight.end(end)
            self.requests.put_nowait(None)
            for unused in self._channel.end(self._methods):
                await unused.close()

    async def close(self, timeout: float | None) -> None:
        """Ends the requests, waits up to `timeout` seconds for the answers, and ends the call."""
        self.requests.put_nowait(None)
        await asyncio.wait([self.reader], timeout=timeout)
        self.replies.cancel()
        await asyncio.wait([self.reader])


class LookupStream:
    """Counterpart of `embag.LookupStream` whose futures are asyncio's."""

    def __init__(self, channel: Channel, timeout: float | None) -> None:
        self._channel = channel
        self._timeout = seconds(timeout)
        self._call: _Call | None = None
        self._closed = False

    async def __aenter__(self) -> LookupStream:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    def submit(self, asked: str | Asked, indices: ArrayLike | None = None, *,
               timeout: float | None = None,
               **fields: Unpack[LookupFields]) -> asyncio.Future[Answer]:
        """Sends the lookup at once and returns a future, which resolves to its answer.

        Awaiting the future raises the errors that `lookup` raises. Cancelling the future, or the
        task that awaits it, cancels the request. Raises ValueError if the stream or its client is
        closed.
        """
        request = Request(asked, indices, fields)
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        wait = seconds(timeout, self._timeout)
        if self._closed:
            raise ValueError('the stream is closed')
        try:
            while self._call is None or not self._call.in_flight.add(request, future, wait):
                self._call = _Call(self._channel)
        except grpc.aio.UsageError as error:
            raise ValueError(str(error)) from None
        return future

    async def close(self) -> None:
        """Waits for lookups in flight, for the client's timeout at most, and ends the call."""
        self._closed = True
        call, self._call = self._call, None
        if call is not None:
            await call.close(self._timeout)


class RemoteEmbeddingBagCollection:
    """Counterpart of `embag.RemoteEmbeddingBagCollection` whose calls are awaited."""

    def __init__(self, client: Client, features: Features,
                 **fields: Unpack[CollectionFields]) -> None:
        self._client = client
        self._collection, self._convert = collection_of(features, fields)

    async def __call__(self, features: KeyedJagged, *, traceparent: str = '') -> KeyedVectors:
        """Returns the pooled vectors of all keys.

        - traceparent: as in `embag.request.RequestFields`
        """
        collection = self._collection
        asked = collection.ask(features)
        answer = await self._client.lookup(asked.groups, **collection.traced(traceparent))
        sizes = collection.sizes(answer.version)
        if sizes is None:
            model = await self._client.model(collection.model, answer.version)
            sizes = collection.learn(answer.version, model)
        return converted(collection.vectors(asked, answer, sizes), self._convert)
