"""Writes a checkpoint of sharded tensors from several processes, which communicate over loopback.

    dcp_ranks.py DIRECTORY RANKS

DIRECTORY/checkpoint is the checkpoint, and DIRECTORY/NAME.npy the bytes of each tensor, as uint8
[rows, bytes of a row]. Run by test_torch_dcp.py.
"""

import os
import sys
import warnings

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing
from torch.distributed import checkpoint
from torch.distributed._shard import sharded_tensor
from torch.distributed._shard.metadata import ShardMetadata

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
except ImportError:
    from torch.distributed._tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh

TYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.uint8)


def full(name, rows, columns, dtype=torch.float32):
    """Returns the same random array in every process."""
    generator = torch.Generator().manual_seed(sum(name.encode()))
    size = rows * columns * torch.empty((), dtype=dtype).element_size()
    values = torch.randint(0, 256, (size,), dtype=torch.uint8, generator=generator)
    return values.view(dtype).reshape(rows, columns)


def sharded(array, boxes):
    """Returns a ShardedTensor; `boxes` has a rank, offsets and sizes for each shard."""
    own = []
    for rank, offsets, sizes in boxes:
        if rank == dist.get_rank():
            part = array[offsets[0]:offsets[0] + sizes[0], offsets[1]:offsets[1] + sizes[1]]
            metadata = ShardMetadata(list(offsets), list(sizes), f'rank:{rank}/cpu')
            own.append(sharded_tensor.Shard(part.contiguous(), metadata))
    return sharded_tensor.init_from_local_shards(own, *array.shape)


def sharded_tensors(ranks):
    """Returns pairs of an array and a ShardedTensor by name: by rows, by columns, by table, by a
    grid, and with several shards in each process."""
    made = {}
    rows, columns = 4 * ranks + 3, 8 * ranks
    for dtype in TYPES:
        name = 'rows_' + str(dtype).removeprefix('torch.')
        array = full(name, rows, columns, dtype)
        boxes = [(r, (4 * r, 0), (4 if r < ranks - 1 else 7, columns)) for r in range(ranks)]
        made[name] = array, sharded(array, boxes)
    array = full('columns', rows, columns)
    made['columns'] = array, sharded(array, [(r, (0, 8 * r), (rows, 8)) for r in range(ranks)])
    array = full('table', rows, columns)
    made['table'] = array, sharded(array, [(ranks - 1, (0, 0), (rows, columns))])
    array = full('grid', rows, columns)
    made['grid'] = array, sharded(array, [
        ((i + j) % ranks, (begin, 4 * j), (end - begin, 4))
        for i, (begin, end) in enumerate(((0, 1), (1, 6), (6, rows))) for j in range(2 * ranks)])
    return made


def dtensors(ranks):
    """Returns pairs of an array and a DTensor by name, in meshes of one and two dims."""
    line = init_device_mesh('cpu', (ranks,))
    placements = {'d_rows': (line, [Shard(0)]), 'd_columns': (line, [Shard(1)]),
                  'd_replicated': (line, [Replicate()])}
    if ranks == 4:
        square = init_device_mesh('cpu', (2, 2))
        placements.update({
            'd_grid': (square, [Shard(0), Shard(1)]),
            'd_grid_turned': (square, [Shard(1), Shard(0)]),
            'd_hybrid': (square, [Replicate(), Shard(0)]),
            'd_rows_twice': (square, [Shard(0), Shard(0)])})
    made = {}
    for name, (mesh, placement) in placements.items():
        array = full(name, 13, 7)
        made[name] = array, distribute_tensor(array.clone(), mesh, placement)
        assert isinstance(made[name][1], DTensor)
    return made


def save(rank, ranks, directory):
    """Saves the checkpoint; rank 0 also saves the arrays."""
    warnings.simplefilter('ignore')
    torch.set_num_threads(1)
    dist.init_process_group('gloo', init_method=f'file://{directory}/store', rank=rank,
                            world_size=ranks)
    made = {**sharded_tensors(ranks), **dtensors(ranks)}
    state = {name: tensor for name, (_, tensor) in made.items()}
    checkpoint.save({'model': state, 'optim': {'state': {'t.momentum1': torch.ones(3, 4)}},
                     'step': 3}, checkpoint_id=os.path.join(directory, 'checkpoint'))
    if rank == 0:
        for name, (array, _) in made.items():
            np.save(os.path.join(directory, name), array.view(torch.uint8).numpy())
    dist.destroy_process_group()


def main():
    """Runs the processes."""
    directory, ranks = sys.argv[1], int(sys.argv[2])
    torch.multiprocessing.spawn(save, args=(ranks, directory), nprocs=ranks)


if __name__ == '__main__':
    main()
