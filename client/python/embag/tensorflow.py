"""TensorFlow's sparse embedding lookups, with tables that are in a server.

    embedding_lookup_sparse(client, 'item', sp_ids, sp_weights, combiner='sqrtn')
    safe_embedding_lookup_sparse(client, 'item', sparse_ids, default_id=0)

They are used like `tf.nn.embedding_lookup_sparse` and `tf.nn.safe_embedding_lookup_sparse`. A
client and the name of a table or feature take the place of the variable. They differ from
TensorFlow's functions in these points:

- Ids are the table's row numbers or keys. An id that the table lacks raises `embag.OutOfRange`,
  unless `missing` of the table or feature says otherwise in model.yaml.
- There is no gradient, and `max_norm` is refused. `allow_fast_lookup` changes nothing.
- Rows of a SparseTensor need not be sorted, and `embedding_lookup_sparse` returns zeros for
  trailing rows without ids, which TensorFlow's function leaves out.
- Ids and weights must have the same indices and shape, or row splits. TensorFlow compares at most
  their static shapes.
- Weights may be of any floating-point type, whatever the table's. They are used as float32, or as
  float64 if the table is float64.
- Tables may have any rank. Without `default_id`, TensorFlow's safe function fails for tables of
  more than two dims.
- `default_id` must be a row or key of the table, even if every row has ids. TensorFlow's function
  fails only if it needs that row.
- Sums are rounded once, from float32 or, for float64 tables, from float64. So results may differ
  from TensorFlow's in the last bits.
- Inside `tf.function` the lookup is a Python function, which the graph calls. XLA cannot compile it
  (`jit_compile=True`), and a saved graph does not find it in another process. Tracing sends one
  request, which tells the type and shape of the rows; later models must have the same. Errors in
  the graph are those of TensorFlow (`tf.errors.OpError`), with embag's text.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from embag.client import Client
from embag.request import RequestFields
from embag.sparse import Rows, check_arguments, combine
from embag.typed import Unpack

try:
    import tensorflow as tf
except ImportError as error:
    raise ImportError('embag.tensorflow needs TensorFlow, which is not installed: run `pip install '
                      'tensorflow` or `pip install tensorflow-cpu`') from error

_Function = TypeVar('_Function', bound=Callable[..., Any])


def _as_written(function: _Function) -> _Function:
    """Keeps AutoGraph from rewriting a function that is called inside `tf.function`."""
    return cast(_Function, tf.autograph.experimental.do_not_convert(function))


@_as_written
def embedding_lookup_sparse(client: Client, table: str, sp_ids: Any, sp_weights: Any = None,
                            combiner: str | None = None, max_norm: None = None,
                            name: str | None = None, allow_fast_lookup: bool = False,
                            **fields: Unpack[RequestFields]) -> Any:
    """Combines the embeddings of the ids in each row of `sp_ids`.

    Returns a tensor [rows, trailing dims of the table], of the table's type or of `output_type`.

    - client, table: where the embeddings are; `table` may also be the name of a feature
    - sp_ids: int32 or int64 SparseTensor [rows, any], or RaggedTensor of rank 2. If a SparseTensor
      has more dims, all ids with the same first index are combined
    - sp_weights: floating-point tensor of the same form, indices and shape; None: every weight is 1
    - combiner: 'sum' of the weighted embeddings; 'mean', which is also the default, that sum
      divided by the sum of the weights; 'sqrtn', that sum divided by the square root of the sum of
      the squared weights
    - max_norm: must be None
    - name: name of the operation
    - allow_fast_lookup: not used
    - the rest: see `embag.request.RequestFields`

    A row that has no ids, or whose divisor is 0, is zeros. Raises TypeError for arguments of
    another form, ValueError for shapes or indices that differ, an unknown combiner, or `max_norm`,
    and everything that `Client.lookup` raises.
    """
    del allow_fast_lookup
    check_arguments(combiner or 'mean', max_norm)
    parts = _parts('sp_ids', sp_ids) + _weight_parts('sp_weights', sp_weights, sp_ids)

    def compute(*arrays: NDArray[Any]) -> NDArray[Any]:
        place, ids, shape, weights = _checked(arrays)
        row, counts = _rows(place, shape, 1)
        return combine(client, table, Rows(row, int(counts[0]), ids, weights),
                       combiner or 'mean', None, fields)

    return _run(compute, parts, name or 'embedding_lookup_sparse', sp_ids.shape[:1])


@_as_written
def safe_embedding_lookup_sparse(client: Client, table: str, sparse_ids: Any,
                                 sparse_weights: Any = None, combiner: str = 'mean',
                                 default_id: int | None = None, max_norm: None = None,
                                 name: str | None = None, allow_fast_lookup: bool = False,
                                 **fields: Unpack[RequestFields]) -> Any:
    """Combines embeddings along the last dim of `sparse_ids`, and leaves out invalid ids.

    Returns a tensor [all dims of sparse_ids except the last, trailing dims of the table], of the
    table's type or of `output_type`.

    - sparse_ids: int32 or int64 SparseTensor of any rank, or RaggedTensor of rank 2. Ids below 0
      are left out, and so are ids whose weight is 0, negative or NaN, except with 'sum'
    - sparse_weights: floating-point tensor of the same form, indices and shape; None: every weight
      is 1
    - default_id: row, or key, that is the result where no ids are left; None: zeros
    - the rest: as in `embedding_lookup_sparse`

    Raises the same exceptions as `embedding_lookup_sparse`, and ValueError for a `default_id` below
    0.
    """
    del allow_fast_lookup
    check_arguments(combiner, max_norm)
    if default_id is not None and default_id < 0:
        raise ValueError('default_id is %d: expected 0 or more' % default_id)
    parts = (_parts('sparse_ids', sparse_ids)
             + _weight_parts('sparse_weights', sparse_weights, sparse_ids))

    def compute(*arrays: NDArray[Any]) -> NDArray[Any]:
        place, ids, shape, weights = _checked(arrays)
        row, counts = _rows(place, shape, len(shape) - 1)
        keep = ids >= 0
        if weights is not None and combiner != 'sum':
            keep &= weights > 0
        rows = Rows(row, math.prod(counts.tolist()), ids, weights).kept(keep)
        values = combine(client, table, rows, combiner, default_id, fields)
        return values.reshape(*counts, *values.shape[1:])

    return _run(compute, parts, name or 'safe_embedding_lookup_sparse', sparse_ids.shape[:-1])


def _parts(name: str, given: Any) -> list[Any]:
    """Returns three tensors: indices, values and shape of a SparseTensor, or row splits, values and
    again row splits of a RaggedTensor."""
    if isinstance(given, tf.SparseTensor):
        return [given.indices, given.values, given.dense_shape]
    if not isinstance(given, tf.RaggedTensor):
        raise TypeError('%s is a %s: expected a tf.SparseTensor or a tf.RaggedTensor; '
                        'tf.sparse.from_dense() converts a dense tensor'
                        % (name, type(given).__name__))
    if given.shape.rank != 2:
        raise ValueError('%s is a RaggedTensor of rank %s, not 2: merge_dims() and to_sparse() '
                         'change its form' % (name, given.shape.rank))
    splits = given.row_splits
    return [splits, given.values, splits]


def _weight_parts(name: str, weights: Any, ids: Any) -> list[Any]:
    if weights is None:
        return []
    parts = _parts(name, weights)
    if isinstance(weights, tf.SparseTensor) != isinstance(ids, tf.SparseTensor):
        raise TypeError('%s is a %s, but the ids are a %s: expected the same form'
                        % (name, type(weights).__name__, type(ids).__name__))
    return parts


def _checked(arrays: tuple[NDArray[Any], ...]) -> tuple[
        NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any] | None]:
    """Returns the arrays of the ids, and the weights or None, after comparing them."""
    place, ids, shape, *of_weights = arrays
    if ids.dtype.kind not in 'iu':
        raise TypeError('ids must be integers, not %s' % ids.dtype)
    if not of_weights:
        return place, ids, shape, None
    if not (np.array_equal(of_weights[2], shape) and np.array_equal(of_weights[0], place)):
        raise ValueError('ids and weights have different indices or shapes')
    return place, ids, shape, of_weights[1]


def _rows(place: NDArray[Any], shape: NDArray[Any],
          dims: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Returns the row of each id, counted over the first `dims` dims, and the sizes of those dims.

    `place` has indices [n, rank], or row splits, whose rows are one dim. Raises ValueError for an
    index outside the shape.
    """
    if place.ndim == 1:
        sizes = np.diff(place)
        return np.repeat(np.arange(sizes.size), sizes), np.array([sizes.size])
    counts = shape[:dims]
    here = place[:, :dims]
    outside = ((here < 0) | (here >= counts)).any(axis=1)
    if outside.any():
        raise ValueError('indices[%d] is %s, outside the shape %s' % (
            outside.argmax(), place[outside.argmax()].tolist(), shape.tolist()))
    if dims == 1:
        return here[:, 0], counts
    strides = np.cumprod(np.append(counts[1:], 1)[::-1])[::-1]
    return here @ strides[:dims], counts


def _run(compute: Any, parts: list[Any], name: str, row_shape: Any) -> Any:
    """Returns the tensor of `compute`, now or when the graph runs."""
    with tf.name_scope(name) as scope:
        if tf.executing_eagerly():
            return tf.convert_to_tensor(compute(*(part.numpy() for part in parts)))
        like = compute(*_nothing(parts))
        result = tf.numpy_function(compute, parts, tf.as_dtype(like.dtype), name=scope)
        trailing = like.shape[len(row_shape):] if row_shape.rank is not None else None
        result.set_shape(row_shape.concatenate(tf.TensorShape(trailing)))
        return result


def _nothing(parts: list[Any]) -> list[NDArray[Any]]:
    """Returns arrays of the types and ranks of `parts`, without rows and without ids."""
    arrays = []
    for place, values, shape in zip(*[iter(parts)] * 3):
        rank = 2 if shape.shape[0] is None else shape.shape[0]
        sizes = [(1,), (0,), (1,)] if place is shape else [(0, rank), (0,), (rank,)]
        arrays += [np.zeros(size, part.dtype.as_numpy_dtype)
                   for size, part in zip(sizes, (place, values, shape))]
    return arrays
