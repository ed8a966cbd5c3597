"""Client for embag, an embedding server: NumPy arrays in, NumPy arrays out.

    with embag.Client('127.0.0.1:8600') as client:
        vectors = client.lookup('emb_table', [0, 2, 3, 4], offsets=[0, 2, 2]).values

`embag.Client` blocks and `embag.aio.Client` is for asyncio. Both have a stream, which keeps many
lookups in flight on one gRPC call. `RemoteEmbeddingBagCollection` and `embedding_lookup_sparse`
replace TorchRec's EmbeddingBagCollection and TensorFlow's function of the same name.
"""

from embag import needed  # noqa: F401
from embag.answer import Answer
from embag.client import Client
from embag.dtypes import BFLOAT16
from embag.errors import (Cancelled, DeadlineExceeded, EmbagError, FailedPrecondition, Internal,
                          InvalidArgument, NotFound, OutOfRange, PermissionDenied,
                          ResourceExhausted, Unauthenticated, Unavailable, Unimplemented)
from embag.jagged import KeyedVectors, RemoteEmbeddingBagCollection
from embag.request import Group, Query
from embag.result import Result
from embag.sparse import embedding_lookup_sparse
from embag.stream import LookupStream

__all__ = [
    'Answer', 'BFLOAT16', 'Cancelled', 'Client', 'DeadlineExceeded', 'EmbagError',
    'FailedPrecondition', 'Group', 'Internal', 'InvalidArgument', 'KeyedVectors', 'LookupStream',
    'NotFound', 'OutOfRange', 'PermissionDenied', 'Query', 'RemoteEmbeddingBagCollection',
    'ResourceExhausted', 'Result', 'Unauthenticated', 'Unavailable', 'Unimplemented',
    'embedding_lookup_sparse',
]
