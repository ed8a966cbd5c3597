#!/usr/bin/env python3
"""Compares the CPU time of the Python package with that of grpcio and NumPy without it.

    client_cpu.py --build DIR [--turns N] [--milliseconds N] [--scale N]

Run it with a Python in which the package is installed. Both make the same requests from the same
arrays and return the same arrays. The program without the package checks nothing; it builds the
messages, makes the call, and views the bytes of the answer as arrays. The two take turns in one
process. Prints microseconds of CPU per lookup of this process, all its threads, as the median of
the turns, and the ratio.
"""

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import grpc
import google.protobuf
import numpy as np

import embag
from embag.v1 import embedding_bag_pb2 as pb

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(os.path.dirname(HERE), 'lib'))

import embagd_process  # noqa: E402
from sample_request import INDICES_BY_TABLE  # noqa: E402

NAMES = ['t%02d' % table for table in range(len(INDICES_BY_TABLE))]
GROUP_BAGS = 64
TIMEOUT_SECONDS = 10
BLOCK = 50


class Workload:
    """One request, in both ways: `with_package` and `without` each look up and return arrays."""

    def __init__(self, client, call):
        self.client = client
        self.call = call

    def ask(self, **fields):
        """Sends a message without the package; returns the arrays of the answer."""
        reply = self.call(pb.LookupRequest(model='dlrm-v2', **fields), timeout=TIMEOUT_SECONDS)
        return [np.frombuffer(result.values, '<f4').reshape(tuple(result.shape))
                for result in reply.results]


class ThreeBags(Workload):
    """One query of 3 bags with 4 indices."""

    indices = np.zeros(4, 'i8')
    offsets = np.array([0, 2, 2])

    def with_package(self):
        """Looks up by the name of the table."""
        return [self.client.lookup('t00', self.indices, offsets=self.offsets, reduction='sum',
                                   model='dlrm-v2').values]

    def without(self):
        """Builds the message of the query."""
        return self.ask(queries=[pb.BagQuery(
            table='t00', reduction=pb.REDUCTION_SUM, indices_i64=self.indices.tobytes(),
            offsets_i64=self.offsets.tobytes())])


class Sample(Workload):
    """A sample of dlrm-v2: 26 queries of one bag, 214 indices."""

    offsets = np.zeros(1, 'i8')
    bags = [(name, np.zeros(count, 'i8')) for name, count in zip(NAMES, INDICES_BY_TABLE)]

    def with_package(self):
        """Makes a query for each table."""
        answer = self.client.lookup(
            [embag.Query(name, indices, offsets=self.offsets, reduction='sum')
             for name, indices in self.bags], model='dlrm-v2')
        return [result.values for result in answer]

    def without(self):
        """Builds the messages of the queries."""
        return self.ask(queries=[pb.BagQuery(
            table=name, reduction=pb.REDUCTION_SUM, indices_i64=indices.tobytes(),
            offsets_i64=self.offsets.tobytes()) for name, indices in self.bags])


class Batch(Workload):
    """A batch of 64 samples as one group of 26 features, one index in each bag."""

    values = np.zeros(len(NAMES) * GROUP_BAGS, 'i8')
    lengths = np.ones((len(NAMES), GROUP_BAGS), 'i4')

    def with_package(self):
        """Makes a group."""
        group = embag.Group(NAMES, self.values, self.lengths, reduction='sum')
        return [self.client.lookup(group, model='dlrm-v2').values]

    def without(self):
        """Builds the message of the group."""
        return self.ask(groups=[pb.FeatureGroup(
            features=NAMES, bags=self.lengths.shape[1], values_i64=self.values.tobytes(),
            lengths_i32=self.lengths.tobytes(), reduction=pb.REDUCTION_SUM)])


def check(workload):
    """Raises AssertionError if the two do not return the same arrays."""
    ours, theirs = workload.with_package(), workload.without()
    if [a.shape for a in ours] != [a.shape for a in theirs] or not all(
            np.array_equal(a, b) for a, b in zip(ours, theirs)):
        raise AssertionError('%s: the arrays differ' % type(workload).__name__)


def cpu_us(function, seconds):
    """Returns the microseconds of CPU per call of a function, called for some seconds."""
    calls, began, end = 0, time.process_time(), time.monotonic() + seconds
    while time.monotonic() < end:
        for _ in range(BLOCK):
            function()
        calls += BLOCK
    return (time.process_time() - began) / calls * 1e6


def compare(workload, turns, seconds):
    """Prints a line of the table."""
    check(workload)
    pairs = [(cpu_us(workload.with_package, seconds), cpu_us(workload.without, seconds))
             for _ in range(turns)]
    ours, theirs = (statistics.median(side) for side in zip(*pairs))
    print('| %s | %.1f | %.1f | %.2f |' % (
        workload.__doc__.rstrip('.'), ours, theirs,
        statistics.median(one / other for one, other in pairs)))


def count(text):
    """Converts an argument to a number of at least 1."""
    number = int(text)
    if number < 1:
        raise ValueError('%d: expected at least 1' % number)
    return number


def main():
    """Starts a server with the tables of dlrm-v2, and measures."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--build', required=True, help='folder with embagd and embag')
    parser.add_argument('--turns', type=count, default=9, help='of each side')
    parser.add_argument('--milliseconds', type=count, default=500, help='that a turn takes')
    parser.add_argument('--scale', type=count, default=40000, help='divides the rows of the tables')
    options = parser.parse_args()
    embagd_process.EMBAGD = os.path.join(options.build, 'embagd')
    print('Python %s, grpcio %s, protobuf %s, NumPy %s' % (
        platform.python_version(), grpc.__version__, google.protobuf.__version__, np.__version__))
    print('| request | embag, us | grpcio, us | ratio |\n|---|---|---|---|')
    with tempfile.TemporaryDirectory() as repository:
        subprocess.run(
            [os.path.join(options.build, 'embag'), 'make-model', '--workload', 'dlrm-v2', '--scale',
             str(options.scale), repository], check=True, stdout=subprocess.DEVNULL)
        server = embagd_process.Embagd(repository).wait_ready()
        try:
            with embag.Client(server.address, timeout=TIMEOUT_SECONDS) as client, \
                    grpc.insecure_channel(server.address) as channel:
                call = channel.unary_unary(
                    '/embag.v1.EmbeddingBag/Lookup',
                    request_serializer=pb.LookupRequest.SerializeToString,
                    response_deserializer=pb.LookupResponse.FromString)
                for kind in ThreeBags, Sample, Batch:
                    compare(kind(client, call), options.turns, options.milliseconds / 1000)
        finally:
            server.stop()


if __name__ == '__main__':
    main()
