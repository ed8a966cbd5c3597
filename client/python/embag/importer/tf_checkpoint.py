"""Reads TensorFlow's checkpoints and the variables of a SavedModel.

Only variables are read: no graph is loaded, no function is called, and TensorFlow need not be
installed. Variables that only an optimizer has are left. A variable of a Keras Embedding layer is a
table. Of other tensors the importer finds out whether they are tables.

`NAME/part_0`, `NAME/part_1` and so on are taken as consecutive rows of one variable, which is what
TensorFlow's partition strategy "div" means. NAME-keys and NAME-values are a table with keys.
"""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from itertools import accumulate

from embag.importer.shards import Shard, gather
from embag.importer.source import ELEMENT_BYTES, Checkpoint, CheckpointError, Table, Tensor
from embag.importer.tf_bundle import Bundle, Entry, has_index
from embag.importer.tf_graph import ObjectGraph, read_graph

# Protects memory: the graph is parsed as a whole. Keras' models have some 2 KiB for each layer.
GRAPH_BYTES_MAX = 8 << 20
# Protects memory; the file names one checkpoint, and usually the five before it.
STATE_BYTES_MAX = 1 << 20

_GRAPH = '_CHECKPOINTABLE_OBJECT_GRAPH'
_VALUE = '/.ATTRIBUTES/VARIABLE_VALUE'
_SLOT = '/.OPTIMIZER_SLOT/'
_PART = re.compile(r'(.+)/part_(\d{1,6})((?:/.*)?)', re.ASCII | re.DOTALL)
_NUMBERED = re.compile(r'(?:^|/)(?:layer(?:_with_weights)?-)?\d+(?:/|$)')
# Beside the keys and values of tables that grow while they are trained, these have a state of their
# own: rows that are filtered, and places of the keys by server.
_GROWN = ('-versions', '-freqs', '-partition_offset', '-keys_filtered', '-freqs_filtered')
_FLOATS = ('F32', 'F64', 'F16', 'BF16')


def recognises(path: str) -> bool:
    """Returns whether there is a checkpoint or a SavedModel at a path or with that prefix."""
    return has_index(path) or path.endswith('.index') and has_index(path[:-len('.index')]) or (
        os.path.isdir(path) and _prefix_in(path) is not None)


def open_checkpoint(path: str) -> Checkpoint:
    """Opens a checkpoint.

    - path: the prefix of its files, its file PREFIX.index, a directory with a file `checkpoint`,
      which names the prefix, or the directory of a SavedModel
    """
    kind, prefix = 'TensorFlow checkpoint', path
    if os.path.isdir(path):
        found = _prefix_in(path)
        if found is None:
            raise CheckpointError('%s: has no file `checkpoint` that names a checkpoint in this '
                                  'directory, and no variables/variables.index' % path)
        kind, prefix = found
    elif not os.path.exists(path + '.index') and path.endswith('.index'):
        prefix = path[:-len('.index')]
    bundle = Bundle(prefix)
    left: list[tuple[str, str]] = []
    graph = _open_graph(bundle, left)
    tensors, names = _tensors(bundle, graph, left)
    tensors, tables = _with_keys(_joined(tensors, left), left)
    layers = [tensor for tensor in tensors if tensor.name in graph.embeddings
              and len(tensor.shape) == 2 and tensor.dtype in _FLOATS]
    tables += [Table(replace(tensor, name=names[tensor.name]), name)
               for tensor, name in zip(layers, _layer_names([names[t.name] for t in layers]))]
    taken = {layer.name for layer in layers}
    others = [replace(tensor, name=names.get(tensor.name, tensor.name)) for tensor in tensors
              if tensor.name not in taken]
    return Checkpoint(kind, others, tables, left=left)


def _prefix_in(directory: str) -> tuple[str, str] | None:
    """Returns the kind and prefix of the checkpoint in a directory, or None."""
    variables = os.path.join(directory, 'variables', 'variables')
    if has_index(variables):
        return 'variables of a TensorFlow SavedModel', variables
    state = os.path.join(directory, 'checkpoint')
    if not os.path.isfile(state):
        return None
    try:
        with open(state, encoding='utf-8') as file:
            text = file.read(STATE_BYTES_MAX)
    except (OSError, UnicodeDecodeError):
        return None
    named = re.search(r'^[ \t]*model_checkpoint_path\s*:\s*"([^"\\]+)"', text, re.M)
    if named is None:
        return None
    # The file may have the path at which the checkpoint was written.
    prefix = os.path.join(directory, os.path.basename(named[1]))
    return ('TensorFlow checkpoint', prefix) if has_index(prefix) else None


def _open_graph(bundle: Bundle, left: list[tuple[str, str]]) -> ObjectGraph:
    if _GRAPH not in bundle.entries:
        return ObjectGraph()
    data = bundle.text(_GRAPH, GRAPH_BYTES_MAX)
    if data is None:
        left.append((_GRAPH, 'it has %d bytes, at most %d are read: tables are found by their names'
                     % (bundle.entries[_GRAPH].size, GRAPH_BYTES_MAX)))
        return ObjectGraph()
    try:
        return read_graph(data)
    except ValueError as error:
        raise CheckpointError('%s: %s is not valid: %s' % (bundle.path, _GRAPH, error)) from error


def _tensors(bundle: Bundle, graph: ObjectGraph, left: list[tuple[str, str]]) -> tuple[
        list[Tensor], dict[str, str]]:
    """Returns the tensors that may be tables, by their keys, and a name for each key."""
    def facts(key: str) -> tuple[object, ...]:
        entry = bundle.entries[key]
        return graph.full_names.get(key), entry.shape, entry.type, entry.checksum

    # Keras exports a model's variables twice.
    exported = {facts(key) for key in bundle.entries if key.startswith('variables/')}
    kept: list[str] = []
    for key, entry in bundle.entries.items():
        if key == _GRAPH:
            continue
        reason = _reason_to_leave(key, entry, bundle, graph)
        if reason is None and key.startswith('_all_variables/') and facts(key) in exported:
            reason = 'it is exported twice'
        if reason is None:
            kept.append(key)
        else:
            left.append((_path(key), reason))
    counts = Counter(graph.full_names.get(key) for key in kept)
    names = {}
    for key in kept:
        # A number in a list says less than the name that the variable had in the program.
        names[key], full_name = _path(key), graph.full_names.get(key)
        if _NUMBERED.search(names[key]) and full_name and counts[full_name] == 1:
            names[key] = full_name
    tensors = [Tensor(key, entry.dtype, entry.shape, bundle.rows(key))
               for key, entry in ((key, bundle.entries[key]) for key in kept)]
    return tensors, names


def _reason_to_leave(key: str, entry: Entry, bundle: Bundle, graph: ObjectGraph) -> str | None:
    if _SLOT in key or key in graph.state:
        return 'state of the optimizer'
    if entry.dtype not in ELEMENT_BYTES:
        return 'its type is %s' % entry.dtype
    if not entry.shape:
        return 'it is one value'
    owner = key.rpartition('/')[0]
    if owner in bundle.entries and bundle.entries[owner].shape == entry.shape:
        return 'state of the optimizer for %s' % owner
    for ending in _GROWN:
        if key.endswith(ending):
            return 'state of a table that grows while it is trained'
    if any(length not in (-1, size) for extents in entry.slices
           for (_, length), size in zip(extents[1:], entry.shape[1:])):
        return 'it is sliced along other dims than the rows'
    return None


def _path(key: str) -> str:
    """Returns the path from the root of the objects to a tensor."""
    path = key[:-len(_VALUE)] if key.endswith(_VALUE) else key
    if '/.ATTRIBUTES/' not in key:
        return path
    return re.sub(r'\.([.S])', lambda found: {'.': '.', 'S': '/'}[found[1]], path)


def _layer_names(names: list[str]) -> list[str]:
    """Returns the names of layers, given those of their variables.

    Leaves out what all names begin with, but keeps the last part, and one more if that is a number.
    """
    short = [re.sub(r'(.)/_?embeddings$', r'\1', name) for name in names]
    if len(set(short)) < len(short):
        short = names
    parts = [name.split('/') for name in short]
    common = len(os.path.commonprefix([part[:-1] for part in parts]))
    if any(part[common].isdigit() for part in parts):
        common = max(common - 1, 0)
    return ['/'.join(part[common:]) for part in parts]


def _joined(tensors: list[Tensor], left: list[tuple[str, str]]) -> list[Tensor]:
    """Returns the tensors, with those that are partitions of one variable put together."""
    parts: dict[tuple[str, str], dict[int, Tensor]] = {}
    for tensor in tensors:
        found = _PART.fullmatch(tensor.name)
        if found is not None:
            parts.setdefault((found[1], found[3]), {})[int(found[2])] = tensor
    joined: list[Tensor] = [t for t in tensors if _PART.fullmatch(t.name) is None]
    for (begin, end), by_number in parts.items():
        several = [by_number[number] for number in sorted(by_number)]
        if sorted(by_number) != list(range(len(several))):
            left.extend((tensor.name, 'not all parts of this variable are in the checkpoint')
                        for tensor in several)
        elif len({(tensor.dtype, tensor.shape[1:]) for tensor in several}) > 1:
            left.extend((tensor.name, 'the parts of this variable have different types or shapes')
                        for tensor in several)
        else:
            joined.append(_concatenated(begin + end, several))
    return joined


def _concatenated(name: str, tensors: list[Tensor]) -> Tensor:
    first = tensors[0]
    ends = list(accumulate(tensor.shape[0] for tensor in tensors))
    shards = [Shard((end - tensor.shape[0], *(0 for _ in first.shape[1:])), tensor.shape,
                    tensor.read) for tensor, end in zip(tensors, ends)]
    return gather(name, first.dtype, (ends[-1], *first.shape[1:]), shards)


def _with_keys(tensors: list[Tensor], left: list[tuple[str, str]]) -> tuple[
        list[Tensor], list[Table]]:
    """Returns the tensors, and apart from them the tables that have keys of their own."""
    by_name = {tensor.name: tensor for tensor in tensors}
    tables: list[Table] = []
    grown = {name[:-len(ending)] for name, _ in left for ending in _GROWN if name.endswith(ending)}
    for keys in tensors:
        begin, _, end = keys.name.rpartition('-')
        values = by_name.get(begin + '-values')
        if end != 'keys' or values is None or len(keys.shape) != 1:
            continue
        del by_name[keys.name], by_name[values.name]
        if begin in grown:
            left += [(tensor.name, 'its rows belong to a table that grows while it is trained: '
                      'export keys and values to files') for tensor in (keys, values)]
        elif (keys.dtype not in ('I64', 'U64') or len(values.shape) != 2
              or values.shape[0] != keys.shape[0] or values.dtype not in _FLOATS):
            left.append((begin, 'keys are %s %s and values %s %s, expected I64 [rows] and '
                         'floating-point numbers [rows, dim]' % (
                             keys.dtype, list(keys.shape), values.dtype, list(values.shape))))
        else:
            name = re.sub(r'/\.ATTRIBUTES/table$', '', begin)
            tables.append(Table(values, name, keys))
    return list(by_name.values()), tables
