"""Finds, in a model's description, the tables that the names in a request refer to."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from embag import dtypes
from embag.v1 import embedding_bag_pb2 as pb


def tables_by_name(model: pb.Model, version: int = 0) -> dict[str, pb.Table]:
    """Returns the table of every name that a query may use: table names and feature names.

    They are those of `version`, or of the version being served if `version` is 0. Returns an empty
    dict if the model has no such version.
    """
    wanted = version or model.served_version
    for each in model.versions:
        if each.version == wanted:
            tables = {table.name: table for table in each.tables}
            return tables | {feature.name: tables[feature.table] for feature in each.features
                             if feature.table in tables}
    return {}


def row_size(table: pb.Table) -> int:
    """Returns the number of values in one row."""
    return math.prod(table.shape)


def default_vector(table: pb.Table) -> NDArray[np.generic] | None:
    """Returns the table's default vector, of the table's type and the shape of one row.

    It fills empty bags unless the request or the feature sets a default_index. Returns None if the
    table has none.
    """
    if not table.default_vector:
        return None
    return dtypes.array_of(table.default_vector, table.type, tuple(table.shape))
