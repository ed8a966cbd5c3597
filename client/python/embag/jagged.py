"""A replacement for TorchRec's EmbeddingBagCollection whose tables are in a server.

It does not need PyTorch: the input has the methods of a KeyedJaggedTensor, and the output has those
of a KeyedTensor. `embag.torch` has nn.Modules that share the code of this module.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, NamedTuple, Protocol, TypedDict, Union, cast

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
    """The methods of a KeyedJaggedTensor that this module needs.

    With F keys and B = stride(), lengths() is [F * B]. values() and the weights are [sum of
    lengths], ordered by key and then by bag.

    Keys may have different numbers of bags if the object also has variable_stride_per_key() and
    stride_per_key(). inverse_indices_or_none() then returns pairs of a list of keys and an array
    [keys, bags of the output], which says for each bag of the output which bag of the key it is.
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


class Output(NamedTuple):
    """One key of the output.

    - key: its name in the output
    - feature: the key of the input whose bags are looked up
    - name: the table or feature in the server
    - reduction: as in a `Query`; None: the feature's own
    """

    key: str
    feature: str
    name: str
    reduction: str | None


Features = Union[Sequence[str], Mapping[str, Union[str, Sequence[str]]]]
Reduction = Union[str, Mapping[str, str], None]


def shared_name(feature: str, name: str) -> str:
    """Returns the output's key for a feature that several tables share, as TorchRec calls it."""
    return '%s@%s' % (feature, name)


def outputs_of(features: Features, reduction: Reduction = None) -> list[Output]:
    """Returns the keys of the output for the arguments of a `RemoteEmbeddingBagCollection`."""
    if isinstance(features, str):
        raise TypeError('features is %r: expected a list of names or a dict' % features)
    every = (features.items() if isinstance(features, Mapping)
             else [(key, key) for key in features])
    outputs = []
    for feature, names in every:
        pairs = ([(feature, names)] if isinstance(names, str)
                 else [(shared_name(feature, name), name) for name in names])
        for key, name in pairs:
            said = (reduction.get(key, reduction.get(feature)) if isinstance(reduction, Mapping)
                    else reduction)
            outputs.append(Output(key, feature, name, said))
    return outputs


def numpy_of(tensor: Any) -> NDArray[Any]:
    """Returns an array, or a PyTorch tensor on any device, as a NumPy array.

    It shares the memory of an array or tensor in host memory.
    """
    if getattr(tensor, 'is_cpu', False) and not tensor.requires_grad:
        return cast('NDArray[Any]', tensor.numpy())
    if hasattr(tensor, 'detach'):
        tensor = tensor.detach().cpu()
    return np.asarray(tensor)


def weights_of(tensor: Any) -> NDArray[Any]:
    """Returns weights as a NumPy array.

    Tensors of bf16 and f16 become float32, which has the same values and fits every floating-point
    table.
    """
    if hasattr(tensor, 'detach') and str(getattr(tensor, 'dtype', '')).endswith('float16'):
        tensor = tensor.float()
    return numpy_of(tensor)


class Bags:
    """The arrays of a KeyedJagged.

    - keys, strides: keys, and number of bags of each

    Raises ValueError if its arrays do not fit together, or if weights are required and it has none.
    """

    def __init__(self, jagged: KeyedJagged, is_weighted: bool = False) -> None:
        self.keys = list(jagged.keys())
        self._places = {key: number for number, key in enumerate(self.keys)}
        self.strides = _strides_of(jagged, len(self.keys))
        self._starts = [0, *accumulate(self.strides)]
        self._lengths = numpy_of(jagged.lengths())
        if self._lengths.size != self._starts[-1]:
            raise ValueError('%d lengths: expected %d keys with %s bags' % (
                self._lengths.size, len(self.keys),
                '%d' % self.strides[0] if len(set(self.strides)) == 1 else self.strides))
        self._values = numpy_of(jagged.values())
        self._weights = None
        if is_weighted:
            weights = jagged.weights_or_none()
            if weights is None:
                raise ValueError('is_weighted is set, but the input has no weights')
            self._weights = weights_of(weights)

    @cached_property
    def _ends(self) -> list[int]:
        """Positions at which the values of each key begin, and the end of the last one's."""
        ends = np.concatenate([[0], np.cumsum(self._lengths, dtype=np.int64)])
        return cast('list[int]', ends[self._starts].tolist())

    def place(self, key: str) -> int:
        """Returns the position of a key. Raises KeyError for a key that the input lacks."""
        place = self._places.get(key)
        if place is None:
            raise KeyError('the input has no key %r: its keys are %s' % (
                key, ', '.join(self.keys) or 'none'))
        return place

    def range(self, key: str) -> slice:
        """Returns the values that belong to one key."""
        place = self.place(key)
        return slice(self._ends[place], self._ends[place + 1])

    def values(self, key: str) -> NDArray[Any]:
        """Returns the values of one key, without a copy."""
        return self._values[self.range(key)]

    def lengths(self, key: str) -> NDArray[Any]:
        """Returns the lengths of the bags of one key, without a copy."""
        return _rows(self._lengths, self._starts, [self.place(key)])

    def weights(self, key: str) -> NDArray[Any] | None:
        """Returns the weights of one key, without a copy, or None if the input has no weights."""
        return None if self._weights is None else self._weights[self.range(key)]

    def group(self, division: Division, missing: str | None) -> Group:
        """Returns the bags of some outputs."""
        values, lengths, weights = self._values, self._lengths, self._weights
        if division.places != list(range(len(self.keys))):
            values = _rows(values, self._ends, division.places)
            lengths = _rows(lengths, self._starts, division.places)
            weights = None if weights is None else _rows(weights, self._ends, division.places)
        return Group(division.names, values, lengths, bags=self.strides[division.places[0]],
                     weights=weights, reduction=division.reduction, missing=missing)

    def check(self) -> None:
        """Raises ValueError if there are not as many values and weights as the lengths say, or if a
        length is negative."""
        if self._lengths.size > 0 and self._lengths.min() < 0:
            raise ValueError('a bag has %d values: expected 0 or more' % self._lengths.min())
        total = int(self._lengths.sum(dtype=np.int64))
        for name, array in ('values', self._values), ('weights', self._weights):
            if array is not None and array.shape != (total,):
                raise ValueError('%s of shape %s: the lengths add up to %d' % (
                    name, array.shape, total))


def _strides_of(jagged: Any, count: int) -> list[int]:
    """Returns the number of bags of each of the `count` keys."""
    if hasattr(jagged, 'variable_stride_per_key') and jagged.variable_stride_per_key():
        strides = [int(stride) for stride in jagged.stride_per_key()]
        if len(strides) != count:
            raise ValueError('%d strides for %d keys' % (len(strides), count))
        return strides
    return [int(jagged.stride())] * count


def _rows(array: NDArray[Any], ends: list[int], rows: list[int]) -> NDArray[Any]:
    """Returns the slices with these numbers, without a copy if they are consecutive.

    Slice n is [ends[n], ends[n + 1]).
    """
    if rows == list(range(rows[0], rows[0] + len(rows))):
        return array[ends[rows[0]]:ends[rows[-1] + 1]]
    return np.concatenate([array[ends[row]:ends[row + 1]] for row in rows])


class Division(NamedTuple):
    """Outputs that have the same reduction and the same number of bags.

    - numbers: their positions in the collection's outputs
    - names: the tables or features in the server
    - places: positions of their keys in the input
    """

    numbers: list[int]
    names: list[str]
    places: list[int]
    reduction: str | None


class Asked(NamedTuple):
    """A lookup of a whole input.

    - groups: the groups to look up
    - divisions: the outputs of each group
    - inverse: for each output, the bag of the input that each bag of the output is; None: they are
      the same bags
    """

    groups: list[Group]
    divisions: list[Division]
    inverse: list[Any] | None

    @property
    def is_whole(self) -> bool:
        """Whether the only result is the output as it is."""
        return len(self.divisions) == 1 and self.inverse is None


class CollectionFields(TypedDict, total=False):
    """Keyword arguments of a `RemoteEmbeddingBagCollection`."""

    model: str
    version: int
    reduction: str | Mapping[str, str] | None
    is_weighted: bool
    output_type: str | None
    missing: str | None
    convert: Callable[[NDArray[Any]], Any] | None


class Collection:
    """The part of every `RemoteEmbeddingBagCollection` that does no I/O.

    It builds the request and divides the answer.
    """

    def __init__(self, outputs: Sequence[Output], *, model: str = '', version: int = 0,
                 is_weighted: bool = False, output_type: str | None = 'f32',
                 missing: str | None = None) -> None:
        if not outputs:
            raise ValueError('the collection has no features: expected at least one')
        self.keys = [output.key for output in outputs]
        for key in self.keys:
            if self.keys.count(key) > 1:
                raise ValueError('two outputs are called %r' % key)
        self.outputs = tuple(outputs)
        self.model = model
        self.is_weighted = is_weighted
        self.missing = missing
        self.fields: RequestFields = {'model': model, 'version': version,
                                      'output_type': output_type}
        self._known: tuple[int, dict[str, int]] = 0, {}
        self._divided: tuple[list[str], list[Division]] = [], []

    def traced(self, traceparent: str) -> RequestFields:
        """Returns the fields of a request that belongs to a trace."""
        fields = self.fields.copy()
        fields['traceparent'] = traceparent
        return fields

    def ask(self, jagged: KeyedJagged) -> Asked:
        """Returns the lookup of an input.

        Outputs with the same reduction and number of bags go into one group.
        """
        bags = Bags(jagged, self.is_weighted)
        inverse = self._inverse(jagged)
        if len(set(bags.strides)) == 1:
            divisions = self._uniform_divisions(bags)
        else:
            divisions = self._divide(bags)
            strides = sorted({bags.strides[each.places[0]] for each in divisions})
            if inverse is None and len(strides) > 1:
                raise ValueError('the keys have %s bags: without inverse_indices, expected the '
                                 'same number for all' % ' or '.join(map(str, strides)))
        groups = [bags.group(division, self.missing) for division in divisions]
        bags.check()
        return Asked(groups, divisions, inverse)

    def _uniform_divisions(self, bags: Bags) -> list[Division]:
        """Returns the divisions of an input whose keys have the same number of bags.

        They are the same for all inputs with the same keys, so those of the last input are kept.
        """
        keys, divisions = self._divided
        if keys != bags.keys:
            divisions = self._divide(bags)
            self._divided = bags.keys, divisions
        return divisions

    def _divide(self, bags: Bags) -> list[Division]:
        divided: dict[tuple[str | None, int], Division] = {}
        for number, output in enumerate(self.outputs):
            place = bags.place(output.feature)
            division = divided.setdefault((output.reduction, bags.strides[place]),
                                          Division([], [], [], output.reduction))
            division.numbers.append(number)
            division.names.append(output.name)
            division.places.append(place)
        return list(divided.values())

    def _inverse(self, jagged: Any) -> list[Any] | None:
        """Returns the input's inverse_indices for each output, or None if it has none."""
        said = (jagged.inverse_indices_or_none()
                if hasattr(jagged, 'inverse_indices_or_none') else None)
        if said is None or 0 in said[1].shape:
            return None
        places = {key: number for number, key in enumerate(said[0])}
        return [said[1][places[output.feature]] for output in self.outputs]

    def sizes(self, version: int) -> dict[str, int] | None:
        """Returns the number of columns of each key in `version`.

        Returns None unless `version` was the last one passed to `learn`.
        """
        known, sizes = self._known
        return sizes if known == version and sizes else None

    def learn(self, version: int, model: pb.Model,
              check: Callable[[dict[str, int]], None] | None = None) -> dict[str, int]:
        """Stores the number of columns of each key in `version`, and returns them.

        Raises `Internal` if the model's description lacks one of the names. If `check` raises an
        error, nothing is stored, so that the next answer raises it too.
        """
        tables = tables_by_name(model, version)
        for output in self.outputs:
            if output.name not in tables:
                refuse('it is from version %d and has %r, which the description of that version '
                       'does not have' % (version, output.name))
        sizes = {output.key: row_size(tables[output.name]) for output in self.outputs}
        if check is not None:
            check(sizes)
        self._known = version, sizes
        return sizes

    def columns(self, asked: Asked, arrays: Sequence[Any], sizes: dict[str, int]) -> list[Any]:
        """Returns the columns of each output, given the results of the groups.

        If the only result is the output as it is, returns that. Raises `Internal` if a result does
        not have the columns of its outputs.
        """
        columns: list[Any] = [None] * len(self.outputs)
        for division, array in zip(asked.divisions, arrays):
            widths = [sizes[self.keys[number]] for number in division.numbers]
            if array.shape[1] != sum(widths):
                refuse('%d columns, but the model describes %s for %s' % (
                    array.shape[1], widths, [self.keys[number] for number in division.numbers]))
            if asked.is_whole:
                return [array]
            for number, end, width in zip(division.numbers, accumulate(widths), widths):
                columns[number] = array[:, end - width:end]
        return columns

    def vectors(self, asked: Asked, answer: Answer, sizes: dict[str, int]) -> KeyedVectors:
        """Returns the vectors of each key in an answer."""
        columns = self.columns(asked, [result.values for result in answer], sizes)
        if asked.inverse is not None:
            columns = [array[numpy_of(bags)] for array, bags in zip(columns, asked.inverse)]
        return KeyedVectors(self.keys, [sizes[key] for key in self.keys],
                            columns[0] if len(columns) == 1 else np.concatenate(columns, axis=1))


class RemoteEmbeddingBagCollection:
    """Looks up and pools the bags of each key of a KeyedJaggedTensor.

    Call it with a KeyedJaggedTensor, or an object that has the same methods. It returns the pooled
    vectors of each key, as an EmbeddingBagCollection would.

    - client: an `embag.Client`
    - features: keys to look up, in the order of the output, or a dict from each key to its table or
      feature in the server. If several tables share a key, the dict has a list for it, and the
      output has a key 'KEY@TABLE' for each of them. Other keys of the input are ignored
    - model: name of the model; may be left out if the server has only one
    - version: number of the version; 0: the one being served
    - reduction: 'sum', 'mean', ..., for all keys or by key; None: each feature's own. All keys
      with the same reduction and number of bags are sent as one group
    - is_weighted: whether weights_or_none() holds factors of the rows. If not, it is not called.
      Not with 'mean', 'max' and 'min'
    - output_type: type of the vectors; None: type of the tables, which must all have the same
    - missing: as in a `Query`
    - convert: function that converts the array [bags, columns] to the result of values(), for
      example `lambda array: torch.from_numpy(array.copy())`. The array is read-only if there is
      only one group

    The vector of a bag without rows is the default row of the feature or table, the default vector
    of the table, or zeros if it has none. Raises ValueError for keys with different numbers of
    bags without inverse_indices, KeyError for a key that the input does not have, and everything
    that `Client.lookup` raises.
    """

    def __init__(self, client: Client, features: Features,
                 **fields: Unpack[CollectionFields]) -> None:
        self._client = client
        self._collection, self._convert = collection_of(features, fields)

    def __call__(self, features: KeyedJagged, *, traceparent: str = '') -> KeyedVectors:
        """Returns the pooled vectors of all keys.

        - traceparent: as in `embag.request.RequestFields`
        """
        collection = self._collection
        asked = collection.ask(features)
        answer = self._client.lookup(asked.groups, **collection.traced(traceparent))
        sizes = collection.sizes(answer.version)
        if sizes is None:
            model = self._client.model(collection.model, answer.version)
            sizes = collection.learn(answer.version, model)
        return converted(collection.vectors(asked, answer, sizes), self._convert)


def collection_of(features: Features, fields: CollectionFields
                  ) -> tuple[Collection, Callable[[NDArray[Any]], Any] | None]:
    """Returns the collection, and the function `convert`, for arguments of the blocking class."""
    rest: Any = dict(fields)
    reduction, convert = rest.pop('reduction', None), rest.pop('convert', None)
    return Collection(outputs_of(features, reduction), **rest), convert


def converted(vectors: KeyedVectors, convert: Callable[[NDArray[Any]], Any] | None
              ) -> KeyedVectors:
    """Returns the vectors with their array converted."""
    if convert is None:
        return vectors
    return KeyedVectors(vectors.keys(), vectors.length_per_key(), convert(vectors.values()))
