"""Reads parquet and Arrow IPC (feather) files with a column of keys and a column of vectors.

Rows are decoded in batches, so that a row group of any size needs little memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embag.importer.file_bytes import file_size, read_range
from embag.importer.optional import need
from embag.importer.read_options import ReadOptions
from embag.importer.source import ELEMENT_BYTES, Checkpoint, CheckpointError, Table, Tensor

# The most rows, and bytes of vectors, that are decoded at a time. A row is the least.
_BATCH_ROWS = 4096
_BATCH_BYTES = 4 << 20
# Bytes that are read ahead of a parquet column.
_BUFFER_BYTES = 1 << 20
_MAGICS = {b'PAR1': 'parquet', b'ARRO': 'Arrow'}
_SUFFIXES = ('.parquet', '.arrow', '.feather', '.ipc')
# Types of keys and of vectors' elements, by Arrow's names.
_KEYS = {'int64': 'I64', 'uint64': 'U64', 'int32': 'I64', 'uint32': 'U64', 'int16': 'I64',
         'uint16': 'U64', 'int8': 'I64', 'uint8': 'U64'}
_ELEMENTS = {'halffloat': 'F16', 'float': 'F32', 'double': 'F64'}


def _files_of(path: str) -> list[str]:
    """Returns the files of a directory, or the file itself."""
    if not os.path.isdir(path):
        return [path]
    return [os.path.join(path, name) for name in sorted(os.listdir(path))
            if name.endswith(_SUFFIXES) and name[0] not in '._']


def recognises(path: str) -> bool:
    """Returns whether this is a parquet or Arrow file, or a directory with such files."""
    if os.path.isdir(path):
        return bool(_files_of(path))
    if path.endswith(_SUFFIXES):
        return True
    return file_size(path) >= 4 and read_range(path, 0, 4).tobytes() in _MAGICS


class _Parquet:
    """A parquet file."""

    def __init__(self, path: str) -> None:
        self.path = path
        parquet = need('pyarrow.parquet', 'reading parquet files')
        self._file = parquet.ParquetFile(path, memory_map=True, buffer_size=_BUFFER_BYTES)
        self.schema = self._file.schema_arrow
        self.starts = [0]
        for number in range(self._file.num_row_groups):
            self.starts.append(self.starts[-1] + self._file.metadata.row_group(number).num_rows)

    def batches(self, column: str, first: int, rows: int) -> Iterator[Any]:
        """Yields arrays of a column of up to `rows` rows, from the row group `first` on."""
        groups = list(range(first, len(self.starts) - 1))
        if groups:
            for batch in self._file.iter_batches(rows, groups, [column]):
                yield batch.column(0)


class _Ipc:
    """An Arrow IPC file, as feather files are too."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._arrow = need('pyarrow', 'reading Arrow files')
        self._reader = self._arrow.ipc.open_file(self._arrow.memory_map(path))
        self.schema = self._reader.schema
        self.starts = [0]
        for number in range(self._reader.num_record_batches):
            self.starts.append(self.starts[-1] + self._reader.get_batch(number).num_rows)

    def batches(self, column: str, first: int, rows: int) -> Iterator[Any]:
        """Yields arrays of a column of up to `rows` rows, from the record batch `first` on."""
        position = self.schema.get_field_index(column)
        for number in range(first, len(self.starts) - 1):
            array = self._reader.get_batch(number).column(position)
            # Arrow ends the process if offsets that the file states are wrong.
            array.validate(full=True)
            for at in range(0, len(array), rows):
                yield array.slice(at, rows)


def _open_file(path: str) -> _Parquet | _Ipc:
    """Opens a file by its first bytes. Raises CheckpointError."""
    magic = read_range(path, 0, 4).tobytes() if file_size(path) >= 4 else b''
    if magic not in _MAGICS:
        raise CheckpointError('%s: begins with %r, expected a parquet file or an Arrow IPC file '
                              '(feather version 2)' % (path, magic))
    arrow = need('pyarrow', 'reading %s files' % _MAGICS[magic])
    try:
        file = _Parquet(path) if magic == b'PAR1' else _Ipc(path)
        # Names and types are decoded when they are asked for, which may fail too.
        names = [field.name for field in file.schema if str(field.type)]
    except (arrow.ArrowException, OSError, UnicodeDecodeError) as error:
        raise CheckpointError('%s: %s' % (path, _first_line(error))) from error
    if len(set(names)) < len(names):
        raise CheckpointError('%s: two columns have the same name, expected different names; the '
                              'columns are: %s' % (path, ', '.join(names)))
    return file


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


@dataclass(frozen=True)
class _Column:
    """A column of all files.

    - dtype: type of the tensor
    - width: values in a row; None for keys
    """

    files: list[_Parquet | _Ipc]
    name: str
    dtype: str
    width: int | None

    @property
    def batch_rows(self) -> int:
        """The number of rows to decode at a time."""
        row_bytes = (self.width or 1) * ELEMENT_BYTES[self.dtype]
        return max(min(_BATCH_ROWS, _BATCH_BYTES // row_bytes), 1)

    def decode(self, array: Any, path: str, row: int) -> NDArray[np.uint8]:
        """Returns the rows of an array whose first row is row `row` of the file, as bytes.

        Raises CheckpointError for nulls and for vectors of another length.
        """
        where = '%s: column %s' % (path, self.name)
        _refuse_nulls(array, where, row)
        if self.width is None:
            wide: NDArray[Any] = array.to_numpy(zero_copy_only=False).astype(
                '<i8' if self.dtype == 'I64' else '<u8')
            return wide.view(np.uint8).reshape(-1, 8)
        if not str(array.type).startswith('fixed_size_list'):
            lengths = array.value_lengths().to_numpy(zero_copy_only=False)
            (other,) = np.nonzero(lengths != self.width)
            if other.size > 0:
                raise CheckpointError('%s: row %d has %d values, expected %d as in the first row'
                                      % (where, row + other[0], lengths[other[0]], self.width))
        values = array.flatten()
        if values.null_count > 0:
            first = int(np.nonzero(values.is_null().to_numpy(zero_copy_only=False))[0][0])
            raise CheckpointError('%s: row %d has a null at position %d, expected a number' % (
                where, row + first // self.width, first % self.width))
        plain: NDArray[Any] = np.ascontiguousarray(values.to_numpy(zero_copy_only=False))
        return plain.view(np.uint8).reshape(len(array), -1)


def _refuse_nulls(array: Any, where: str, row: int) -> None:
    if array.null_count > 0:
        (nulls,) = np.nonzero(array.is_null().to_numpy(zero_copy_only=False))
        raise CheckpointError('%s: row %d is null, expected a value' % (where, row + nulls[0]))


class _Stream:
    """Reads rows of a column. Rows in ascending order are decoded once."""

    def __init__(self, column: _Column) -> None:
        self._column = column
        self._batches: Iterator[NDArray[np.uint8]] = iter(())
        self._at = -1    # the first row of _rest, which was decoded and not yet read
        self._rest: NDArray[np.uint8] | None = None

    def _decode_from(self, row: int) -> Iterator[NDArray[np.uint8]]:
        """Yields decoded rows; the first are those of the batch or row group that has `row`."""
        start = 0
        for file in self._column.files:
            count = file.starts[-1]
            if start + count > row:
                first = int(np.searchsorted(file.starts, max(row - start, 0), 'right')) - 1
                at = file.starts[first]
                if self._at < 0:
                    self._at = start + at
                for array in file.batches(self._column.name, first, self._column.batch_rows):
                    yield self._column.decode(array, file.path, at)
                    at += len(array)
            start += count

    def read(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Returns rows [begin, end) as bytes. Raises CheckpointError."""
        arrow = need('pyarrow', 'reading this file')
        if self._rest is None or begin < self._at:
            self._at = -1
            self._batches, self._rest = self._decode_from(begin), np.empty((0, 0), np.uint8)
        try:
            return self._collect(begin, end)
        except (arrow.ArrowException, OSError) as error:
            raise CheckpointError('column %s: %s' % (
                self._column.name, _first_line(error))) from error

    def _collect(self, begin: int, end: int) -> NDArray[np.uint8]:
        parts: list[NDArray[np.uint8]] = []
        rest = self._rest
        assert rest is not None
        while begin < end:
            if len(rest) == 0:
                following = next(self._batches, None)
                if following is None:
                    raise CheckpointError('column %s: ends at row %d, expected %d rows' % (
                        self._column.name, begin, end))
                rest = following
            skipped = min(max(begin - self._at, 0), len(rest))
            taken = rest[skipped:skipped + end - begin]
            parts += [taken] if len(taken) > 0 else []
            begin += len(taken)
            self._at += skipped + len(taken)
            rest = rest[skipped + len(taken):]
        self._rest = rest
        return parts[0] if len(parts) == 1 else np.concatenate(parts)


def _list_type(kind: Any) -> Any:
    """Returns the type of a list's elements, or None for types that are no lists."""
    is_list = str(kind).startswith(('list<', 'large_list<', 'fixed_size_list<'))
    return kind.value_type if is_list else None


def _choose(path: str, schema: Any, said: str | None, is_fit: Any, what: str) -> str:
    """Returns the column that was named, or else the only one that fits.

    Raises CheckpointError.
    """
    columns = ', '.join('%s %s' % (field.name, field.type) for field in schema)
    fits = [field.name for field in schema if is_fit(field.type)]
    if said is not None and said not in fits:
        raise CheckpointError('%s: the column "%s" is not one of %s; the columns are: %s' % (
            path, said, what, columns))
    if said is None and len(fits) != 1:
        option = 'key' if 'keys' in what else 'vector'
        raise CheckpointError('%s: has %d columns of %s, expected one: name it with --%s-column; '
                              'the columns are: %s' % (path, len(fits), what, option, columns))
    return said if said is not None else fits[0]


def _is_key(kind: Any) -> bool:
    return str(kind) in _KEYS


def _is_vector(kind: Any) -> bool:
    return str(_list_type(kind)) in _ELEMENTS


def _find_width(files: list[_Parquet | _Ipc], name: str) -> int:
    """Returns the number of values in the first row."""
    kind = files[0].schema.field(name).type
    if str(kind).startswith('fixed_size_list'):
        return int(kind.list_size)
    for file in files:
        for array in file.batches(name, 0, 1):
            if len(array) > 0:
                _refuse_nulls(array.slice(0, 1), '%s: column %s' % (file.path, name), 0)
                return len(array[0])
    raise CheckpointError('%s: has no rows, expected at least one' % files[0].path)


def open_checkpoint(path: str, options: ReadOptions | None = None) -> Checkpoint:
    """Opens a parquet or Arrow file, or a directory whose files follow each other by name.

    Raises CheckpointError.
    """
    options = options or ReadOptions()
    paths = _files_of(path)
    if not paths:
        raise CheckpointError('%s: has no files %s' % (path, ', '.join('*' + s for s in _SUFFIXES)))
    files = [_open_file(each) for each in paths]
    schema = files[0].schema
    for file in files[1:]:
        if not file.schema.equals(schema):
            raise CheckpointError('%s: has other columns than %s' % (file.path, paths[0]))
    keys = _choose(paths[0], schema, options.key_column, _is_key, 'keys (integers)')
    vectors = _choose(paths[0], schema, options.vector_column, _is_vector,
                      'vectors (lists of floating-point numbers)')
    rows = sum(file.starts[-1] for file in files)
    arrow = need('pyarrow', 'reading this file')
    try:
        width = _find_width(files, vectors)
    except (arrow.ArrowException, OSError) as error:
        raise CheckpointError('%s: column %s: %s' % (
            paths[0], vectors, _first_line(error))) from error
    if width == 0:
        raise CheckpointError('%s: column %s: vectors have no values, expected at least one' % (
            paths[0], vectors))
    key_type = _KEYS[str(schema.field(keys).type)]
    element = _ELEMENTS[str(_list_type(schema.field(vectors).type))]
    key_tensor = Tensor(keys, key_type, (rows,), _Stream(_Column(files, keys, key_type, None)).read)
    tensor = Tensor(vectors, element, (rows, width),
                    _Stream(_Column(files, vectors, element, width)).read)
    name = os.path.basename(os.path.abspath(path))
    name = name[:-len(os.path.splitext(name)[1])] if os.path.splitext(name)[1] else name
    left = [(field.name, 'neither the keys nor the vectors') for field in schema
            if field.name not in (keys, vectors)]
    kind = 'parquet' if isinstance(files[0], _Parquet) else 'Arrow'
    return Checkpoint(kind + ' with keys and vectors', tables=[Table(tensor, name, key_tensor)],
                      left=left)
