"""Converts between torch's tensors and arrays, and holds jagged tensors without TorchRec."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from embag.dtypes import BFLOAT16
from embag.jagged import KeyedVectors

# Up to this size a copy takes less time than sharing the memory (13 us after a lookup). Objects of
# one byte must be copied, because Python may use one of them everywhere.
_COPIED_BYTES_MAX = 65536


class _Memory:
    """The memory of an array, offered to NumPy as writable. It keeps the array alive."""

    def __init__(self, array: NDArray[Any]) -> None:
        self._array = array
        interface = array.__array_interface__
        interface['data'] = interface['data'][0], False
        self.__array_interface__ = interface


def tensor_of(array: NDArray[Any], given: Tensor) -> Tensor:
    """Returns a writable tensor with the values of a result that nothing else refers to.

    It is on the device of `given`, a tensor of the input. In host memory it shares the memory of
    the array, which is read-only for everyone else because it belongs to a bytes object: the
    answer, which the caller must not keep. If the memory is small or not aligned, the values are
    copied.
    """
    is_bfloat16 = array.dtype == BFLOAT16
    if is_bfloat16:
        array = array.view('<i2')
    if array.nbytes <= _COPIED_BYTES_MAX or not array.flags.aligned:
        array = array.copy()
    else:
        array = np.asarray(_Memory(array))
    tensor = torch.from_numpy(array)
    if is_bfloat16:
        tensor = tensor.view(torch.bfloat16)
    # Even a call of `to` that does nothing takes 15 us after a lookup.
    return tensor if given.is_cpu else tensor.to(given.device)


@dataclass(frozen=True, eq=False)
class KeyedBags:
    """Bags of several features, with the methods of a KeyedJaggedTensor that lookups need.

    - names: keys, one for each feature
    - ids: [num_values] integers, ordered by feature and then by bag
    - sizes: [features * bags] number of values of each bag, or [features, bags]
    - factors: [num_values] weights, or None
    """

    names: Sequence[str]
    ids: Tensor
    sizes: Tensor
    factors: Tensor | None = None

    def keys(self) -> list[str]:
        """Returns the names of the features."""
        return list(self.names)

    def stride(self) -> int:
        """Returns the number of bags of each feature."""
        return int(self.sizes.numel()) // max(len(self.names), 1)

    def lengths(self) -> Tensor:
        """Returns the sizes of all bags, [features * bags]."""
        return self.sizes if self.sizes.dim() == 1 else self.sizes.reshape(-1)

    def values(self) -> Tensor:
        """Returns the ids of all bags."""
        return self.ids

    def weights_or_none(self) -> Tensor | None:
        """Returns the weights of all ids, or None."""
        return self.factors


@dataclass(frozen=True, eq=False)
class JaggedVectors:
    """Vectors of the ids of one feature, with the methods of a JaggedTensor.

    - rows: [num_values, columns]
    - sizes: [bags] number of values of each bag
    - factors: [num_values] ids, if the collection was asked for them
    """

    rows: Tensor
    sizes: Tensor
    factors: Tensor | None = None

    def values(self) -> Tensor:
        """Returns the vectors, ordered by bag."""
        return self.rows

    def lengths(self) -> Tensor:
        """Returns the sizes of the bags."""
        return self.sizes

    def offsets(self) -> Tensor:
        """Returns [bags + 1] positions: where each bag begins, and the end of the last one."""
        ends = torch.cumsum(self.sizes, 0)
        return torch.cat([ends.new_zeros(1), ends])

    def weights_or_none(self) -> Tensor | None:
        """Returns the ids, or None."""
        return self.factors


def torchrec_of(features: Any) -> Any:
    """Returns TorchRec's module of jagged tensors if the input is of its type, or None.

    It is not imported: if the input is of its type, the caller has done that.
    """
    module = sys.modules.get('torchrec.sparse.jagged_tensor')
    is_its = module is not None and isinstance(features, module.KeyedJaggedTensor)
    return module if is_its else None


def keyed_vectors(features: Any, keys: list[str], lengths: list[int], values: Tensor) -> Any:
    """Returns a KeyedTensor if the input is TorchRec's, or a `KeyedVectors`."""
    torchrec = torchrec_of(features)
    if torchrec is not None:
        return torchrec.KeyedTensor(keys=keys, length_per_key=lengths, values=values)
    return KeyedVectors(keys, lengths, values)


def jagged_vectors(features: Any, values: Tensor, lengths: Tensor, ids: Tensor | None) -> Any:
    """Returns a JaggedTensor if the input is TorchRec's, or a `JaggedVectors`."""
    torchrec = torchrec_of(features)
    if torchrec is not None:
        return torchrec.JaggedTensor(values=values, lengths=lengths, weights=ids)
    return JaggedVectors(values, lengths, ids)
