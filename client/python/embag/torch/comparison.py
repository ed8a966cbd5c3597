"""Compares a server's answers with the tables of a trained module."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from embag.client import Client
from embag.importer.module_config import is_weighted, module_config
from embag.importer.source import Feature, Tensor
from embag.jagged import Bags
from embag.request import Query
from embag.torch.connection import Connection

# Largest relative error of one rounding in the type in which the server computes.
_EPS = {'F64': 2.0**-53, 'F32': 2.0**-24}
_FLOATS = {'F64': '<f8', 'F32': '<f4', 'F16': '<f2', 'BF16': '<u2'}


@dataclass(frozen=True)
class Comparison:
    """The result of `compare`.

    - difference: the largest difference between an element of an answer and the exact value
    - feature, bag, element: where that is. Of a feature that is not pooled, `bag` is the position
      of the id
    - bound: the bound on the difference of that element
    - elements, exceeding: number of elements compared, and of those beyond their bounds
    """

    difference: float
    feature: str
    bag: int
    element: int
    bound: float
    elements: int
    exceeding: int

    @property
    def holds(self) -> bool:
        """Whether every element is within its bound."""
        return self.exceeding == 0

    def __str__(self) -> str:
        state = ('all within their bounds' if self.holds
                 else '%d beyond their bounds' % self.exceeding)
        return ('largest difference %.3g (bound %.3g) in feature %r, bag %d, element %d; '
                '%d elements compared, %s' % (self.difference, self.bound, self.feature, self.bag,
                                              self.element, self.elements, state))


def compare(module: nn.Module, client: Client | str, features: Any, *, model: str = '',
            version: int = 0) -> Comparison:
    """Looks up bags in a server, and computes them exactly from the tables of a module.

    - module: a collection of TorchRec, an nn.EmbeddingBag or nn.Embedding, or a module that
      contains them, for example a whole model
    - client: an `embag.Client`, or 'HOST:PORT' or 'unix:PATH'. Its model must have the features
      that `describe(module)` writes
    - features: a KeyedJaggedTensor or `KeyedBags`. Features of the module that it lacks are not
      compared. A key is a feature's name, without the table of a feature that tables share; of one
      of torch's own modules, it is the module's path

    For the exact value of each element, the bound is (n + 4) eps sum|w x| plus half a unit of the
    output (f32), for bags of n rows x with weights w. eps is the largest error of one rounding in
    the type in which the server computes: 2^-53 for f64 tables, 2^-24 for all others. With 'mean',
    w is 1/n. The module's own output in f32 keeps the same bound, so it differs from the server's
    by at most twice that.

    Raises ValueError if nothing can be compared, and everything that `Client.lookup` raises.
    """
    tables, described, groups = module_config(module)
    tensors = {table.name: table.tensor for table in tables}
    weighted = any(is_weighted(child) for child in module.modules())
    bags = Bags(features, weighted)
    bags.check()
    uses = list(_keys(described, groups, list(features.keys())))
    if not uses:
        raise ValueError('the input has none of the features %s' % ', '.join(
            feature.name for feature in described))
    for feature, _ in uses:
        tensor = tensors[feature.table]
        if tensor.dtype not in _FLOATS or len(tensor.shape) != 2:
            raise ValueError('%s is %s of shape %s: expected a matrix of floating-point numbers'
                             % (tensor.name, tensor.dtype, tensor.shape))
    queries = [_query(feature, bags, key) for feature, key in uses]
    answer = Connection(client).client.lookup(queries, model=model, version=version,
                                              output_type='f32')
    return _worst([
        (feature, result.values, *_exact(tensors[feature.table], feature.reduction, bags, key))
        for (feature, key), result in zip(uses, answer)])


def _keys(described: Sequence[Feature], groups: dict[str, list[str]], keys: Sequence[str]
          ) -> Iterator[tuple[Feature, str]]:
    """Yields each feature of the module whose bags the input has, and its key there."""
    paths = {name: path for path, names in groups.items() for name in names}
    for feature in described:
        short = feature.name.removeprefix(paths.get(feature.name, '') + '.')
        for key in feature.name, short, short.rpartition('@')[0]:
            if key in keys:
                yield feature, key
                break


def _query(feature: Feature, bags: Bags, key: str) -> Query:
    """Returns the lookup of one feature."""
    is_pooled = feature.reduction != 'none'
    return Query(feature.name, bags.values(key), reduction=feature.reduction,
                 lengths=bags.lengths(key) if is_pooled else None,
                 weights=bags.weights(key) if is_pooled else None)


def _rows(tensor: Tensor, ids: NDArray[Any]) -> NDArray[np.float64]:
    """Returns the rows with these numbers."""
    for place in np.flatnonzero((ids < 0) | (ids >= tensor.shape[0]))[:1]:
        raise IndexError('id %d is outside the %d rows of %s' % (
            ids[place], tensor.shape[0], tensor.name))
    unique, inverse = np.unique(ids, return_inverse=True)
    raw = [tensor.read(int(row), int(row) + 1) for row in unique]
    values = np.concatenate(raw or [tensor.read(0, 0)]).reshape(len(unique), -1)
    if tensor.dtype == 'BF16':
        numbers = (values.view('<u2').astype('<u4') << 16).view('<f4')
    else:
        numbers = values.view(_FLOATS[tensor.dtype])
    return numbers.astype(np.float64)[inverse.reshape(-1)]


def _exact(tensor: Tensor, reduction: str, bags: Bags, key: str
           ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the pooled vectors and the bounds of a feature, [bags or ids, columns] each."""
    rows = _rows(tensor, bags.values(key))
    eps = _EPS['F64' if tensor.dtype == 'F64' else 'F32']
    if reduction == 'none':
        exact, terms, counts = rows, np.abs(rows), np.ones(len(rows), np.int64)
    else:
        counts = lengths = bags.lengths(key).astype(np.int64)
        owner = np.repeat(np.arange(len(lengths)), lengths)
        weights = bags.weights(key)
        factors = np.ones(len(rows)) if weights is None else weights.astype(np.float64)
        if reduction == 'mean':
            factors = factors / lengths[owner]
        weighted = rows * factors[:, None]
        exact, terms = _pooled(reduction, weighted, owner, len(lengths))
    half_unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64) / 2
    return exact, (counts[:, None] + 4) * eps * terms + half_unit


def _pooled(reduction: str, rows: NDArray[np.float64], owner: NDArray[np.int64], bags: int
            ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Returns the pooled rows and absolute rows of each bag."""
    shape = bags, rows.shape[1]
    terms = np.zeros(shape)
    np.add.at(terms, owner, np.abs(rows))
    if reduction == 'max':
        exact = np.full(shape, -np.inf)
        np.maximum.at(exact, owner, rows)
        exact[np.bincount(owner, minlength=bags) == 0] = 0
    elif reduction in ('sum', 'mean'):
        exact = np.zeros(shape)
        np.add.at(exact, owner, rows)
    else:
        raise ValueError('reduction %r: expected sum, mean, max or none' % reduction)
    return exact, terms


def _worst(compared: Sequence[tuple[Feature, NDArray[Any], NDArray[np.float64],
                                    NDArray[np.float64]]]) -> Comparison:
    """Returns the comparison, given for each feature the answer, the exact values and bounds."""
    elements = exceeding = 0
    worst = -1.0, '', 0, 0, 0.0
    for feature, values, exact, bounds in compared:
        if values.shape != exact.shape:
            raise ValueError('%r has shape %s in the answer, but %s in the module' % (
                feature.name, values.shape, exact.shape))
        differences = np.abs(values.astype(np.float64) - exact)
        # A NaN in the answer is beyond every bound, unless the module has it too.
        differences[np.isnan(differences)] = np.inf
        differences[np.isnan(values) & np.isnan(exact)] = 0
        differences[values == exact] = 0
        elements += values.size
        exceeding += int((differences > bounds).sum())
        if values.size > 0:
            place = int(differences.argmax())
            bag, element = np.unravel_index(place, values.shape)
            worst = max(worst, (float(differences[bag, element]), feature.name, int(bag),
                                int(element), float(bounds[bag, element])),
                        key=lambda found: found[0])
    if elements == 0:
        raise ValueError('the input has no bags: expected at least one')
    return Comparison(*worst, elements, exceeding)
