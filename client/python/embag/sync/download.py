"""Copies one file of a version from a store to the disk."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import BinaryIO

from embag.sync.errors import ATTEMPTS_MAX, Stopped, SyncError, WrongFile, delay_s, pause
from embag.sync.stores import Store
from embag.sync.verify import Verifier, open_verifier
from embag.sync.version_files import VersionFile

_CHUNK_BYTES = 1 << 20
# Bytes after which written pages go to the disk and leave the page cache, as in an import.
_SYNC_BYTES = 64 << 20

# Called with the number of bytes that were written since the last call.
Advance = Callable[[int], None]


@dataclass(frozen=True)
class WrongDownload:
    """An object whose bytes were found to be those of another file than the manifest names."""

    tag: str
    digest: int
    text: str


class Download:
    """The copy of one file. It is written to `partial` and, when every byte is compared and on the
    disk, renamed to `target`. A copy that was interrupted goes on with what is in `partial`.

    - path: of the object in the store
    - size: its bytes, as the store lists them
    - wrong: such objects, by their paths, which are not read again. The copy adds its own
    """

    def __init__(self, store: Store, path: str, size: int, file: VersionFile,
                 wrong: dict[str, WrongDownload] | None = None) -> None:
        self._wrong = {} if wrong is None else wrong
        self._tag = ''
        self._store, self._path, self._size, self._version_file = store, path, size, file
        self._where = '%s/%s' % (store.url, path)
        self._verifier: Verifier = open_verifier(file, size)
        self._offset = self._synced = 0
        self._is_resumed = False

    def run(self, partial: str, target: str, stop: threading.Event, advance: Advance) -> None:
        """Copies the file. Raises SyncError, OSError, and Stopped if `stop` is set."""
        if self._version_file.bytes not in (None, self._size):
            raise SyncError('%s: has %d bytes, but the manifest says %d' % (
                self._where, self._size, self._version_file.bytes))
        descriptor = os.open(partial, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        with open(descriptor, 'r+b', buffering=0) as file:
            self._resume(file, advance)
            self._copy(file, stop, advance)
            os.fsync(file.fileno())
        os.rename(partial, target)

    def _resume(self, file: BinaryIO, advance: Advance) -> None:
        """Takes over the good bytes of an earlier attempt."""
        self._is_resumed = os.fstat(file.fileno()).st_size > 0
        try:
            while data := file.read(_CHUNK_BYTES):
                self._verifier.update(memoryview(data))
        except SyncError as error:
            if isinstance(error, WrongFile):
                self._verifier = open_verifier(self._version_file, self._size)
        self._rewind(file)
        advance(self._offset)

    def _rewind(self, file: BinaryIO) -> None:
        """Goes back to the end of the bytes that are known to be good."""
        self._offset = self._verifier.rewind()
        self._synced = min(self._synced, self._offset)
        file.truncate(self._offset)
        file.seek(self._offset)

    def _copy(self, file: BinaryIO, stop: threading.Event, advance: Advance) -> None:
        failures = 0
        while True:
            begin = self._offset
            try:
                self._stream(file, stop, advance)
                self._verifier.finish()
                return
            except SyncError as error:
                may_retry = error.is_transient
                if isinstance(error, WrongFile):
                    # The bytes of an earlier attempt may have been those of another file.
                    may_retry, self._is_resumed = self._is_resumed, False
                    if not may_retry:
                        self._wrong[self._path] = WrongDownload(
                            self._tag, self._version_file.digest, str(error))
                    self._verifier = open_verifier(self._version_file, self._size)
                ended = self._offset
                self._rewind(file)
                advance(self._offset - ended)
                failures = 1 if self._offset > begin else failures + 1
                if not may_retry or failures >= ATTEMPTS_MAX:
                    raise self._named(error) from None
            pause(delay_s(failures), stop)

    def _named(self, error: SyncError) -> SyncError:
        text = str(error)
        if not text.startswith(self._store.url):
            text = '%s: %s' % (self._where, text)
        return SyncError(text, error.is_transient)

    def _stream(self, file: BinaryIO, stop: threading.Event, advance: Advance) -> None:
        if stop.is_set():
            raise Stopped
        if self._offset >= self._size > 0:
            return
        with self._store.open(self._path, self._offset) as reader:
            self._tag = reader.tag
            known = self._wrong.get(self._path)
            if known and (known.tag, known.digest) == (reader.tag, self._version_file.digest):
                raise WrongFile(known.text)
            if reader.size != self._size:
                raise SyncError('has %d bytes now, but %d when it was listed' % (
                    reader.size, self._size))
            while data := reader.read(_CHUNK_BYTES):
                if stop.is_set():
                    raise Stopped
                # Bytes that the verifier knows to be good must be in the file.
                _write(file, data)
                self._offset += len(data)
                advance(len(data))
                self._verifier.update(memoryview(data))
                self._flush(file)

    def _flush(self, file: BinaryIO) -> None:
        if self._offset - self._synced >= _SYNC_BYTES:
            os.fdatasync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, self._offset, os.POSIX_FADV_DONTNEED)
            self._synced = self._offset


def _write(file: BinaryIO, data: bytes) -> None:
    view = memoryview(data)
    while len(view) > 0:
        view = view[file.write(view):]
