"""An array whose shards lie in different places, read as one.

A shard is a box of the array: some of its rows, with all columns or some. That is how tables are
sharded by rows, by columns and by both (a grid). The shards of an array must cover it exactly: a
value that no shard holds, or two of them, is an error that names the range.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from math import prod

import numpy as np
from numpy.typing import NDArray

from embag.importer.source import ELEMENT_BYTES, CheckpointError, Tensor

# The largest number of shards of one array. It bounds the time that checking them takes.
SHARDS_MAX = 65536
# The largest number of bytes in an array, so that no size computed from a file overflows.
ARRAY_BYTES_MAX = 2**62


@dataclass(frozen=True)
class Shard:
    """A box of an array.

    - offsets, sizes: where it begins and how many values it has, in each dim of the array
    - read: read(begin, end) returns rows [begin, end) of the shard, counted from its first one, as
      uint8 [end - begin, bytes of a row of the shard]; raises CheckpointError
    """

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    read: Callable[[int, int], NDArray[np.uint8]]

    @property
    def rows(self) -> range:
        """The rows of the array from which the shard has values."""
        return range(self.offsets[0], self.offsets[0] + self.sizes[0])

    @property
    def columns(self) -> range:
        """The columns from which it has values; [0] if the array has one dim."""
        if len(self.sizes) == 1:
            return range(1)
        return range(self.offsets[1], self.offsets[1] + self.sizes[1])


def _text(interval: range) -> str:
    return f'[{interval.start}, {interval.stop})'


def _check_box(name: str, shape: tuple[int, ...], shard: Shard) -> None:
    """Checks that a shard lies in its array, and is sharded by rows and columns only."""
    box = f'the shard at {list(shard.offsets)} of sizes {list(shard.sizes)}'
    if not len(shard.offsets) == len(shard.sizes) == len(shape):
        raise CheckpointError(f'{name}: {box} does not have the {len(shape)} dims of the array')
    if any(offset < 0 or size < 0 or offset + size > whole
           for offset, size, whole in zip(shard.offsets, shard.sizes, shape)):
        raise CheckpointError(f'{name}: {box} does not lie in the array of shape {list(shape)}')
    if shard.sizes[2:] != shape[2:]:
        raise CheckpointError(f'{name}: {box} has a part of dim 2 or later: expected shards of '
                              f'rows and columns of the array of shape {list(shape)}')


class _Active:
    """The shards that have values from one row, in the order of their columns."""

    def __init__(self, name: str, columns: int) -> None:
        self.name = name
        self.columns = columns
        self.covered = 0
        self.starts: list[int] = []
        self.shards: list[Shard] = []

    def add(self, shard: Shard) -> None:
        """Adds a shard; raises CheckpointError if it overlaps another one."""
        position = bisect_left(self.starts, shard.columns.start)
        for other in self.shards[max(position - 1, 0):position + 1]:
            columns = range(max(shard.columns.start, other.columns.start),
                            min(shard.columns.stop, other.columns.stop))
            if columns:
                rows = range(max(shard.rows.start, other.rows.start),
                             min(shard.rows.stop, other.rows.stop))
                raise CheckpointError(f'{self.name}: two shards have rows {_text(rows)}, columns '
                                      f'{_text(columns)}: expected shards that do not overlap')
        self.starts.insert(position, shard.columns.start)
        self.shards.insert(position, shard)
        self.covered += len(shard.columns)

    def remove(self, shard: Shard) -> None:
        """Removes a shard."""
        position = bisect_left(self.starts, shard.columns.start)
        del self.starts[position], self.shards[position]
        self.covered -= len(shard.columns)

    def check_covered(self, rows: range) -> None:
        """Checks that the shards have all columns; `rows` have the same ones."""
        if self.covered == self.columns or not rows:
            return
        end = 0
        for shard in self.shards:
            if shard.columns.start > end:
                break
            end = shard.columns.stop
        starts = [start for start in self.starts if start > end]
        columns = range(end, starts[0] if starts else self.columns)
        raise CheckpointError(f'{self.name}: no shard has rows {_text(rows)}, columns '
                              f'{_text(columns)}: some shards are missing')


def _check_cover(name: str, shape: tuple[int, ...], shards: Sequence[Shard]) -> None:
    """Checks that shards, sorted by their first rows, cover an array exactly."""
    active = _Active(name, shape[1] if len(shape) > 1 else 1)
    ending = sorted(shards, key=lambda shard: shard.rows.stop)
    row = begun = ended = 0
    while row < shape[0]:
        while ended < begun and ending[ended].rows.stop <= row:
            active.remove(ending[ended])
            ended += 1
        while begun < len(shards) and shards[begun].rows.start <= row:
            active.add(shards[begun])
            begun += 1
        following = min(shards[begun].rows.start if begun < len(shards) else shape[0],
                        ending[ended].rows.stop if ended < len(ending) else shape[0])
        active.check_covered(range(row, following))
        row = following


def gather(name: str, dtype: str, shape: tuple[int, ...], shards: Sequence[Shard]) -> Tensor:
    """Makes one tensor of its shards.

    `dtype` is a key of ELEMENT_BYTES, and `shape` has at least one dim. Raises CheckpointError if
    the shards do not cover the array exactly.
    """
    if len(shards) > SHARDS_MAX:
        raise CheckpointError(f'{name}: {len(shards)} shards: expected at most {SHARDS_MAX}')
    if prod(shape) * ELEMENT_BYTES[dtype] > ARRAY_BYTES_MAX:
        raise CheckpointError(f'{name}: the shape {list(shape)} has more than 2^62 bytes')
    for shard in shards:
        _check_box(name, shape, shard)
    held = sorted((shard for shard in shards if prod(shard.sizes) > 0),
                  key=lambda shard: shard.rows.start)
    if prod(shape) > 0:
        _check_cover(name, shape, held)
    starts = [shard.rows.start for shard in held]
    stops = list(accumulate((shard.rows.stop for shard in held), max))
    row_bytes = prod(shape[1:]) * ELEMENT_BYTES[dtype]
    column_bytes = prod(shape[2:]) * ELEMENT_BYTES[dtype]

    def read(begin: int, end: int) -> NDArray[np.uint8]:
        touched = [shard for shard in held[bisect_right(stops, begin):bisect_left(starts, end)]
                   if shard.rows.stop > begin]
        if len(touched) == 1 and touched[0].sizes[1:] == shape[1:]:
            first = touched[0].rows.start
            return touched[0].read(begin - first, end - first)
        values = np.empty((end - begin, row_bytes), np.uint8)
        for shard in touched:
            rows = range(max(begin, shard.rows.start), min(end, shard.rows.stop))
            first = shard.rows.start
            values[rows.start - begin:rows.stop - begin,
                   shard.columns.start * column_bytes:shard.columns.stop * column_bytes] = \
                shard.read(rows.start - first, rows.stop - first)
        return values

    return Tensor(name, dtype, shape, read)
