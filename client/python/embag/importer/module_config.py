"""The embedding tables of a live torch module, as its own configuration describes them.

Any module may contain them, at any depth: EmbeddingBagCollections and EmbeddingCollections of
torchrec, plain, quantised or sharded, and torch's nn.EmbeddingBag and nn.Embedding. A collection is
recognised by its methods, so that torchrec is not needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from embag.importer.shards import Shard, gather
from embag.importer.source import CheckpointError, Feature, Table, Tensor
from embag.importer.saved_tensor import DTYPES

# Types of the tables in files, by torchrec's DataType.
_FLOAT_DATA_TYPES = {'FP32': 'F32', 'FP16': 'F16', 'BF16': 'BF16'}
_CODE_BITS = {'INT8': 8, 'UINT8': 8, 'INT4': 4, 'INT2': 2}
# Attributes that hold the tables of a collection, and the methods that return their configurations.
_COLLECTIONS = {'embedding_bags': 'embedding_bag_configs', 'embeddings': 'embedding_configs'}
# What wrappers do to a request before their collection sees it.
_WRAPPERS = {
    '_feature_processors': 'computes weights: requests have to bring them',
    'feature_processor': 'computes weights: requests have to bring them',
    '_managed_collision_collection': 'maps ids to rows: requests have to bring the mapped ids'}


@dataclass
class _Use:
    """A feature before it has a name that is unique in the model.

    - short: its name in the collection; the path of the collection and this make the long name
    - table: position of its table among all tables of the module
    """

    short: str
    long: str
    table: int
    reduction: str


@dataclass
class _Found:
    """The tables and features of a module, with the names that they have in their collections.

    - shorts: the names of the tables in their collections; None for torch's own modules
    - uses: features
    - groups: for each collection its path, and the positions in `uses` of its features
    - notes: pairs of a path and what a user of the import must know about the module there
    """

    tables: list[Table] = field(default_factory=list)
    shorts: list[str | None] = field(default_factory=list)
    uses: list[_Use] = field(default_factory=list)
    groups: dict[str, list[int]] = field(default_factory=dict)
    notes: list[tuple[str, str]] = field(default_factory=list)


def _join(path: str, name: str) -> str:
    return f'{path}.{name}' if path else name


def _public(path: str) -> str:
    """Returns a path without the attributes in which wrappers hold what they wrap."""
    return '.'.join(part for part in path.split('.') if not part.startswith('_'))


def torch_rows(array: torch.Tensor) -> Callable[[int, int], NDArray[np.uint8]]:
    """Returns a function that returns rows [begin, end) of a tensor as uint8 [rows, bytes]."""

    def read(begin: int, end: int) -> NDArray[np.uint8]:
        rows = array[begin:end].detach().cpu().contiguous()
        values: NDArray[np.uint8] = rows.reshape(end - begin, -1).view(torch.uint8).numpy()
        return values

    return read


def _local_shards(array: Any) -> list[Shard] | None:
    """Returns those shards of an array that this process holds; None if it is not sharded."""
    if hasattr(array, 'local_shards') and hasattr(array, 'metadata'):
        return [Shard(tuple(shard.metadata.shard_offsets), tuple(shard.metadata.shard_sizes),
                      torch_rows(shard.tensor)) for shard in array.local_shards()]
    if hasattr(array, 'device_mesh'):
        local = array.to_local()
        if callable(getattr(local, 'local_shards', None)):
            return [Shard(tuple(offsets), tuple(shard.shape), torch_rows(shard)) for offsets, shard
                    in zip(local.local_offsets(), local.local_shards())]
        from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
        shape, offsets = compute_local_shape_and_global_offset(
            array.shape, array.device_mesh, array.placements)
        return [Shard(tuple(offsets), tuple(shape), torch_rows(local))]
    return None


def _unreadable(name: str, dtype: str, shape: tuple[int, ...], text: str) -> Tensor:
    """Returns a tensor whose values cannot be read, for the reason in `text`."""

    def read(begin: int, end: int) -> NDArray[np.uint8]:
        raise CheckpointError(f'{name}: {text}')

    return Tensor(name, dtype, shape, read)


def module_tensor(name: str, array: Any) -> Tensor:
    """Returns a tensor whose rows are those of a parameter or buffer.

    They cannot be read if other processes hold some of its shards. Raises CheckpointError if it is
    sharded and of a type that no table has.
    """
    array = getattr(array, 'elem', array)    # torchrec wraps codes of 4 and 2 bits
    dtype = str(array.dtype).removeprefix('torch.')
    shape = tuple(array.shape)
    shards = _local_shards(array)
    if shards is None:
        return Tensor(name, DTYPES.get(dtype, dtype), shape, torch_rows(array))
    if dtype not in DTYPES:
        raise CheckpointError(f'{name}: is of type {dtype}: expected one of {", ".join(DTYPES)}')
    try:
        return gather(name, DTYPES[dtype], shape, shards)
    except CheckpointError as error:
        return _unreadable(name, DTYPES[dtype], shape, f'this process does not hold all shards '
                           f'({error}): save the module with torch.distributed.checkpoint, and '
                           'import the directory that it writes')


def _float_rows(raw: Tensor, dtype: str, dim: int) -> Tensor:
    """Returns float rows that a quantised collection holds as bytes, without their padding."""
    row_bytes = dim * {'F32': 4}.get(dtype, 2)
    return Tensor(raw.name, dtype, (raw.shape[0], dim),
                  lambda begin, end: raw.read(begin, end)[:, :row_bytes])


def _split_weights(collection: nn.Module) -> dict[str, torch.Tensor]:
    """Returns the fused rows of a quantised collection, whose own tensors have the codes only."""
    weights = {}
    for tables, kernel in zip(collection._key_to_tables.values(), collection._emb_modules):
        rows = kernel.split_embedding_weights_with_scale_bias(split_scale_bias_mode=0)
        weights.update({table.name: fused[0] for table, fused in zip(tables, rows)})
    return weights


def _collection_table(config: Any, name: str, weight: Any) -> Table:
    """Returns the table of one configuration of a collection; `weight` is None if it is absent."""
    kind = config.data_type.value
    if kind not in _FLOAT_DATA_TYPES and kind not in _CODE_BITS:
        raise CheckpointError(f'{name}: has rows of {kind}: expected one of '
                              f'{", ".join([*_FLOAT_DATA_TYPES, *_CODE_BITS])}')
    rows = getattr(config, 'num_embeddings_post_pruning', None) or config.num_embeddings
    dim = config.embedding_dim
    text = 'the module has no such tensor'
    if weight is None and kind in _CODE_BITS:
        tensor = _unreadable(name, 'U8', (rows, 4 + -(-dim * _CODE_BITS[kind] // 8)), text)
    elif weight is None:
        tensor = _unreadable(name, _FLOAT_DATA_TYPES[kind], (rows, dim), text)
    else:
        tensor = module_tensor(name, weight)
    if tensor.dtype != 'U8':
        return Table(tensor, name)
    if kind in _FLOAT_DATA_TYPES:
        return Table(_float_rows(tensor, _FLOAT_DATA_TYPES[kind], dim), name)
    return Table(tensor, name, format=f'torchrec_int{_CODE_BITS[kind]}', dim=dim)


def _configs(module: nn.Module) -> tuple[str, Sequence[Any]] | None:
    """Returns where a collection holds its tables and their configurations; None if the module is
    not a collection."""
    for attribute, method in _COLLECTIONS.items():
        if isinstance(getattr(module, attribute, None), nn.ModuleDict):
            configs = getattr(module, method, None)
            configs = configs() if callable(configs) else getattr(module, '_' + method, None)
            if configs is not None:
                return attribute, configs
    return None


def _feature_names(module: nn.Module, configs: Sequence[Any]) -> dict[str, Any]:
    """Returns the configuration of each feature, by the feature's name in the collection's answer
    and in the order of that answer."""
    counts = Counter(feature for config in configs for feature in config.feature_names)
    names = {feature if counts[feature] == 1 else f'{feature}@{config.name}': config
             for config in configs for feature in config.feature_names}
    order = getattr(module, '_embedding_names', None)
    if isinstance(order, list) and sorted(order) == sorted(names):
        return {name: names[name] for name in order}
    return names


def _add_collection(found: _Found, path: str, module: nn.Module, attribute: str,
                    configs: Sequence[Any]) -> None:
    """Adds the tables and features of a collection."""
    if _is_split(module, attribute):
        weights: dict[str, Any] = _split_weights(module)
    else:
        state = module.state_dict()
        weights = {config.name: state.get(f'{attribute}.{config.name}.weight')
                   for config in configs}
    positions = {}
    for config in configs:
        positions[config.name] = len(found.tables)
        name = _join(path, f'{attribute}.{config.name}.weight')
        found.tables.append(_collection_table(config, name, weights[config.name]))
        found.shorts.append(config.name)
    public = path if _public(path) in found.groups else _public(path)
    group = found.groups[public] = []
    for name, config in _feature_names(module, configs).items():
        pooling = getattr(config, 'pooling', None)
        reduction = pooling.value.lower() if pooling is not None else 'none'
        group.append(len(found.uses))
        found.uses.append(_Use(name, _join(public, name), positions[config.name], reduction))
    if is_weighted(module):
        found.notes.append((public, 'is weighted: requests bring a weight for each id'))


def _is_split(module: nn.Module, attribute: str) -> bool:
    """Says whether a quantised collection holds scales and biases in tensors of their own."""
    return any(hasattr(table, 'weight_qscale') for table in getattr(module, attribute).values())


def is_weighted(collection: nn.Module) -> bool:
    """Says whether the requests to a collection bring weights."""
    method = getattr(collection, 'is_weighted', None)
    return bool(method() if callable(method) else getattr(collection, '_is_weighted', False))


def _add_plain(found: _Found, path: str, module: nn.EmbeddingBag | nn.Embedding) -> None:
    """Adds the table of one of torch's own modules."""
    name = _join(path, 'weight')
    reduction = module.mode if isinstance(module, nn.EmbeddingBag) else 'none'
    public = _public(path) or 'embedding'
    found.uses.append(_Use(public, public, len(found.tables), reduction))
    found.tables.append(Table(module_tensor(name, module.weight), name))
    found.shorts.append(None)
    if module.max_norm is not None:
        found.notes.append((public, f'has max_norm={module.max_norm}, which changes rows when they '
                            'are looked up: they are served as they are'))
    if module.padding_idx is not None and isinstance(module, nn.EmbeddingBag):
        found.notes.append((public, f'leaves id {module.padding_idx} out of its sums: requests '
                            'must not bring it'))


def _walk(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Returns all modules with the paths that they have in a state_dict."""
    if hasattr(module, '_dmp_wrapped_module'):
        module = module.module    # torchrec's DistributedModelParallel, whose state_dict hides this
    yield from module.named_modules()


def _find(module: nn.Module) -> _Found:
    """Finds the tables and features of a module."""
    found = _Found()
    inside = None    # the path of the last collection, whose own modules are passed over
    for path, child in _walk(module):
        if inside is not None and (inside == '' or path.startswith(inside + '.')):
            continue
        for attribute, text in _WRAPPERS.items():
            if getattr(child, attribute, None) is not None:
                found.notes.append((_public(path), text))
        configs = _configs(child)
        if configs is not None:
            _add_collection(found, path, child, *configs)
            inside = path
        elif isinstance(child, (nn.EmbeddingBag, nn.Embedding)):
            _add_plain(found, path, child)
    return found


def _table_name(table: Table, short: str | None, shorts: Counter[str | None],
                features: set[str]) -> str:
    """Returns a table's name in the model: the short one, if nothing else has it."""
    if short is None or shorts[short] > 1 or short in features:
        return table.name
    return short


def module_config(module: nn.Module) \
        -> tuple[list[Table], list[Feature], dict[str, list[str]]]:
    """Returns the tables, the features and the groups of a module. Reads no values.

    - Tensors have the names that they have in the module's state_dict. A table has the name that
      it has in its collection; if a feature or another table has that name too, or for torch's own
      modules, it has its tensor's name.
    - A feature has the name that torchrec gives to its vectors, such as `f` or `f@t`; if another
      collection has that name too, the path of its collection stands in front. The feature of one
      of torch's own modules has the path of the module.
    - A group is a collection: its name is the path of the collection (`embeddings` for the module
      itself), its features are in the order of the collection's answer. The server refuses it if
      its tables differ in type.

    Raises CheckpointError for names that are not unique and for unknown types. Values that other
    processes hold, or that the module does not have, cannot be read later.
    """
    found = _find(module)
    uses = Counter(use.short for use in found.uses)
    names = [use.short if uses[use.short] == 1 else use.long for use in found.uses]
    shorts = Counter(found.shorts)
    tables = [Table(table.tensor, _table_name(table, short, shorts, set(names)), None, table.format,
                    table.dim) for table, short in zip(found.tables, found.shorts)]
    twice = [name for name, count in Counter([*names, *(table.name for table in tables)]).items()
             if count > 1]
    if twice:
        raise CheckpointError(f'two tables or features of the module are called {twice[0]}: '
                              'expected different names')
    features = [Feature(name, tables[use.table].name, use.reduction)
                for name, use in zip(names, found.uses)]
    groups = {path or 'embeddings': [names[position] for position in positions]
              for path, positions in found.groups.items()}
    return tables, features, groups


def module_notes(module: nn.Module) -> list[tuple[str, str]]:
    """Returns pairs of the path of a module and what its users must know, such as that requests
    bring weights."""
    return _find(module).notes
