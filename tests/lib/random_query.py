"""Random tables and random lookups on them, which cover everything that the operation allows."""

import numpy as np

from bag_query import FORMS, Query
from element_types import FLOAT_TYPES, INTEGER_TYPES, NARROW_STORAGES, encode
from table_files import Table

POOLING = ('sum', 'mean', 'max', 'min')
FLOAT_POOLING = POOLING + ('weighted_mean', 'sqrtn')
SPECIAL_VALUES = {
    'f32': [0x7f800000, 0xff800000, 0x7fc00000, 0x7fa00001, 0xffc12345, 0x80000000, 0, 1,
            0x80000001, 0x007fffff, 0x00800000, 0x71000000, 0xf1000000, 0x3f800000],
    'f64': [0x7ff0 << 48, 0xfff0 << 48, 0x7ff8 << 48, (0x7ff4 << 48) + 1, 0xffff << 48, 1 << 63, 0,
            1, (1 << 63) + 1, (1 << 52) - 1, 1 << 52, 0x7000 << 48, 0xf000 << 48, 0x3ff0 << 48],
    'f16': [0x7c00, 0xfc00, 0x7e00, 0x7d01, 0xff23, 0x8000, 0, 1, 0x8001, 0x03ff, 0x0400, 0x7bff,
            0xfbff, 0x3c00],
    'bf16': [0x7f80, 0xff80, 0x7fc0, 0x7fa1, 0xffc3, 0x8000, 0, 1, 0x8001, 0x007f, 0x0080, 0x7100,
             0xf100, 0x3f80],
}
FAR_INDICES = {
    'i32': [-1, -2, -2**31, 2**31 - 1],
    'i64': [-1, -2, -2**63, 2**63 - 1, 2**32, 2**40 + 1],
}
FAR_INDICES['repeated'] = FAR_INDICES['i64']


def _random_raw(rng, storage, shape):
    if storage in NARROW_STORAGES:
        return rng.integers(0, 256, shape, np.uint8)
    if storage in FLOAT_TYPES:
        return encode(rng.normal(size=shape) * 2.0 ** rng.integers(-6, 5, shape), storage)
    limits = np.iinfo(encode(0, storage).dtype)
    return rng.integers(limits.min, limits.max, shape, limits.dtype, endpoint=True)


def random_tables(rng):
    """Returns tables of every type and storage.

    Each has tables of several ranks and widths, one without rows, and for floating-point types one
    of special values.
    """
    tables = []
    for storage in FLOAT_TYPES + INTEGER_TYPES + NARROW_STORAGES:
        shapes = [(40,), (23, 7), (64, 16), (11, 3, 5), (9, int(rng.integers(17, 130))), (0, 4)]
        for shape in shapes:
            name = '%s_%s' % (storage, 'x'.join(map(str, shape)))
            tables.append(Table(name, storage, _random_raw(rng, storage, shape)))
        if storage in SPECIAL_VALUES:
            kind = encode(0, storage).dtype
            special = np.array(SPECIAL_VALUES[storage], '<u%d' % kind.itemsize).view(kind)
            raw = rng.choice(special, (24, 6))
            tables.append(Table(storage + '_special', storage, raw))
    return tables


def random_vector_tables(rng):
    """Returns the same kinds of tables, all with rows and a default vector, and half with keys."""
    tables = [table for table in random_tables(rng) if table.rows]
    for number, table in enumerate(tables):
        table.vector = _random_raw(rng, table.type, table.row_elements)
        if number % 2:
            # No key is an index that is meant to be missing.
            keys = rng.choice(2**30, table.rows, replace=False) + 2**10
            table.keys = np.where(rng.random(table.rows) < 0.5, keys, -keys).astype(np.int64)
    return tables


def _chance(rng, probability):
    return rng.random() < probability


def _cuts(rng, bags, count):
    """Returns sorted ends of bags, some of them equal."""
    return np.sort(rng.integers(0, count + 1, bags))


def _offsets_layout(rng, query, bags):
    count = len(query.indices)
    query.include_last_offset = _chance(rng, 0.4)
    query.bounds = _cuts(rng, bags + query.include_last_offset, count)
    if not bags and _chance(rng, 0.5):
        query.indices, query.bounds = query.indices[:0], query.bounds * 0
    elif bags and not query.include_last_offset and _chance(rng, 0.7):
        query.bounds[0] = 0


def _lengths_layout(rng, query, bags):
    cuts = _cuts(rng, max(bags - 1, 0), len(query.indices))
    query.bounds = np.diff(np.concatenate([[0], cuts, [len(query.indices)]]))[:bags]
    if not bags:
        query.indices = query.indices[:0]


def _packed_layout(rng, query, bags):
    query.indices_per_bag = int(rng.integers(0, 8))
    if query.indices_per_bag == 0:
        query.indices, query.num_bags = query.indices[:0], bags
    else:
        query.indices = query.indices[:len(query.indices) // query.indices_per_bag
                                      * query.indices_per_bag]


def _segments_layout(rng, query, bags):
    if not bags:
        query.indices = query.indices[:0]
    query.num_segments = bags
    query.bounds = rng.integers(0, max(bags, 1), len(query.indices))
    if _chance(rng, 0.6):
        query.bounds.sort()


def _no_layout(rng, query, bags):
    """Sets one bag, or only empty bags if there are no indices."""
    if len(query.indices):
        query.num_bags = 1
    else:
        query.num_bags = bags


LAYOUT_MAKERS = {
    'offsets': _offsets_layout, 'lengths': _lengths_layout, 'packed': _packed_layout,
    'segments': _segments_layout, None: _no_layout,
}


def _set_layout(rng, query, bags):
    if query.reduction == 'none' and _chance(rng, 0.5):
        return
    query.layout = rng.choice([*LAYOUT_MAKERS])
    LAYOUT_MAKERS[query.layout](rng, query, bags)
    query.bounds_form = str(rng.choice(FORMS[:2] if query.layout == 'lengths' else FORMS))
    # Only the field `layout` can express a layout without entries, or packed bags of no indices.
    empty = query.layout == 'packed' and query.indices_per_bag == 0
    empty |= query.bounds is not None and len(query.bounds) == 0 and query.num_segments == 0
    query.say_layout = bool(empty or _chance(rng, 0.3))
    query.say_num_bags = query.layout is not None and _chance(rng, 0.3)
    if query.reduction == 'none':
        query.say_num_bags, query.num_bags = False, 0


def _set_weights(rng, query, table):
    may = query.reduction in (None, 'sum', 'none', 'weighted_mean', 'sqrtn')
    if not may or not len(query.indices) or _chance(rng, 0.4):
        return
    query.weights_type = table.type
    if table.is_float and _chance(rng, 0.5):
        query.weights_type = 'f32'
    count = len(query.indices)
    if not table.is_float:
        query.weights = _random_raw(rng, table.type, count)
        return
    if _chance(rng, 0.3):
        values = rng.integers(-3, 4, count) / 2
    else:
        values = rng.normal(size=count)
        if query.reduction == 'weighted_mean':
            values = np.abs(values) + 0.1
    query.weights = encode(values, query.weights_type)
    query.repeated_weights = query.weights_type == 'f32' and _chance(rng, 0.3)


def _set_indices(rng, query, table):
    """Sets indices that name rows; unless missing rows are errors some name no row."""
    count = 0 if _chance(rng, 0.05) else int(rng.integers(1, 40))
    query.index_form = str(rng.choice(FORMS))
    policies = [None, 'error', 'skip', 'zero'] + ['unknown_row'] * (table.vector is not None)
    query.missing = rng.choice(policies)
    far = FAR_INDICES[query.index_form] + [table.rows, table.rows + 1]
    if query.missing in ('skip', 'zero', 'unknown_row'):
        wild = rng.random(count) < rng.choice([0, 0.2, 1.0], p=[0.2, 0.7, 0.1])
    else:
        wild = np.zeros(count, bool)
        if not table.rows:
            count = 0
    rows = rng.integers(0, max(table.rows, 1), count)
    if not table.rows:
        wild = np.ones(count, bool)
    query.indices = np.where(wild[:count], rng.choice(far, count), rows).astype(np.int64)


def _spoil_outside(rng, query):
    """Sets indices outside all bags to anything, since the server neither reads nor checks them."""
    if query.layout == 'offsets' and query.reduction != 'none' and len(query.bounds):
        last = query.bounds[-1] if query.include_last_offset else len(query.indices)
        far = FAR_INDICES[query.index_form]
        query.indices[:query.bounds[0]] = rng.choice(far, query.bounds[0])
        query.indices[last:] = rng.choice(far, len(query.indices) - last)


def _use_keys(query, table):
    """Replaces row numbers with keys."""
    is_row = (query.indices >= 0) & (query.indices < table.rows)
    query.indices = np.where(is_row, table.keys[query.indices * is_row], query.indices)
    if query.default_index is not None:
        named = query.default_index >= 0
        query.default_index = int(table.keys[query.default_index]) if named else None


def random_query(rng, table, bags=None):
    """Returns a valid lookup, with `bags` bags if a number is given, as concat needs it."""
    reductions = (None,) + (FLOAT_POOLING if table.is_float else POOLING)
    if bags is None:
        reductions += ('none',)
    query = Query(table.name, None, reduction=rng.choice(reductions))
    _set_indices(rng, query, table)
    if bags is None:
        _set_layout(rng, query, int(rng.integers(0, 12)))
    else:
        query.layout = str(rng.choice(['offsets', 'segments']))
        LAYOUT_MAKERS[query.layout](rng, query, bags)
        query.bounds_form = str(rng.choice(FORMS))
    _spoil_outside(rng, query)
    _set_weights(rng, query, table)
    if _chance(rng, 0.5):
        query.default_index = int(rng.integers(-1, max(table.rows, 0)))
    if table.keys is not None:
        _use_keys(query, table)
    return query
