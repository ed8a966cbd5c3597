"""Reads keys and rows from raw files, which have no header.

dynamicemb writes, for each table and rank, TABLE_emb_keys.rank_R.world_size_W and
TABLE_emb_values.rank_R.world_size_W, in a directory for each collection. HugeCTR and its HPS write
a directory for each table, with the files `key` and `emb_vector`. Pairs NAME.keys and NAME.values
(or NAME_keys and NAME_values) are read too. Keys have 64 bits and values are f32, unless options
say otherwise.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from embag.importer.file_bytes import file_size, read_range
from embag.importer.read_options import ReadOptions
from embag.importer.source import ELEMENT_BYTES, Checkpoint, CheckpointError, Table, Tensor

# Bounds the search for tables in SOURCE: collections of tables may be nested.
DEPTH_MAX = 4
_RANKED = re.compile(r'(.+)_emb_(keys|values)\.rank_(\d{1,6})\.world_size_(\d{1,6})')
_PAIR = re.compile(r'(.+)[._](keys|values)')
_OTHER = re.compile(r'.+_(emb_scores|opt_values|emb_opt_values|counter_keys|counter_frequencies)'
                    r'\.rank_\d+\.world_size_\d+|.+_opt_args\.json|meta|slot_id')
_KEY_BYTES = {'I64': 8, 'U64': 8, 'I32': 4, 'U32': 4}


@dataclass
class _Found:
    """The files of one table: by rank, a path for each kind ('keys', 'values')."""

    ranks: dict[int, dict[str, str]] = field(default_factory=dict)
    world_sizes: set[int] = field(default_factory=set)

    def add(self, rank: int, kind: str, path: str, world_size: int) -> None:
        self.world_sizes.add(world_size)
        if len(self.world_sizes) > 1:
            raise CheckpointError('%s: has the world size %d, expected %d as another file of the '
                                  'table' % (path, world_size,
                                             min(self.world_sizes - {world_size})))
        files = self.ranks.setdefault(rank, {})
        if kind in files:
            raise CheckpointError('%s and %s both have the %s of rank %d, expected one file' % (
                files[kind], path, kind, rank))
        files[kind] = path


def _refuse(error: OSError) -> None:
    raise CheckpointError('%s: %s' % (error.filename, error.strerror)) from error


def _walk(root: str) -> Iterator[tuple[str, list[str]]]:
    """Yields the directories below `root`, relative to it, with their files."""
    for folder, folders, names in os.walk(root, onerror=_refuse):
        inner = os.path.relpath(folder, root)
        inner = '' if inner == '.' else inner
        folders[:] = sorted(n for n in folders if n[0] != '.')
        if inner.count('/') + 1 >= DEPTH_MAX:
            folders.clear()
        yield inner, sorted(names)


def _find(root: str) -> tuple[dict[str, _Found], list[tuple[str, str]]]:
    """Returns the files of each table by the table's path, and what else is there."""
    found: dict[str, _Found] = {}
    left = []
    for inner, names in _walk(root):
        is_hps = 'key' in names and 'emb_vector' in names
        for name in names:
            path = os.path.join(root, inner, name)
            ranked, pair = _RANKED.fullmatch(name), _PAIR.fullmatch(name)
            if ranked:
                files = found.setdefault(os.path.join(inner, ranked[1]), _Found())
                files.add(int(ranked[3]), ranked[2], path, int(ranked[4]))
            elif is_hps and name in ('key', 'emb_vector'):
                files = found.setdefault(inner or os.path.basename(os.path.abspath(root)), _Found())
                files.add(0, 'keys' if name == 'key' else 'values', path, 1)
            elif _OTHER.fullmatch(name):
                left.append((os.path.join(inner, name), 'neither keys nor values of a table'))
            elif pair:
                files = found.setdefault(os.path.join(inner, pair[1]), _Found())
                files.add(0, pair[2], path, 1)
            else:
                left.append((os.path.join(inner, name), 'unknown file name'))
    return found, left


def recognises(path: str) -> bool:
    """Returns whether a directory has keys and values of at least one table."""
    if not os.path.isdir(path):
        return False
    for _, names in _walk(path):
        if 'key' in names and 'emb_vector' in names:
            return True
        kinds = {match[2] for match in map(_PAIR.fullmatch, names) if match}
        kinds |= {match[2] for match in map(_RANKED.fullmatch, names) if match}
        if len(kinds) == 2:
            return True
    return False


def _check_ranks(name: str, found: _Found) -> None:
    """Checks that the files of all ranks are there, in pairs."""
    ranks = range(next(iter(found.world_sizes)))
    for rank in sorted(set(ranks) | set(found.ranks)):
        absent = {'keys', 'values'} - set(found.ranks.get(rank, {}))
        if rank not in ranks:
            raise CheckpointError('table %s: has a file of rank %d, expected ranks below %d' % (
                name, rank, len(ranks)))
        if absent:
            raise CheckpointError('table %s: the file with the %s of rank %d is missing' % (
                name, ' and the '.join(sorted(absent)), rank))


def _row_count(path: str, row_bytes: int, what: str) -> int:
    size = file_size(path)
    if size % row_bytes != 0:
        raise CheckpointError('%s: has %d bytes, expected a multiple of %d, the bytes of %s' % (
            path, size, row_bytes, what))
    return size // row_bytes


def _find_dim(name: str, counts: list[int], paths: list[str], options: ReadOptions) -> int:
    """Returns the number of values in a row, from the sizes of the files."""
    dim, said_by = options.dim, '--dim'
    for count, path in zip(counts, paths):
        values = _row_count(path, ELEMENT_BYTES[options.value_type], 'a value')
        if (values % count if count > 0 else values) != 0 or (count > 0 and values == 0):
            raise CheckpointError('%s: has %d values for %d keys, expected equally many for each '
                                  'key' % (path, values, count))
        if count > 0 and dim is None:
            dim, said_by = values // count, path
        if dim is not None and values != dim * count:
            raise CheckpointError('%s: rows have %d values, expected %d as in %s' % (
                path, values // count, dim, said_by))
    if dim is None:
        raise CheckpointError('table %s: has no rows, expected at least one' % name)
    return dim


def _joined(name: str, dtype: str, inner: tuple[int, ...], pieces: list[tuple[str, int]],
            element: str) -> Tensor:
    """Returns the rows of several files, one after the other.

    `pieces` has each file's path and number of rows. The files' elements have the type `element`,
    and the tensor's the type `dtype`.
    """
    row_elements = inner[0] if inner else 1
    starts = np.cumsum([0, *(count for _, count in pieces)]).tolist()

    def read(begin: int, end: int) -> NDArray[np.uint8]:
        parts = []
        for (path, _), start, stop in zip(pieces, starts, starts[1:]):
            low, high = max(begin, start), min(end, stop)
            if low < high:
                row_bytes = row_elements * ELEMENT_BYTES[element]
                parts.append(read_range(path, (low - start) * row_bytes, (high - low) * row_bytes))
        data = parts[0] if len(parts) == 1 else np.concatenate([np.empty(0, np.uint8), *parts])
        if element != dtype:
            data = data.view('<' + element[0].lower() + '4').astype(dtype[0].lower() + '8')
        return data.view(np.uint8).reshape(end - begin, row_elements * ELEMENT_BYTES[dtype])

    return Tensor(name, dtype, (starts[-1], *inner), read)


def _table_of(path: str, name: str, found: _Found, options: ReadOptions) -> Table:
    _check_ranks(path, found)
    files = [found.ranks[rank] for rank in sorted(found.ranks)]
    counts = [_row_count(each['keys'], _KEY_BYTES[options.key_type], 'a key') for each in files]
    dim = _find_dim(path, counts, [each['values'] for each in files], options)
    wide = options.key_type[0] + '64'
    keys = _joined(path + ' (keys)', wide, (),
                   [(each['keys'], n) for each, n in zip(files, counts)], options.key_type)
    rows = _joined(path, options.value_type, (dim,),
                   [(each['values'], n) for each, n in zip(files, counts)], options.value_type)
    return Table(rows, name, keys)


def open_checkpoint(path: str, options: ReadOptions | None = None) -> Checkpoint:
    """Opens a directory with raw files. Raises CheckpointError."""
    if not os.path.isdir(path):
        raise CheckpointError('%s: expected a directory with files of keys and values' % path)
    found, left = _find(path)
    if not found:
        raise CheckpointError('%s: has no files of keys and values, expected '
                              'TABLE_emb_keys.rank_0.world_size_1 and its values (dynamicemb), '
                              'TABLE/key and TABLE/emb_vector (HPS), or NAME.keys and NAME.values'
                              % path)
    short = [os.path.basename(each) for each in found]
    tables = [_table_of(each, each if short.count(name) > 1 else name, files,
                        options or ReadOptions())
              for (each, files), name in zip(found.items(), short)]
    return Checkpoint('raw keys and values', tables=tables, left=left)
