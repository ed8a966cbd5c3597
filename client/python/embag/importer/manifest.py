"""Writes manifest.yaml, which lists a version's files with their sizes and digests.

A digest is the 64-bit XXH3 of the file's bytes, as `xxhsum -H3` prints it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from embag.importer.model_yaml import Config, write
from embag.importer.optional import need

NAME = 'manifest.yaml'
# Bytes after which written pages go to the disk and leave the page cache, so that a large import
# does not displace what others keep there. 4 GiB took a third of the time and CPU of one fsync at
# the end.
_SYNC_BYTES = 64 << 20


@dataclass(frozen=True)
class FileDigest:
    """A file of a version: its name, bytes, and digest in 16 hex digits."""

    name: str
    bytes: int
    xxh3_64: str


class DigestedFile:
    """A new file, whose digest is computed while it is written.

    Leaving the context writes it to the disk (fsync). Raises OSError, also if the file exists.
    """

    def __init__(self, directory: str, name: str) -> None:
        self._name = name
        self._bytes = 0
        self._synced = 0
        self._digest = need('xxhash', 'writing a manifest').xxh3_64()
        self._file = open(os.path.join(directory, name), 'xb', buffering=0)

    def __enter__(self) -> DigestedFile:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None,
                 trace: TracebackType | None) -> None:
        try:
            if kind is None:
                os.fsync(self._file.fileno())
        finally:
            self._file.close()

    def write(self, data: Any) -> None:
        """Writes an object with a buffer of bytes."""
        view = memoryview(data).cast('B')
        self._digest.update(view)
        self._bytes += len(view)
        while len(view) > 0:
            view = view[self._file.write(view):]
        if self._bytes - self._synced >= _SYNC_BYTES:
            os.fdatasync(self._file.fileno())
            os.posix_fadvise(self._file.fileno(), 0, self._bytes, os.POSIX_FADV_DONTNEED)
            self._synced = self._bytes

    def digest(self) -> FileDigest:
        """Returns the size and digest of what was written."""
        return FileDigest(self._name, self._bytes, self._digest.hexdigest())


def write_manifest(directory: str, files: Iterable[FileDigest]) -> None:
    """Writes DIRECTORY/manifest.yaml. Raises OSError."""
    config: Config = {
        'format': 1, 'parts': 1,
        'files': [{'name': each.name, 'bytes': each.bytes, 'xxh3_64': each.xxh3_64}
                  for each in sorted(files, key=lambda each: each.name)]}
    with DigestedFile(directory, NAME) as file:
        file.write(write(config, {}).encode('utf-8'))
