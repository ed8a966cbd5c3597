"""One sample of dlrm-v2 as a request: 26 queries, one bag each, as embag's benchmarks send it.

    sample_request.py MESSAGES MODEL_VERSION_DIRECTORY FILE [ADDRESS...]

writes it to FILE, framed for gRPC, and compares the answers of the servers at ADDRESS to the byte,
but for the times that embag says it took.
MESSAGES is the directory of the messages that protoc generated. The rows of each table are told
from its file. The seed is fixed: every run sends the same bytes.
"""

import os
import random
import struct
import sys

import grpc
import numpy as np

INDICES_BY_TABLE = (3, 2, 1, 2, 6, 1, 1, 1, 1, 7, 3, 8, 1, 6, 9, 5, 1, 1, 1, 12, 100, 27, 10, 3,
                    1, 1)
SEED = 1


def make_request(messages, directory):
    """The request as a message."""
    rng = random.Random(SEED)
    request = messages.LookupRequest(model="dlrm-v2")
    for table, count in enumerate(INDICES_BY_TABLE):
        name = f"t{table:02d}"
        rows = np.load(os.path.join(directory, name + ".npy"), mmap_mode="r").shape[0]
        request.queries.add(
            table=name, reduction=messages.REDUCTION_SUM,
            indices_i64=struct.pack(f"<{count}q", *(rng.randrange(rows) for _ in range(count))),
            offsets_i64=struct.pack("<q", 0))
    return request.SerializeToString()


def ask(messages, address, request):
    """The bytes of the answer, without its times."""
    with grpc.insecure_channel(address) as channel:
        data = channel.unary_unary("/embag.v1.EmbeddingBag/Lookup")(request, timeout=10)
    answer = messages.LookupResponse.FromString(data)
    answer.ClearField("queue_us")
    answer.ClearField("compute_us")
    return answer.SerializeToString(deterministic=True)


def main():
    messages_directory, directory, path, *addresses = sys.argv[1:]
    sys.path.insert(0, messages_directory)
    from embag.v1 import embedding_bag_pb2 as messages
    request = make_request(messages, directory)
    with open(path, "wb") as file:
        file.write(struct.pack(">BI", 0, len(request)) + request)
    answers = [ask(messages, address, request) for address in addresses]
    print(f"request {len(request)} bytes", *(f"answer {len(a)} bytes" for a in answers[:1]),
          sep=", ")
    if any(answer != answers[0] for answer in answers):
        print("the servers' answers differ", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
