"""Finds out which tensors of a checkpoint are embedding tables, and names them.

The rule is conservative: a tensor is a table if its name says so and nothing speaks against it.

1. A table is a matrix of F32, F16, BF16 or F64 with at least one row and column.
2. Tensors whose names have a part of an optimizer's state, such as `exp_avg`, are not tables.
3. A matrix with a bias beside it, of as many values as the matrix has rows, belongs to a linear
   layer.
4. The module's name, which is the tensor's without `.weight`, decides. Its last part, or the one
   before it (as in `embedding_bags.t0` and `emb_l.3`), has one of the words emb, embed, embedding
   (or their plurals), wte or wpe. That part, and the last one, have no word of another layer, such
   as linear, proj or norm.
5. If the last part has the words shared, lookup or table instead, the matrix is a table if it has
   more rows than columns.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from embag.importer.source import ELEMENT_BYTES, CheckpointError, Table, Tensor

FLOATS = ('F32', 'F16', 'BF16', 'F64')
# The server's default limit, in bytes.
NAME_BYTES_MAX = 255
_SUFFIXES = ('/.ATTRIBUTES/VARIABLE_VALUE', '.weight')
_EMBEDDING = {'emb', 'embs', 'embed', 'embeds', 'embedding', 'embeddings', 'wte', 'wpe'}
_MAYBE = {'shared', 'lookup', 'table'}
_OTHER_LAYERS = {'linear', 'lin', 'dense', 'proj', 'projection', 'norm', 'layernorm', 'conv', 'mlp',
                 'fc', 'attn', 'attention', 'gru', 'lstm', 'kernel'}
_OPTIMIZER = re.compile(
    r'\.OPTIMIZER_SLOT|optimi[sz]er\w*|optim|exp_avg\w*|exp_inf|momentum(_buffer|\d)?|velocity|'
    r'(adam\w*|adagrad|ftrl|rmsprop|momentum|lamb)(_\d+)?', re.IGNORECASE)


def _module_of(name: str) -> str:
    """Returns the name of a tensor without the suffix that all weights have."""
    for suffix in _SUFFIXES:
        if name.endswith(suffix) and len(name) > len(suffix):
            return name[:-len(suffix)]
    return name


def module_names(name: str) -> tuple[str, str]:
    """Returns the name of the module that has a tensor, and the last part of that name."""
    module = _module_of(name)
    return module, (_parts(module) or [module])[-1]


def _parts(name: str) -> list[str]:
    return [part for part in re.split(r'[./]', name) if part]


def _words(part: str) -> set[str]:
    found = re.findall(r'[A-Z]+(?![a-z])|[A-Z]?[a-z]+', part)
    return {word.lower() for word in found}


def _size(tensor: Tensor) -> str:
    return '%s %s' % (tensor.dtype, list(tensor.shape))


def is_optimizer_state(name: str) -> bool:
    """Returns whether a part of a tensor's name is one of an optimizer's state."""
    return any(_OPTIMIZER.fullmatch(part) for part in re.split(r'[/]|(?<!/)\.', name))


def judge(tensor: Tensor, shapes: Mapping[str, tuple[int, ...]]) -> tuple[bool, str]:
    """Returns whether a tensor is an embedding table, and why.

    `shapes` has the shapes of all tensors of the checkpoint by name.
    """
    parts = _parts(_module_of(tensor.name))
    if is_optimizer_state(tensor.name):
        return False, "state of the optimizer, by its name"
    if tensor.dtype not in FLOATS:
        return False, 'its type is not %s' % ', '.join(FLOATS)
    if len(tensor.shape) != 2:
        return False, 'it is not a matrix'
    if 0 in tensor.shape:
        return False, 'it has no values'
    if shapes.get(_module_of(tensor.name) + '.bias') == tensor.shape[:1]:
        return False, 'it has a bias, as a linear layer does'
    last, before = _words(parts[-1]) if parts else set(), _words(parts[-2]) if parts[1:] else set()
    if last & _OTHER_LAYERS or not (last | before) & (_EMBEDDING | _MAYBE):
        return False, 'its name is not that of an embedding'
    if last & _EMBEDDING:
        return True, 'embedding, by its name'
    if before & _EMBEDDING and not before & _OTHER_LAYERS:
        return True, 'in %s, by its name' % parts[-2]
    if last & _MAYBE and tensor.shape[0] > tensor.shape[1]:
        return True, 'by its name, and it has more rows than columns'
    return False, 'its name is not that of an embedding'


def short_names(names: Sequence[str]) -> list[str]:
    """Returns names without the prefix that all have in common and without a final `.weight`.

    Names keep at least their last part, and one more if that is a number.
    """
    modules = [_module_of(name) for name in names]
    splits = [re.split(r'([./])', module) for module in modules]
    room = min((len(split) for split in splits), default=1) - 1
    common = 0
    while common < room and len({split[common] for split in splits}) == 1:
        common += 1
    common -= common % 2
    if any(split[common].isdigit() and len(split) == common + 1 for split in splits):
        common = max(common - 2, 0)
    return [''.join(split[common:]) for split in splits]


def name_error(name: str) -> str | None:
    """Returns what is wrong with the name of a table or feature, or None."""
    if not name:
        return 'is empty'
    try:
        size = len(name.encode('utf-8'))
    except UnicodeEncodeError:
        return 'is not valid text'
    if size > NAME_BYTES_MAX:
        return 'has %d bytes, expected at most %d' % (size, NAME_BYTES_MAX)
    if any(ord(char) < 32 or 127 <= ord(char) < 160 for char in name):
        return 'has control characters'
    if name == '__metadata__':
        return 'is not that of a tensor in safetensors files'
    return None


def check_fit(table: Table) -> None:
    """Checks that the server can load a table. Raises CheckpointError."""
    tensor = table.tensor
    where = 'table %s (%s)' % (table.name, tensor.name)
    if tensor.dtype not in ELEMENT_BYTES:
        raise CheckpointError('%s: has the type %s, expected one of %s' % (
            where, tensor.dtype, ', '.join(ELEMENT_BYTES)))
    if not tensor.shape or 0 in tensor.shape:
        raise CheckpointError('%s: has the shape %s, expected rows and values' % (
            where, list(tensor.shape)))
    if table.format is not None and (tensor.dtype != 'U8' or len(tensor.shape) != 2):
        raise CheckpointError('%s: is %s, expected U8 [rows, bytes] for the format %s' % (
            where, _size(tensor), table.format))
    if table.dim is not None and table.format is None:
        raise CheckpointError('%s: has dim %d without a format' % (where, table.dim))
    keys = table.keys
    if keys is not None and (keys.dtype not in ('I64', 'U64') or keys.shape != tensor.shape[:1]):
        raise CheckpointError('%s: its keys are %s, expected I64 or U64 [%d]' % (
            where, _size(keys), tensor.shape[0]))
