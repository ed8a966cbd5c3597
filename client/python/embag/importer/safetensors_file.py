"""Reads safetensors files: one, those that a list of shards names, or all of a directory.

A file has 8 bytes with the length of a header, the header in JSON, and the tensors' bytes.
"""

from __future__ import annotations

import math
import os
import re
from typing import Any

from embag.importer.file_bytes import (JSON_BYTES_MAX, file_size, parse_json, read_json, read_range,
                                       shard_path, tensor_of_bytes, unreadable)
from embag.importer.source import ELEMENT_BYTES, Checkpoint, CheckpointError, Tensor

SUFFIX = '.safetensors'
INDEX_SUFFIX = '.safetensors.index.json'
_LENGTH_BYTES = 8
_RANK_MAX = 64
# Elements of types that cannot become tables, as far as they have whole bytes.
_OTHER_BYTES = {'BOOL': 1, 'F8_E4M3': 1, 'F8_E5M2': 1, 'F8_E8M0': 1, 'C64': 8}
_SHARD = re.compile(r'-\d{5}-of-\d{5}\.safetensors$')


def _names_in(directory: str, suffix: str) -> list[str]:
    return sorted(n for n in os.listdir(directory) if n.endswith(suffix) and n[0] != '.')


def recognises(path: str) -> bool:
    """Returns whether this reader is the one for a file or directory."""
    if os.path.isdir(path):
        return bool(_names_in(path, SUFFIX) or _names_in(path, INDEX_SUFFIX))
    return path.endswith((SUFFIX, INDEX_SUFFIX))


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _parse_entry(where: str, entry: Any) -> tuple[str, tuple[int, ...], int, int]:
    """Returns the type, the shape, and the range of bytes of a tensor."""
    if not isinstance(entry, dict):
        raise CheckpointError('%s: expected an object with dtype, shape and data_offsets' % where)
    dtype, shape, offsets = (entry.get(k) for k in ('dtype', 'shape', 'data_offsets'))
    if not isinstance(dtype, str):
        raise CheckpointError('%s: dtype is %r, expected a name such as "F32"' % (where, dtype))
    if not isinstance(shape, list) or len(shape) > _RANK_MAX or not all(map(_is_count, shape)):
        raise CheckpointError('%s: shape is %.80r, expected at most %d sizes' % (
            where, shape, _RANK_MAX))
    if not isinstance(offsets, list) or len(offsets) != 2 or not all(map(_is_count, offsets)) or \
            offsets[0] > offsets[1]:
        raise CheckpointError('%s: data_offsets is %.80r, expected [begin, end]' % (
            where, offsets))
    size = ELEMENT_BYTES.get(dtype) or _OTHER_BYTES.get(dtype)
    if size is not None and math.prod(shape) * size != offsets[1] - offsets[0]:
        raise CheckpointError('%s: has %d bytes, expected %d for %s %s' % (
            where, offsets[1] - offsets[0], math.prod(shape) * size, dtype, shape))
    return dtype, tuple(shape), offsets[0], offsets[1]


def _check_ranges(path: str, ranges: list[tuple[int, int, str]], data_bytes: int) -> None:
    """Checks that the tensors' ranges follow each other and fill the file."""
    at = 0
    for begin, end, name in sorted(ranges):
        if begin != at:
            raise CheckpointError('%s: tensor %s begins at byte %d of the data, expected %d: '
                                  'tensors %s' % (path, name, begin, at,
                                                  'overlap' if begin < at else 'leave a gap'))
        at = end
    if at != data_bytes:
        raise CheckpointError('%s: has %d bytes of data, expected %d: the file is %s' % (
            path, data_bytes, at, 'cut off' if data_bytes < at else 'longer than its header says'))


def read_tensors(path: str) -> list[Tensor]:
    """Returns the tensors of a file, in the order of its header. Raises CheckpointError."""
    size = file_size(path)
    if size < _LENGTH_BYTES:
        raise CheckpointError('%s: has %d bytes, expected a safetensors file' % (path, size))
    header_bytes = int(read_range(path, 0, _LENGTH_BYTES).view('<u8')[0])
    if header_bytes > min(size - _LENGTH_BYTES, JSON_BYTES_MAX):
        raise CheckpointError('%s: the header has %d bytes, expected at most %d' % (
            path, header_bytes, min(size - _LENGTH_BYTES, JSON_BYTES_MAX)))
    header = parse_json(read_range(path, _LENGTH_BYTES, header_bytes).tobytes(), path)
    header.pop('__metadata__', None)
    data_at = _LENGTH_BYTES + header_bytes
    tensors, ranges = [], []
    for name, entry in header.items():
        dtype, shape, begin, end = _parse_entry('%s: tensor %s' % (path, name), entry)
        ranges.append((begin, end, name))
        is_known = dtype in ELEMENT_BYTES and len(shape) > 0
        tensors.append(tensor_of_bytes(name, dtype, shape, path, data_at + begin) if is_known
                       else unreadable(name, dtype, shape))
    _check_ranges(path, ranges, size - data_at)
    return tensors


def weight_map(index: str) -> dict[str, list[str]]:
    """Returns the tensors' names by the file that holds them, as a list of shards says.

    The files are paths. Raises CheckpointError.
    """
    listed = read_json(index).get('weight_map')
    if not isinstance(listed, dict) or not listed:
        raise CheckpointError('%s: has no "weight_map" with files by tensor' % index)
    files: dict[str, list[str]] = {}
    for tensor, name in listed.items():
        files.setdefault(shard_path(os.path.dirname(index), name, index), []).append(tensor)
    return files


def check_listed(index: str, path: str, listed: list[str], tensors: list[Tensor]) -> list[Tensor]:
    """Returns the tensors of a file that the list of shards names, in the list's order.

    Raises CheckpointError if one is absent.
    """
    by_name = {tensor.name: tensor for tensor in tensors}
    absent = [name for name in listed if name not in by_name]
    if absent:
        raise CheckpointError('%s: tensor %s should be in %s, which does not have it' % (
            index, absent[0], path))
    return [by_name[name] for name in listed]


def _open_index(index: str) -> Checkpoint:
    tensors = []
    for path, listed in weight_map(index).items():
        tensors += check_listed(index, path, listed, read_tensors(path))
    return Checkpoint('sharded safetensors', tensors)


def _open_directory(path: str) -> Checkpoint:
    indexes = _names_in(path, INDEX_SUFFIX)
    if len(indexes) > 1:
        raise CheckpointError('%s: has %d lists of shards (%s), expected one: name it as SOURCE' % (
            path, len(indexes), ', '.join(indexes)))
    if indexes:
        return _open_index(os.path.join(path, indexes[0]))
    files: dict[str, str] = {}
    tensors = []
    for name in _names_in(path, SUFFIX):
        if _SHARD.search(name):
            raise CheckpointError('%s: %s is one of several shards, expected a list of them, '
                                  '*%s, beside it' % (path, name, INDEX_SUFFIX))
        for tensor in read_tensors(os.path.join(path, name)):
            if tensor.name in files:
                raise CheckpointError('%s: tensor %s is in %s and in %s, expected it once' % (
                    path, tensor.name, files[tensor.name], name))
            files[tensor.name] = name
            tensors.append(tensor)
    return Checkpoint('safetensors', tensors)


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a safetensors file, a list of shards, or a directory with either.

    Raises CheckpointError.
    """
    if os.path.isdir(path):
        return _open_directory(path)
    if path.endswith(INDEX_SUFFIX):
        return _open_index(path)
    return Checkpoint('safetensors', read_tensors(path))
