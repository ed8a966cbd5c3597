"""A module with the interface of torch.nn.EmbeddingBag."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from embag.client import Client
from embag.jagged import numpy_of, weights_of
from embag.torch.connection import Connection
from embag.torch.tensors import tensor_of


class RemoteEmbeddingBag(nn.Module):
    """Takes the place of torch.nn.EmbeddingBag; the table is in a server.

    - client, model, version, missing: as in `RemoteEmbeddingBagCollection`
    - name: table or feature in the server
    - mode: 'sum', 'mean' or 'max'
    - include_last_offset: whether offsets end with the number of ids
    - padding_idx: an id that is left out of all bags, or None

    The output has the table's type. It is on the device of the input, writable, and without
    gradients. Lookups raise what `Client.lookup` raises.
    """

    def __init__(self, client: Client | str, name: str, *, mode: str = 'mean', model: str = '',
                 version: int = 0, include_last_offset: bool = False,
                 padding_idx: int | None = None, missing: str | None = None) -> None:
        super().__init__()
        self._connection = Connection(client)
        self._name = name
        self._model = model
        self._version = version
        self._missing = missing
        self.mode = mode
        self.include_last_offset = include_last_offset
        self.padding_idx = padding_idx

    @classmethod
    def from_module(cls, module: nn.EmbeddingBag, client: Client | str, name: str, **fields: Any
                    ) -> RemoteEmbeddingBag:
        """Returns a module that takes the place of `module`.

        The rest of the arguments is as in the constructor. Raises ValueError if the module has
        max_norm, which changes its rows with each lookup.
        """
        if module.max_norm is not None:
            raise ValueError('the module has max_norm %g: expected none, because the rows of the '
                             'server do not change with lookups' % module.max_norm)
        fields.setdefault('mode', module.mode)
        fields.setdefault('include_last_offset', module.include_last_offset)
        fields.setdefault('padding_idx', module.padding_idx)
        return cls(client, name, **fields)

    def extra_repr(self) -> str:
        """Returns the arguments that tell modules apart, for repr()."""
        return '%r, name=%r, mode=%r' % (self._connection, self._name, self.mode)

    def forward(self, input: Tensor, offsets: Tensor | None = None,
                per_sample_weights: Tensor | None = None) -> Tensor:
        """Returns [bags, columns], as nn.EmbeddingBag does.

        - input: [bags, ids of each bag], or [ids] with offsets
        - offsets: [bags] position in the input at which each bag begins; with include_last_offset
          [bags + 1]
        - per_sample_weights: factor of each row, in the shape of the input; with 'sum' only
        """
        if (input.dim() == 2) == (offsets is not None):
            raise ValueError('input of %d dims %s offsets: expected two dims without offsets, or '
                             'one with offsets' % (
                                 input.dim(), 'with' if offsets is not None else 'without'))
        if per_sample_weights is not None and per_sample_weights.shape != input.shape:
            raise ValueError('per_sample_weights of shape %s: expected that of the input, %s' % (
                tuple(per_sample_weights.shape), tuple(input.shape)))
        given = input
        layout: dict[str, Any] = {}
        if self.padding_idx is not None:
            input, lengths, per_sample_weights = self._without_padding(
                input, offsets, per_sample_weights)
            layout['lengths'] = numpy_of(lengths)
        elif offsets is not None:
            layout['offsets'] = numpy_of(offsets)
            layout['include_last_offset'] = self.include_last_offset
        weights = None if per_sample_weights is None else weights_of(per_sample_weights)
        answer = self._connection.client.lookup(
            self._name, numpy_of(input), weights=weights, reduction=self.mode,
            missing=self._missing, model=self._model, version=self._version, **layout)
        return tensor_of(answer.values, given)

    def _without_padding(self, input: Tensor, offsets: Tensor | None, weights: Tensor | None
                         ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Returns the ids, the length of each bag and the weights, without the padding."""
        kept = input != self.padding_idx
        if offsets is None:
            lengths = kept.sum(1)
        else:
            if self.include_last_offset:
                begins, ends = offsets[:-1], offsets[1:]
            else:
                begins, ends = offsets, torch.cat([offsets[1:], offsets.new_tensor([len(input)])])
            counts = torch.cat([kept.new_zeros(1, dtype=torch.int64), kept.cumsum(0)])
            lengths = counts[ends] - counts[begins]
            outside = torch.ones_like(kept)
            if len(begins) > 0:
                outside[begins[0]:ends[-1]] = False
            kept = kept & ~outside
        return input[kept], lengths, None if weights is None else weights[kept]
