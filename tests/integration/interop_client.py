#!/usr/bin/python3
"""Calls embagd with python3-grpcio as any client would; prints one line for each check, "ok NAME"
or "FAIL NAME: why". The generated messages and tests/lib must be on PYTHONPATH.

    interop_client.py --target ADDRESS [--ca FILE [--cert FILE --key FILE]]
"""

import argparse
import json
import struct
import sys

import grpc

import dynamic
from embag.v1 import embedding_bag_pb2 as pb

SERVICE = '/embag.v1.EmbeddingBag/'
STREAMED = 1000
LARGE_ROWS = 320  # of 16 KiB each, 5 MiB in all
WANT = [-2.1, -2.4, 0, 0, -0.2, 0.8]
SECONDS = 30
HEALTH = 'grpc.health.v1.Health'
SERVING, SERVICE_UNKNOWN = 1, 3


def request(request_id):
    """Returns a request of three bags; the second is empty."""
    return pb.LookupRequest(request_id=request_id, model='spec', queries=[
        pb.BagQuery(table='emb_table', indices=[0, 2, 3, 4], offsets=[0, 2, 2])])


def rows(count):
    """Returns a request that names the same row of 16 KiB this many times."""
    return pb.LookupRequest(model='spec', queries=[
        pb.BagQuery(table='large', indices_i64=bytes(8 * count), indices_per_bag=1)])


LARGE = rows(LARGE_ROWS)


def check_answer(answer):
    """Checks that `answer` is the answer to `request`."""
    assert answer.error_code == 0, answer.error_message
    values = struct.unpack('<6f', answer.results[0].values)
    assert all(abs(a - b) < 1e-5 for a, b in zip(values, WANT)), values


def lookup(channel, message, **options):
    """Makes one call."""
    return channel.unary_unary(SERVICE + 'Lookup', pb.LookupRequest.SerializeToString,
                               pb.LookupResponse.FromString)(message, timeout=SECONDS, **options)


def open_stream(channel, requests, timeout=SECONDS):
    """Opens a LookupStream; returns its answers."""
    return channel.stream_stream(SERVICE + 'LookupStream', pb.LookupRequest.SerializeToString,
                                 pb.LookupResponse.FromString)(iter(requests), timeout=timeout)


def fails(call, code, text=''):
    """Checks that the call fails with this code and text."""
    try:
        call()
    except grpc.RpcError as error:
        assert error.code() == code and text in error.details(), error
        return
    raise AssertionError('the call was answered')


def unary(connect):
    """Makes one lookup."""
    check_answer(lookup(connect(), request(7)))


def stream(connect):
    """Makes many lookups over one stream."""
    answers = list(open_stream(connect(), [request(n + 1) for n in range(STREAMED)]))
    for answer in answers:
        check_answer(answer)
    assert len({answer.request_id for answer in answers}) == STREAMED


def large(connect):
    """Requests an answer larger than clients accept by default."""
    fails(lambda: lookup(connect(), LARGE), grpc.StatusCode.RESOURCE_EXHAUSTED)
    answer = lookup(connect(('grpc.max_receive_message_length', 64 << 20)), LARGE)
    assert len(answer.results[0].values) == LARGE_ROWS * 4096 * 4


def endless():
    """Waits for SECONDS before it yields a request, so that none is sent in time."""
    import threading
    threading.Event().wait(SECONDS)
    yield request(1)


def deadline(connect):
    """A stream without requests ends at its deadline."""
    fails(lambda: list(open_stream(connect(), endless(), 0.2)), grpc.StatusCode.DEADLINE_EXCEEDED)


def cancel(connect):
    """A stream without requests is cancelled by its caller."""
    channel = connect()
    for _ in range(100):
        call = open_stream(channel, [request(1)])
        call.cancel()
        fails(lambda: list(call), grpc.StatusCode.CANCELLED)
    check_answer(lookup(channel, request(7)))


def error(connect):
    """An error names its cause."""
    bad = request(1)
    bad.queries[0].indices[2] = 5
    fails(lambda: lookup(connect(), bad), grpc.StatusCode.OUT_OF_RANGE, 'indices[2] = 5')


def gzip(connect):
    """A compressed request is answered."""
    answer = lookup(connect(), rows(100), compression=grpc.Compression.Gzip)
    assert len(answer.results[0].values) == 100 * 4096 * 4


def health(connect):
    """Checks the health of a model once, and watches the health of existing and unknown names."""
    pool = dynamic.load('grpc/health/v1/health.proto')
    check, watch = (dynamic.Method(pool, HEALTH, name) for name in ('Check', 'Watch'))
    channel = connect()
    assert check.unary(channel, service='spec').status == SERVING
    fails(lambda: check.unary(channel, service='absent'), grpc.StatusCode.NOT_FOUND)
    for name, status in (('', SERVING), ('spec', SERVING), ('absent', SERVICE_UNKNOWN)):
        feed = watch.feed(channel, service=name)
        assert next(feed).status == status, name
        feed.cancel()


def healthy(connect):
    """A channel checks the server's health by itself."""
    def connect_to(name):
        return connect(('grpc.service_config', json.dumps({
            'loadBalancingConfig': [{'round_robin': {}}],
            'healthCheckConfig': {'serviceName': name}})))
    check_answer(lookup(connect_to('spec'), request(7)))
    fails(lambda: lookup(connect_to('absent'), request(7)), grpc.StatusCode.UNAVAILABLE)


CHECKS = (unary, stream, large, deadline, cancel, error, gzip, health, healthy)


def read(path):
    """Returns a file's bytes, or None without a path."""
    if not path:
        return None
    with open(path, 'rb') as file:
        return file.read()


def main():
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--target', required=True)
    for name in ('--ca', '--cert', '--key'):
        parser.add_argument(name, default='')
    options = parser.parse_args()

    def connect(*more):
        arguments = (('grpc.use_local_subchannel_pool', 1), *more)
        if not options.ca:
            return grpc.insecure_channel(options.target, options=arguments)
        security = grpc.ssl_channel_credentials(
            read(options.ca), read(options.key), read(options.cert))
        named = (('grpc.ssl_target_name_override', 'localhost'),)
        return grpc.secure_channel(options.target, security, options=arguments + named)

    failed = 0
    for check in CHECKS:
        name = check.__name__
        try:
            check(connect)
            print('ok', name)
        except Exception as problem:  # pylint: disable=broad-except
            print('FAIL %s: %r' % (name, problem))
            failed = 1
    return failed


if __name__ == '__main__':
    sys.exit(main())
