"""What a model's description says of the names that requests use."""

from __future__ import annotations

import math

from embag.v1 import embedding_bag_pb2 as pb


def tables_by_name(model: pb.Model, version: int = 0) -> dict[str, pb.Table]:
    """The table of every name that a query may use: tables and features. Of this version, or of
    the one being served."""
    wanted = version or model.served_version
    for each in model.versions:
        if each.version == wanted:
            tables = {table.name: table for table in each.tables}
            return tables | {feature.name: tables[feature.table] for feature in each.features
                             if feature.table in tables}
    return {}


def row_size(table: pb.Table) -> int:
    """Values of one row."""
    return math.prod(table.shape)
