"""Bags of many features in TorchRec's jagged form, as a group and as the equivalent queries."""

from dataclasses import dataclass
from typing import Optional

import numpy as np

from bag_query import MISSING, REDUCTIONS, Query, to_message
from element_types import TYPE_NUMBERS
from embag.v1 import embedding_bag_pb2 as pb

FEATURES = ['t%02d' % n for n in range(26)]
FORMS = ('lengths_i32', 'offsets_i64', 'offsets_i32')
VALUE_FIELDS = ('values_i64', 'values_i32')
WIDTHS = {'i32': '<i4', 'i64': '<i8'}


@dataclass
class Jagged:
    """Bags of several features. `lengths` is [features, bags]; values and weights lie feature by
    feature, bag by bag."""

    features: list
    values: np.ndarray
    lengths: np.ndarray
    weights: Optional[np.ndarray] = None
    weights_type: str = 'f32'
    reduction: Optional[str] = 'sum'
    missing: Optional[str] = None

    def slices(self):
        """Returns the slice of the values that belongs to each feature."""
        ends = np.cumsum(self.lengths.sum(axis=1), dtype=np.int64).tolist()
        return [slice(begin, end) for begin, end in zip([0] + ends, ends)]

    def queries(self):
        """Returns the same lookups as one query for each feature."""
        return [Query(name, self.values[part], layout='lengths', bounds=self.lengths[feature],
                      weights=None if self.weights is None else self.weights[part],
                      weights_type=self.weights_type, reduction=self.reduction,
                      missing=self.missing, say_layout=True)
                for feature, (name, part) in enumerate(zip(self.features, self.slices()))]

    def messages(self):
        """Returns the queries as BagQuery messages."""
        messages = [to_message(query) for query in self.queries()]
        for message in messages:
            if not message.weights:
                message.weights_type = 0
        return messages

    def group(self, form='lengths_i32', values='values_i64'):
        """Returns the same lookups as one FeatureGroup."""
        message = pb.FeatureGroup(features=self.features, bags=self.lengths.shape[1],
                                  reduction=REDUCTIONS.get(self.reduction, 0),
                                  missing=MISSING.get(self.missing, 0))
        bounds = self.lengths.reshape(-1)
        if form != 'lengths_i32':
            bounds = np.concatenate([[0], np.cumsum(bounds)])
        for field, numbers in ((form, bounds), (values, self.values)):
            setattr(message, field, numbers.astype(WIDTHS[field[-3:]]).tobytes())
        if self.weights is not None:
            message.weights = self.weights.tobytes()
            message.weights_type = TYPE_NUMBERS[self.weights_type]
        return message


def random_jagged(rng, tables, features=None, bags=5, longest=6, **fields):
    """Returns bags of rows of the features' tables; some bags are empty."""
    features = FEATURES if features is None else features
    lengths = rng.integers(0, longest + 1, (len(features), bags))
    values = [rng.integers(0, tables[name].rows, total)
              for name, total in zip(features, lengths.sum(axis=1))]
    return Jagged(features, np.concatenate(values + [np.zeros(0, np.int64)]), lengths, **fields)


def side_by_side(results):
    """Returns the values of results that have the same number of bags, side by side as in a group
    or with concat."""
    bags = results[0].shape[0]
    rows = [np.frombuffer(result.values, np.uint8).reshape(bags, -1) for result in results]
    return np.concatenate(rows, axis=1).tobytes()


def check_group_result(result, singles, number):
    """Compares a group's result with the results of the equivalent queries."""
    bags = singles[0].shape[0]
    columns = sum(int(np.prod(single.shape[1:], dtype=np.int64)) for single in singles)
    missing = [single.missing for single in singles]
    got = (result.query, result.error_code, result.type, list(result.shape), result.missing,
           list(result.missing_by_query))
    want = (number, 0, singles[0].type, [bags, columns], sum(missing), missing)
    if got != want:
        raise AssertionError('%s, not %s' % (got, want))
    if result.values != side_by_side(singles):
        raise AssertionError('values of the group differ from those of the queries')
