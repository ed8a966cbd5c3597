"""Reads what torch.save wrote: a state_dict, alone, inside a training checkpoint, or in shards.

A file is a zip archive with a pickle and the tensors' bytes. torch.load(weights_only=True) reads
it: it knows tensors and plain containers, and refuses everything else. Bytes of tensors are mapped,
not read, if torch is new enough for that.
"""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import pickletools
import re
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from embag.importer.file_bytes import file_size, read_range, unreadable
from embag.importer.optional import need
from embag.importer.safetensors_file import check_listed, weight_map
from embag.importer.saved_tensor import DTYPES, Window
from embag.importer.source import Checkpoint, CheckpointError, Tensor

SUFFIXES = ('.pt', '.pth', '.bin', '.ckpt')
INDEX_SUFFIX = '.bin.index.json'
# Protects memory: files of older formats, and any file with a torch that cannot map files, are read
# as a whole.
WHOLE_BYTES_MAX = 256 << 20
# Protects memory: the pickle, with some 100 bytes for each tensor, is read as a whole.
PICKLE_BYTES_MAX = 32 << 20
# Protects memory: an instruction of a pickle makes an object of up to some 220 bytes.
INSTRUCTIONS_MAX = 2_000_000
# Protects memory: the directory of an archive, which has some 80 bytes for each tensor.
DIRECTORY_BYTES_MAX = 16 << 20
# Pickles before the values of a file of the format before torch 1.6.
_OLD_PICKLES = 5
# Protects time: dicts in dicts.
DEPTH_MAX = 16
# The oldest torch that maps files.
_MAPPING_TORCH = (2, 1)
# Dicts that hold the model's tensors. Their names are left out.
_WRAPPERS = ('state_dict', 'model', 'model_state_dict', 'module')
_OPTIMIZER = re.compile(r'(optim|lr_scheduler|amp|grad_?scaler)', re.IGNORECASE)


def _index_of(directory: str) -> str | None:
    names = sorted(n for n in os.listdir(directory) if n.endswith(INDEX_SUFFIX) and n[0] != '.')
    return os.path.join(directory, names[0]) if names else None


def _whole_of(directory: str) -> str | None:
    path = os.path.join(directory, 'pytorch_model.bin')
    return path if os.path.isfile(path) else None


def recognises(path: str) -> bool:
    """Returns whether torch.save wrote this file, or the files of this directory, by their names
    or first bytes."""
    if os.path.isdir(path):
        return (_index_of(path) or _whole_of(path)) is not None
    if path.endswith((*SUFFIXES, INDEX_SUFFIX)):
        return True
    return _is_zip(path) and any(n.endswith('/data.pkl') for n in _entries(path))


def _is_zip(path: str) -> bool:
    return file_size(path) >= 4 and read_range(path, 0, 4).tobytes() == b'PK\x03\x04'


@contextlib.contextmanager
def _archive(path: str) -> Iterator[zipfile.ZipFile]:
    """Opens a zip archive. Raises CheckpointError for one that is not whole, then and later."""
    window = Window(path, 0, file_size(path), DIRECTORY_BYTES_MAX)
    try:
        with zipfile.ZipFile(window) as archive:
            yield archive
    except (zipfile.BadZipFile, OSError, ValueError, NotImplementedError) as error:
        raise CheckpointError('%s: not a whole zip archive: %s' % (path, error)) from error
    except CheckpointError as error:
        raise CheckpointError('%s: %s' % (path, error)) from error


def _entries(path: str) -> dict[str, zipfile.ZipInfo]:
    """Returns the entries of a zip archive by name. Raises CheckpointError."""
    with _archive(path) as archive:
        listed = archive.infolist()
    entries = {entry.filename: entry for entry in listed}
    if len(entries) < len(listed):
        raise CheckpointError('%s: two entries have the same name' % path)
    return entries


def _check_archive(path: str) -> None:
    """Refuses archives that torch.save does not write: compressed, outside or overlapping entries,
    which could need any amount of memory."""
    size = file_size(path)
    total = 0
    entries = _entries(path)
    if any('/code/' in name for name in entries):
        raise CheckpointError('%s: a TorchScript model, expected a state_dict: '
                              'torch.save(torch.jit.load(FILE).state_dict(), "model.pt")' % path)
    for name, entry in entries.items():
        if entry.compress_type != zipfile.ZIP_STORED or entry.file_size != entry.compress_size:
            raise CheckpointError('%s: the entry %s is compressed, expected it as torch.save '
                                  'writes it' % (path, name))
        if name.startswith('/') or '..' in name.split('/') or '\\' in name:
            raise CheckpointError('%s: the entry %s has a name that leaves the archive' % (
                path, name))
        if name.endswith('/data.pkl') and entry.file_size > PICKLE_BYTES_MAX:
            raise CheckpointError('%s: %s has %d bytes, expected at most %d' % (
                path, name, entry.file_size, PICKLE_BYTES_MAX))
        total += entry.file_size
    if total > size:
        raise CheckpointError('%s: its entries have %d bytes, but the file has %d' % (
            path, total, size))


def _check_pickles(file: IO[bytes], count: int) -> None:
    """Refuses pickles that would take much memory, without running them. The text begins with a
    verb: its subject is the file."""
    left = INSTRUCTIONS_MAX
    try:
        for _ in range(count):
            for _ in pickletools.genops(file):
                left -= 1
                if left < 0:
                    raise CheckpointError('has a pickle of more than %d instructions, expected a '
                                          'state_dict: save the tensors without other objects'
                                          % INSTRUCTIONS_MAX)
    except ValueError:
        return    # not a pickle from here on: torch stops there too, and says what is wrong


def _check_instructions(path: str, is_zip: bool) -> None:
    if is_zip:
        with _archive(path) as archive:
            for name in archive.namelist():
                if name.endswith('/data.pkl'):
                    entry = cast(io.RawIOBase, archive.open(name))
                    _check_pickles(io.BufferedReader(entry), 1)
        return
    try:
        with open(path, 'rb') as file:
            _check_pickles(file, _OLD_PICKLES)
    except CheckpointError as error:
        raise CheckpointError('%s: %s' % (path, error)) from error


def _version(torch: Any) -> tuple[int, ...]:
    return tuple(int(n) for n in re.findall(r'\d+', str(torch.__version__))[:2])


def _refusal(path: str, error: Exception) -> CheckpointError:
    """Says why torch refused a file."""
    text = str(error)
    found = re.search(r'GLOBAL ([\w.]+)|Unsupported (?:class|global) ([\w.]+)', text)
    opcode = re.search(r'Unsupported operand (\d+)', text)
    if found:
        what = 'it contains %s, which is no tensor' % (found[1] or found[2])
    elif opcode:
        what = 'it has opcode %s, which only newer releases than torch %s know' % (
            opcode[1], need('torch', 'reading files of torch.save').__version__)
    else:
        what = '%s %s' % (type(error).__name__, (text.splitlines() or [''])[0][:200])
    return CheckpointError('%s: refused by torch.load(weights_only=True): %s; expected a '
                           'state_dict: torch.save(model.state_dict(), "model.pt") where you '
                           'trust the file' % (path, what.strip()))


def _load(path: str) -> Any:
    """Returns what the file holds. Raises CheckpointError."""
    torch = need('torch', 'reading files of torch.save')
    options: dict[str, Any] = {'map_location': 'cpu', 'weights_only': True}
    is_zip = _is_zip(path)
    if is_zip:
        _check_archive(path)
    if is_zip and _version(torch) >= _MAPPING_TORCH:
        options['mmap'] = True
    elif file_size(path) > WHOLE_BYTES_MAX:
        raise CheckpointError('%s: has %d bytes and would be read as a whole, expected at most %d: '
                              '%s' % (path, file_size(path), WHOLE_BYTES_MAX,
                                      'install torch 2.1 or newer, which maps files' if is_zip else
                                      'an older format; load it with torch and save it again'))
    _check_instructions(path, is_zip)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter('ignore')
            return torch.load(path, **options)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError, TypeError, KeyError,
            IndexError, AttributeError, OverflowError, OSError, AssertionError) as error:
        raise _refusal(path, error) from error


def _is_in_storage(tensor: Any) -> bool:
    """Returns whether the tensor has no more elements than its storage, as a tensor that repeats
    elements would."""
    storage = tensor.untyped_storage() if hasattr(tensor, 'untyped_storage') else tensor.storage()
    size = storage.nbytes() if hasattr(storage, 'nbytes') else len(storage) * tensor.element_size()
    return bool(tensor.numel() * tensor.element_size() <= size)


def _tensor_of(name: str, value: Any) -> Tensor | str:
    """Returns a tensor, or the reason why it cannot be read."""
    torch = need('torch', 'reading files of torch.save')
    shape = tuple(value.shape)
    if value.is_sparse or value.layout != torch.strided:
        return 'a sparse tensor'
    if value.is_quantized:
        return "one of torch's quantised tensors"
    if value.device.type != 'cpu':
        return 'a tensor without values (device %s)' % value.device.type
    dtype = str(value.dtype).rsplit('.', 1)[-1]
    if dtype not in DTYPES or not shape:
        return unreadable(name, dtype, shape)
    if not _is_in_storage(value):
        return 'a tensor that repeats elements'
    value = value.detach()
    if dtype == 'bfloat16':
        value = value.view(torch.int16)

    def read(begin: int, end: int) -> NDArray[np.uint8]:
        rows = np.ascontiguousarray(value[begin:end].numpy())
        return rows.reshape(end - begin, -1).view(np.uint8)

    return Tensor(name, DTYPES[dtype], shape, read)


def _leaves(root: Mapping[Any, Any]) -> Iterator[tuple[str, Any]]:
    """Yields what stands in dicts, with dotted names, in order."""
    waiting = [('', key, value, 0) for key, value in reversed(list(root.items()))]
    while waiting:
        prefix, key, value, depth = waiting.pop()
        name = prefix + str(key)
        is_optimizer = isinstance(value, Mapping) and _OPTIMIZER.match(str(key))
        if not isinstance(value, Mapping) or is_optimizer or depth >= DEPTH_MAX:
            yield name, value
            continue
        inner = prefix if key in _WRAPPERS else name + '.'
        waiting += [(inner, k, v, depth + 1) for k, v in reversed(list(value.items()))]


def read_tensors(path: str) -> tuple[list[Tensor], list[tuple[str, str]]]:
    """Returns the tensors of a file, and what else it holds. Raises CheckpointError."""
    torch = need('torch', 'reading files of torch.save')
    content = _load(path)
    if isinstance(content, torch.Tensor):
        content = {'tensor': content}
    if not isinstance(content, Mapping):
        raise CheckpointError('%s: holds a %s, expected a state_dict' % (
            path, type(content).__name__))
    tensors, left = [], []
    names: set[str] = set()
    for name, value in _leaves(content):
        if not isinstance(value, torch.Tensor):
            is_optimizer = _OPTIMIZER.match(name.rsplit('.', 1)[-1])
            left.append((name, 'state of the optimizer' if is_optimizer else 'no tensor'))
            continue
        if name in names:
            raise CheckpointError('%s: two tensors have the name %s' % (path, name))
        names.add(name)
        tensor = _tensor_of(name, value)
        if isinstance(tensor, str):
            left.append((name, tensor))
        else:
            tensors.append(tensor)
    return tensors, left


def _open_index(index: str) -> Checkpoint:
    tensors, left = [], []
    for path, listed in weight_map(index).items():
        found, others = read_tensors(path)
        tensors += check_listed(index, path, listed, found)
        left += others
    return Checkpoint('sharded PyTorch state_dict', tensors, left=left)


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a file of torch.save, a list of shards, or a directory with either.

    Raises CheckpointError.
    """
    if os.path.isdir(path):
        found = _index_of(path) or _whole_of(path)
        if found is None:
            raise CheckpointError('%s: has neither *%s nor pytorch_model.bin' % (
                path, INDEX_SUFFIX))
        path = found
    if path.endswith(INDEX_SUFFIX):
        return _open_index(path)
    tensors, left = read_tensors(path)
    return Checkpoint('PyTorch state_dict', tensors, left=left)
