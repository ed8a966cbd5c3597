"""Reads the embedding tables of a live torch module.

There is nothing to unpickle or to parse: the module itself says which tables it has, and by which
features it uses them.
"""

from __future__ import annotations

from torch import nn

from embag.importer.module_config import module_config, module_notes
from embag.importer.source import Checkpoint

# What quantised collections may hold beside the codes; it is part of the rows that are read.
_SCALES = ('_qscale', '_qbias')


def open_module(module: nn.Module) -> Checkpoint:
    """Returns the embedding tables, features and groups of a module, as a checkpoint. Reads no
    values: they are read from the module when the checkpoint is imported.

    The module may contain, at any depth, EmbeddingBagCollections and EmbeddingCollections of
    torchrec (plain, quantised or sharded) and torch's nn.EmbeddingBag and nn.Embedding. Rows that
    are quantised stay as they are. Raises CheckpointError.
    """
    tables, features, groups = module_config(module)
    read = {table.tensor.name + suffix for table in tables for suffix in ('', *_SCALES)}
    left = [(name, 'not an embedding table') for name in module.state_dict()
            if name not in read]
    return Checkpoint('torch module', (), tables, features, groups, [*module_notes(module), *left])
