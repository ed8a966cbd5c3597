"""A read that does not return: what the server reports, what goes on, and how the server ends."""

import fcntl
import os
import re

import numpy as np

from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd, wait_until
from held_disk import SECONDS, HeldDiskTest
from http_peer import Metrics
from served import SEED
from table_files import Table
from tmpfs_directory import make_tmpfs_directory

STUCK_ROWS = 1500     # of 64 f32: one chunk, and more than BYTES_MIN
OTHER_ROWS = 30000    # several chunks, and a resident file of its own
BYTES_MIN = '131072'  # so that reads of headers do not wait
LATE_S = '60'         # what a read has taken when it begins to wait
# A load that is given up has threads that have ended and are never joined.
GIVEN_UP = ':report_thread_leaks=0'


class StalledLoads(HeldDiskTest):
    """One file of version 2 cannot be read while a server loads that version with one thread."""

    def setUp(self):
        super().setUp()
        rng = np.random.default_rng([SEED, 63])
        self.tables = [
            Table.of_values('a_stuck', 'f32', rng.normal(size=(STUCK_ROWS, 64))),
            Table.of_values('b_other', 'f32', rng.normal(size=(OTHER_ROWS, 64)))]

    def start_late(self, *flags, bytes_min=BYTES_MIN, sanitizer=''):
        """Starts a server whose first read that waits seems to have waited for long."""
        return self.start(
            '--load-threads', '1', *flags, http='127.0.0.1:0', sanitizer=sanitizer,
            environment={'HELD_DISK_BYTES_MIN': bytes_min, 'HELD_DISK_LATE_S': LATE_S})

    def start_stalled(self, *flags, part='/2/a_stuck.npy', bytes_min=BYTES_MIN, sanitizer=''):
        """Starts a server, and waits until it has reported the read. Returns the server."""
        server = self.start_late(*flags, bytes_min=bytes_min, sanitizer=sanitizer).wait_ready()
        self.hold(part)
        self.publish(2, self.tables)
        self.wait_waiting()
        wait_until(lambda: server.find('load_stalled'), SECONDS, 'event=load_stalled')
        return server

    def check_stalled(self, server, *names):
        """Checks that the server has reported this file of the repository, and counts the load or
        comparison until the disk answers."""
        self.assertIn('path=' + self.repository.join('spec', *names), server.find('load_stalled'))
        wait_until(lambda: Metrics(server).get('embag_load_stalled') == 1, SECONDS,
                   'embag_load_stalled to be 1')
        self.release()
        wait_until(lambda: Metrics(server).get('embag_load_stalled') == 0, SECONDS,
                   'embag_load_stalled to be 0')

    def check_tables(self, server):
        """Compares all rows of both tables with what was written."""
        client = self.connect(server)
        for table in self.tables:
            query = Query(table.name, np.arange(table.rows), layout='packed', indices_per_bag=1)
            answer = client.lookup(pb.LookupRequest(model='spec', queries=[to_message(query)]))
            values = np.frombuffer(answer.results[0].values, '<f4')
            self.assertTrue((values == table.raw.reshape(-1)).all(), table.name)

    def check_version_1(self, server):
        """Checks that version 1 is still served."""
        answer = self.connect(server).lookup(pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='emb_table', indices=[0, 2], num_bags=1)]))
        self.assertEqual(len(answer.results), 1)

    def test_others_load_on_and_the_version_is_complete_when_the_read_returns(self):
        server = self.start_stalled()
        line = server.find('load_stalled')
        self.assertIn('path=' + self.repository.join('spec', '2', 'a_stuck.npy'), line)
        self.assertGreaterEqual(int(re.search(r' seconds=(\d+)', line).group(1)), 30)
        wait_until(lambda: Metrics(server).sum('embag_load_read_bytes_total') >= OTHER_ROWS * 256,
                   SECONDS, 'the other table to be read')
        wait_until(lambda: Metrics(server).get('embag_load_stalled') == 1, SECONDS,
                   'embag_load_stalled to be 1')
        self.check_version_1(server)
        self.assertNotIn('version=2 before=1', server.log)
        self.release()
        wait_until(lambda: 'version=2 before=1' in server.log, SECONDS, 'version 2 to be served')
        wait_until(lambda: Metrics(server).get('embag_load_stalled') == 0, SECONDS,
                   'embag_load_stalled to be 0')
        self.check_tables(server)
        server.stop()

    def test_a_header_that_cannot_be_read_is_reported(self):
        server = self.start_stalled(bytes_min='1')
        self.check_stalled(server, '2', 'a_stuck.npy')
        wait_until(lambda: 'version=2 before=1' in server.log, SECONDS, 'version 2 to be served')
        self.check_tables(server)
        server.stop()

    def test_keys_that_cannot_be_read_are_reported(self):
        self.tables[1].keys = np.arange(OTHER_ROWS, dtype='<i8')
        server = self.start_stalled(part='/2/b_other.keys.npy')
        self.check_stalled(server, '2', 'b_other.keys.npy')
        wait_until(lambda: 'version=2 before=1' in server.log, SECONDS, 'version 2 to be served')
        self.check_tables(server)
        server.stop()


class StalledResidentLoads(StalledLoads):
    """The same, with tables in resident files."""

    def setUp(self):
        super().setUp()
        self.directory = make_tmpfs_directory(self)
        self.resident = ('--resident-dir', self.directory, '--resident-small-pages', 'allow')

    def start_late(self, *flags, **keywords):
        """Starts such a server with resident files."""
        return super().start_late(*self.resident, *flags, **keywords)

    def names(self):
        """Returns the names in the directory, without the count of short starts."""
        return sorted(name for name in os.listdir(os.path.join(self.directory, 'embag'))
                      if not name.startswith('short-'))

    def unfinished(self):
        """Returns the names of files that are being filled."""
        return [name for name in self.names() if name.startswith('tmp-')]

    def is_lock_free(self):
        """Returns whether another process may own the directory."""
        with open(os.path.join(self.directory, 'embag', 'lock'), 'rb') as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    def start_next(self):
        """Starts a server whose disk answers. It must own the directory and load version 2."""
        server = Embagd(self.repository.path, *self.resident)
        self.addCleanup(server.stop)
        server.wait_ready()
        self.assertIn('role=owner', server.find('resident_opened'))
        self.check_tables(server)
        return server

    def test_the_next_server_owns_the_directory_while_this_one_drains(self):
        server = self.start_stalled('--drain-timeout-ms', '3600000', sanitizer=GIVEN_UP)
        self.assertTrue(self.unfinished())
        self.assertFalse(self.is_lock_free())
        self.drain(server)
        wait_until(self.is_lock_free, SECONDS, 'the lock to be free')
        self.assertFalse(self.unfinished())
        self.start_next()
        names = self.names()
        self.assertFalse(server.has_ended())
        server.terminate()
        self.ends_well(server)
        self.assertIn('path=' + self.repository.join('spec', '2'), server.find('given_up'))
        self.assertEqual(self.names(), names)

    def test_a_comparison_that_cannot_read_is_reported(self):
        self.publish(2, self.tables)
        self.start(*self.resident).wait_ready().stop()
        self.hold('/2/b_other.npy')
        server = self.start_late().wait_ready()
        wait_until(lambda: server.find('load_stalled'), SECONDS, 'event=load_stalled')
        self.check_stalled(server, '2', 'b_other.npy')
        self.check_tables(server)
        server.stop()

    def test_a_stalled_load_is_given_up_when_the_drain_is_over(self):
        server = self.start_stalled('--drain-timeout-ms', '300', sanitizer=GIVEN_UP)
        self.drain(server)
        self.ends_well(server)
        self.assertIn('path=' + self.repository.join('spec', '2'), server.find('given_up'))
        self.assertFalse(self.unfinished())
        self.start_next()
