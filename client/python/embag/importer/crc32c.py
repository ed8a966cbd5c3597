"""CRC-32C of large arrays, as TensorFlow's checkpoints have it.

NumPy has no checksums, and a loop in Python is too slow for tables. So many words are reduced at
once: a word can be left out of a message if its remainder, some words further on, is added there.
"""

from __future__ import annotations

from functools import cache, lru_cache

import numpy as np
from numpy.typing import NDArray

# The polynomial, with the coefficient of x^31 in the lowest bit.
_POLYNOMIAL = 0x82f63b78
_ONE = 0x80000000
_START = 0xffffffff
# Words of 8 bytes that are reduced at once, first the many and then the few. Some 600 MB/s.
_STRIDES = (8192, 64)


def crc32c(data: NDArray[np.uint8], before: int = 0) -> int:
    """Returns the CRC-32C of `data`, a contiguous array, that follows data whose CRC is `before`.
    """
    state = _times(before ^ _START, _power(8 * data.size))
    stride = 8 * _STRIDES[0]
    whole = data.size - data.size % stride
    # Zeros in front of a message leave its remainder as it is.
    head = np.zeros(stride, np.uint8)
    head[stride - (data.size - whole):] = data[:data.size - whole]
    words = head.view('<u8').copy()
    words = _fold(words, data[data.size - whole:], _STRIDES[0])
    few = words.view(np.uint8)
    words = _fold(few[:8 * _STRIDES[1]].view('<u8').copy(), few[8 * _STRIDES[1]:], _STRIDES[1])
    remainder, table = 0, _byte_table()
    for byte in words.tobytes():
        remainder = table[(remainder ^ byte) & 0xff] ^ remainder >> 8
    return state ^ remainder ^ _START


def unmasked(stored: int) -> int:
    """Returns the CRC whose stored form is `stored`."""
    turned = (stored - 0xa282ead8) & 0xffffffff
    return (turned >> 17 | turned << 15) & 0xffffffff


def _fold(words: NDArray[np.uint64], rest: NDArray[np.uint8],
          stride: int) -> NDArray[np.uint64]:
    """Returns `stride` words with the remainder of `words` followed by `rest`."""
    if rest.size == 0:
        return words
    tables = _fold_tables(stride)
    for row in rest.view('<u8').reshape(-1, stride):
        quarters = words.view('<u2').reshape(stride, 4)
        words = row.copy()
        low = words.view('<u4')[::2]
        for quarter, table in enumerate(tables):
            low ^= table.take(quarters[:, quarter])
    return words


@cache
def _fold_tables(stride: int) -> list[NDArray[np.uint32]]:
    """Returns, for each quarter of a word, what its values add to the word `stride` further on."""
    tables = []
    for quarter in range(4):
        table = np.zeros(1, np.uint32)
        for bit in range(16):
            basis = _power(64 * stride + 31 - (16 * quarter + bit))
            table = np.concatenate([table, table ^ np.uint32(basis)])
        tables.append(table)
    return tables


@cache
def _byte_table() -> list[int]:
    table = [0]
    for bit in range(8):
        basis = _power(39 - bit)
        table += [value ^ basis for value in table]
    return table


@lru_cache(1024)
def _power(exponent: int) -> int:
    """Returns the remainder of x to the power of `exponent`."""
    result, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            result = _times(result, square)
        square = _times(square, square)
        exponent >>= 1
    return result


def _times(a: int, b: int) -> int:
    """Returns the remainder of a product."""
    result = 0
    while b:
        if b & _ONE:
            result ^= a
        b = b << 1 & 0xffffffff
        a = a >> 1 ^ (_POLYNOMIAL if a & 1 else 0)
    return result
