"""A server with resident tables is killed at every system call that changes their directory."""

import os
import random
import shutil
import signal

import numpy as np

import served
from bag_query import Query, to_message
from embagd_process import Embagd, wait_until
from embag.v1 import embedding_bag_pb2 as pb
from served import SEED, OwnServerTest
from table_files import Table, write_model
from tmpfs_directory import make_tmpfs_directory

ROWS = 9000  # of 64 f32: more than 2 MiB, so that the table has a file of its own
SECONDS = 60
SAMPLE = 8   # stops that are tried with --quick
# How often a start calls each function at most, when it takes over another version's directory.
CALLS = {'mkdirat': 1, 'flock': 1, 'openat': 6, 'ftruncate': 4, 'fallocate': 4, 'fchmod': 4,
         'renameat': 4, 'unlinkat': 4}


class KilledCalls(OwnServerTest):
    """Each start finds the files of the version before, and what the killed start has left."""

    def setUp(self):
        super().setUp()
        self.directory = make_tmpfs_directory(self)

    def start(self, stop=None):
        """Starts a server, which is killed at `stop`, (name, number, when), if it gets there."""
        environment = {'LD_PRELOAD': os.path.join(served.BUILD, 'embag-killed-call.so'),
                       'KILLED_CALL': '%s:%d:%s' % stop,
                       'ASAN_OPTIONS': 'verify_asan_link_order=0'} if stop else {}
        server = Embagd(self.repository.path, '--resident-dir', self.directory,
                        '--resident-small-pages', 'allow', '--watch', 'off',
                        environment=environment)
        self.addCleanup(lambda: server.has_ended() or server.kill())
        return server

    def write_values(self, value):
        """Replaces the only version by one whose values are all `value`."""
        shutil.rmtree(self.repository.join('m'), ignore_errors=True)
        write_model(self.repository.path, 'm', 1, [
            Table.of_values('large', 'f32', np.full((ROWS, 64), value)),
            Table.of_values('small', 'f32', np.full((50, 8), value))])

    def check(self, server, value, what):
        """Compares all rows of both tables with the value."""
        client = self.connect(server)
        for name, rows in ('large', ROWS), ('small', 50):
            query = Query(name, np.arange(rows), layout='packed', indices_per_bag=1)
            answer = client.lookup(pb.LookupRequest(model='m', queries=[to_message(query)]))
            values = np.frombuffer(answer.results[0].values, '<f4')
            self.assertTrue((values == value).all(), what)

    def test_the_next_start_serves_and_nothing_is_left(self):
        stops = [(name, number + 1, when) for name, most in CALLS.items()
                 for number in range(most) for when in ('before', 'after')]
        if served.QUICK:
            stops = random.Random(SEED).sample(stops, SAMPLE)
        reached = set()
        for value, stop in enumerate(stops, 1):
            # A directory is made only once. All other calls happen in that of another version.
            if stop[0] == 'mkdirat':
                shutil.rmtree(os.path.join(self.directory, 'embag'), ignore_errors=True)
            self.write_values(value)
            killed = self.start(stop)
            wait_until(lambda server=killed: server.has_ended() or server.find('ready'), SECONDS,
                       'the start that is killed at %s' % (stop,))
            if not killed.has_ended():
                killed.terminate()    # Some calls come at an orderly end.
            status = killed.wait(SECONDS)
            self.assertIn(status, (0, -signal.SIGKILL), killed.log[-4000:])
            if status != 0:
                reached.add(stop)
            server = self.start().wait_ready()
            self.check(server, value, stop)
            server.stop()
            names = os.listdir(os.path.join(self.directory, 'embag'))
            self.assertFalse([name for name in names if name.startswith('tmp-')], stop)
            self.assertEqual(len([name for name in names if name.endswith(('.t', '.s'))]), 2, names)
        if not served.QUICK:    # The first call of each function is one that every start makes.
            self.assertLessEqual(
                {(name, 1, when) for name in CALLS for when in ('before', 'after')}, reached)
