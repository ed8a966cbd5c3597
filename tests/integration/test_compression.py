"""Compressed requests: gzip is accepted, with the usual size limit for the decompressed request;
other encodings are refused. Answers are not compressed."""

import gzip
import os
import unittest

import grpc
import numpy as np

from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from h2raw import LOOKUP_STREAM, Connection, call_fields, message
from rpc import OPTIONS, Client, as_bytes
from served import OwnServerTest

OK = ('200', 0, '')
LIMIT = 100000


def request(request_id=0, indices=2, **fields):
    """Returns a request to the specification's model."""
    query = Query('emb_table', np.zeros(indices, np.int64), num_bags=1)
    return pb.LookupRequest(
        model='spec', request_id=request_id, queries=[to_message(query)], **fields)


def packed(data):
    """Returns a compressed message whose prefix says so."""
    return message(gzip.compress(data), 1)


class Compression(OwnServerTest):
    """Tests each of which has its own server."""

    def raw(self):
        """Returns a server, and a raw HTTP/2 connection to it."""
        self.server = self.serve('--request-bytes-max', str(LIMIT))
        peer = Connection(self.server.port)
        self.addCleanup(peer.close)
        return peer

    def status(self, peer, data, encoding='gzip'):
        """Returns the status of a Lookup of these bytes."""
        return peer.status(peer.call(data, call_fields(grpc_encoding=encoding)))

    def test_stock_clients_may_compress(self):
        server = self.serve()
        large = request(7, 20000)
        with Client(server.address, OPTIONS, grpc.Compression.Gzip) as client:
            plain = self.connect(server).lookup(large)
            self.assertEqual(client.lookup(large).results, plain.results)
            answers = list(client.stream([request(n + 1, 1 + 500 * n) for n in range(20)]))
            self.assertEqual(sorted(a.request_id for a in answers), list(range(1, 21)))
            self.assertEqual({a.error_code for a in answers}, {0})

    def test_compressed_and_other_messages_follow_each_other(self):
        peer = self.raw()
        stream = peer.open(call_fields(LOOKUP_STREAM, grpc_encoding='gzip'))
        data = [as_bytes(request(n + 1)) for n in range(40)]
        peer.data(stream, b''.join(
            packed(one) if n % 3 else message(one) for n, one in enumerate(data)))
        fields, body = peer.finish(stream)
        self.assertEqual(fields['grpc-status'], '0')
        seen = []
        while body:
            self.assertEqual(body[0], 0)  # answers are not compressed
            size = int.from_bytes(body[1:5], 'big')
            seen.append(pb.LookupResponse.FromString(body[5:5 + size]).request_id)
            body = body[5 + size:]
        self.assertEqual(sorted(seen), list(range(1, 41)))

    def test_says_which_encodings_it_takes(self):
        peer = self.raw()
        data = as_bytes(request())
        for payload, encoding in ((packed(data), 'gzip'), (packed(data), 'br')):
            fields, _ = peer.finish(peer.call(payload, call_fields(grpc_encoding=encoding)))
            self.assertEqual(fields['grpc-accept-encoding'], 'identity,gzip')
            self.assertEqual(fields['grpc-status'], {'gzip': '0', 'br': '12'}[encoding])
            self.assertNotIn('grpc-encoding', fields)

    def test_refuses_what_is_compressed_otherwise_or_not_at_all(self):
        peer = self.raw()
        data = as_bytes(request())
        self.assertEqual(self.status(peer, packed(data)), OK)
        self.assertEqual(self.status(peer, packed(data), 'deflate')[1], 12)
        self.assertEqual(self.status(peer, packed(data), 'GZIP')[1], 12)
        self.assertEqual(self.status(peer, packed(data), None)[1], 13)
        self.assertEqual(self.status(peer, packed(data), 'identity')[1], 13)
        self.assertEqual(self.status(peer, message(data, 1))[1], 13)
        self.assertEqual(self.status(peer, message(gzip.compress(data)[:-1], 1))[1], 13)
        self.assertEqual(self.status(peer, message(gzip.compress(data) + b'x', 1))[1], 13)
        self.assertEqual(self.status(peer, message(b'', 1))[1], 13)
        self.assertEqual(self.status(peer, message(data), 'br'), OK)
        self.assertEqual(self.status(peer, message(data)), OK)

    def of_size(self, size):
        """Returns a request of exactly this many bytes, filled with an unknown field."""
        data = as_bytes(request())
        room = size - len(data) - 5
        return (data + b'\xfa\x06' + bytes([room & 127 | 128, room >> 7 & 127 | 128, room >> 14])
                + bytes(room))

    def test_a_request_is_as_large_decompressed_as_it_may_be_and_no_larger(self):
        peer = self.raw()
        self.assertEqual(len(self.of_size(LIMIT)), LIMIT)
        self.assertEqual(self.status(peer, packed(self.of_size(LIMIT))), OK)
        _, code, text = self.status(peer, packed(self.of_size(LIMIT + 1)))
        self.assertEqual(code, 8)
        self.assertIn(str(LIMIT), text)
        self.assertEqual(self.status(peer, packed(self.of_size(LIMIT))), OK)

    def test_a_compressed_message_is_no_larger_than_a_request_either(self):
        peer = self.raw()
        noise = as_bytes(request()) + b'\xfa\x06\xa0\x8d\x06' + os.urandom(100000)
        data = packed(noise)
        self.assertGreater(len(data), LIMIT)
        self.assertEqual(self.status(peer, data)[1], 8)

    def test_bombs_cost_little(self):
        """1 GiB in 1 MiB, and gzip trailers that are wrong."""
        peer = self.raw()
        block = gzip.compress(bytes(1 << 26), 9)
        lie = block[:-4] + (1000).to_bytes(4, 'little')
        before = self.memory()
        for _ in range(20):
            self.assertEqual(self.status(peer, message(block, 1))[1], 8)
            self.assertEqual(self.status(peer, message(lie, 1))[1], 13)
            self.assertEqual(self.status(peer, message(block * 16, 1))[1], 8)
        self.assertEqual(self.status(peer, message(as_bytes(request()))), OK)
        self.assertLess(self.memory() - before, 64 << 20)

    def memory(self):
        """Returns the server's resident bytes."""
        with open('/proc/%d/statm' % self.server.pid, encoding='ascii') as file:
            return int(file.read().split()[1]) * os.sysconf('SC_PAGE_SIZE')


if __name__ == '__main__':
    unittest.main()
