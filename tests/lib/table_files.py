"""Writes the files of a model repository."""

import json
import os
import struct

import numpy as np

from element_types import RAW_TYPES, decode, encode, is_float, type_of_storage

SAFETENSORS_NAMES = {
    'f32': 'F32', 'f64': 'F64', 'f16': 'F16', 'bf16': 'BF16', 'i8': 'I8', 'u8': 'U8', 'i16': 'I16',
    'u16': 'U16', 'i32': 'I32', 'u32': 'U32', 'i64': 'I64', 'u64': 'U64',
    'f8_e4m3': 'F8_E4M3', 'f8_e5m2': 'F8_E5M2',
}


class Table:
    """One table: its raw elements and their values.

    - keys: int64 [rows], the key of each row; None if indices are row numbers
    - vector: the default vector, raw elements [row_elements] of the table's type; None if there is
      none. It also takes the place of missing rows with the policy unknown_row.
    - is_divided: its rows are on several servers; then a result that is zero may have either sign
    """

    def __init__(self, name, storage, raw):
        self.name = name
        self.storage = storage
        self.type = type_of_storage(storage)
        self.raw = np.ascontiguousarray(raw, RAW_TYPES[storage])
        self.rows = self.raw.shape[0]
        self.dims = self.raw.shape[1:]
        self.row_elements = int(np.prod(self.dims, dtype=np.int64))
        self.raw_rows = self.raw.reshape(self.rows, self.row_elements)
        self.values = decode(self.raw_rows, storage)
        self.keys = None
        self.vector = None
        self.is_divided = False

    @classmethod
    def of_values(cls, name, storage, values):
        """Returns a table of the given numbers, rounded to the storage."""
        return cls(name, storage, encode(values, storage))

    @property
    def is_float(self):
        """Whether the element type is a floating-point type."""
        return is_float(self.type)

    def row_of(self, index):
        """Returns the row of an index, which may be a key, or -1 if it is missing."""
        if self.keys is not None:
            return next(iter(np.flatnonzero(self.keys == index)), -1)
        return index if 0 <= index < self.rows else -1

    @property
    def vector_values(self):
        """The values of the default vector: [row_elements]."""
        return decode(self.vector, self.type)


def write_npy(directory, table):
    """Writes DIRECTORY/NAME.npy."""
    np.save(os.path.join(directory, table.name + '.npy'), table.raw)


def write_sparse_npy(directory, size):
    """Writes a sparse file table.npy with `size` bytes in rows of 64 f32.

    The rows use no disk blocks.
    """
    os.makedirs(directory)
    with open(os.path.join(directory, 'table.npy'), 'wb') as file:
        np.lib.format.write_array_header_1_0(
            file, {'descr': '<f4', 'fortran_order': False, 'shape': (size // 256, 64)})
        file.truncate(file.tell() + size)


def safetensors_bytes(entries, data, pad_to=8):
    """Returns the bytes of a file, with the header `entries` (a dict) and then `data`."""
    header = json.dumps(entries).encode()
    header += b' ' * (-len(header) % pad_to)
    return struct.pack('<Q', len(header)) + header + data


def write_safetensors(path, tables):
    """Writes one file with all of the tables."""
    entries, data = {'__metadata__': {'format': 'np'}}, b''
    for table in tables:
        body = table.raw.tobytes()
        entries[table.name] = {
            'dtype': SAFETENSORS_NAMES[table.storage],
            'shape': list(table.raw.shape),
            'data_offsets': [len(data), len(data) + len(body)],
        }
        data += body
    with open(path, 'wb') as file:
        file.write(safetensors_bytes(entries, data))


def write_model(repository, name, version, tables, as_safetensors=False):
    """Writes REPOSITORY/NAME/VERSION with all tables. Returns its path.

    Each table becomes an npy file. Tables whose storage npy does not support, or all tables with
    `as_safetensors`, go into one safetensors file.
    """
    directory = os.path.join(repository, name, str(version))
    os.makedirs(directory)
    packed = []
    for table in tables:
        if as_safetensors or table.storage in ('bf16', 'f8_e4m3', 'f8_e5m2'):
            packed.append(table)
        else:
            write_npy(directory, table)
    if packed:
        write_safetensors(os.path.join(directory, 'tables.safetensors'), packed)
    return directory


def write_vectors(repository, name, version, tables):
    """Writes model.yaml with the tables' default vectors, and the keys of the version's tables."""
    lines = ['tables:']
    for table in tables:
        number = float if table.is_float else int
        values = ', '.join(repr(number(value)) for value in table.vector_values)
        lines.append('- {name: %s, unknown_row: default_vector, default_vector: [%s]}'
                     % (table.name, values))
        if table.keys is not None:
            np.save(os.path.join(repository, name, str(version), table.name + '.keys.npy'),
                    table.keys)
    with open(os.path.join(repository, name, 'model.yaml'), 'w', encoding='utf-8') as file:
        file.write('\n'.join(lines) + '\n')
