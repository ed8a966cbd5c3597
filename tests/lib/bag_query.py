"""A lookup as tests describe it, and its encoding as a message in any of the wire's forms."""

from dataclasses import dataclass
from typing import Optional

import numpy as np

from element_types import TYPE_NUMBERS
from embag.v1 import embedding_bag_pb2 as pb

REDUCTIONS = {'sum': 1, 'mean': 2, 'weighted_mean': 3, 'sqrtn': 4, 'max': 5, 'min': 6, 'none': 7}
MISSING = {'error': 1, 'skip': 2, 'zero': 3, 'unknown_row': 4}
LAYOUTS = {'offsets': 1, 'lengths': 2, 'packed': 3, 'segments': 4}
FORMS = ('i64', 'i32', 'repeated')


@dataclass
class Query:
    """Indices and one layout. `bounds` has the offsets, lengths or segment ids of the layout."""

    table: str
    indices: np.ndarray
    layout: Optional[str] = None
    bounds: Optional[np.ndarray] = None
    include_last_offset: bool = False
    indices_per_bag: int = 0
    num_segments: int = 0
    num_bags: int = 0
    reduction: Optional[str] = 'sum'
    missing: Optional[str] = None
    default_index: Optional[int] = None
    weights: Optional[np.ndarray] = None  # raw elements of weights_type
    weights_type: str = 'f32'
    index_form: str = 'i64'
    bounds_form: str = 'i64'
    repeated_weights: bool = False  # whether to send weights as weights_f32
    say_layout: bool = False
    say_num_bags: bool = False


def _set_integers(message, field, form, values):
    if form == 'repeated':
        getattr(message, field).extend(int(value) for value in values)
    else:
        width = {'i64': '<i8', 'i32': '<i4'}[form]
        setattr(message, '%s_%s' % (field, form), np.asarray(values).astype(width).tobytes())


def _set_layout(message, query, bag_count):
    if query.layout == 'packed':
        message.indices_per_bag = query.indices_per_bag
    elif query.layout is not None:
        field = {'segments': 'segment_ids'}.get(query.layout, query.layout)
        _set_integers(message, field, query.bounds_form, query.bounds)
        message.num_segments = query.num_segments
        message.include_last_offset = query.include_last_offset
    if query.layout is not None and query.say_layout:
        message.layout = LAYOUTS[query.layout]
    message.num_bags = query.num_bags or (bag_count if query.say_num_bags else 0)


def to_message(query, bag_count=0):
    """Returns the BagQuery. `bag_count` is its num_bags if the query sets say_num_bags."""
    message = pb.BagQuery(table=query.table)
    message.reduction = REDUCTIONS.get(query.reduction, 0)
    message.missing = MISSING.get(query.missing, 0)
    _set_integers(message, 'indices', query.index_form, query.indices)
    _set_layout(message, query, bag_count)
    if query.default_index is not None:
        message.default_index = query.default_index
    if query.weights is not None:
        if query.repeated_weights:
            message.weights_f32.extend(query.weights.tolist())
        else:
            message.weights = query.weights.tobytes()
            message.weights_type = TYPE_NUMBERS[query.weights_type]
    return message
