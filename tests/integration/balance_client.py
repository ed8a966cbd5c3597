#!/usr/bin/python3
"""Makes lookups with grpcio over a channel with a service configuration, as balance.py asks.

    balance_client.py CONFIG HOST:PORT[,HOST:PORT...]

The first line of output is the status of the first lookup. If that is OK, lookups follow without
end. Each line of input is answered with their results since the line before: how many each version
answered, and how many failed. The generated messages must be on PYTHONPATH.
"""

import sys
import threading
import time

import grpc

from embag.v1 import embedding_bag_pb2 as pb

WORKERS = 4
PAUSE_S = 0.02
REQUEST = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 2], num_bags=1)])


class Load:
    """Counts the results of lookups."""

    def __init__(self, channel):
        self.lookup = channel.unary_unary(
            '/embag.v1.EmbeddingBag/Lookup', pb.LookupRequest.SerializeToString,
            pb.LookupResponse.FromString)
        self.lock = threading.Lock()
        self.counts = {}
        self.failed = 0
        self.why = ''

    def work(self):
        """Makes lookups without end."""
        while True:
            try:
                version = self.lookup(REQUEST).version
                with self.lock:
                    self.counts[version] = self.counts.get(version, 0) + 1
            except grpc.RpcError as error:
                with self.lock:
                    self.failed += 1
                    self.why = '%s: %s' % (error.code().name, error.details())
            time.sleep(PAUSE_S)

    def take(self):
        """Returns the results since the last call, as a line."""
        with self.lock:
            counts, self.counts, failed, self.failed = self.counts, {}, self.failed, 0
            return ' '.join(['%d:%d' % item for item in counts.items()]
                            + ['failed:%d' % failed, self.why])


def main():
    """Runs until the end of the input."""
    path, addresses = sys.argv[1:]
    with open(path, encoding='utf-8') as file:
        options = [('grpc.service_config', file.read())]
    load = Load(grpc.insecure_channel('ipv4:' + addresses, options))
    try:
        load.lookup(REQUEST)
    except grpc.RpcError as error:
        print(error.code().name, flush=True)
        return
    print('OK', flush=True)
    for _ in range(WORKERS):
        threading.Thread(target=load.work, daemon=True).start()
    for _ in sys.stdin:
        print(load.take(), flush=True)


if __name__ == '__main__':
    main()
