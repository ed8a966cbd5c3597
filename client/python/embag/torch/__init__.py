"""Replacements for TorchRec's collections and torch's embedding modules, with tables in a server.

    remote = embag.torch.RemoteEmbeddingBagCollection.from_module(ebc, '127.0.0.1:8600')
    model.sparse_arch.embedding_bag_collection = remote

The modules need torch alone. If the input is a KeyedJaggedTensor of TorchRec, so is the output a
KeyedTensor or JaggedTensor; otherwise the input is a `KeyedBags`, and the output a `KeyedVectors`
or `JaggedVectors`. They have no parameters and an empty state_dict, and give no gradients.

`describe` writes the model.yaml of a trained module, and `compare` compares a server's answers with
the module's tables. PYTORCH.md leads from a checkpoint to a served model.
"""

try:
    import torch  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != 'torch':
        raise
    raise ModuleNotFoundError('embag.torch needs PyTorch, which is not installed: run `pip install '
                              'torch`, or on Debian `apt-get install python3-torch`',
                              name='torch') from None

from embag.jagged import KeyedVectors
from embag.torch.bag import RemoteEmbeddingBag
from embag.torch.collection import (EmbeddingBagConfig, RemoteEmbeddingBagCollection,
                                    RemoteEmbeddingCollection)
from embag.torch.comparison import Comparison, compare
from embag.torch.description import describe
from embag.torch.tensors import JaggedVectors, KeyedBags

__all__ = ['Comparison', 'EmbeddingBagConfig', 'JaggedVectors', 'KeyedBags', 'KeyedVectors',
           'RemoteEmbeddingBag', 'RemoteEmbeddingBagCollection', 'RemoteEmbeddingCollection',
           'compare', 'describe']
