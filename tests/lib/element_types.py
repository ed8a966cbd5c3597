"""Converts elements of a table between their bytes in a file or message and NumPy values.

Floating-point values become long doubles, which represent all of them exactly. Integers become
Python ints. NumPy has no bf16 and fp8, so this module decodes their bits.
"""

import numpy as np

# The server's names of types, with their numbers in embag.v1.DataType.
TYPE_NUMBERS = {
    'f32': 1, 'f64': 2, 'f16': 3, 'bf16': 4, 'i8': 5, 'u8': 6,
    'i16': 7, 'u16': 8, 'i32': 9, 'u32': 10, 'i64': 11, 'u64': 12,
}
TYPE_NAMES = {number: name for name, number in TYPE_NUMBERS.items()}
FLOAT_TYPES = ('f32', 'f64', 'f16', 'bf16')
INTEGER_TYPES = ('i8', 'u8', 'i16', 'u16', 'i32', 'u32', 'i64', 'u64')
NARROW_STORAGES = ('f8_e4m3', 'f8_e5m2')

# NumPy types of one element; unsigned integers for the types that NumPy does not have.
RAW_TYPES = {
    'f32': '<f4', 'f64': '<f8', 'f16': '<f2', 'bf16': '<u2', 'i8': '<i1', 'u8': '<u1',
    'i16': '<i2', 'u16': '<u2', 'i32': '<i4', 'u32': '<u4', 'i64': '<i8', 'u64': '<u8',
    'f8_e4m3': '<u1', 'f8_e5m2': '<u1',
}

# Bits of the significand (with the hidden bit) and the smallest exponent of a normal number.
PRECISION = {'f32': (24, -126), 'f64': (53, -1022), 'f16': (11, -14), 'bf16': (8, -126)}
LARGEST = {
    'f32': np.longdouble(2) ** 128 * (1 - np.longdouble(2) ** -24),
    'f64': np.longdouble(np.finfo(np.float64).max),
    'f16': np.longdouble(65504),
    'bf16': np.longdouble(2) ** 128 * (1 - np.longdouble(2) ** -8),
}

# The only NaN that computed results may contain.
CANONICAL_NAN = {'f32': 0x7fc00000, 'f64': 0x7ff8000000000000, 'f16': 0x7e00, 'bf16': 0x7fc0}


def is_float(type_name):
    """Returns whether a type or storage has floating-point numbers."""
    return type_name in FLOAT_TYPES or type_name in NARROW_STORAGES


def type_of_storage(storage):
    """Returns the element type of a table with this storage."""
    return 'f32' if storage in NARROW_STORAGES else storage


def raw_bits(raw):
    """Returns the same elements as unsigned integers of the same width."""
    return np.ascontiguousarray(raw).view('<u%d' % raw.dtype.itemsize)


def _small_float(code, exponent_bits, mantissa_bits, ieee):
    """Returns the value of one fp8 code.

    With `ieee`, the largest exponent means infinity and NaN. Otherwise (E4M3FN) only the code of
    all ones is NaN.
    """
    bias = 2 ** (exponent_bits - 1) - 1
    exponent = (code >> mantissa_bits) & (2 ** exponent_bits - 1)
    mantissa = code & (2 ** mantissa_bits - 1)
    top = exponent == 2 ** exponent_bits - 1
    if top and ieee:
        value = float('nan') if mantissa else float('inf')
    elif top and mantissa == 2 ** mantissa_bits - 1:
        value = float('nan')
    elif exponent == 0:
        value = mantissa * 2.0 ** (1 - bias - mantissa_bits)
    else:
        value = (1 + mantissa / 2 ** mantissa_bits) * 2.0 ** (exponent - bias)
    return -value if code & 0x80 else value


FP8_VALUES = {
    'f8_e4m3': np.array([_small_float(c, 4, 3, False) for c in range(256)], np.longdouble),
    'f8_e5m2': np.array([_small_float(c, 5, 2, True) for c in range(256)], np.longdouble),
}


def decode(raw, storage):
    """Returns exact values of raw elements: long doubles, or Python ints in an object array."""
    if storage in FP8_VALUES:
        return FP8_VALUES[storage][raw]
    if storage == 'bf16':
        raw = (raw.astype('<u4') << 16).view('<f4')
    with np.errstate(invalid='ignore'):  # signalling NaNs are valid values
        return raw.astype(np.longdouble if is_float(storage) else object)


def decode_bytes(data, type_name):
    """Returns the raw elements and the exact values of a result's bytes."""
    raw = np.frombuffer(data, RAW_TYPES[type_name])
    return raw, decode(raw, type_name)


def encode(values, storage):
    """Returns the raw elements nearest to `values` (bf16: truncated; fp8: `values` are codes)."""
    if storage == 'bf16':
        return (np.asarray(values, '<f4').view('<u4') >> 16).astype('<u2')
    return np.asarray(values).astype(RAW_TYPES[storage])


def unit_in_last_place(value, type_name):
    """Returns the distance between neighbouring numbers of a type at |value|, for finite values."""
    digits, least = PRECISION[type_name]
    exponent = np.where(value == 0, least, np.frexp(np.abs(value))[1] - 1)
    return np.ldexp(np.longdouble(1), np.maximum(exponent, least) - (digits - 1))
