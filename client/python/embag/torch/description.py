"""Writes model.yaml for a trained module."""

from __future__ import annotations

import json

from torch import nn

from embag.importer.module_config import module_config
from embag.importer.plan import group_refusal


def describe(module: nn.Module) -> str:
    """Returns the text of model.yaml for all embedding tables of a module.

    It has a table for each of TorchRec's configurations, nn.EmbeddingBags and nn.Embeddings, with
    its name in the module's state_dict as `source`; a feature for each of their uses, with its
    reduction; and a group for each collection, unless the server would refuse it, for example
    because its tables differ in type. Any module may contain them, at any depth.

    Raises `embag.importer.source.CheckpointError` for tables that cannot be described, and
    ValueError for a module without any.
    """
    tables, features, groups = module_config(module)
    if not tables:
        raise ValueError('%s has no embedding tables' % type(module).__name__)
    lines = ['tables:']
    for table in tables:
        form = {} if table.format is None else {'format': table.format, 'dim': table.dim}
        lines.append(_item(name=table.name, source=table.tensor.name, **form))
    lines.append('features:')
    lines += [_item(name=feature.name, table=feature.table, reduction=feature.reduction)
              for feature in features]
    by_name = {feature.name: feature for feature in features}
    possible = {name: names for name, names in groups.items() if group_refusal(
        [by_name[each] for each in names], {table.name: table for table in tables}) is None}
    if possible:
        lines.append('groups:')
        lines += [_item(name=name, features=names) for name, names in possible.items()]
    return '\n'.join(lines) + '\n'


def _item(**fields: object) -> str:
    """Returns a list item. Quotes as JSON does, which YAML reads the same way."""
    return '  - {%s}' % ', '.join('%s: %s' % (key, json.dumps(value, ensure_ascii=False))
                                  for key, value in fields.items())
