"""The same for asyncio: `embag.aio.Client`, its stream and its collection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any, Unpack

import grpc
import grpc.aio
from numpy.typing import ArrayLike

from embag import answer, errors
from embag.answer import Answer
from embag.channel import Channel, ConnectFields, readable, seconds
from embag.in_flight import InFlight
from embag.jagged import Collection, CollectionFields, KeyedJagged, KeyedVectors
from embag.request import Asked, LookupFields, Request
from embag.v1 import embedding_bag_pb2 as pb

__all__ = ['Client', 'LookupStream', 'RemoteEmbeddingBagCollection']


class Client:
    """As `embag.Client`; to be made and used in one running event loop.

    A call whose task is cancelled is withdrawn.
    """

    def __init__(self, address: str, *, timeout: float | None = 10.0,
                 **fields: Unpack[ConnectFields]) -> None:
        self.timeout = timeout
        self._channel = Channel(grpc.aio, address, **fields)

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Closes the connection; calls under way raise `Cancelled`."""
        await self._channel.channel.close()

    async def lookup(self, asked: str | Asked, indices: ArrayLike | None = None, *,
                     timeout: float | None = None, **fields: Unpack[LookupFields]) -> Answer:
        """As `embag.Client.lookup`."""
        request = Request(asked, indices, fields)
        reply = await self._call(self._channel.lookup, request.message, timeout, request.places)
        return answer.of_message(reply, request.expected)

    def stream(self) -> LookupStream:
        """A stream: lookups by messages of one call."""
        return LookupStream(self._channel, self.timeout)

    async def models(self, *, timeout: float | None = None) -> list[pb.Model]:
        """All models with their versions, tables, features and groups, ordered by name."""
        reply = await self._call(self._channel.list_models, pb.ListModelsRequest(), timeout)
        return list(reply.models)

    async def model(self, name: str = '', version: int = 0, *,
                    timeout: float | None = None) -> pb.Model:
        """One model: of its versions this one, or with 0 all. Raises `NotFound`."""
        request = pb.GetModelRequest(model=name, version=version)
        model: pb.Model = await self._call(self._channel.get_model, request, timeout)
        return model

    async def server(self, *, timeout: float | None = None) -> pb.Server:
        """The server itself: its version, limits and threads."""
        server: pb.Server = await self._call(
            self._channel.get_server, pb.GetServerRequest(), timeout)
        return server

    async def _call(self, method: Any, message: Any, timeout: float | None,
                    places: errors.Places = errors.Places()) -> Any:
        try:
            return readable(
                await method(message, timeout=seconds(timeout, self.timeout),
                             metadata=self._channel.metadata()))
        except grpc.RpcError as error:
            raise errors.of_call(error, places) from None
        except grpc.aio.UsageError as error:
            raise ValueError(str(error)) from None
        except asyncio.CancelledError:
            # grpc.aio cancels what is under way on a channel that is closed, as if the task were.
            task = asyncio.current_task()
            if task is not None and task.cancelling() > 0:
                raise
            raise errors.Cancelled('the client was closed') from None


class _Call:
    """One LookupStream call, from its first request to its end."""

    def __init__(self, channel: Channel) -> None:
        self.requests: asyncio.Queue[Any] = asyncio.Queue()
        self.in_flight = InFlight(self.requests.put_nowait, lambda future: not future.done())
        self.replies = channel.lookup_stream(self._written(), metadata=channel.metadata())
        self.reader = asyncio.create_task(self._read())

    async def _written(self) -> AsyncIterator[pb.LookupRequest]:
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

    async def close(self, timeout: float | None) -> None:
        """Waits for the answers that are due."""
        self.requests.put_nowait(None)
        await asyncio.wait([self.reader], timeout=timeout)
        self.replies.cancel()
        await asyncio.wait([self.reader])


class LookupStream:
    """As `embag.LookupStream`, with futures of asyncio."""

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
        """Asks at once; awaiting the future gives the answer, or raises what `lookup` does.
        Cancelling it, or the task that awaits it, withdraws the request. ValueError: the stream, or
        its client, is closed."""
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
        """Waits for what is under way, no longer than the client's timeout, and ends the call."""
        self._closed = True
        call, self._call = self._call, None
        if call is not None:
            await call.close(self._timeout)


class RemoteEmbeddingBagCollection:
    """As `embag.RemoteEmbeddingBagCollection`; what calls it awaits the vectors."""

    def __init__(self, client: Client, features: Sequence[str] | Mapping[str, str],
                 **fields: Unpack[CollectionFields]) -> None:
        self._client = client
        self._collection = Collection(features, **fields)

    async def __call__(self, features: KeyedJagged) -> KeyedVectors:
        """The vectors of every key."""
        collection = self._collection
        answer = await self._client.lookup(collection.ask(features), **collection.fields)
        sizes = collection.sizes(answer.version)
        if sizes is None:
            model = await self._client.model(collection.model, answer.version)
            sizes = collection.learn(answer.version, model)
        return collection.vectors(answer, sizes)
