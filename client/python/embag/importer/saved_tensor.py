"""Finds the values of the one tensor that torch.save wrote into a range of a file.

torch.save writes a zip archive: `data.pkl` describes the tensor, and a member `data/KEY` that is
not compressed has its values. Only the description is read here, without torch, so that the values
can be read a few rows at a time.
"""

from __future__ import annotations

import io
import os
import struct
import zipfile
from dataclasses import dataclass
from math import prod
from typing import Any

from embag.importer.file_bytes import read_range
from embag.importer.source import ELEMENT_BYTES, CheckpointError
from embag.importer.unpickle import Global, Instance, allow, read_pickle

# The largest piece of an archive that is read to find its members. The directory of an archive of
# one tensor has some 500 bytes.
DIRECTORY_BYTES_MAX = 1 << 20
# The largest description of one tensor; torch writes some 200 bytes.
DESCRIPTION_BYTES_MAX = 1 << 16
_LOCAL_HEADER_BYTES = 30
_LOCAL_MAGIC = b'PK\x03\x04'

# Types of tensors, by the names of torch's storage classes and of its dtypes.
_STORAGES = {'DoubleStorage': 'F64', 'FloatStorage': 'F32', 'HalfStorage': 'F16',
             'BFloat16Storage': 'BF16', 'LongStorage': 'I64', 'IntStorage': 'I32',
             'ShortStorage': 'I16', 'CharStorage': 'I8', 'ByteStorage': 'U8'}
DTYPES = {'float64': 'F64', 'float32': 'F32', 'float16': 'F16', 'bfloat16': 'BF16',
          'int64': 'I64', 'int32': 'I32', 'int16': 'I16', 'int8': 'I8',
          'uint64': 'U64', 'uint32': 'U32', 'uint16': 'U16', 'uint8': 'U8'}
_ALLOWED = allow({
    'torch._utils': frozenset({'_rebuild_tensor_v2', '_rebuild_tensor_v3'}),
    'torch': frozenset({*_STORAGES, *DTYPES}),
    'torch.storage': frozenset({'UntypedStorage'}),
    'collections': frozenset({'OrderedDict'})})


class Window(io.RawIOBase):
    """A range of a file as a file of its own, for zipfile, which reads the directory of an archive
    as a whole. Reads of more than `read_bytes_max` bytes are refused."""

    def __init__(self, path: str, offset: int, length: int,
                 read_bytes_max: int = DIRECTORY_BYTES_MAX) -> None:
        super().__init__()
        self.read_bytes_max = read_bytes_max
        self.path, self.offset, self.length = path, offset, length
        self.at = 0

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self.at, os.SEEK_END: self.length}[whence]
        if start + offset < 0:
            raise OSError('the position is negative')
        self.at = start + offset
        return self.at

    def read(self, size: int | None = -1) -> bytes:
        left = max(self.length - self.at, 0)
        count = left if size is None or size < 0 else min(size, left)
        if count > self.read_bytes_max:
            raise CheckpointError(f'has {count} bytes that are read at once: expected at most '
                                  f'{self.read_bytes_max}')
        data = read_range(self.path, self.offset + self.at, count).tobytes()
        self.at += count
        return data


@dataclass(frozen=True)
class SavedTensor:
    """Where the values of a tensor lie.

    - path, offset: the file, and the byte of it where the first value is
    - dtype: a key of ELEMENT_BYTES
    - shape: all dims; the values are in C order
    """

    path: str
    offset: int
    dtype: str
    shape: tuple[int, ...]


def _is_sizes(value: Any) -> bool:
    return isinstance(value, tuple) and all(type(size) is int and size >= 0 for size in value)


def _describe(value: Any) -> tuple[str, str, int, tuple[int, ...], tuple[int, ...]]:
    """Returns the key of the values' member, the type, the offset of the first value, the shape and
    the strides of a pickled tensor."""
    if not isinstance(value, Instance) or value.cls.module != 'torch._utils':
        raise CheckpointError('does not describe a tensor')
    is_v3 = value.cls.name == '_rebuild_tensor_v3'
    if not 6 <= len(value.args) <= 8 or (is_v3 and len(value.args) < 7):
        raise CheckpointError(f'describes a tensor by {len(value.args)} values')
    storage, offset, shape, strides = value.args[:4]
    if not isinstance(storage, tuple) or len(storage) != 5 or storage[0] != 'storage' or \
            not isinstance(storage[1], Global) or not isinstance(storage[2], str):
        raise CheckpointError('does not name the storage of the tensor')
    dtype = _STORAGES.get(storage[1].name)
    if is_v3:
        named = value.args[6]
        dtype = DTYPES.get(named.name) if isinstance(named, Global) else None
    if dtype is None:
        raise CheckpointError(f'has values in a {storage[1]}: expected another type')
    if type(offset) is not int or offset < 0 or not _is_sizes(shape) or not _is_sizes(strides) or \
            len(shape) != len(strides):
        raise CheckpointError('does not describe a tensor by its offset, sizes and strides')
    return storage[2], dtype, offset, shape, strides


def _check_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Checks that values lie in C order."""
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides)):
        if size != 1 and stride != step:
            raise CheckpointError(f'has values of shape {list(shape)} in steps of {list(strides)}: '
                                  'expected rows one after the other (Tensor.contiguous() in the '
                                  'process that saves)')
        step *= size


def _member(archive: zipfile.ZipFile, name: str) -> zipfile.ZipInfo:
    """Returns the member of an archive whose name ends with `name`, which is not compressed."""
    members = [info for info in archive.infolist() if info.filename.partition('/')[2] == name]
    if len(members) != 1:
        raise CheckpointError(f'has {len(members)} members {name!r}: expected one')
    info = members[0]
    if info.compress_type != zipfile.ZIP_STORED or info.file_size != info.compress_size:
        raise CheckpointError(f'has a compressed member {name!r}: expected none')
    return info


def _member_start(window: Window, info: zipfile.ZipInfo) -> int:
    """Returns the byte of the archive at which the data of a member begin."""
    window.seek(info.header_offset)
    header = window.read(_LOCAL_HEADER_BYTES)
    if len(header) < _LOCAL_HEADER_BYTES or header[:4] != _LOCAL_MAGIC:
        raise CheckpointError(f'has no member at byte {info.header_offset}, where its directory '
                              f'says that {info.filename!r} is')
    name_bytes, extra_bytes = struct.unpack('<HH', header[26:30])
    start = info.header_offset + _LOCAL_HEADER_BYTES + int(name_bytes) + int(extra_bytes)
    if start + info.file_size > window.length:
        raise CheckpointError(f'has a member {info.filename!r} that goes beyond its end')
    return start


def _small_member(window: Window, archive: zipfile.ZipFile, name: str) -> bytes:
    """Returns a small member."""
    info = _member(archive, name)
    if info.file_size > DESCRIPTION_BYTES_MAX:
        raise CheckpointError(f'has a member {name!r} of {info.file_size} bytes: expected at most '
                              f'{DESCRIPTION_BYTES_MAX}')
    window.seek(_member_start(window, info))
    return window.read(info.file_size)


def _find(window: Window) -> tuple[int, str, tuple[int, ...]]:
    """Finds the first value of the tensor in an archive, its type and its shape."""
    with zipfile.ZipFile(window) as archive:
        pickled = _small_member(window, archive, 'data.pkl')
        value = read_pickle(pickled, _ALLOWED, lambda given: given)
        key, dtype, offset, shape, strides = _describe(value)
        if any(info.filename.endswith('/byteorder') for info in archive.infolist()) and \
                _small_member(window, archive, 'byteorder') != b'little':
            raise CheckpointError('has values in big-endian order: expected little-endian')
        _check_contiguous(shape, strides)
        info = _member(archive, f'data/{key}')
        end = (offset + prod(shape)) * ELEMENT_BYTES[dtype]
        if end > info.file_size:
            raise CheckpointError(f'has {info.file_size} bytes of values: expected {end}')
        return _member_start(window, info) + offset * ELEMENT_BYTES[dtype], dtype, shape


def find_saved_tensor(path: str, offset: int, length: int) -> SavedTensor:
    """Finds the tensor that torch.save wrote into bytes [offset, offset + length) of a file.

    Raises CheckpointError if something else is there: an archive that is compressed or has other
    than one tensor, values of an unknown type, or not in C order.
    """
    try:
        start, dtype, shape = _find(Window(path, offset, length))
    except (zipfile.BadZipFile, OSError, NotImplementedError, ValueError) as error:
        raise CheckpointError(f'{path}: has no archive of torch.save at byte {offset}: '
                              f'{error}') from error
    except CheckpointError as error:
        raise CheckpointError(f'{path}: the archive at byte {offset} {error}') from error
    return SavedTensor(path, offset + start, dtype, shape)
