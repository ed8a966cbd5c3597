"""A LookupStream whose requests reach the server all at once, in the given order."""

from embag.v1 import embedding_bag_pb2 as pb
from h2raw import LOOKUP_STREAM, Connection, call_fields, message
from rpc import as_bytes


def ask_at_once(port, requests):
    """Sends all requests in one piece, and ends the stream.

    Returns header fields and trailers in one dict, and the answers in the order of arrival.
    """
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
