"""A LookupStream whose requests come to the server at once, in the order they are given in."""

from embag.v1 import embedding_bag_pb2 as pb
from h2raw import LOOKUP_STREAM, Connection, call_fields, message
from rpc import as_bytes


def ask_at_once(port, requests):
    """Sends all in one piece, then ends the stream; the trailers, and the answers in order."""
    with Connection(port, window=1 << 24) as peer:
        stream = peer.open(call_fields(LOOKUP_STREAM))
        peer.data(stream, b''.join(message(as_bytes(request)) for request in requests))
        fields, body = peer.finish(stream)
    answers, at = [], 0
    while at < len(body):
        size = int.from_bytes(body[at + 1:at + 5], 'big')
        answers.append(pb.LookupResponse.FromString(body[at + 5:at + 5 + size]))
        at += 5 + size
    return fields, answers
