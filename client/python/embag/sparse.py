"""A replacement for TensorFlow's `tf.nn.embedding_lookup_sparse` whose table is in a server.

It does not need TensorFlow: the input has the attributes of a SparseTensor. `embag.tensorflow`
takes and returns TensorFlow's tensors.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from embag.catalogue import tables_by_name
from embag.client import Client
from embag.dtypes import BFLOAT16, integers
from embag.expected import refuse
from embag.request import RequestFields
from embag.typed import Unpack
from embag.v1 import embedding_bag_pb2 as pb

# By combiner: the reduction without weights, and with weights.
_REDUCTIONS = {'sum': ('sum', 'sum'), 'mean': ('mean', 'weighted_mean'),
               'sqrtn': ('sqrtn', 'sqrtn')}


class Sparse(Protocol):
    """The used attributes of a SparseTensor: indices [n, 2], values [n], dense_shape [2]."""

    @property
    def indices(self) -> Any: ...
    @property
    def values(self) -> Any: ...
    @property
    def dense_shape(self) -> Any: ...


def embedding_lookup_sparse(client: Client, table: str, sp_ids: Sparse,
                            sp_weights: Sparse | None = None, combiner: str = 'mean',
                            max_norm: None = None,
                            **fields: Unpack[RequestFields]) -> NDArray[Any]:
    """Combines the embeddings of the ids in each row of `sp_ids`.

    Returns [dense_shape[0], trailing dims of the table].

    - combiner: 'sum' of the weighted embeddings; 'mean', that sum divided by the sum of the
      weights; 'sqrtn', that sum divided by the square root of the sum of the squared weights.
      Without sp_weights every weight is 1
    - sp_weights: SparseTensor with the same indices and shape as `sp_ids`; the weights are used as
      float32, or as float64 if the table is. float64 weights cost one more call, which asks the
      server for the table's type

    A row that has no ids, or whose divisor is 0, is zeros. Rows need not be sorted, and the result
    includes trailing rows without ids. Raises TypeError for arguments that are not SparseTensors.
    Raises ValueError for shapes or indices that differ, ids that are not a matrix, another
    combiner, or `max_norm`, which the server does not support. Also raises everything that
    `Client.lookup` raises.
    """
    _check_sparse('sp_ids', sp_ids)
    if sp_weights is not None:
        _check_sparse('sp_weights', sp_weights)
    check_arguments(combiner, max_norm)
    shape, places = np.asarray(sp_ids.dense_shape), integers(sp_ids.indices, 'indices')
    if shape.shape != (2,):
        raise ValueError('sp_ids has %d dims, not 2' % shape.size)
    weights = None
    if sp_weights is not None:
        if not (np.array_equal(sp_weights.dense_shape, shape)
                and np.array_equal(sp_weights.indices, places)):
            raise ValueError('sp_weights and sp_ids have different indices or shapes')
        weights = np.asarray(sp_weights.values)
    rows = Rows(places.reshape(-1, 2)[:, 0], int(shape[0]), np.asarray(sp_ids.values), weights)
    return combine(client, table, rows, combiner, None, fields)


class Rows(NamedTuple):
    """Ids that are to be combined row by row.

    - row: [n] the row of each id, in any order
    - row_count: number of rows
    - ids, weights: [n]; None for weights stands for 1
    """

    row: NDArray[Any]
    row_count: int
    ids: NDArray[Any]
    weights: NDArray[Any] | None

    def kept(self, keep: NDArray[Any]) -> Rows:
        """Returns the ids for which `keep`, a boolean array [n], is true."""
        weights = None if self.weights is None else self.weights[keep]
        return Rows(self.row[keep], self.row_count, self.ids[keep], weights)


def check_arguments(combiner: str, max_norm: object) -> None:
    """Raises ValueError for an unknown combiner and for `max_norm`."""
    if max_norm is not None:
        raise ValueError('max_norm is not supported: the rows of the table are used as they are')
    if combiner not in _REDUCTIONS:
        raise ValueError('unknown combiner %r: expected one of %s' % (
            combiner, ', '.join(_REDUCTIONS)))


def combine(client: Client, table: str, rows: Rows, combiner: str, default_id: int | None,
            fields: RequestFields) -> NDArray[Any]:
    """Combines the embeddings of the ids of each row.

    Returns [row_count, trailing dims of the table]. A row without ids is that of `default_id`, or
    zeros if it is None.
    """
    weights = rows.weights
    if weights is not None:
        weights = _of_wire_type(client, table, weights, fields)
    answer = client.lookup(
        table, rows.ids, segment_ids=rows.row, num_segments=rows.row_count, weights=weights,
        reduction=_REDUCTIONS[combiner][weights is not None], default_index=default_id, **fields)
    return answer.values if default_id is not None else _without_default(answer.values, rows.row)


def _check_sparse(name: str, given: object) -> None:
    for attribute in 'indices', 'values', 'dense_shape':
        if not hasattr(given, attribute):
            raise TypeError('%s is a %s, which has no %s: expected a SparseTensor; convert a '
                            'RaggedTensor with .to_sparse() and a dense tensor with '
                            'tf.sparse.from_dense()' % (name, type(given).__name__, attribute))


def _of_wire_type(client: Client, table: str, weights: NDArray[Any],
                  fields: RequestFields) -> NDArray[Any]:
    """Returns weights in a type that the server takes for the table.

    float16 and bfloat16 become float32, which is exact and which every floating-point table takes.
    So does float64, unless the table is float64.
    """
    if weights.dtype in (np.float16, BFLOAT16) and weights.dtype != np.uint16:
        return weights.astype(np.float32)
    if weights.dtype != np.float64:
        return weights
    model = client.model(fields.get('model', ''), fields.get('version', 0))
    described = tables_by_name(model, fields.get('version', 0)).get(table)
    is_double = described is not None and described.type == pb.DATA_TYPE_F64
    return weights if is_double else weights.astype(np.float32)


def _without_default(values: NDArray[Any], rows: NDArray[Any]) -> NDArray[Any]:
    """Returns `values` with zeros for rows without ids, even if the table has a default row."""
    if rows.size and not 0 <= rows.min() <= rows.max() < len(values):
        refuse('it has %d rows, the request has rows %d to %d' % (
            len(values), rows.min(), rows.max()))
    empty = np.ones(len(values), bool)
    empty[rows] = False
    if values[empty].any():
        values = values.copy()
        values[empty] = 0
    return values
