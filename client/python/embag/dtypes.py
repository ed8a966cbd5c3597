"""NumPy arrays and the bytes that stand for them on the wire.

bf16 is `ml_dtypes.bfloat16` where the package ml_dtypes is installed; otherwise arrays of bf16 are
uint16, the raw bits. `BFLOAT16` says which.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from embag.v1 import embedding_bag_pb2 as pb

BFLOAT16: np.dtype[np.generic]
try:
    import ml_dtypes
    BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
except ImportError:
    BFLOAT16 = np.dtype('<u2')

_DTYPES: dict[int, np.dtype[np.generic]] = {
    pb.DATA_TYPE_F32: np.dtype('<f4'), pb.DATA_TYPE_F64: np.dtype('<f8'),
    pb.DATA_TYPE_F16: np.dtype('<f2'), pb.DATA_TYPE_BF16: BFLOAT16,
    pb.DATA_TYPE_I8: np.dtype('<i1'), pb.DATA_TYPE_U8: np.dtype('<u1'),
    pb.DATA_TYPE_I16: np.dtype('<i2'), pb.DATA_TYPE_U16: np.dtype('<u2'),
    pb.DATA_TYPE_I32: np.dtype('<i4'), pb.DATA_TYPE_U32: np.dtype('<u4'),
    pb.DATA_TYPE_I64: np.dtype('<i8'), pb.DATA_TYPE_U64: np.dtype('<u8'),
}
FLOATS = (pb.DATA_TYPE_F32, pb.DATA_TYPE_F64, pb.DATA_TYPE_F16, pb.DATA_TYPE_BF16)
# uint16 is u16 also where it has to stand for bf16.
_TYPES = {dtype: number for number, dtype in reversed(list(_DTYPES.items()))}
_TYPES[np.dtype('<u2')] = pb.DATA_TYPE_U16
_INT32_MAX = 2**31 - 1


def number_of(prefix: str, name: str | None) -> Any:
    """The value of an enum by its name without the prefix, in any case; None: unspecified.
    ValueError: it has no such name."""
    full = prefix + (name or 'unspecified').upper()
    number = getattr(pb, full, None)
    if not isinstance(number, int):
        raise ValueError('%r is no %s' % (name, prefix.rstrip('_').lower().replace('_', ' ')))
    return number


def size_of(number: int) -> int | None:
    """Bytes of one element, or None if the type is unknown here: the server may be newer."""
    dtype = _DTYPES.get(number)
    return None if dtype is None else dtype.itemsize


def name_of(number: int) -> str:
    """'F32' and so on, or the number if the type is unknown."""
    return pb.DataType.Name(number)[len('DATA_TYPE_'):] if number in _DTYPES else str(number)


def array_of(data: bytes, number: int, shape: tuple[int, ...]) -> NDArray[np.generic]:
    """A read-only array over `data`, which is not copied, of a known type whose shape it fills."""
    return np.frombuffer(data, _DTYPES[number]).reshape(shape)


def integers(values: ArrayLike, what: str) -> NDArray[Any]:
    """As int32, which stays so, or int64; uint64 becomes its two's complement.
    TypeError, naming `what`: they are no integers."""
    array = np.asarray(values)
    if array.size > 0 and array.dtype.kind not in 'iu':
        raise TypeError('%s are integers, not %s' % (what, array.dtype))
    return array.astype('<i4' if array.dtype == np.int32 else '<i8', copy=False)


def lengths(values: ArrayLike) -> NDArray[np.int32]:
    """Of bags, as int32. TypeError: they are no integers. ValueError: one is not in [0, 2**31)."""
    array = integers(values, 'lengths')
    (places,) = np.nonzero((array.ravel() < 0) | (array.ravel() > _INT32_MAX))
    if places.size > 0:
        raise ValueError('lengths[%d] = %d: a bag has 0 to %d values' % (
            places[0], np.ravel(values)[places[0]], _INT32_MAX))
    return array.astype('<i4', copy=False)


def weight_bytes(weights: ArrayLike, index_count: int) -> tuple[bytes, Any]:
    """Bytes and type of weights: the array's own type; f32 where they are no array. TypeError: the
    server has no such type."""
    array = np.asarray(weights, None if hasattr(weights, 'dtype') else np.float32)
    number = _TYPES.get(array.dtype.newbyteorder('<'))
    if number is None:
        raise TypeError('weights cannot be %s' % array.dtype)
    # The server takes a type without weights for a fault, which none for no indices are not.
    is_said = array.size > 0 or index_count > 0
    return array.astype(_DTYPES[number], copy=False).tobytes(), number if is_said else 0
