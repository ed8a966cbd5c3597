"""Writes the weights of TorchRec's quantised collections, and their answers for each row alone.

    torchrec_rows.py DIRECTORY

Run by a Python that has torch, torchrec and fbgemm_gpu; see test_torchrec_rows.py. Each table has
these files in DIRECTORY: NAME.npy, its weights as they are, NAME.own.npy, the vector of each row,
and NAME.codes.npy, NAME.scales.npy and NAME.biases.npy, the same weights in three tensors.
"""

import os
import sys

import numpy as np
import torch
import torchrec
from torchrec.modules.embedding_configs import QuantConfig
from torchrec.quant.embedding_modules import quant_prep_enable_quant_state_dict_split_scale_bias

ROWS = 64
TABLES = (('int8', torch.quint8, (4, 16, 28, 60, 100)),
          ('int4', torch.quint4x2, (4, 16, 28, 60, 100)),
          ('int2', torch.quint2x4, (8, 16, 48, 104)))    # FBGEMM does not quantise other dims


def float_collection(dim):
    """Returns a collection of one table, including rows whose values are all or nearly equal."""
    collection = torchrec.EmbeddingBagCollection(tables=[torchrec.EmbeddingBagConfig(
        name='t', embedding_dim=dim, num_embeddings=ROWS, feature_names=['f'])])
    weight = collection.embedding_bags['t'].weight
    with torch.no_grad():
        weight.normal_()
        weight[0] = 0
        weight[1] = 0.3
        weight[2] = -2.5
        weight[3] *= 1e-4
    return collection


def write(directory, name, dtype, dim):
    """Writes one table, quantised by TorchRec."""
    collection = float_collection(dim)
    collection.qconfig = QuantConfig(
        activation=torch.quantization.PlaceholderObserver.with_args(dtype=torch.float32),
        weight=torch.quantization.PlaceholderObserver.with_args(dtype=dtype))
    quantised = torchrec.quant.EmbeddingBagCollection.from_float(collection)
    quant_prep_enable_quant_state_dict_split_scale_bias(collection)
    parts = torchrec.quant.EmbeddingBagCollection.from_float(collection).state_dict()
    for kind, key in (('codes', 'weight'), ('scales', 'weight_qscale'), ('biases', 'weight_qbias')):
        part = parts['embedding_bags.t.' + key]
        np.save(os.path.join(directory, f'{name}_{dim}.{kind}.npy'),
                getattr(part, 'elem', part).numpy())
    weight, = [value for key, value in quantised.state_dict().items() if key.endswith('weight')]
    jagged = torchrec.KeyedJaggedTensor.from_lengths_sync(
        keys=['f'], values=torch.arange(ROWS), lengths=torch.ones(ROWS, dtype=torch.int64))
    own = quantised(jagged)['f']
    raw = getattr(weight, 'elem', weight)    # codes below a byte are in a wrapper type
    np.save(os.path.join(directory, f'{name}_{dim}.npy'), raw.numpy())
    np.save(os.path.join(directory, f'{name}_{dim}.own.npy'), own.detach().numpy().astype('<f4'))


def main(directory):
    """Writes a table of every type and dim."""
    torch.manual_seed(7)
    for name, dtype, dims in TABLES:
        for dim in dims:
            write(directory, name, dtype, dim)


main(sys.argv[1])
