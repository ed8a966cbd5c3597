"""Writes the tables of a plan as a version of a model.

The files are written to a hidden directory, REPOSITORY/MODEL/.N, which is renamed when it is
complete. The directory also keeps a second importer from writing the same version.
"""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from embag.importer.find_tables import name_error
from embag.importer.manifest import DigestedFile, FileDigest, write_manifest
from embag.importer.plan import Choices, Plan, Taken, make_plan
from embag.importer.source import ELEMENT_BYTES, Checkpoint, CheckpointError, Tensor

# Bytes that are read and written at a time.
CHUNK_BYTES = 4 << 20
# Protects memory: a row is the least that is read at a time.
ROW_BYTES_MAX = 64 << 20
# Bytes of a file name.
_FILE_NAME_MAX = 255
_KEYS_SUFFIX = '.keys.npy'
_SPLIT = re.compile(r'.*-\d{5}-of-\d{5}', re.DOTALL)
_NPY_KEYS = {'I64': '<i8', 'U64': '<u8'}
CONFIG_NAME = 'model.yaml'
VERSION_MAX = 2**63 - 1

# Called with the number of bytes that were written since the last call.
Advance = Callable[[int], None]


@dataclass(frozen=True)
class Imported:
    """An imported version: its directory, number, files, and what was planned."""

    directory: str
    version: int
    files: list[FileDigest]
    plan: Plan


def row_bytes(tensor: Tensor) -> int:
    """Returns the bytes of a row."""
    return math.prod(tensor.shape[1:]) * ELEMENT_BYTES[tensor.dtype]


def table_bytes(taken: Taken) -> int:
    """Returns the bytes of a table's rows, keys and scales."""
    table = taken.table
    tensors = [table.tensor, *([table.keys] if table.keys else []), *taken.scales.values()]
    return sum(tensor.shape[0] * row_bytes(tensor) for tensor in tensors)


def is_file_name(name: str, suffix: str) -> bool:
    """Returns whether NAME + suffix is a file name that stands for the table NAME."""
    if name_error(name) is not None or '/' in name or name[0] == '.' or _SPLIT.fullmatch(name):
        return False
    return len(name.encode('utf-8')) + len(suffix) <= _FILE_NAME_MAX


def _write_rows(file: DigestedFile, tensor: Tensor, advance: Advance) -> None:
    size = row_bytes(tensor)
    if size > ROW_BYTES_MAX:
        raise CheckpointError('%s: a row has %d bytes, expected at most %d' % (
            tensor.name, size, ROW_BYTES_MAX))
    step = max(CHUNK_BYTES // size, 1)
    for begin in range(0, tensor.shape[0], step):
        end = min(begin + step, tensor.shape[0])
        rows = tensor.read(begin, end)
        if rows.dtype != np.uint8 or rows.shape != (end - begin, size):
            raise CheckpointError('%s: rows %d to %d were read as %s %s, expected uint8 %s' % (
                tensor.name, begin, end, rows.dtype, list(rows.shape), [end - begin, size]))
        file.write(np.ascontiguousarray(rows))
        advance(rows.size)


def _safetensors_header(name: str, tensor: Tensor) -> bytes:
    size = tensor.shape[0] * row_bytes(tensor)
    entry = {name: {'dtype': tensor.dtype, 'shape': list(tensor.shape), 'data_offsets': [0, size]}}
    text = json.dumps(entry, ensure_ascii=False).encode('utf-8')
    text += b' ' * (-len(text) % 8)
    return struct.pack('<Q', len(text)) + text


def _npy_header(tensor: Tensor) -> bytes:
    text = "{'descr': '%s', 'fortran_order': False, 'shape': (%d,), }" % (
        _NPY_KEYS[tensor.dtype], tensor.shape[0])
    text += ' ' * (-(10 + len(text) + 1) % 64) + '\n'
    return b'\x93NUMPY\x01\x00' + struct.pack('<H', len(text)) + text.encode('ascii')


def _files_of(plan: Plan) -> dict[str, tuple[str, Tensor]]:
    """Returns the tensors to write, with their names in the files, by the names of the files
    without .safetensors.

    A file has the table's name, or a number if that is no file name. Scales that several tables use
    are written once.
    """
    wanted = [(taken.table.name, taken.source, taken.table.tensor) for taken in plan.taken]
    scales = {name: tensor for taken in plan.taken for name, tensor in taken.scales.items()}
    wanted += [(name, name, tensor) for name, tensor in scales.items()]
    names = {name for name, _, _ in wanted}
    files: dict[str, tuple[str, Tensor]] = {}
    for number, (name, source, tensor) in enumerate(wanted):
        base = name
        if base in files or not is_file_name(base, '.safetensors'):
            base = 'table-%d' % number
            while base in names:
                base += '_'
        files[base] = source, tensor
    return files


def _write_tables(directory: str, plan: Plan, advance: Advance) -> list[FileDigest]:
    files = []
    for base, (source, tensor) in _files_of(plan).items():
        with DigestedFile(directory, base + '.safetensors') as file:
            file.write(_safetensors_header(source, tensor))
            _write_rows(file, tensor, advance)
        files.append(file.digest())
    for taken in plan.taken:
        if taken.table.keys is not None:
            with DigestedFile(directory, taken.source + _KEYS_SUFFIX) as file:
                file.write(_npy_header(taken.table.keys))
                _write_rows(file, taken.table.keys, advance)
            files.append(file.digest())
    return files


def check_key_names(plan: Plan) -> None:
    """Raises CheckpointError if a keyed table's name makes no name of a file with keys."""
    for taken in plan.taken:
        if taken.table.keys is not None and not is_file_name(taken.source, _KEYS_SUFFIX):
            raise CheckpointError('the name of the keyed table %s does not make a file name with '
                                  '%s: give another by --name %s=NEW' % (
                                      taken.source, _KEYS_SUFFIX, taken.table.tensor.name))


def _sync_directory(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def find_version(out: str) -> int:
    """Returns the number after the highest version of the model in `out`, or 1."""
    try:
        names = os.listdir(out)
    except FileNotFoundError:
        return 1
    return max((int(n) for n in names if re.fullmatch('[0-9]+', n)), default=0) + 1


def check_version(version: int) -> None:
    """Raises CheckpointError for a number that is not one of a version."""
    if not 1 <= version <= VERSION_MAX:
        raise CheckpointError('the version is %.40s, expected a number from 1 to %d' % (
            version, VERSION_MAX))


def check_config(out: str, config: str, replace_config: bool) -> str | None:
    """Returns the text of the model.yaml in `out`, or None if there is none.

    Raises CheckpointError if it differs from `config` and may not be replaced.
    """
    path = os.path.join(out, CONFIG_NAME)
    try:
        with open(path, encoding='utf-8', errors='surrogateescape', newline='') as file:
            old = file.read()
    except FileNotFoundError:
        return None
    if old != config and not replace_config:
        raise CheckpointError('%s: differs from what this import would write: pass --model-yaml %s '
                              'to keep it, or --replace-config to replace it' % (path, path))
    return old


def _check_room(out: str, needed: int) -> None:
    room = os.statvfs(out)
    available = room.f_bavail * room.f_frsize
    if needed > available:
        raise CheckpointError('%s: the tables have %d bytes, but %d are free on the disk' % (
            out, needed, available))


def _write_config(out: str, name: str, text: str) -> None:
    """Writes OUT/model.yaml by way of the hidden file OUT/NAME."""
    path = os.path.join(out, name)
    try:
        with open(path, 'w', encoding='utf-8', errors='surrogateescape', newline='') as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(path, os.path.join(out, CONFIG_NAME))
    except BaseException:
        if os.path.lexists(path):
            os.unlink(path)
        raise


def _publish(out: str, version: int, config: str, old: str | None) -> None:
    """Renames model.yaml and then the version into place."""
    hidden_config = '.%s.%d' % (CONFIG_NAME, version)
    if old != config:
        _write_config(out, hidden_config, config)
    try:
        os.rename(os.path.join(out, '.%d' % version), os.path.join(out, str(version)))
    except BaseException:
        if os.path.lexists(os.path.join(out, str(version))):
            pass    # a signal arrived after the version was renamed
        elif old is None:
            os.unlink(os.path.join(out, CONFIG_NAME))
        elif old != config:
            _write_config(out, hidden_config, old)
        raise
    _sync_directory(out)


def _missing_folders(path: str) -> list[str]:
    """Returns the path and those of its parents that do not exist, from the bottom up."""
    missing = []
    path = os.path.abspath(path)
    while not os.path.lexists(path):
        missing.append(path)
        path = os.path.dirname(path)
    return missing


def _remove_folders(folders: list[str]) -> None:
    """Removes those of the folders that exist and are empty."""
    for folder in folders:
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)


def _claim(out: str, version: int) -> str:
    """Creates the hidden directory of a version. Raises CheckpointError."""
    final, hidden = os.path.join(out, str(version)), os.path.join(out, '.%d' % version)
    if os.path.lexists(final):
        raise CheckpointError('%s exists: choose another version, such as --version %d' % (
            final, find_version(out)))
    try:
        os.mkdir(hidden)
    except FileExistsError:
        raise CheckpointError('%s exists: another importer is writing version %d, or was killed; '
                              'delete the directory if none is running' % (
                                  hidden, version)) from None
    return hidden


def write_version(plan: Plan, out: str, version: int, replace_config: bool,
                  advance: Advance) -> Imported:
    """Writes a plan's tables as OUT/VERSION, and OUT/model.yaml.

    Leaves nothing behind if it fails. Raises CheckpointError and OSError.
    """
    check_key_names(plan)
    check_version(version)
    created = _missing_folders(out)
    hidden = None
    try:
        os.makedirs(out, exist_ok=True)
        check_config(out, plan.config, replace_config)
        _check_room(out, sum(map(table_bytes, plan.taken)))
        hidden = _claim(out, version)
        files = _write_tables(hidden, plan, advance)
        write_manifest(hidden, files)
        _sync_directory(hidden)
        # Another importer may have written model.yaml in the meantime.
        old = check_config(out, plan.config, replace_config)
        _publish(out, version, plan.config, old)
    except BaseException as error:
        if isinstance(error, OSError) and error.filename is None:
            error.filename = out    # writes do not name their file, as when the disk is full
        if hidden is not None and os.path.lexists(hidden):
            shutil.rmtree(hidden)
        _remove_folders(created)
        raise
    return Imported(os.path.join(out, str(version)), version, files, plan)


def import_checkpoint(checkpoint: Checkpoint, out: str, version: int | None = None, *,
                      choices: Choices = Choices(), replace_config: bool = False,
                      advance: Advance = lambda size: None) -> Imported:
    """Imports a checkpoint as a version of the model REPOSITORY/MODEL, which is `out`.

    `version` is by default the one after the highest. An existing model.yaml that differs is
    replaced only if `replace_config` is set. `advance` is called with the bytes of each chunk that
    was written. If the import fails, `out` is as before. Raises CheckpointError and OSError.
    """
    plan = make_plan(checkpoint, choices)
    return write_version(plan, out, find_version(out) if version is None else version,
                         replace_config, advance)
