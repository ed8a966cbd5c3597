"""Imports trained embedding tables into a model repository."""

from __future__ import annotations

from typing import Any

from embag.importer.plan import Choices
from embag.importer.readers import open_source
from embag.importer.source import Checkpoint, CheckpointError, Feature, Table, Tensor
from embag.importer.writer import Imported, import_checkpoint

__all__ = ['Checkpoint', 'CheckpointError', 'Choices', 'Feature', 'Imported', 'Table', 'Tensor',
           'import_checkpoint', 'import_module', 'open_source']


def import_module(module: Any, out: str, version: int | None = None, **options: Any) -> Imported:
    """Imports the embedding tables of a live torch module as a version of the model
    REPOSITORY/MODEL, which is `out`.

    The module may contain collections of torchrec (plain, quantised, or sharded if this process
    holds all shards), nn.EmbeddingBag and nn.Embedding, at any depth. `options` are those of
    `import_checkpoint`. Raises CheckpointError and OSError.
    """
    from embag.importer.torchrec_model import open_module    # imports torch
    return import_checkpoint(open_module(module), out, version, **options)
