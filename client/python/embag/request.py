"""Builds requests: queries, groups of features, and the fields of a whole request."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, TypedDict, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from embag import dtypes, wire
from embag.dtypes import INT64, number_of
from embag.errors import Places
from embag.expected import Expected, Extent, Facts
from embag.sequences import Sequence as Rows
from embag.v1 import embedding_bag_pb2 as pb
from embag.wire import varint


class QueryFields(TypedDict, total=False):
    """Keyword arguments of a `Query`."""

    offsets: ArrayLike | None
    lengths: ArrayLike | None
    segment_ids: ArrayLike | None
    num_segments: int
    num_bags: int
    include_last_offset: bool
    weights: ArrayLike | None
    reduction: str | None
    missing: str | None
    default_index: int | None
    max_len: int
    keep_first: bool
    pad: bool
    unique: bool


class RequestFields(TypedDict, total=False):
    """Fields that apply to all queries of a request.

    - model: name of the model; may be left out if the server has only one
    - version: number of a version, for example that of an earlier answer; 0: the one being served
    - version_label: label of a version, as set in the model, instead of its number
    - output_type: type of all results, 'f32', 'f16', 'bf16' or 'f64'; None: each table's own
    - concat: whether to return one result [bags, sum of row sizes], with the queries' vectors side
      by side
    - errors_per_query: whether a query that fails gets a result with an `error`, while the others
      are answered
    - report_missing: whether results have `missing_positions`
    - allow_incomplete: whether a router answers even if it cannot reach a part of a table: the
      indices whose rows are there are left out, and the answer is `incomplete`. Other servers
      ignore it
    - priority: 0, or 1 for requests that yield to those with 0
    - traceparent: W3C trace context of the caller, for the server's log; an invalid one is ignored
    """

    model: str
    version: int
    version_label: str
    output_type: str | None
    concat: bool
    errors_per_query: bool
    report_missing: bool
    allow_incomplete: bool
    priority: int
    traceparent: str


_REQUEST_FIELDS = frozenset(RequestFields.__annotations__)
_ONE_QUERY = Places([0], [])
_LAYOUTS = {'': pb.BAG_LAYOUT_UNSPECIFIED, 'offsets': pb.BAG_LAYOUT_OFFSETS,
            'lengths': pb.BAG_LAYOUT_LENGTHS, 'segment_ids': pb.BAG_LAYOUT_SEGMENTS,
            'packed': pb.BAG_LAYOUT_PACKED}
# Tags of fields that are encoded here.
_QUERIES, _GROUPS = wire.tag(pb.LookupRequest, 'queries'), wire.tag(pb.LookupRequest, 'groups')
_INDICES, _OFFSETS, _LENGTHS, _SEGMENT_IDS = (
    wire.array_tags(pb.BagQuery, field)
    for field in ('indices', 'offsets', 'lengths', 'segment_ids'))
_WEIGHTS = wire.tag(pb.BagQuery, 'weights')
_VALUES = wire.array_tags(pb.FeatureGroup, 'values')
_GROUP_LENGTHS = wire.tag(pb.FeatureGroup, 'lengths_i32')
_GROUP_WEIGHTS = wire.tag(pb.FeatureGroup, 'weights')


class LookupFields(QueryFields, RequestFields, total=False):
    """Fields of a request with one query."""


class Query:
    """One lookup in one table or feature; may be used in any number of requests.

    - table: name of a table or feature
    - indices: [num_indices] or [bags, indices_per_bag] integers: row numbers, or keys of a keyed
      table, which may be unsigned. int32 is sent as int32, all others as int64
    - offsets: [bags] position in the indices at which each bag begins; the last bag extends to the
      end. With include_last_offset [bags + 1], and the last entry is the end of the last bag
    - lengths: [bags] number of indices of each bag, instead of offsets
    - segment_ids, num_segments: [num_indices] the bag of each index, in any order, and the number
      of bags, instead of offsets
    - num_bags: number of bags if nothing else determines it: 1 makes one bag of all indices. With
      two-dimensional indices it is 0 or their first dim
    - weights: factor of each row, in the shape of the indices; of the table's type, or float32 for
      any floating-point table. A list is converted to float32
    - reduction: 'sum', 'mean', 'weighted_mean', 'sqrtn', 'max', 'min', 'none'; None: the feature's
      own, or 'sum' for a table
    - missing: 'error', 'skip', 'zero', 'unknown_row': what happens if an index names no row; None:
      the feature's or table's own, 'error' if it has none
    - default_index: row, or key, that is the result of empty bags; None: the feature's or table's
      own, which may be a vector, zeros if it has none; -1: zeros, unless the table is keyed

    With 'none', these read the rows of each bag in sequence; `lengths` of the result says how many
    rows each bag has:

    - max_len: most rows of a bag, of which a longer one keeps the last; 0: no limit
    - keep_first: whether a longer bag keeps its first rows instead
    - pad: whether zeros fill every bag up to max_len rows
    - unique: whether each row comes once; `inverse` of the result has the row of each index

    The result is [bags, trailing dims of the table], or with 'none' [num_indices, trailing dims];
    of a sequence [rows, trailing dims], with `pad` [bags, max_len, trailing dims].
    Raises TypeError and ValueError for arguments that cannot be encoded. The server checks the
    rest.
    """

    __slots__ = ('data', 'extent')

    def __init__(self, table: str, indices: ArrayLike, *, offsets: ArrayLike | None = None,
                 lengths: ArrayLike | None = None, segment_ids: ArrayLike | None = None,
                 num_segments: int = 0, num_bags: int = 0, include_last_offset: bool = False,
                 weights: ArrayLike | None = None, reduction: str | None = None,
                 missing: str | None = None, default_index: int | None = None, max_len: int = 0,
                 keep_first: bool = False, pad: bool = False, unique: bool = False) -> None:
        array = np.asarray(indices)
        if array.dtype is not INT64:
            array = dtypes.integers(array, 'indices')
        data = array.tobytes()
        parts = [_INDICES[array.itemsize], varint(len(data)), data] if data else []
        count, bags, layout = array.size, num_segments or num_bags, ''
        if offsets is not None:
            layout = 'offsets'
            entries = _add_integers(parts, _OFFSETS, layout, offsets).size
            bags = entries - include_last_offset if entries else num_bags
        if lengths is not None:
            layout = _only(layout, 'lengths')
            bags = _add_integers(parts, _LENGTHS, layout, lengths).size or num_bags
        if segment_ids is not None:
            layout = _only(layout, 'segment_ids')
            _add_integers(parts, _SEGMENT_IDS, layout, segment_ids)
        # Most queries have no further fields, and encoding none costs nothing.
        rest: dict[str, Any] = {}
        if num_segments:
            rest['num_segments'] = num_segments
        if num_bags:
            rest['num_bags'] = num_bags
        if include_last_offset:
            rest['include_last_offset'] = include_last_offset
        if default_index is not None:
            rest['default_index'] = default_index
        rows = None
        if max_len or keep_first or pad or unique:
            rows = Rows(max_len, keep_first, pad, unique)
            rest.update(rows.fields())
        if array.ndim > 1:
            bags, rest['indices_per_bag'] = _packed(array.shape, layout, num_bags)
            layout, rest['num_bags'] = 'packed', bags
        if weights is not None:
            data, rest['weights_type'] = dtypes.weight_bytes(weights, count)
            _add_bytes(parts, _WEIGHTS, data)
        if rest:
            parts.append(pb.BagQuery(**rest).SerializeToString())
        head, number = _encoded_query(table, layout, reduction, missing)
        parts.append(head)
        self.data = b''.join(parts)
        self.extent: Extent = bags, count, number, None, rows

    @property
    def message(self) -> pb.BagQuery:
        """Returns the query as a message."""
        return pb.BagQuery.FromString(self.data)


@functools.lru_cache(maxsize=4096)
def _encoded_query(table: str, layout: str, reduction: str | None,
                   missing: str | None) -> tuple[bytes, int]:
    """Returns a query without numbers and arrays, and the number of its reduction."""
    query = pb.BagQuery(
        table=table, layout=_LAYOUTS[layout], reduction=number_of('REDUCTION_', reduction),
        missing=number_of('MISSING_', missing))
    return query.SerializeToString(), query.reduction


class Group:
    """Bags of many features in jagged form.

    Its one result is [bags, sum of row sizes], with the features' vectors side by side. With 'none'
    it is [rows, row size], with the rows feature by feature, bag by bag, and `lengths` and
    `inverse` of the result are flattened in the same order; with `pad` it is [features * bags,
    max_len, row size].

    - features: names of features or tables, or the name of a list of features in the model
    - values: [num_values] integers, ordered by feature and then by bag
    - lengths: [features, bags], or flattened if `bags` is given: number of values of each bag, in
      [0, 2**31)
    - bags: number of bags of every feature; may be left out if `lengths` has two dims
    - weights, reduction, missing: as in a `Query`, for all features; None: each feature's own
    - max_len, keep_first, pad, unique: as in a `Query`; `unique` has each row once per feature

    Raises TypeError and ValueError as a `Query` does.
    """

    __slots__ = ('data', 'extent')

    def __init__(self, features: str | Sequence[str], values: ArrayLike, lengths: ArrayLike, *,
                 bags: int | None = None, weights: ArrayLike | None = None,
                 reduction: str | None = None, missing: str | None = None, max_len: int = 0,
                 keep_first: bool = False, pad: bool = False, unique: bool = False) -> None:
        rows = Rows(max_len, keep_first, pad, unique)
        sizes, data = dtypes.lengths(lengths)
        if bags is None and sizes.ndim != 2:
            raise ValueError('lengths has %d dims, not 2: bags must be given' % sizes.ndim)
        if bags is not None and sizes.ndim == 2 and bags != sizes.shape[1]:
            raise ValueError('bags is %d, but lengths of shape %s has %d bags'
                             % (bags, sizes.shape, sizes.shape[1]))
        parts: list[bytes] = []
        _add_bytes(parts, _GROUP_LENGTHS, data)
        count = _add_integers(parts, _VALUES, 'values', values).size
        if bags is None:
            bags = sizes.shape[1]
        rest: dict[str, Any] = {'bags': bags, **rows.fields()}
        if weights is not None:
            data, rest['weights_type'] = dtypes.weight_bytes(weights, count)
            _add_bytes(parts, _GROUP_WEIGHTS, data)
        parts.append(pb.FeatureGroup(**rest).SerializeToString())
        names = features if isinstance(features, str) else tuple(features)
        head, number = _encoded_group(names, reduction, missing)
        parts.append(head)
        self.data = b''.join(parts)
        listed = 0 if isinstance(names, str) else len(names)
        self.extent: Extent = bags, count, number, listed, rows if any(rows) else None

    @property
    def message(self) -> pb.FeatureGroup:
        """Returns the group as a message."""
        return pb.FeatureGroup.FromString(self.data)


@functools.lru_cache(maxsize=256)
def _encoded_group(features: str | tuple[str, ...], reduction: str | None,
                   missing: str | None) -> tuple[bytes, int]:
    """Returns a group without numbers and arrays, and the number of its reduction."""
    group = pb.FeatureGroup(reduction=number_of('REDUCTION_', reduction),
                            missing=number_of('MISSING_', missing))
    if isinstance(features, str):
        group.name = features
    else:
        group.features.extend(features)
    return group.SerializeToString(), group.reduction


Asked = Union[Query, Group, Sequence[Union[Query, Group]]]


class Request:
    """A message that is ready to be sent, and what is needed to check its answer.

    - data: the encoded message
    """

    __slots__ = ('data', 'expected', 'places')

    def __init__(self, asked: str | Asked, indices: ArrayLike | None,
                 fields: LookupFields) -> None:
        own: Any = {}
        rest: Any = {}
        for name, value in fields.items():
            if name in _REQUEST_FIELDS:
                own[name] = value
            else:
                rest[name] = value
        if isinstance(asked, str):
            if indices is None:
                raise TypeError('a lookup by table name needs indices')
            asked = Query(asked, indices, **rest)
        elif rest or indices is not None:
            raise TypeError('%s: expected in the queries and groups, not as arguments of the lookup'
                            % ', '.join(rest or ['indices']))
        traceparent = own.pop('traceparent', '')
        head, facts = _encoded_fields(**own)
        if traceparent:
            head += pb.LookupRequest(traceparent=traceparent).SerializeToString()
        extents: Sequence[Extent]
        if isinstance(asked, Query):
            self.data = b''.join((head, _QUERIES, varint(len(asked.data)), asked.data))
            self.places, extents = _ONE_QUERY, (asked.extent,)
        else:
            several = (asked,) if isinstance(asked, Group) else asked
            self.data, self.places, extents = _encoded(head, several)
        self.expected = Expected(self.places, extents, facts)


@functools.lru_cache(maxsize=256)
def _encoded_fields(output_type: str | None = None, **fields: Any) -> tuple[bytes, Facts]:
    """Returns a request without queries and groups, and the facts that its answer must fit."""
    message = pb.LookupRequest(output_type=number_of('DATA_TYPE_', output_type), **fields)
    return message.SerializeToString(), Facts(
        message.version, message.output_type, message.concat, message.errors_per_query,
        message.report_missing, message.allow_incomplete)


def _encoded(head: bytes,
             asked: Sequence[Query | Group]) -> tuple[bytes, Places, list[Extent]]:
    """Returns a request of several queries and groups.

    Also returns their positions in `asked`, and their extents in the order of the wire. Raises
    TypeError for anything else.
    """
    places = Places([], [])
    parts, queries, groups = [head], [], []
    for number, each in enumerate(asked):
        if isinstance(each, Query):
            places.queries.append(number)
            queries.append(each.extent)
            parts += _QUERIES, varint(len(each.data)), each.data
        elif isinstance(each, Group):
            places.groups.append(number)
            groups.append(each.extent)
            parts += _GROUPS, varint(len(each.data)), each.data
        else:
            raise TypeError('%r, at position %d, is neither a Query nor a Group' % (each, number))
    return b''.join(parts), places, queries + groups


def _add_integers(parts: list[bytes], tags: dict[int, bytes], name: str,
                  values: ArrayLike) -> NDArray[Any]:
    """Encodes values into `parts` and returns them as an array. Errors have `name`."""
    array = np.asarray(values)
    if array.dtype is not INT64:
        array = dtypes.integers(array, name)
    if array.size:
        data = array.tobytes()
        parts += tags[array.itemsize], varint(len(data)), data
    return array


def _add_bytes(parts: list[bytes], tag: bytes, data: bytes) -> None:
    """Encodes a field of bytes into `parts`. An empty one is absent."""
    if data:
        parts += tag, varint(len(data)), data


def _only(earlier: str, layout: str) -> str:
    """Returns the layout. Raises ValueError if there is an earlier one."""
    if earlier:
        raise ValueError('bags are given twice: by %s and by %s' % (earlier, layout))
    return layout


def _packed(shape: tuple[int, ...], layout: str, num_bags: int) -> tuple[int, ...]:
    """Returns the number of bags, and of indices in each, of two-dimensional indices."""
    if layout or len(shape) > 2:
        raise ValueError('indices of shape %s: expected one dim, or two dims without offsets, '
                         'lengths or segment_ids' % (shape,))
    if num_bags not in (0, shape[0]):
        raise ValueError('num_bags is %d, but indices of shape %s are %d bags'
                         % (num_bags, shape, shape[0]))
    return shape
