"""Reads checkpoints that torch.distributed.checkpoint wrote (DCP), without torch.

A checkpoint is a directory. Its file `.metadata`, a pickle, lists the tensors, the shards of each
one, and where in the `.distcp` files each shard lies. It is read by a reader of pickles that runs
nothing (unpickle.py); the shards of a tensor, by rows, by columns or both, are read as one array a
few rows at a time.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from embag.importer.file_bytes import file_size, read_range
from embag.importer.find_tables import is_optimizer_state
from embag.importer.saved_tensor import DTYPES, SavedTensor, find_saved_tensor
from embag.importer.shards import Shard, gather
from embag.importer.source import ELEMENT_BYTES, Checkpoint, CheckpointError, Tensor
from embag.importer.unpickle import PICKLE_BYTES_MAX, Global, Instance, read_pickle

METADATA = '.metadata'
# The largest number of tensors and other objects of a checkpoint, and that of their shards. It also
# bounds time, since a pickle can name a list of shards for every tensor at no cost.
ENTRIES_MAX = 200_000
# The largest number of dims of a tensor.
DIMS_MAX = 64

_KNOWN = {
    'checkpoint.metadata': {
        'Metadata', 'MetadataIndex', 'StorageMeta', 'TensorStorageMetadata', 'TensorProperties',
        'BytesStorageMetadata', 'ChunkStorageMetadata', '_MEM_FORMAT_ENCODING'},
    'checkpoint.filesystem': {'_StorageInfo', '_StoragePrefix'},
    'sharded_tensor.metadata': {'TensorProperties', 'MEM_FORMAT_ENCODING'}}
_ENUMS = {'_MEM_FORMAT_ENCODING', 'MEM_FORMAT_ENCODING'}
_OTHERS = {
    'torch.serialization': {'_get_layout'}, 'torch': {'Size'},
    'collections': {'OrderedDict'},
    'pathlib': {'PosixPath', 'PurePosixPath', 'WindowsPath', 'PureWindowsPath'},
    'pathlib._local': {'PosixPath', 'PurePosixPath', 'WindowsPath', 'PureWindowsPath'},
    # Some versions of Python pickle a member of an enum as getattr(enum, name). Here it is a name
    # like the others, and stays one: nothing calls it. Protocols before 3 have the module's name of
    # Python 2.
    'builtins': {'getattr'}, '__builtin__': {'getattr'}}
# Names that torch has for values of other types than those of embedding tables.
_OTHER_DTYPES = {'bool', 'complex32', 'complex64', 'complex128', 'qint8', 'quint8', 'qint32',
                 'quint4x2', 'quint2x4', 'bits8', 'bits16', 'bits1x8', 'bits2x4', 'bits4x2'}
_OTHER_PREFIXES = ('float', 'int', 'uint', 'bfloat')
# States of optimizers, beside those that the importer knows.
_OPTIMIZER_STATES = ('square_avg', 'acc_delta', 'max_exp_avg')


def _allowed(named: Global) -> bool:
    """Says whether the metadata of a checkpoint may name this."""
    for prefix in ('torch.distributed.', 'torch.distributed._shard.'):
        if named.module.startswith(prefix) and \
                named.name in _KNOWN.get(named.module.removeprefix(prefix), ()):
            return True
    if named.module == 'torch' and (
            named.name in _OTHER_DTYPES or named.name.startswith(_OTHER_PREFIXES)):
        return '.' not in named.name
    return named.name in _OTHERS.get(named.module, ())


def _fields(value: Any, name: str) -> dict[str, Any]:
    """Returns the state of an instance of a class of torch's metadata."""
    if not isinstance(value, Instance) or value.cls.name != name or \
            not isinstance(value.state, dict):
        found = value.cls if isinstance(value, Instance) else type(value).__name__
        raise CheckpointError(f'has a {found}: expected a {name}')
    return value.state


def _field(fields: dict[str, Any], name: str, kind: type) -> Any:
    """Returns one field of a state, which must have a type."""
    value = fields.get(name)
    if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
        raise CheckpointError(f'has a {type(value).__name__} as {name!r}: expected '
                              f'{kind.__name__}')
    return value


def _size(value: Any) -> tuple[int, ...]:
    """Returns the sizes in a torch.Size."""
    if isinstance(value, Instance) and value.cls == ('torch', 'Size') and len(value.args) == 1:
        sizes = value.args[0]
        if isinstance(sizes, (tuple, list)) and len(sizes) <= DIMS_MAX and \
                all(type(size) is int and 0 <= size < 2**63 for size in sizes):
            return tuple(sizes)
    raise CheckpointError('has something else than a torch.Size of numbers that are not negative')


@dataclass(frozen=True)
class _Stored:
    """A range of a file."""

    path: str
    offset: int
    length: int


def _read_metadata(path: str) -> dict[str, Any]:
    """Returns the fields of the metadata of a checkpoint."""
    size = file_size(path)
    if size > PICKLE_BYTES_MAX:
        raise CheckpointError(f'has {size} bytes: expected at most {PICKLE_BYTES_MAX}')
    fields = _fields(read_pickle(read_range(path, 0, size).tobytes(), _allowed), 'Metadata')
    for name in ('state_dict_metadata', 'storage_data'):
        count = len(_field(fields, name, dict))
        if count > ENTRIES_MAX:
            raise CheckpointError(f'has {count} entries in {name!r}: expected at most '
                                  f'{ENTRIES_MAX}')
    return fields


def _stored(directory: str, info: Any) -> _Stored:
    """Returns where a shard lies."""
    fields = _fields(info, '_StorageInfo')
    name = _field(fields, 'relative_path', str)
    offset, length = _field(fields, 'offset', int), _field(fields, 'length', int)
    if fields.get('transform_descriptors'):
        raise CheckpointError(f'has a shard in {name!r} that an extension transformed, such as by '
                              'compression: expected none')
    if name in ('', '.', '..') or '/' in name or '\\' in name or '\0' in name:
        raise CheckpointError(f'names the file {name!r}: expected a file in the same directory')
    if offset < 0 or length < 0:
        raise CheckpointError(f'has a shard at byte {offset} of {length} bytes in {name!r}')
    return _Stored(os.path.join(directory, name), offset, length)


def _index(directory: str, storage: dict[Any, Any]) -> dict[tuple[str, Any], _Stored]:
    """Returns where each shard lies, by the name of its tensor and its offsets."""
    index = {}
    for key, info in storage.items():
        fields = _fields(key, 'MetadataIndex')
        offsets = fields.get('offset')
        place = (_field(fields, 'fqn', str), None if offsets is None else _size(offsets))
        if place in index:
            raise CheckpointError(f'has two places for {place[0]!r} at {place[1]}: expected one')
        index[place] = _stored(directory, info)
    return index


class _Files:
    """The sizes of the files of a checkpoint."""

    def __init__(self) -> None:
        self.sizes: dict[str, int] = {}

    def check(self, stored: _Stored) -> None:
        """Checks that a range lies in its file."""
        if stored.path not in self.sizes:
            self.sizes[stored.path] = file_size(stored.path)
        size = self.sizes[stored.path]
        if stored.offset + stored.length > size:
            raise CheckpointError(f'{stored.path}: has {size} bytes: expected at least '
                                  f'{stored.offset + stored.length}')


class _ShardReader:
    """Reads rows of one shard, whose place in the file is found when it is first needed."""

    def __init__(self, name: str, stored: _Stored, dtype: str, sizes: tuple[int, ...]) -> None:
        self.name = name
        self.stored = stored
        self.dtype = dtype
        self.sizes = sizes
        self.saved: SavedTensor | None = None

    def find(self) -> SavedTensor:
        """Finds the values; raises CheckpointError if they are not what the metadata says."""
        stored = self.stored
        try:
            saved = find_saved_tensor(stored.path, stored.offset, stored.length)
        except CheckpointError as error:
            raise CheckpointError(f'{self.name}: {error}') from error
        if (saved.dtype, saved.shape) != (self.dtype, self.sizes):
            raise CheckpointError(
                f'{self.name}: {stored.path} has {saved.dtype} of shape {list(saved.shape)} at '
                f'byte {stored.offset}: expected {self.dtype} of shape {list(self.sizes)}')
        return saved

    def read(self, begin: int, end: int) -> NDArray[np.uint8]:
        """Returns rows [begin, end) as uint8 [end - begin, bytes of a row]."""
        if self.saved is None:
            self.saved = self.find()
        row_bytes = prod(self.sizes[1:]) * ELEMENT_BYTES[self.dtype]
        data = read_range(self.saved.path, self.saved.offset + begin * row_bytes,
                          (end - begin) * row_bytes)
        return data.reshape(end - begin, row_bytes)


def _dtype(fields: dict[str, Any]) -> str:
    """Returns the name of a tensor's type: a key of ELEMENT_BYTES if it may be a table's."""
    properties = fields.get('properties')
    if not isinstance(properties, Instance) or properties.cls.name != 'TensorProperties':
        raise CheckpointError('has a tensor without TensorProperties')
    state = properties.state
    named = state.get('dtype') if isinstance(state, dict) else state[0] if state else None
    if not isinstance(named, Global) or named.module != 'torch':
        raise CheckpointError('has a tensor without a dtype')
    return DTYPES.get(named.name, named.name)


def _shards(name: str, dtype: str, chunks: Sequence[Any], index: dict[tuple[str, Any], _Stored],
            files: _Files) -> list[Shard]:
    """Returns the shards of a tensor; raises CheckpointError if a file does not have one."""
    shards = []
    for chunk in chunks:
        fields = _fields(chunk, 'ChunkStorageMetadata')
        offsets, sizes = _size(fields.get('offsets')), _size(fields.get('sizes'))
        stored = index.get((name, offsets))
        if stored is None:
            if prod(sizes) == 0:
                continue
            raise CheckpointError(f'does not say where the shard of {name!r} at {list(offsets)} '
                                  f'of sizes {list(sizes)} lies')
        files.check(stored)
        shards.append(Shard(offsets, sizes, _ShardReader(name, stored, dtype, sizes).read))
    return shards


def _reason_to_leave(name: str, value: Any) -> str | None:
    """Returns why an entry of the checkpoint is not read; None if it may be a table."""
    if value.cls.name == 'BytesStorageMetadata':
        return 'a pickled object'
    if is_optimizer_state(name) or any(part.startswith(_OPTIMIZER_STATES)
                                       for part in name.split('.')):
        return "an optimizer's state"
    fields = _fields(value, 'TensorStorageMetadata')
    dtype, shape = _dtype(fields), _size(fields.get('size'))
    if dtype not in ELEMENT_BYTES:
        return f'values of type {dtype}'
    if prod(shape) == 0 or not shape:
        return 'no rows' if shape else 'a single value'
    return None


def _tensor(name: str, value: Instance, index: dict[tuple[str, Any], _Stored], files: _Files) \
        -> Tensor:
    """Returns a tensor of its shards."""
    fields = _fields(value, 'TensorStorageMetadata')
    dtype = _dtype(fields)
    shards = _shards(name, dtype, _field(fields, 'chunks', list), index, files)
    return gather(name, dtype, _size(fields.get('size')), shards)


def recognises(path: str) -> bool:
    """Says whether a path is a directory that torch.distributed.checkpoint wrote."""
    return os.path.isfile(os.path.join(path, METADATA))


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a checkpoint of torch.distributed.checkpoint. Reads no values.

    Raises CheckpointError if its metadata are not what torch writes, if a file is missing or too
    short, or if the shards of a tensor do not cover it exactly.
    """
    metadata = os.path.join(path, METADATA)
    checkpoint = Checkpoint('checkpoint of torch.distributed.checkpoint')
    tensors = []
    files = _Files()
    chunks = 0
    try:
        fields = _read_metadata(metadata)
        index = _index(path, fields['storage_data'])
        for name, value in fields['state_dict_metadata'].items():
            if not isinstance(name, str) or not isinstance(value, Instance):
                raise CheckpointError('has something else than named tensors and objects')
            reason = _reason_to_leave(name, value)
            if reason is not None:
                checkpoint.left.append((name, reason))
                continue
            chunks += len(_field(_fields(value, 'TensorStorageMetadata'), 'chunks', list))
            if chunks > ENTRIES_MAX:
                raise CheckpointError(f'has {chunks} shards: expected at most {ENTRIES_MAX}')
            tensors.append(_tensor(name, value, index, files))
    except CheckpointError as error:
        text = str(error)
        raise CheckpointError(text if text.startswith(path) else f'{metadata}: {text}') from error
    checkpoint.tensors = tensors
    return checkpoint
