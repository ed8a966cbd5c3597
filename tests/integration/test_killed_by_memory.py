"""A version for which memory runs out while it loads does not kill the server at every start."""

import os
import re
import shutil
import signal
import subprocess
import tempfile

import served
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from held_disk import HeldDiskTest
from memory_group import MemoryGroup
from table_files import write_sparse_npy
from tmpfs_directory import make_tmpfs_directory

SECONDS = 60
MIB = 1 << 20
TABLE_BYTES = 128 * MIB
ROOM = 224 * MIB    # enough for the table, as long as nobody else takes it
BYTES_MIN = '131072'    # so that reads of headers do not wait


class KilledByMemory(HeldDiskTest):
    """A server in a control group, which loads a version 2 that takes a lot of memory."""

    def setUp(self):
        super().setUp()
        self.group = MemoryGroup()
        self.addCleanup(self.group.remove)
        self.state = tempfile.mkdtemp(prefix='embag-state-')
        self.addCleanup(shutil.rmtree, self.state)
        self.socket = 'unix:' + os.path.join(self.state, 'admin.sock')

    def serve_in_group(self, *flags):
        """Starts a server in the group, and checks that it serves version 1."""
        server = self.start('--state-dir', self.state, '--admin-listen', self.socket, *flags,
                            environment={'HELD_DISK_BYTES_MIN': BYTES_MIN},
                            under=self.group.command()).wait_ready()
        self.assertIn('version=1', server.find('model_serving'))
        self.lookup(server, 'emb_table')
        return server

    def lookup(self, server, table):
        """Looks up a row of a table of the served version. Returns the answer's values."""
        answer = self.connect(server).lookup(pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table=table, indices=[4], num_bags=1)]))
        return answer.results[0].values

    def publish_large(self):
        """Publishes version 2."""
        write_sparse_npy(self.repository.join('.new'), TABLE_BYTES)
        os.rename(self.repository.join('.new'), self.repository.join('spec', '2'))

    def expect_killed(self, server, limit):
        """Takes the memory that the load has found to be available, while it waits for the disk.
        Then lets it continue."""
        kills = self.group.kills()
        self.wait_waiting()
        greedy = self.group.take_all(limit)
        try:
            self.assertFalse(server.has_ended(), server.log[-4000:])
            self.release()
            self.assertEqual(server.wait(SECONDS), -signal.SIGKILL, server.log[-4000:])
        finally:
            greedy.kill()
            greedy.wait()
        # The other process can follow while the memory of the server is being freed.
        self.assertGreater(self.group.kills(), kills)

    def refused(self, server):
        """Returns a match with the bytes that version 2 lacks, or None if it was not refused."""
        line = server.find('model_failed')
        return line and re.search(r'its tables need (\d+) bytes more memory', line)

    def models(self, *command):
        """Runs `embag models`, which must succeed. Returns its output."""
        return subprocess.run([served.EMBAG, 'models', *command, '--server', self.socket],
                              check=True, timeout=SECONDS, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True).stdout

    def test_the_third_start_serves_the_version_before(self):
        server = self.serve_in_group()
        limit = self.group.used() + ROOM
        self.group.limit(limit)
        self.hold('/2/')
        self.publish_large()
        self.expect_killed(server, limit)

        self.hold('/2/')
        server = self.serve_in_group()
        self.assertIn('version=2 deaths=1', server.find('load_killed'))
        self.expect_killed(server, limit)

        server = self.serve_in_group()
        self.assertIn('the process died twice while loading it', server.find('model_failed'))
        self.assertIn('the process died twice while loading it', self.models('status'))
        self.group.limit(None)
        self.models('load', 'spec', '2')
        wait_until(lambda: 'version=2 before=1' in server.log, SECONDS, 'version 2 to be served')
        self.assertEqual(self.lookup(server, 'table'), bytes(256))
        server.stop()

    def test_a_load_beyond_the_limit_is_refused(self):
        resident = make_tmpfs_directory(self)
        server = self.serve_in_group('--resident-dir', resident, '--resident-small-pages', 'allow')
        self.group.limit(self.group.used() + TABLE_BYTES // 2)
        self.publish_large()
        told = wait_until(lambda: self.refused(server), SECONDS, 'version 2 to be refused')
        self.assertGreater(int(told.group(1)), 0)
        self.assertLess(int(told.group(1)), TABLE_BYTES)
        self.lookup(server, 'emb_table')
        self.assertEqual(self.group.kills(), 0)
        self.group.limit(None)
        self.models('load', 'spec', '2')
        wait_until(lambda: 'version=2 before=1' in server.log, SECONDS, 'version 2 to be served')
        self.assertEqual(self.lookup(server, 'table'), bytes(256))
        server.stop()
