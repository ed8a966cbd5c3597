"""Saves a sharded TorchRec model from several processes, which communicate over loopback.

    torchrec_ranks.py DIRECTORY RANKS

DIRECTORY/checkpoint is the checkpoint; DIRECTORY/NAME.npy has the values of each tensor, and
DIRECTORY/RANK.json what this process finds in the live module. Run by test_torchrec_sharded.py.
"""

import json
import logging
import os
import sys
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn
from torch.distributed import checkpoint

SHARDINGS = ('row', 'table', 'column', 'grid', 'copied')
ROWS, DIM = 37, 256    # grids have columns of 128 values


def make_module():
    """Returns a model that is not sharded."""
    import torchrec
    from torchrec.modules.embedding_configs import (EmbeddingBagConfig, EmbeddingConfig,
                                                    PoolingType)

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.ebc = torchrec.EmbeddingBagCollection(tables=[EmbeddingBagConfig(
                name=name, embedding_dim=DIM, num_embeddings=ROWS + n, feature_names=['f_' + name],
                pooling=PoolingType.MEAN if n % 2 else PoolingType.SUM)
                for n, name in enumerate(SHARDINGS)])
            self.ec = torchrec.EmbeddingCollection(tables=[EmbeddingConfig(
                name='s_' + name, embedding_dim=DIM, num_embeddings=ROWS - n,
                feature_names=['g_' + name]) for n, name in enumerate(SHARDINGS[:3])])
            self.dense = nn.Linear(4, 4)

    return Model()


def make_plan(model, ranks):
    """Returns how to shard each table."""
    from fbgemm_gpu.split_embedding_configs import EmbOptimType
    from torchrec.distributed import sharding_plan as plans
    from torchrec.distributed.embedding import EmbeddingCollectionSharder
    from torchrec.distributed.embeddingbag import EmbeddingBagCollectionSharder
    from torchrec.distributed.types import ShardingPlan

    every = {'row': plans.row_wise(compute_kernel='fused'),
             'table': plans.table_wise(rank=ranks - 1, compute_kernel='fused'),
             'column': plans.column_wise(ranks=list(range(ranks)), compute_kernel='fused'),
             'copied': plans.data_parallel()}
    every['grid'] = plans.grid_shard(host_indexes=[0, 1]) if ranks == 4 else every['row']
    common = {'local_size': min(ranks, 2), 'world_size': ranks, 'device_type': 'cpu'}
    fused = {'optimizer': EmbOptimType.EXACT_ROWWISE_ADAGRAD}    # it has state to leave out
    sharders = [EmbeddingBagCollectionSharder(fused), EmbeddingCollectionSharder(fused)]
    return ShardingPlan({
        'ebc': plans.construct_module_sharding_plan(model.ebc, every, sharder=sharders[0],
                                                    **common),
        'ec': plans.construct_module_sharding_plan(
            model.ec, {'s_' + name: every[name] for name in SHARDINGS[:3]}, sharder=sharders[1],
            **common)}), sharders


def shard(model, ranks):
    """Returns the sharded model."""
    from torchrec.distributed.model_parallel import DistributedModelParallel
    from torchrec.distributed.types import ShardingEnv
    plan, sharders = make_plan(model, ranks)
    return DistributedModelParallel(
        model, env=ShardingEnv.from_process_group(dist.group.WORLD), device=torch.device('cpu'),
        plan=plan, sharders=sharders)


def gather(tensor):
    """Returns the values of a tensor in process 0."""
    if not hasattr(tensor, 'local_shards'):
        return tensor.detach()
    out = torch.empty(tensor.size()) if dist.get_rank() == 0 else None
    tensor.gather(dst=0, out=out)
    return out


def describe(model):
    """Returns what the importer finds in the live module, and the values that it can read."""
    from embag.importer.module_config import module_config
    from embag.importer.source import CheckpointError
    tables, features, groups = module_config(model)
    readable = {}
    for table in tables:
        try:
            readable[table.tensor.name] = table.tensor.read(0, table.tensor.shape[0])
        except CheckpointError as error:
            readable[table.tensor.name] = str(error)
    return readable, {
        'tables': [[table.name, table.tensor.name, table.tensor.shape] for table in tables],
        'features': [[f.name, f.table, f.reduction] for f in features],
        'groups': {name: sorted(members) for name, members in groups.items()}}


def save(rank, ranks, directory):
    """Saves the checkpoint; rank 0 also saves the values."""
    warnings.simplefilter('ignore')
    logging.disable(logging.WARNING)
    os.environ.update(LOCAL_RANK=str(rank % 2), LOCAL_WORLD_SIZE=str(min(ranks, 2)),
                      RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{directory}/store', rank=rank,
                            world_size=ranks)
    torch.manual_seed(7)
    model = shard(make_module(), ranks)
    state = model.state_dict()
    checkpoint.save({'model': state, 'optim': model.fused_optimizer.state_dict()},
                    checkpoint_id=os.path.join(directory, 'checkpoint'))
    readable, found = describe(model)
    found['unreadable'] = {name: text for name, text in readable.items() if isinstance(text, str)}
    with open(os.path.join(directory, f'{rank}.json'), 'w', encoding='utf-8') as file:
        json.dump(found, file)
    for name, tensor in state.items():
        values = gather(tensor)
        if rank == 0:
            np.save(os.path.join(directory, name), values.numpy())
            read = readable.get(name)
            assert read is None or isinstance(read, str) or np.array_equal(
                read, values.view(torch.uint8).numpy()), name
    dist.destroy_process_group()


def main():
    """Runs the processes."""
    directory, ranks = sys.argv[1], int(sys.argv[2])
    torch.multiprocessing.spawn(save, args=(ranks, directory), nprocs=ranks)


if __name__ == '__main__':
    main()
