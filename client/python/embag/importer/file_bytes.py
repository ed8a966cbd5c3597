"""Reads ranges of bytes of files, and checks what was found in them."""

from __future__ import annotations

import json
import math
import os
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embag.importer.source import ELEMENT_BYTES, CheckpointError, Tensor

# Protects memory: parsed JSON takes up to some 20 times its size. The texts that are read are
# headers of safetensors files and lists of shards, with some 100 bytes for each tensor.
JSON_BYTES_MAX = 16 << 20


def read_range(path: str, offset: int, count: int) -> NDArray[np.uint8]:
    """Returns bytes [offset, offset + count) of a file as uint8 [count].

    Raises CheckpointError if the file cannot be read or ends earlier.
    """
    data = np.empty(count, np.uint8)
    view = data.data
    done = 0
    try:
        with open(path, 'rb', buffering=0) as file:
            while done < count:
                got = os.preadv(file.fileno(), [view[done:]], offset + done)
                if got == 0:
                    raise CheckpointError('%s: ends at byte %d, expected %d bytes' % (
                        path, offset + done, offset + count))
                done += got
    except OSError as error:
        raise CheckpointError('%s: %s' % (path, error.strerror)) from error
    return data


def file_size(path: str) -> int:
    """Returns the bytes of a regular file. Raises CheckpointError for anything else."""
    try:
        size = os.stat(path).st_size
    except OSError as error:
        raise CheckpointError('%s: %s' % (path, error.strerror)) from error
    if not os.path.isfile(path):
        raise CheckpointError('%s: expected a regular file' % path)
    return size


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise ValueError('the key "%s" occurs twice' % key)
            seen.add(key)
    return entries


def parse_json(data: bytes, where: str) -> dict[str, Any]:
    """Returns the JSON object in `data`. Raises CheckpointError, which names `where`."""
    try:
        value = json.loads(data.decode('utf-8'), object_pairs_hook=_without_duplicates)
    except (ValueError, RecursionError) as error:
        raise CheckpointError('%s: not valid JSON: %s' % (where, error)) from error
    if not isinstance(value, dict):
        raise CheckpointError('%s: expected a JSON object, found %s' % (
            where, type(value).__name__))
    return value


def read_json(path: str) -> dict[str, Any]:
    """Returns the JSON object in a file. Raises CheckpointError."""
    size = file_size(path)
    if size > JSON_BYTES_MAX:
        raise CheckpointError('%s: has %d bytes, expected at most %d' % (
            path, size, JSON_BYTES_MAX))
    return parse_json(read_range(path, 0, size).tobytes(), path)


def shard_path(directory: str, name: Any, index: str) -> str:
    """Returns the path of a file that the list `index` names.

    Raises CheckpointError unless the name is that of a file in the directory itself.
    """
    if not isinstance(name, str) or name in ('', '.', '..') or '/' in name or '\0' in name:
        raise CheckpointError('%s: names the file %s, expected one in the same directory' % (
            index, json.dumps(name)))
    return os.path.join(directory, name)


def tensor_of_bytes(name: str, dtype: str, shape: tuple[int, ...], path: str,
                    offset: int) -> Tensor:
    """Returns a tensor of a type of ELEMENT_BYTES that stands in a file, in C order.

    `offset` is that of its first byte.
    """
    row_bytes = math.prod(shape[1:]) * ELEMENT_BYTES[dtype]

    def read(begin: int, end: int) -> NDArray[np.uint8]:
        count = (end - begin) * row_bytes
        return read_range(path, offset + begin * row_bytes, count).reshape(-1, row_bytes)

    return Tensor(name, dtype, shape, read)


def unreadable(name: str, dtype: str, shape: tuple[int, ...]) -> Tensor:
    """Returns a tensor of another type, which cannot become a table."""

    def read(begin: int, end: int) -> NDArray[np.uint8]:
        raise CheckpointError('%s: values of the type %s cannot be read' % (name, dtype))

    return Tensor(name, dtype, shape, read)
