"""Compares the bytes of a file with its digest while they arrive, a chunk at a time.

A packed table has a checksum for each block of 1 MiB, so that a copy that was interrupted goes on
after the last good block (server/formats/packed_format.h).
"""

from __future__ import annotations

import struct
from typing import Any, Protocol

from embag.sync.errors import SyncError, WrongFile, need
from embag.sync.version_files import VersionFile

_MAGIC = b'\x93EMBAG\r\n'
HEADER_BYTES = 512
_ALIGNMENT = 4096
_BLOCK_BYTES = 1 << 20
_DIGESTED_FROM = 16
# A file of 16 TiB has this head.
_HEAD_BYTES_MAX = 129 << 20


class Verifier(Protocol):
    """Takes a file's bytes in order. Methods raise WrongFile if they are those of another file, and
    a transient SyncError if they are damaged."""

    def update(self, data: memoryview) -> None:
        """Takes the next bytes."""

    def rewind(self) -> int:
        """Forgets the bytes that are not known to be good. Returns the offset to go on from."""

    def finish(self) -> None:
        """Checks that the file is complete."""


class PlainVerifier:
    """A file whose digest is that of all bytes."""

    def __init__(self, file: VersionFile, size: int) -> None:
        self._digest = need('xxhash', 'comparing digests').xxh3_64()
        self._file, self._size, self._done = file, size, 0

    def update(self, data: memoryview) -> None:
        """Takes the next bytes."""
        self._digest.update(data)
        self._done += len(data)

    def rewind(self) -> int:
        """Returns the number of bytes taken, which are compared at the end only."""
        return self._done

    def finish(self) -> None:
        """Compares size and digest."""
        _check_size(self._done, self._size)
        found = self._digest.intdigest()
        if found != self._file.digest:
            raise _other_digest(found, self._file)


class PackedVerifier:
    """A packed table."""

    def __init__(self, file: VersionFile, size: int) -> None:
        self._xxhash = need('xxhash', 'comparing digests')
        self._file, self._size = file, size
        self._head = bytearray()
        self._head_bytes = HEADER_BYTES
        self._is_head_good = False
        self._good = 0
        self._block: Any = None
        self._block_done = 0

    def update(self, data: memoryview) -> None:
        """Takes the next bytes."""
        while len(data) > 0:
            data = self._take_block(data) if self._is_head_good else self._take_head(data)

    def rewind(self) -> int:
        """Returns the end of the last good block."""
        if not self._is_head_good:
            self._head.clear()
            self._head_bytes = HEADER_BYTES
        self._block, self._block_done = None, 0
        return self._good

    def finish(self) -> None:
        """Checks the size. Each block was compared when it was complete."""
        _check_size(self._good + self._block_done if self._is_head_good else len(self._head),
                    self._size)

    def _take_head(self, data: memoryview) -> memoryview:
        count = min(len(data), self._head_bytes - len(self._head))
        self._head += data[:count]
        if len(self._head) == self._head_bytes == HEADER_BYTES:
            self._head_bytes = head_bytes(bytes(self._head), self._file, self._size)
        elif len(self._head) == self._head_bytes:
            found = self._xxhash.xxh3_64_intdigest(memoryview(self._head)[_DIGESTED_FROM:])
            if found != self._file.digest:
                raise SyncError('the head is damaged', is_transient=True)
            self._good, self._is_head_good = self._head_bytes, True
        return data[count:]

    def _take_block(self, data: memoryview) -> memoryview:
        length = min(_BLOCK_BYTES, self._size - self._good)
        if length == 0:
            raise SyncError('goes on after byte %d' % self._size, is_transient=True)
        count = min(len(data), length - self._block_done)
        self._block = self._block or self._xxhash.xxh3_64()
        self._block.update(data[:count])
        self._block_done += count
        if self._block_done == length:
            number = (self._good - self._head_bytes) // _BLOCK_BYTES
            wanted, = struct.unpack_from('<Q', self._head, HEADER_BYTES + 8 * number)
            if self._block.intdigest() != wanted:
                raise SyncError('bytes %d to %d are damaged' % (self._good, self._good + length),
                                is_transient=True)
            self._good += length
            self._block, self._block_done = None, 0
        return data[count:]


def _check_size(found: int, size: int) -> None:
    if found > size:
        raise WrongFile('goes on after byte %d' % size)
    if found != size:
        raise SyncError('ends at byte %d, expected %d' % (found, size), is_transient=True)


def _other_digest(found: int, file: VersionFile) -> WrongFile:
    return WrongFile('has the digest %016x, but the manifest says %016x' % (found, file.digest))


def head_bytes(header: bytes, file: VersionFile, size: int) -> int:
    """Returns the size of the head of a packed table, from its first 512 bytes. Raises WrongFile if
    it is another table, or if its sizes are wrong."""
    if len(header) < HEADER_BYTES or header[:8] != _MAGIC:
        raise WrongFile('is not a packed table')
    digest, = struct.unpack_from('<Q', header, 8)
    if digest != file.digest:
        raise _other_digest(digest, file)
    count, total = struct.unpack_from('<2Q', header, 144)
    blocks = -(-(size - count) // _BLOCK_BYTES)
    if total != size:
        raise WrongFile('has %d bytes, but its header says %d' % (size, total))
    if not HEADER_BYTES + 8 * blocks <= count <= min(_HEAD_BYTES_MAX, size) or count % _ALIGNMENT:
        raise WrongFile('the header says that the head has %d bytes, which cannot be' % count)
    return int(count)


def open_verifier(file: VersionFile, size: int) -> Verifier:
    """Returns the verifier of a file of this size."""
    return PackedVerifier(file, size) if file.is_packed else PlainVerifier(file, size)
