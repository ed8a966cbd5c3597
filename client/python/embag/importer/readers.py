"""Finds the reader for a checkpoint. Readers are imported when they are needed."""

from __future__ import annotations

import importlib
import os
from dataclasses import dataclass
from typing import Any

from embag.importer.read_options import ReadOptions
from embag.importer.source import Checkpoint, CheckpointError


@dataclass(frozen=True)
class Reader:
    """A kind of checkpoint.

    - format: its name for --format
    - module: the module in this package that reads it
    - what: what SOURCE is
    - options: the fields of ReadOptions that it uses
    - beside: a file SOURCE + `beside` exists if SOURCE is a prefix of files; None if it is a path
    """

    format: str
    module: str
    what: str
    options: tuple[str, ...] = ()
    beside: str | None = None

    def exists(self, path: str) -> bool:
        """Returns whether there is something at a path that may be of this kind."""
        return os.path.exists(path) or (
            self.beside is not None and os.path.exists(path + self.beside))

    def load(self) -> Any:
        """Imports and returns the module."""
        return importlib.import_module('embag.importer.' + self.module)


READERS = (
    Reader('safetensors', 'safetensors_file',
           'FILE.safetensors, FILE.safetensors.index.json, or a directory with them'),
    Reader('torch', 'torch_file',
           'FILE.pt, .pth, .bin, .ckpt or .bin.index.json, or a directory with pytorch_model.bin'),
    Reader('arrow', 'arrow_file', 'FILE.parquet, .arrow or .feather, or a directory with them',
           ('key_column', 'vector_column')),
    Reader('raw', 'raw_pairs', 'a directory with files of keys and values, as dynamicemb and '
           "HugeCTR's HPS write them", ('dim', 'value_type', 'key_type')),
    Reader('dcp', 'dcp', 'a directory of torch.distributed.checkpoint'),
    Reader('tensorflow', 'tf_checkpoint', 'a TensorFlow checkpoint: its directory or its prefix',
           beside='.index'),
)


def find_reader(path: str, format_name: str | None) -> Reader:
    """Returns the reader for a path. Raises CheckpointError if none or several recognise it."""
    by_name = {reader.format: reader for reader in READERS}
    if format_name is not None:
        if format_name not in by_name:
            raise CheckpointError('unknown format "%s", expected one of %s' % (
                format_name, ', '.join(by_name)))
        return by_name[format_name]
    # The first bytes or the name of a file leave no doubt, so the first reader that recognises it
    # is the one. A directory may hold several kinds of files.
    is_directory = os.path.isdir(path)
    found = []
    for reader in READERS:
        if reader.exists(path) and reader.load().recognises(path):
            found.append(reader)
            if not is_directory:
                break
    if not any(reader.exists(path) for reader in READERS):
        raise CheckpointError('%s: No such file or directory' % path)
    if len(found) > 1:
        raise CheckpointError('%s: may be %s, expected one kind: choose it with --format' % (
            path, ' or '.join(reader.format for reader in found)))
    if not found:
        raise CheckpointError('%s: not recognised, expected one of these kinds: %s; see '
                              '--help, or choose it with --format' % (path, ', '.join(by_name)))
    return found[0]


def open_source(path: str, format_name: str | None = None,
                options: ReadOptions | None = None) -> Checkpoint:
    """Opens a checkpoint of any kind.

    `format_name` is the `format` of a reader; by default the files are recognised. Raises
    CheckpointError, also for options that this kind does not have.
    """
    reader = find_reader(path, format_name)
    options = options or ReadOptions()
    defaults = ReadOptions()
    for name in vars(options):
        if getattr(options, name) != getattr(defaults, name) and name not in reader.options:
            raise CheckpointError('%s: --%s does not apply to the format %s' % (
                path, name.removeprefix('value_').replace('_', '-'), reader.format))
    module = reader.load()
    checkpoint: Checkpoint
    if reader.options:
        checkpoint = module.open_checkpoint(path, options)
    else:
        checkpoint = module.open_checkpoint(path)
    return checkpoint
