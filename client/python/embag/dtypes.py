"""Converts between NumPy arrays and their bytes on the wire.

bf16 is `ml_dtypes.bfloat16` if the package ml_dtypes is installed. Otherwise arrays of bf16 have
the type uint16 and hold the raw bits. `BFLOAT16` is the type in use.
"""

from __future__ import annotations

import functools
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

# Types of arrays by their number on the wire.
DTYPES: dict[int, np.dtype[np.generic]] = {
    pb.DATA_TYPE_F32: np.dtype('<f4'), pb.DATA_TYPE_F64: np.dtype('<f8'),
    pb.DATA_TYPE_F16: np.dtype('<f2'), pb.DATA_TYPE_BF16: BFLOAT16,
    pb.DATA_TYPE_I8: np.dtype('<i1'), pb.DATA_TYPE_U8: np.dtype('<u1'),
    pb.DATA_TYPE_I16: np.dtype('<i2'), pb.DATA_TYPE_U16: np.dtype('<u2'),
    pb.DATA_TYPE_I32: np.dtype('<i4'), pb.DATA_TYPE_U32: np.dtype('<u4'),
    pb.DATA_TYPE_I64: np.dtype('<i8'), pb.DATA_TYPE_U64: np.dtype('<u8'),
}
FLOATS = (pb.DATA_TYPE_F32, pb.DATA_TYPE_F64, pb.DATA_TYPE_F16, pb.DATA_TYPE_BF16)
# uint16 weights are sent as u16, even if uint16 stands for bf16 in results.
_TYPES = {dtype: number for number, dtype in reversed(list(DTYPES.items()))}
_TYPES[np.dtype('<u2')] = pb.DATA_TYPE_U16
_INT32_MAX = 2**31 - 1


# NumPy has one object for each of these types, as long as nobody unpickles or constructs another.
INT32, INT64, FLOAT32 = np.dtype('<i4'), np.dtype('<i8'), np.dtype('<f4')


@functools.lru_cache(maxsize=256)
def number_of(prefix: str, name: str | None) -> Any:
    """Returns the value of an enum by its name without the prefix, in upper or lower case.

    None stands for the unspecified value. Raises ValueError for an unknown name.
    """
    full = prefix + (name or 'unspecified').upper()
    number = getattr(pb, full, None)
    if not isinstance(number, int):
        names = [each[len(prefix):].lower() for each in dir(pb)
                 if each.startswith(prefix) and getattr(pb, each) != 0]
        names.sort(key=lambda each: getattr(pb, prefix + each.upper()))
        raise ValueError('unknown %s %r: expected %s' % (
            prefix.rstrip('_').lower().replace('_', ' '), name, ', '.join(names)))
    return number


def size_of(number: int) -> int | None:
    """Returns the bytes of one element, or None if this version does not know the type."""
    dtype = DTYPES.get(number)
    return None if dtype is None else dtype.itemsize


def name_of(number: int) -> str:
    """Returns the name of a type, such as 'F32', or the number if the type is unknown."""
    return pb.DataType.Name(number)[len('DATA_TYPE_'):] if number in DTYPES else str(number)


def array_of(data: bytes, number: int, shape: tuple[int, ...]) -> NDArray[Any]:
    """Returns a read-only array that shares the memory of `data`.

    The type must be known, and `data` must have exactly the bytes of the shape.
    """
    return np.frombuffer(data, DTYPES[number]).reshape(shape)


def integers(values: ArrayLike, what: str) -> NDArray[Any]:
    """Returns int32 values as int32 and all other integers as int64.

    A uint64 keeps its bits (two's complement). Raises TypeError, which names `what`, for values
    that are not integers.
    """
    array = np.asarray(values)
    if array.dtype is INT64 or array.dtype is INT32:
        return array
    if array.size > 0 and array.dtype.kind not in 'iu':
        raise TypeError('%s must be integers, not %s' % (what, array.dtype))
    return array.astype('<i4' if array.dtype == np.int32 else '<i8', copy=False)


def lengths(values: ArrayLike) -> tuple[NDArray[np.int32], bytes]:
    """Returns lengths of bags as an array of int32, and as bytes.

    Raises TypeError for values that are not integers, and ValueError for one outside [0, 2**31).
    """
    array = integers(values, 'lengths')
    data = array.tobytes()
    # The last byte of a little-endian number that is not negative is one of ASCII. Asking that
    # takes a tenth of the time of NumPy's functions, which a call has evicted from the caches.
    if array.itemsize == 4 and data[3::4].isascii():
        return array, data
    places = np.flatnonzero((array < 0) | (array > _INT32_MAX))
    if places.size > 0:
        raise ValueError('lengths[%d] = %d: a bag has 0 to %d values' % (
            places[0], np.ravel(values)[places[0]], _INT32_MAX))
    array = array.astype('<i4', copy=False)
    return array, array.tobytes()


def weight_bytes(weights: ArrayLike, index_count: int) -> tuple[bytes, Any]:
    """Returns the bytes and the wire type of weights.

    Arrays keep their type, other sequences become f32. Raises TypeError for a type that the server
    does not have.
    """
    array = np.asarray(weights, None if hasattr(weights, 'dtype') else np.float32)
    if array.dtype is FLOAT32 and array.size > 0:
        return array.tobytes(), pb.DATA_TYPE_F32
    number = _TYPES.get(array.dtype.newbyteorder('<'))
    if number is None:
        raise TypeError('weights have the type %s, which the server does not support'
                        % array.dtype)
    # The server refuses a weights type without weights. A query without indices sends neither, so
    # that empty weights are valid for it.
    is_said = array.size > 0 or index_count > 0
    return array.astype(DTYPES[number], copy=False).tobytes(), number if is_said else 0
