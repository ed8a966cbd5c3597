"""A replacement for TorchRec's EmbeddingBagCollection whose tables are in a server.

It does not need PyTorch: the input has the methods of a KeyedJaggedTensor, and the output has those
of a KeyedTensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Protocol, TypedDict

import numpy as np
from numpy.typing import NDArray

from embag.answer import Answer
from embag.catalogue import row_size, tables_by_name
from embag.client import Client
from embag.expected import refuse
from embag.request import Group, RequestFields
from embag.typed import Unpack
from embag.v1 import embedding_bag_pb2 as pb


class KeyedJagged(Protocol):
    """The methods of a KeyedJaggedTensor that this module uses.

    With F keys and B = stride(), lengths() is [F * B]. values() and the weights are [sum of
    lengths], ordered by key and then by bag.
    """

    def keys(self) -> Sequence[str]: ...
    def stride(self) -> int: ...
    def lengths(self) -> Any: ...
    def values(self) -> Any: ...
    def weights_or_none(self) -> Any: ...


class KeyedVectors:
    """Pooled vectors by key, with the methods of a KeyedTensor.

    values() is [bags, sum of length_per_key()], and `vectors[key]` is the columns of one key. An
    unknown key raises KeyError.
    """

    def __init__(self, keys: Sequence[str], lengths: Sequence[int], values: Any) -> None:
        self._keys = list(keys)
        self._lengths = list(lengths)
        self._offsets = [0, *accumulate(lengths)]
        self._values = values

    def keys(self) -> list[str]:
        """Returns the keys in the order of their columns."""
        return self._keys

    def values(self) -> Any:
        """Returns the vectors of all keys, side by side."""
        return self._values

    def key_dim(self) -> int:
        """Returns the dim along which the keys are concatenated."""
        return 1

    def length_per_key(self) -> list[int]:
        """Returns the number of columns of each key."""
        return self._lengths

    def offset_per_key(self) -> list[int]:
        """Returns [keys + 1] offsets: the first column of each key, then the end of the last."""
        return self._offsets

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise KeyError(key)
        number = self._keys.index(key)
        return self._values[:, self._offsets[number]:self._offsets[number + 1]]

    def to_dict(self) -> dict[str, Any]:
        """Returns the vectors [bags, columns] of each key."""
        return {key: self[key] for key in self._keys}


def _numpy(tensor: Any) -> NDArray[Any]:
    """Returns an array, or a PyTorch tensor on any device, as a NumPy array."""
    if hasattr(tensor, 'detach'):
        tensor = tensor.detach().cpu()
    return np.asarray(tensor)


class _Bags:
    """The arrays of a KeyedJagged.

    Raises ValueError if its keys have different numbers of bags, or if weights are required and it
    has none.
    """

    def __init__(self, jagged: KeyedJagged, is_weighted: bool) -> None:
        self._places = {key: number for number, key in enumerate(jagged.keys())}
        self.lengths = _numpy(jagged.lengths())
        if self.lengths.size != len(self._places) * jagged.stride():
            raise ValueError('%d lengths: expected %d keys with %d bags each' % (
                self.lengths.size, len(self._places), jagged.stride()))
        self.lengths = self.lengths.reshape(len(self._places), jagged.stride())
        self._ends = np.concatenate([[0], np.cumsum(self.lengths.sum(axis=1, dtype=np.int64))])
        self._values = _numpy(jagged.values())
        self._weights = None
        if is_weighted:
            weights = jagged.weights_or_none()
            if weights is None:
                raise ValueError('is_weighted is set, but the input has no weights')
            self._weights = _numpy(weights)

    def _part(self, array: NDArray[Any], rows: list[int]) -> NDArray[Any]:
        """Returns the values or weights of some keys, without a copy if these are all keys."""
        if rows == list(range(len(self._places))):
            return array
        parts = [array[self._ends[row]:self._ends[row + 1]] for row in rows]
        return np.concatenate([array[:0], *parts])

    def group(self, keys: Sequence[str], names: Sequence[str], **fields: Any) -> Group:
        """Returns the bags of some keys. Raises KeyError for a key that the input does not have."""
        rows = [self._places[key] for key in keys]
        weights = None if self._weights is None else self._part(self._weights, rows)
        return Group(names, self._part(self._values, rows), self.lengths[rows], weights=weights,
                     **fields)


class CollectionFields(TypedDict, total=False):
    """Keyword arguments of a `RemoteEmbeddingBagCollection`."""

    model: str
    reduction: str | Mapping[str, str] | None
    is_weighted: bool
    output_type: str | None
    missing: str | None
    convert: Callable[[NDArray[Any]], Any] | None


class Collection:
    """The part of `RemoteEmbeddingBagCollection` that does no I/O, for both clients.

    It builds the request and converts the answer.
    """

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
        # Keys with the same reduction go into one group.
        self._groups: dict[str | None, list[str]] = {}
        for key in self._names:
            said = reduction.get(key) if isinstance(reduction, Mapping) else reduction
            self._groups.setdefault(said, []).append(key)
        self._known: tuple[int, dict[str, int]] = 0, {}

    def traced(self, traceparent: str) -> RequestFields:
        """Returns the fields of a request that belongs to a trace."""
        fields = self.fields.copy()
        fields['traceparent'] = traceparent
        return fields

    def ask(self, jagged: KeyedJagged) -> list[Group]:
        """Returns the groups to look up."""
        bags = _Bags(jagged, self._is_weighted)
        return [bags.group(keys, [self._names[key] for key in keys], reduction=reduction,
                           missing=self._missing) for reduction, keys in self._groups.items()]

    def sizes(self, version: int) -> dict[str, int] | None:
        """Returns the number of columns of each key in `version`.

        Returns None unless `version` was the last one passed to `learn`.
        """
        known, sizes = self._known
        return sizes if known == version and sizes else None

    def learn(self, version: int, model: pb.Model) -> dict[str, int]:
        """Stores the number of columns of each key in `version`, and returns them.

        Raises `Internal` if the model's description lacks one of the names.
        """
        tables = tables_by_name(model, version)
        for name in self._names.values():
            if name not in tables:
                refuse('it is from version %d and has %r, which the description of that version '
                       'does not have' % (version, name))
        sizes = {key: row_size(tables[name]) for key, name in self._names.items()}
        self._known = version, sizes
        return sizes

    def vectors(self, answer: Answer, sizes: dict[str, int]) -> KeyedVectors:
        """Returns the vectors of each key in an answer."""
        arrays = [result.values for result in answer]
        for keys, array in zip(self._groups.values(), arrays):
            if array.shape[1] != sum(sizes[key] for key in keys):
                refuse('%d columns, but the model describes %s for %s' % (
                    array.shape[1], [sizes[key] for key in keys], keys))
        values = arrays[0] if len(arrays) == 1 else self._woven(arrays, sizes)
        lengths = [sizes[key] for key in self._names]
        return KeyedVectors(list(self._names), lengths,
                            self._convert(values) if self._convert else values)

    def _woven(self, arrays: list[NDArray[Any]], sizes: dict[str, int]) -> NDArray[Any]:
        """Returns the columns of several groups, rearranged into the order of the keys."""
        columns: dict[str, NDArray[Any]] = {}
        for keys, array in zip(self._groups.values(), arrays):
            ends = list(accumulate(sizes[key] for key in keys))
            columns.update(zip(keys, np.split(array, ends[:-1], axis=1)))
        return np.concatenate([columns[key] for key in self._names], axis=1)


class RemoteEmbeddingBagCollection:
    """Looks up and pools the bags of each key of a KeyedJaggedTensor.

    Call it with a KeyedJaggedTensor, or an object that has the same methods. It returns the pooled
    vectors of each key, as an EmbeddingBagCollection would.

    - client: an `embag.Client`
    - features: keys to look up, in the order of the output, or a dict from each key to its table or
      feature in the server. Other keys of the input are ignored
    - model: name of the model; may be left out if the server has only one
    - reduction: 'sum', 'mean', ..., for all keys or by key; None: each feature's own. All keys
      with the same reduction are sent as one group
    - is_weighted: whether weights_or_none() holds factors of the rows. If not, it is not called.
      Not with 'mean', 'max' and 'min'
    - output_type: type of the vectors; None: type of the tables, which must all have the same
    - missing: as in a `Query`
    - convert: function that converts the array [bags, columns] to the result of values(), for
      example `lambda array: torch.from_numpy(array.copy())`. The array is read-only if there is
      only one group

    The vector of a bag without rows is the default row of the feature or table, the default vector
    of the table, or zeros if it has none. Raises ValueError for keys with different numbers of
    bags, KeyError for a key that the input does not have, and everything that `Client.lookup`
    raises.
    """

    def __init__(self, client: Client, features: Sequence[str] | Mapping[str, str],
                 **fields: Unpack[CollectionFields]) -> None:
        self._client = client
        self._collection = Collection(features, **fields)

    def __call__(self, features: KeyedJagged, *, traceparent: str = '') -> KeyedVectors:
        """Returns the pooled vectors of all keys.

        - traceparent: as in `embag.request.RequestFields`
        """
        collection = self._collection
        answer = self._client.lookup(collection.ask(features), **collection.traced(traceparent))
        sizes = collection.sizes(answer.version)
        if sizes is None:
            model = self._client.model(collection.model, answer.version)
            sizes = collection.learn(answer.version, model)
        return collection.vectors(answer, sizes)
