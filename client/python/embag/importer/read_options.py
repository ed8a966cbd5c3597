"""Options for checkpoints whose files do not say everything about themselves."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReadOptions:
    """What the user says about files.

    - dim: number of values in a row of raw files; None if their sizes say it
    - value_type: type of the values in raw files, a floating-point key of ELEMENT_BYTES
    - key_type: type of the keys in raw files: I64, U64, I32 or U32
    - key_column, vector_column: columns of parquet and Arrow files; None to find them by type
    """

    dim: int | None = None
    value_type: str = 'F32'
    key_type: str = 'I64'
    key_column: str | None = None
    vector_column: str | None = None
