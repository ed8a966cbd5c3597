"""TorchRec's EmbeddingBagCollection, its tables in a server. Nothing here needs PyTorch: what
comes in has the methods of a KeyedJaggedTensor, what goes out those of a KeyedTensor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol, TypedDict, Unpack

import numpy as np
from numpy.typing import NDArray

from embag.answer import Answer
from embag.catalogue import row_size, tables_by_name
from embag.client import Client
from embag.expected import refuse
from embag.request import Group, RequestFields
from embag.v1 import embedding_bag_pb2 as pb


class KeyedJagged(Protocol):
    """What is used of a KeyedJaggedTensor: with F keys and B = stride(), lengths() is [F * B], and
    values() and weights are [sum of lengths], key by key, bag by bag."""

    def keys(self) -> Sequence[str]: ...
    def stride(self) -> int: ...
    def lengths(self) -> Any: ...
    def values(self) -> Any: ...
    def weights_or_none(self) -> Any: ...


class KeyedVectors:
    """Has the methods of a KeyedTensor: values() is [bags, sum of length_per_key()], and [key] its
    columns of one key. KeyError: there is no such key."""

    def __init__(self, keys: Sequence[str], lengths: Sequence[int], values: Any) -> None:
        self._keys = list(keys)
        self._lengths = list(lengths)
        self._offsets = [0, *accumulate(lengths)]
        self._values = values

    def keys(self) -> list[str]:
        """In the order of the columns."""
        return self._keys

    def values(self) -> Any:
        """The vectors of all keys, side by side."""
        return self._values

    def key_dim(self) -> int:
        """The dim along which keys lie."""
        return 1

    def length_per_key(self) -> list[int]:
        """Columns of each key."""
        return self._lengths

    def offset_per_key(self) -> list[int]:
        """[keys + 1] where each key's columns begin, and where the last one's end."""
        return self._offsets

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        number = self._keys.index(key)
        return self._values[:, self._offsets[number]:self._offsets[number + 1]]

    def to_dict(self) -> dict[str, Any]:
        """The vectors [bags, columns] of each key."""
        return {key: self[key] for key in self._keys}


def _numpy(tensor: Any) -> NDArray[Any]:
    """An array, or a tensor of PyTorch wherever it is."""
    if hasattr(tensor, 'detach'):
        tensor = tensor.detach().cpu()
    return np.asarray(tensor)


class _Bags:
    """A KeyedJagged, taken apart."""

    def __init__(self, jagged: KeyedJagged, is_weighted: bool) -> None:
        self._places = {key: number for number, key in enumerate(jagged.keys())}
        self.lengths = _numpy(jagged.lengths())
        if self.lengths.size != len(self._places) * jagged.stride():
            raise ValueError('%d lengths, not %d keys of %d bags each' % (
                self.lengths.size, len(self._places), jagged.stride()))
        self.lengths = self.lengths.reshape(len(self._places), jagged.stride())
        self._ends = np.concatenate([[0], np.cumsum(self.lengths.sum(axis=1, dtype=np.int64))])
        self._values = _numpy(jagged.values())
        self._weights = None
        if is_weighted:
            weights = jagged.weights_or_none()
            if weights is None:
                raise ValueError('no weights, and is_weighted')
            self._weights = _numpy(weights)

    def _part(self, array: NDArray[Any], rows: list[int]) -> NDArray[Any]:
        """Of values or weights those of some keys; all of them are not copied."""
        if rows == list(range(len(self._places))):
            return array
        parts = [array[self._ends[row]:self._ends[row + 1]] for row in rows]
        return np.concatenate([array[:0], *parts])

    def group(self, keys: Sequence[str], names: Sequence[str], **fields: Any) -> Group:
        """The bags of some keys. KeyError: one of them is not there."""
        rows = [self._places[key] for key in keys]
        weights = None if self._weights is None else self._part(self._weights, rows)
        return Group(names, self._part(self._values, rows), self.lengths[rows], weights=weights,
                     **fields)


class CollectionFields(TypedDict, total=False):
    """Of a `RemoteEmbeddingBagCollection`, by name."""

    model: str
    reduction: str | Mapping[str, str] | None
    is_weighted: bool
    output_type: str | None
    missing: str | None
    convert: Callable[[NDArray[Any]], Any] | None


class Collection:
    """What `RemoteEmbeddingBagCollection` asks and makes of the answer, without the asking."""

    def __init__(self, features: Sequence[str] | Mapping[str, str], *, model: str = '',
                 reduction: str | Mapping[str, str] | None = None, is_weighted: bool = False,
                 output_type: str | None = 'f32', missing: str | None = None,
                 convert: Callable[[NDArray[Any]], Any] | None = None) -> None:
        self.model = model
        self.fields: RequestFields = {'model': model, 'output_type': output_type}
        self._names = (dict(features) if isinstance(features, Mapping)
                       else {key: key for key in features})
        self._is_weighted = is_weighted
        self._missing = missing
        self._convert = convert
        # Keys that are reduced alike go into one group.
        self._groups: dict[str | None, list[str]] = {}
        for key in self._names:
            said = reduction.get(key) if isinstance(reduction, Mapping) else reduction
            self._groups.setdefault(said, []).append(key)
        self._known: tuple[int, dict[str, int]] = 0, {}

    def ask(self, jagged: KeyedJagged) -> list[Group]:
        """The groups to look up."""
        bags = _Bags(jagged, self._is_weighted)
        return [bags.group(keys, [self._names[key] for key in keys], reduction=reduction,
                           missing=self._missing) for reduction, keys in self._groups.items()]

    def sizes(self, version: int) -> dict[str, int] | None:
        """Columns of each key in a version; None: it is not the one it was last told of."""
        known, sizes = self._known
        return sizes if known == version and sizes else None

    def learn(self, version: int, model: pb.Model) -> dict[str, int]:
        """Tells it of a version; returns what sizes() will."""
        tables = tables_by_name(model, version)
        for name in self._names.values():
            if name not in tables:
                refuse('version %d has answered for %r, and its description does not have that'
                       % (version, name))
        sizes = {key: row_size(tables[name]) for key, name in self._names.items()}
        self._known = version, sizes
        return sizes

    def vectors(self, answer: Answer, sizes: dict[str, int]) -> KeyedVectors:
        """What the answer says of each key."""
        arrays = [result.values for result in answer]
        for keys, array in zip(self._groups.values(), arrays):
            if array.shape[1] != sum(sizes[key] for key in keys):
                refuse('%d columns, and the model describes %s for %s' % (
                    array.shape[1], [sizes[key] for key in keys], keys))
        values = arrays[0] if len(arrays) == 1 else self._woven(arrays, sizes)
        lengths = [sizes[key] for key in self._names]
        return KeyedVectors(list(self._names), lengths,
                            self._convert(values) if self._convert else values)

    def _woven(self, arrays: list[NDArray[Any]], sizes: dict[str, int]) -> NDArray[Any]:
        """The columns of several groups in the order of the keys."""
        columns: dict[str, NDArray[Any]] = {}
        for keys, array in zip(self._groups.values(), arrays):
            ends = list(accumulate(sizes[key] for key in keys))
            columns.update(zip(keys, np.split(array, ends[:-1], axis=1)))
        return np.concatenate([columns[key] for key in self._names], axis=1)


class RemoteEmbeddingBagCollection:
    """Called with a KeyedJaggedTensor, or what has its methods, it gives the pooled vectors of each
    key, as an EmbeddingBagCollection would.

    - client: an `embag.Client`
    - features: keys to look up, in the order of the output, or a dict from each key to the table or
      feature that the server has for it. Other keys of the input are left out
    - model: its name; may be left out where the server has one only
    - reduction: 'sum', 'mean', ..., for all keys or by key; None: each feature's own. All keys
      with the same one travel as one group
    - is_weighted: whether weights_or_none() holds factors of the rows; otherwise it is not looked
      at. Not with 'mean', 'max' and 'min'
    - output_type: of the vectors; None: the tables', which must have one
    - missing: as of a `Query`
    - convert: makes of the array [bags, columns], which is read-only where there is one group, what
      is wanted: `lambda array: torch.from_numpy(array.copy())`

    A bag without rows is the default row of the feature or table, zeros if it has none. ValueError:
    keys with different numbers of bags. KeyError: a key that is not there. All that `Client.lookup`
    raises.
    """

    def __init__(self, client: Client, features: Sequence[str] | Mapping[str, str],
                 **fields: Unpack[CollectionFields]) -> None:
        self._client = client
        self._collection = Collection(features, **fields)

    def __call__(self, features: KeyedJagged) -> KeyedVectors:
        """The vectors of every key."""
        collection = self._collection
        answer = self._client.lookup(collection.ask(features), **collection.fields)
        sizes = collection.sizes(answer.version)
        if sizes is None:
            model = self._client.model(collection.model, answer.version)
            sizes = collection.learn(answer.version, model)
        return collection.vectors(answer, sizes)
