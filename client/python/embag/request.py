"""Builds requests: queries, groups of features, and the fields of a whole request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypedDict, Union, cast

import numpy as np
from numpy.typing import ArrayLike

from embag import dtypes
from embag.errors import Places
from embag.expected import Expected, Extent
from embag.sequences import Sequence as Rows
from embag.v1 import embedding_bag_pb2 as pb


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
    priority: int
    traceparent: str


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

    __slots__ = ('extent', 'message')

    def __init__(self, table: str, indices: ArrayLike, *, offsets: ArrayLike | None = None,
                 lengths: ArrayLike | None = None, segment_ids: ArrayLike | None = None,
                 num_segments: int = 0, num_bags: int = 0, include_last_offset: bool = False,
                 weights: ArrayLike | None = None, reduction: str | None = None,
                 missing: str | None = None, default_index: int | None = None, max_len: int = 0,
                 keep_first: bool = False, pad: bool = False, unique: bool = False) -> None:
        rows = Rows(max_len, keep_first, pad, unique)
        self.message = message = pb.BagQuery(
            table=table, reduction=dtypes.number_of('REDUCTION_', reduction),
            missing=dtypes.number_of('MISSING_', missing), num_segments=num_segments,
            num_bags=num_bags, include_last_offset=include_last_offset, **rows.fields())
        layouts = {'offsets': offsets, 'lengths': lengths, 'segment_ids': segment_ids}
        said = {name: values for name, values in layouts.items() if values is not None}
        count = _set_integers(message, 'indices', indices)
        _set_packed(message, np.shape(indices), bool(said))
        if len(said) > 1:
            raise ValueError('bags are given twice: by %s' % ' and by '.join(said))
        bags = num_segments or message.num_bags
        for name, values in said.items():
            entries = _set_integers(message, name, values)
            if name != 'segment_ids':
                bags = entries - include_last_offset if entries else num_bags
            message.layout = dtypes.number_of('BAG_LAYOUT_', name.replace('_ids', 's'))
        if weights is not None:
            message.weights, message.weights_type = dtypes.weight_bytes(weights, count)
        if default_index is not None:
            message.default_index = default_index
        self.extent = Extent(bags, count, message.reduction, rows=rows)


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

    __slots__ = ('extent', 'message')

    def __init__(self, features: str | Sequence[str], values: ArrayLike, lengths: ArrayLike, *,
                 bags: int | None = None, weights: ArrayLike | None = None,
                 reduction: str | None = None, missing: str | None = None, max_len: int = 0,
                 keep_first: bool = False, pad: bool = False, unique: bool = False) -> None:
        rows = Rows(max_len, keep_first, pad, unique)
        sizes = dtypes.lengths(lengths)
        if bags is None and sizes.ndim != 2:
            raise ValueError('lengths has %d dims, not 2: bags must be given' % sizes.ndim)
        if bags is not None and sizes.ndim == 2 and bags != sizes.shape[1]:
            raise ValueError('bags is %d, but lengths of shape %s has %d bags'
                             % (bags, sizes.shape, sizes.shape[1]))
        self.message = message = pb.FeatureGroup(
            bags=sizes.shape[1] if bags is None else bags,
            reduction=dtypes.number_of('REDUCTION_', reduction),
            missing=dtypes.number_of('MISSING_', missing), **rows.fields())
        if isinstance(features, str):
            message.name = features
        else:
            message.features.extend(features)
        count = _set_integers(message, 'values', values)
        self.extent = Extent(message.bags, count, message.reduction, len(message.features), rows)
        message.lengths_i32 = sizes.tobytes()
        if weights is not None:
            message.weights, message.weights_type = dtypes.weight_bytes(weights, count)


Asked = Union[Query, Group, Sequence[Union[Query, Group]]]


class Request:
    """A message that is ready to be sent, and what is needed to check its answer."""

    def __init__(self, asked: str | Asked, indices: ArrayLike | None,
                 fields: LookupFields) -> None:
        options = {name: value for name, value in fields.items()
                   if name in RequestFields.__annotations__}
        rest = {name: value for name, value in fields.items() if name not in options}
        if isinstance(asked, str):
            if indices is None:
                raise TypeError('a lookup by table name needs indices')
            asked = Query(asked, indices, **cast(QueryFields, rest))
        elif rest or indices is not None:
            raise TypeError('%s: expected in the queries and groups, not as arguments of the lookup'
                            % ', '.join(rest or ['indices']))
        several = [asked] if isinstance(asked, (Query, Group)) else list(asked)
        queries = {n: each for n, each in enumerate(several) if isinstance(each, Query)}
        groups = {n: each for n, each in enumerate(several) if isinstance(each, Group)}
        self.places = Places(tuple(queries), tuple(groups))
        self.message = _message(**cast(RequestFields, options))
        self.message.queries.extend(query.message for query in queries.values())
        self.message.groups.extend(group.message for group in groups.values())
        self.expected = Expected(
            self.places, (*(query.extent for query in queries.values()),
                          *(group.extent for group in groups.values())),
            version=self.message.version, output_type=self.message.output_type,
            concat=self.message.concat, errors_per_query=self.message.errors_per_query,
            report_missing=self.message.report_missing)


def _message(*, model: str = '', version: int = 0, version_label: str = '',
             output_type: str | None = None, concat: bool = False, errors_per_query: bool = False,
             report_missing: bool = False, priority: int = 0,
             traceparent: str = '') -> pb.LookupRequest:
    return pb.LookupRequest(
        model=model, version=version, version_label=version_label, concat=concat,
        output_type=dtypes.number_of('DATA_TYPE_', output_type), priority=priority,
        errors_per_query=errors_per_query, report_missing=report_missing, traceparent=traceparent)


def _set_integers(message: pb.BagQuery | pb.FeatureGroup, field: str, values: ArrayLike) -> int:
    """Sets the field to `values` and returns their number."""
    array = dtypes.integers(values, field)
    setattr(message, '%s_i%d' % (field, 8 * array.itemsize), array.tobytes())
    return array.size


def _set_packed(message: pb.BagQuery, shape: tuple[int, ...], has_layout: bool) -> None:
    """Sets the packed layout if the indices are two-dimensional."""
    if len(shape) < 2:
        return
    if has_layout or len(shape) > 2:
        raise ValueError('indices of shape %s: expected one dim, or two dims without offsets, '
                         'lengths or segment_ids' % (shape,))
    if message.num_bags not in (0, shape[0]):
        raise ValueError('num_bags is %d, but indices of shape %s are %d bags'
                         % (message.num_bags, shape, shape[0]))
    message.layout = pb.BAG_LAYOUT_PACKED
    message.num_bags, message.indices_per_bag = shape
