"""Reads packed tables, as packed_format.h describes them."""

import struct

import numpy as np

from element_types import decode, encode

STORAGE_NUMBERS = {'f32': 1, 'f64': 2, 'f16': 3, 'bf16': 4, 'i64': 11, 'f8_e4m3': 13, 'f8_e5m2': 14,
                   'int8': 15, 'int4': 16, 'int2': 17}
CODE_BITS = {'int8': 8, 'int4': 4, 'int2': 2}


class PackedFile:
    """A packed file, read as packed_format.h describes it. Checksums are not verified."""

    def __init__(self, path):
        with open(path, 'rb') as file:
            self.bytes = file.read()
        head = self.bytes
        self.packing, = struct.unpack_from('<Q', head, 208)
        assert head[:8] == b'\x93EMBAG\r\n'
        self.digest, version, self.storage, self.type, rank = struct.unpack_from('<QIIII', head, 8)
        assert version == 1
        self.shape = struct.unpack_from('<8Q', head, 32)[:rank]
        self.rows_total, self.row_first, self.parts, self.part, self.unknown_row = \
            struct.unpack_from('<QQIIq', head, 96)
        self.stride, self.row_offset, head_bytes, file_bytes = struct.unpack_from('<4Q', head, 128)
        self.by_key, = struct.unpack_from('<I', head, 216)
        self.salt, = struct.unpack_from('<Q', head, 224)
        self.sections = np.frombuffer(head, '<u8', 6, 160).reshape(3, 2).tolist()
        assert head_bytes % 4096 == 0 and file_bytes == len(head)

    def section(self, number):
        """Returns the bytes of the rows, the keys or the key index."""
        offset, count = self.sections[number]
        return np.frombuffer(self.bytes, 'u1', count, offset)

    def rows(self):
        """Returns the bytes of each row."""
        return self.section(0).reshape(self.shape[0], self.stride)

    def keys(self):
        """Returns the key of each row."""
        return self.section(1).view('<i8')

    def values(self):
        """Returns all rows' values, and the scale of each row."""
        elements = int(np.prod(self.shape[1:], dtype=np.int64))
        name = {number: name for name, number in STORAGE_NUMBERS.items()}[self.storage]
        if name not in CODE_BITS:
            width = {'f32': 4, 'bf16': 2, 'f16': 2, 'f8_e4m3': 1, 'f8_e5m2': 1}[name]
            raw = self.rows()[:, :elements * width].copy()
            return decode(raw.view(encode(np.zeros(1), name).dtype), name), None
        numbers = self.rows()[:, :8].copy().view('<f4').astype('f8')
        bits = np.unpackbits(self.rows()[:, 8:], axis=1, bitorder='little')
        width = CODE_BITS[name]
        codes = bits[:, :elements * width].reshape(self.shape[0], elements, width) @ \
            (1 << np.arange(width))
        return codes * numbers[:, :1] + numbers[:, 1:], numbers[:, :1]
