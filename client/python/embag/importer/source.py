"""The form in which every reader of a checkpoint hands over what it found.

A reader is a module with a function `open_checkpoint(path)`, which opens the files at `path`, reads
their headers and returns a `Checkpoint`. It reads no values: the writer reads those, a few MiB at a
time, through `Tensor.read`. Checkpoints come from anywhere, so a reader trusts nothing that it
reads, runs no code from the files, and raises `CheckpointError` for what it cannot read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

# Bytes of one value, by the names that safetensors files use.
ELEMENT_BYTES = {'F64': 8, 'F32': 4, 'F16': 2, 'BF16': 2, 'I64': 8, 'U64': 8, 'I32': 4, 'U32': 4,
                 'I16': 2, 'U16': 2, 'I8': 1, 'U8': 1}


class CheckpointError(Exception):
    """A checkpoint that cannot be imported.

    The text says which file or tensor, what was found there, and what was expected.
    """


@dataclass(frozen=True)
class Tensor:
    """An array in a checkpoint, whose rows can be read piece by piece.

    - name: its name in the checkpoint
    - dtype: a key of ELEMENT_BYTES for arrays that can become tables; any other name otherwise
    - shape: all dims; the first one counts the rows
    - read: read(begin, end) returns rows [begin, end) as uint8 [end - begin, bytes of a row], C
      order, little-endian. It needs memory for these rows only, and raises CheckpointError if they
      cannot be read. Rows may be read in any order
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    read: Callable[[int, int], NDArray[np.uint8]]


@dataclass(frozen=True)
class Table:
    """An embedding table.

    - tensor: its rows
    - name: its name in the model
    - keys: I64 or U64 [rows], the key of each row; None if ids are row numbers
    - format, dim: `format` and `dim` of model.yaml, for rows that are quantised already
    """

    tensor: Tensor
    name: str
    keys: Tensor | None = None
    format: str | None = None
    dim: int | None = None


@dataclass(frozen=True)
class Feature:
    """One use of a table: the name that requests use, and a reduction of model.yaml."""

    name: str
    table: str
    reduction: str


@dataclass
class Checkpoint:
    """The content of a checkpoint.

    - kind: what it is, in words, such as 'PyTorch state_dict'
    - tensors: arrays of which the importer still has to find out whether they are tables
    - tables: arrays that are tables by the model's own configuration or by the format's
    - features, groups: those of the model's configuration, in its order; empty if it has none
    - left: pairs of a name and the reason why that part of the checkpoint was not read
    """

    kind: str
    tensors: Sequence[Tensor] = ()
    tables: Sequence[Table] = ()
    features: Sequence[Feature] = ()
    groups: dict[str, list[str]] = field(default_factory=dict)
    left: list[tuple[str, str]] = field(default_factory=list)
