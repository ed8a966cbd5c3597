"""Reads the files in which TensorFlow keeps the tensors of a checkpoint.

PREFIX.index is a sorted table of names, in the format of LevelDB: for each tensor its type, shape,
checksum and place in the files PREFIX.data-SHARD-of-SHARDS. A tensor may also be stored in slices,
which have entries of their own. TensorFlow's readers load whole tensors into memory, so this module
reads the files itself, a few rows at a time.
"""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from embag.importer.crc32c import crc32c, unmasked
from embag.importer.file_bytes import file_size, read_range
from embag.importer.source import ELEMENT_BYTES, CheckpointError

# Limits that protect memory: bytes of an index, its entries, and bytes of all names and entries,
# which an index can repeat at no cost.
INDEX_BYTES_MAX = 16 << 20
ENTRIES_MAX = 200_000
ENTRY_BYTES_MAX = 32 << 20

# TensorFlow's numbers of types. Those that are not in ELEMENT_BYTES are never read.
_TYPES = {1: 'F32', 2: 'F64', 3: 'I32', 4: 'U8', 5: 'I16', 6: 'I8', 9: 'I64', 14: 'BF16', 17: 'U16',
          19: 'F16', 22: 'U32', 23: 'U64'}
_OTHER_TYPES = {7: 'string', 8: 'complex64', 10: 'bool', 18: 'complex128', 20: 'resource',
                21: 'variant', 24: 'float8_e5m2', 25: 'float8_e4m3fn', 29: 'int4', 30: 'uint4'}
_STRING = 7

_FOOTER_BYTES = 48
_MAGIC = 0xdb4775248b80fb57.to_bytes(8, 'little')
# After each block: its compression, and the checksum of both.
_TRAILER_BYTES = 5
# TensorFlow's limit.
_RANK_MAX = 254
# A tensor has fewer values, so that its bytes can be counted in 64 bits.
_VALUES_MAX = 2**59
# A slice that spans a whole dim has this length.
_WHOLE = -1


@dataclass
class Entry:
    """A tensor, or a slice of one.

    - type: TensorFlow's number of the type of its values
    - shard, offset, size: the place of its values, in bytes
    - checksum: CRC-32C of the values
    - slices: for each slice, pairs of a begin and a length, one for each dim; empty if the tensor
      is stored as a whole
    """

    type: int = 0
    shape: tuple[int, ...] = ()
    shard: int = 0
    offset: int = 0
    size: int = 0
    checksum: int = 0
    slices: list[tuple[tuple[int, int], ...]] = field(default_factory=list)

    @property
    def dtype(self) -> str:
        """The type's name: a key of ELEMENT_BYTES, or another one."""
        return _TYPES.get(self.type) or _OTHER_TYPES.get(self.type, 'type %d' % self.type)


@dataclass
class _Segment:
    """Rows that stand together in a file.

    - begin, end: the rows
    - place: path and offset of the first one
    - checksum: CRC-32C of all of them
    - next, state: the row up to which they have been read in order, and the CRC-32C up to there
    """

    begin: int
    end: int
    place: tuple[str, int]
    checksum: int
    next: int = 0
    state: int = 0


class Rows:
    """Reads the rows of a tensor; called like `Tensor.read`.

    Rows that are read in order are compared with the tensor's checksum when the last one is read.
    """

    def __init__(self, name: str, row_bytes: int, segments: list[_Segment]) -> None:
        self._name, self._row_bytes, self._segments = name, row_bytes, segments

    def __call__(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Returns rows [begin, end) as uint8 [end - begin, bytes of a row]."""
        pieces = [np.empty(0, np.uint8)]
        for segment in self._segments:
            first, last = max(begin, segment.begin), min(end, segment.end)
            if first < last:
                path, offset = segment.place
                data = read_range(path, offset + (first - segment.begin) * self._row_bytes,
                                  (last - first) * self._row_bytes)
                self._check(segment, first, last, data)
                pieces.append(data)
        whole = pieces[1] if len(pieces) == 2 else np.concatenate(pieces)
        return whole.reshape(end - begin, self._row_bytes)

    def _check(self, segment: _Segment, first: int, last: int, data: NDArray[np.uint8]) -> None:
        if first == segment.begin:
            segment.state = 0
        elif first != segment.next:
            segment.next = segment.begin
            return
        segment.state, segment.next = crc32c(data, segment.state), last
        if last == segment.end and segment.state != segment.checksum:
            raise CheckpointError('%s: the values of %s have the checksum %08x, expected %08x: the '
                                  'file is damaged' % (segment.place[0], self._name, segment.state,
                                                       segment.checksum))


class Bundle:
    """The content of PREFIX.index. Raises CheckpointError for files that cannot be read.

    - entries: all tensors by name
    """

    def __init__(self, prefix: str) -> None:
        self.path = prefix + '.index'
        self._prefix = prefix
        try:
            size = file_size(self.path)
            if size > INDEX_BYTES_MAX:
                raise ValueError('it has more than %d bytes' % INDEX_BYTES_MAX)
            table = _read_table(read_range(self.path, 0, size).tobytes())
            self._shards = _read_header(table.pop(b'', b''))
            # Keys of slices begin with a zero byte.
            self._slices = {key: _entry(value, 0) for key, value in table.items() if key[0] == 0}
            self.entries: dict[str, Entry] = {}
            room = len(self._slices)
            for key, value in table.items():
                if key[0] != 0:
                    entry = _entry(value, room)
                    room -= len(entry.slices)
                    self.entries[key.decode('utf-8', 'backslashreplace')] = entry
        except ValueError as error:
            raise CheckpointError('%s: not a valid index of a TensorFlow checkpoint: %s' % (
                self.path, error)) from error
        self._sizes: dict[int, int] = {}

    def rows(self, name: str) -> Rows:
        """Returns a reader of the rows of a tensor whose type is in ELEMENT_BYTES.

        The tensor has at least one dim. Raises CheckpointError if the files do not have its values,
        or if they are sliced along other dims than the first.
        """
        entry = self.entries[name]
        row_bytes = math.prod(entry.shape[1:]) * ELEMENT_BYTES[entry.dtype]
        segments: list[_Segment] = []
        if not entry.slices:
            return Rows(name, row_bytes, [self._segment(name, entry, 0, entry.shape[0], row_bytes)])
        for extents in entry.slices:
            if len(extents) != len(entry.shape) or any(
                    length not in (_WHOLE, size)
                    for (_, length), size in zip(extents[1:], entry.shape[1:])):
                raise CheckpointError('%s: %s is sliced along other dims than the rows' % (
                    self.path, name))
            begin, length = extents[0]
            part = self._slices.get(slice_key(name, extents))
            if part is None:
                raise CheckpointError('%s: lacks a slice of %s' % (self.path, name))
            count = entry.shape[0] if length == _WHOLE else length
            segments.append(self._segment(name, part, begin, begin + count, row_bytes))
        segments.sort(key=lambda segment: segment.begin)
        ends = [0] + [segment.end for segment in segments]
        if [segment.begin for segment in segments] != ends[:-1] or ends[-1] != entry.shape[0]:
            raise CheckpointError('%s: the slices of %s are not its %d rows' % (
                self.path, name, entry.shape[0]))
        return Rows(name, row_bytes, segments)

    def text(self, name: str, bytes_max: int) -> bytes | None:
        """Returns the value of a string without dims; None if it is larger than `bytes_max`."""
        entry = self.entries[name]
        if entry.type != _STRING or entry.shape or entry.slices:
            raise CheckpointError('%s: %s is %s %s, expected one string' % (
                self.path, name, entry.dtype, list(entry.shape)))
        if entry.size > bytes_max:
            return None
        path = self._place(name, entry)
        data = read_range(path, entry.offset, entry.size)
        # The length, a checksum of the length, and the string.
        try:
            length, begin = _varint(data.tobytes(), 0)
        except ValueError:
            length, begin = -1, 0
        value = data[begin + 4:]
        width = 4 if length < 1 << 32 else 8
        if length != len(value) or crc32c(np.concatenate([
                np.frombuffer(length.to_bytes(width, 'little'), np.uint8),
                data[begin:]])) != entry.checksum:
            raise CheckpointError('%s: the value of %s is damaged' % (path, name))
        return value.tobytes()

    def _segment(self, name: str, entry: Entry, begin: int, end: int, row_bytes: int) -> _Segment:
        wanted = (end - begin) * row_bytes
        if entry.size != wanted:
            raise CheckpointError('%s: %s has %d bytes, expected %d' % (
                self.path, name, entry.size, wanted))
        return _Segment(begin, end, (self._place(name, entry), entry.offset), entry.checksum, begin)

    def _place(self, name: str, entry: Entry) -> str:
        """Returns the path of the file that has the values, which must be long enough."""
        if not 0 <= entry.shard < self._shards:
            raise CheckpointError('%s: %s is in shard %d of %d' % (
                self.path, name, entry.shard, self._shards))
        path = '%s.data-%05d-of-%05d' % (self._prefix, entry.shard, self._shards)
        if entry.shard not in self._sizes:
            self._sizes[entry.shard] = file_size(path)
        if entry.offset < 0 or entry.offset + entry.size > self._sizes[entry.shard]:
            raise CheckpointError('%s: ends at byte %d, but %s is at bytes %d to %d' % (
                path, self._sizes[entry.shard], name, entry.offset, entry.offset + entry.size))
        return path


def has_index(prefix: str) -> bool:
    """Returns whether PREFIX.index ends as such a file does, or has files of values beside it."""
    if not os.path.isfile(prefix + '.index'):
        return False
    try:
        with open(prefix + '.index', 'rb') as file:
            file.seek(-min(len(_MAGIC), os.fstat(file.fileno()).st_size), os.SEEK_END)
            return file.read() == _MAGIC or bool(
                glob.glob(glob.escape(prefix) + '.data-[0-9]*-of-[0-9]*'))
    except OSError:
        return False


def slice_key(name: str, extents: tuple[tuple[int, int], ...]) -> bytes:
    """Returns the key of a slice: its name and extents, encoded so that keys sort by them."""
    text = name.encode().replace(b'\xff', b'\xff\x00').replace(b'\x00', b'\x00\xff')
    key = b'\x00' + text + b'\x00\x01' + b'\x01' + bytes([len(extents)])
    for extent in extents:
        for number in extent:
            width = (~number if number < 0 else number).bit_length() // 7 + 1
            # As many ones as bytes, and then the number, whose sign bit comes first.
            code = number % (1 << 8 * width) ^ ((1 << width) - 1) << 7 * width
            key += code.to_bytes(width, 'big')
    return key


def fields_of(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yields the number and value of each field of a message: an int, or the bytes of others.

    Raises ValueError for data that is not a message.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        kind = tag & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield tag >> 3, value - (1 << 64) if value >= 1 << 63 else value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError('a message has a field of kind %d' % kind)
        if size > len(data) - at:
            raise ValueError('a message ends within a field')
        part = data[at:at + size]
        at += size
        yield tag >> 3, part if kind == 2 else int.from_bytes(part, 'little')


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns the number at a position, and the position after it."""
    value = shift = 0
    while at < len(data) and shift < 64:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        if byte < 0x80:
            return value & (1 << 64) - 1, at
        shift += 7
    raise ValueError('a number has no end')


def _read_table(data: bytes) -> dict[bytes, bytes]:
    """Returns all entries of a sorted table. Raises ValueError."""
    footer = data[-_FOOTER_BYTES:]
    if len(footer) < _FOOTER_BYTES or not footer.endswith(_MAGIC):
        raise ValueError('it does not end with the mark %s' % _MAGIC.hex())
    at = 0
    for _ in range(3):
        begin, at = _varint(footer, at)
    size, _ = _varint(footer, at)
    table: dict[bytes, bytes] = {}
    total = 0
    for _, handle in _block_entries(_block(data, begin, size)):
        begin, at = _varint(handle, 0)
        size, _ = _varint(handle, at)
        for key, value in _block_entries(_block(data, begin, size)):
            total += len(key) + len(value)
            if len(table) >= ENTRIES_MAX or total > ENTRY_BYTES_MAX:
                raise ValueError('it has more than %d entries or %d bytes of them' % (
                    ENTRIES_MAX, ENTRY_BYTES_MAX))
            if key in table:
                raise ValueError('it has the key %r twice' % key[:100])
            table[key] = value
    return table


def _block(data: bytes, begin: int, size: int) -> bytes:
    """Returns the content of a block, which must have its checksum."""
    end = begin + size
    if end + _TRAILER_BYTES > len(data):
        raise ValueError('a block is at bytes %d to %d of %d' % (
            begin, end + _TRAILER_BYTES, len(data)))
    checked = data[begin:end + 1]
    stored = int.from_bytes(data[end + 1:end + _TRAILER_BYTES], 'little')
    if crc32c(np.frombuffer(checked, np.uint8)) != unmasked(stored):
        raise ValueError('the block at byte %d has another checksum than expected: the file is '
                         'damaged' % begin)
    if checked[-1] != 0:
        raise ValueError('the block at byte %d is compressed' % begin)
    return checked[:-1]


def _block_entries(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Yields the keys and values of a block. A key may share the begin of the one before it."""
    restarts = int.from_bytes(block[-4:], 'little')
    end = len(block) - 4 - 4 * restarts
    if len(block) < 4 or end < 0:
        raise ValueError('a block ends early')
    at, key = 0, b''
    while at < end:
        shared, at = _varint(block, at)
        added, at = _varint(block, at)
        size, at = _varint(block, at)
        if shared > len(key) or at + added + size > end:
            raise ValueError('an entry does not fit into its block')
        key = key[:shared] + block[at:at + added]
        at += added
        yield key, block[at:at + size]
        at += size


def _read_header(data: bytes) -> int:
    """Returns the number of files with values."""
    shards = 0
    for number, value in fields_of(data):
        if number == 1 and isinstance(value, int):
            shards = value
        elif number == 2 and value != 0:
            raise ValueError('its values are big-endian')
        elif number == 3 and isinstance(value, bytes):
            consumer = dict(fields_of(value)).get(2, 0)
            if isinstance(consumer, int) and consumer > 1:
                raise ValueError('it needs a reader of version %d, this is version 1' % consumer)
    if not 1 <= shards < 100_000:
        raise ValueError('it has %d files of values, expected 1 to 99999' % shards)
    return shards


def _entry(data: bytes, slices_max: int) -> Entry:
    entry = Entry()
    numbers = {1: 'type', 3: 'shard', 4: 'offset', 5: 'size'}
    for number, value in fields_of(data):
        if number in numbers and isinstance(value, int):
            setattr(entry, numbers[number], value)
        elif number == 2 and isinstance(value, bytes):
            entry.shape = _shape(value)
        elif number == 6 and isinstance(value, int):
            entry.checksum = unmasked(value)
        elif number == 7 and isinstance(value, bytes):
            if len(entry.slices) == slices_max:
                raise ValueError('its tensors have more slices than it has')
            entry.slices.append(_slice(value))
    if entry.size < 0 or entry.offset < 0:
        raise ValueError('an entry has %d bytes at byte %d' % (entry.size, entry.offset))
    return entry


def _shape(data: bytes) -> tuple[int, ...]:
    sizes = []
    for number, value in fields_of(data):
        if number == 2 and isinstance(value, bytes):
            size = dict(fields_of(value)).get(1, 0)
            if not isinstance(size, int) or size < 0:
                raise ValueError('an entry has a dim of size %r' % size)
            sizes.append(size)
    if len(sizes) > _RANK_MAX:
        raise ValueError('an entry has %d dims, expected at most %d' % (len(sizes), _RANK_MAX))
    if math.prod(sizes) >= _VALUES_MAX:
        raise ValueError('an entry has dims of more than 2^59 values')
    return tuple(sizes)


def _slice(data: bytes) -> tuple[tuple[int, int], ...]:
    """Returns the begin and length of a slice in each dim."""
    extents = []
    for number, value in fields_of(data):
        if number == 1 and isinstance(value, bytes):
            parts = dict(fields_of(value))
            begin, length = parts.get(1, 0), parts.get(2, _WHOLE)
            if not isinstance(begin, int) or not isinstance(length, int) or begin < 0:
                raise ValueError('a slice has the extent %r' % (parts,))
            extents.append((begin, length))
    return tuple(extents)
