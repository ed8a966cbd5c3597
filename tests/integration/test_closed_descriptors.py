"""Programs started with some of the descriptors 0, 1 and 2 closed, as a shell does for `2>&-`."""

import itertools
import socket
import subprocess
import unittest

import embagd_process
import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from rpc import Client
from served import OwnServerTest, spec_table
from table_files import write_model

GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4], num_bags=1)])
CLOSERS = {0: '0<&-', 1: '1>&-', 2: '2>&-'}
EVERY_CHOICE = [closed for count in (1, 2, 3) for closed in itertools.combinations(CLOSERS, count)]


def without(closed):
    """Returns the command prefix that closes these descriptors before it executes a command."""
    return ('sh', '-c', 'exec "$@" ' + ' '.join(CLOSERS[number] for number in closed), 'sh')


def is_listening(path):
    """Returns whether a unix socket accepts connections. The path exists slightly earlier."""
    with socket.socket(socket.AF_UNIX) as peer:
        return peer.connect_ex(path) == 0


class ClosedDescriptors(OwnServerTest):
    """Tests each of which has its own server. A test finds the server by its socket, because the
    server may be unable to log."""

    def setUp(self):
        super().setUp()
        write_model(self.repository.path, 'spec', 1, [spec_table()])

    def serve_without(self, closed):
        """Starts a server; returns it and its address. No other server of the test uses this
        address, because a client library may cache what it knows of an address beyond the client
        that used it."""
        path = self.repository.join('socket' + ''.join(map(str, closed)))
        server = embagd_process.Embagd(self.repository.path, listen=('unix:' + path,),
                                       under=without(closed))
        self.addCleanup(server.stop)
        wait_until(lambda: is_listening(path) or server.has_ended(), 60, 'a socket')
        self.assertFalse(server.has_ended(), closed)
        return server, 'unix:' + path

    def test_the_server_serves_and_ends_well(self):
        for closed in EVERY_CHOICE:
            with self.subTest(closed=closed):
                server, address = self.serve_without(closed)
                client = Client(address)
                try:
                    self.assertEqual(client.lookup(GOOD).version, 1)
                finally:
                    client.close()
                server.stop()

    def run_without(self, closed, *command):
        """Runs a program; returns the completed process."""
        return subprocess.run([*without(closed), *command], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)

    def test_the_tool_answers_where_its_output_is_open(self):
        _, address = self.serve_without(())
        for closed in ((0,), (2,), (0, 2)):
            ran = self.run_without(closed, served.EMBAG, 'models', '--server', address)
            self.assertEqual(ran.returncode, 0, ran.stderr)
            self.assertIn('spec', ran.stdout)

    def test_output_that_cannot_arrive_is_a_failure(self):
        _, address = self.serve_without(())
        for closed in ((1,), (0, 1), (1, 2), (0, 1, 2)):
            for command in ([served.EMBAG, 'models', '--server', address],
                            [embagd_process.EMBAGD, '--print-config', '--model-repository', '/']):
                ran = self.run_without(closed, *command)
                self.assertIn(ran.returncode, (1, 2), (closed, command[0], ran.stderr))


if __name__ == '__main__':
    unittest.main()
