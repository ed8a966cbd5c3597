"""Writes a request with one sample of dlrm-v2: 26 queries of one bag, as in embag's benchmarks.

    sample_request.py MESSAGES MODEL_VERSION_DIRECTORY FILE [ADDRESS...]

It writes the request to FILE, framed for gRPC. It sends the request to the servers at ADDRESS and
checks that their answers are equal to the byte, apart from embag's times.
MESSAGES is the directory of the messages that protoc generated. The number of rows of each table is
read from its file. The seed is fixed, so that every run sends the same bytes.
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
    """Returns the bytes of the request."""
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
    """Returns the bytes of a server's answer, with its times left out."""
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
