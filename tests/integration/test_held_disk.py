"""embagd exits when it is told to, even if a disk does not answer."""

import os
import signal
import subprocess
import unittest

from h2raw import Connection, message
from held_disk import HeldDiskTest
from served import spec_table
from table_files import write_model
from tmpfs_directory import make_tmpfs_directory

OK = ('200', 0, '')
FIRST_PROCESS = ('unshare', '--user', '--map-root-user', '--pid', '--fork', '--kill-child')


class HeldDisk(HeldDiskTest):
    """A disk that does not answer keeps no server from ending."""

    # ---- before it serves

    def test_a_first_load_ends(self):
        for number, name in (signal.SIGTERM, 'SIGTERM'), (signal.SIGINT, 'SIGINT'):
            self.hold()
            server = self.start('--drain-delay-ms', '3600000')
            self.wait_waiting()
            server.process.send_signal(number)
            self.ends_well(server)
            self.assertIn('signal=' + name, server.find('stopped'))
            self.release()

    def test_the_first_process_of_a_container_gets_its_signals(self):
        if subprocess.run([*FIRST_PROCESS, 'true'], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest('namespaces are not available')
        self.hold()
        # The leak check fails if /proc shows the processes of another namespace.
        outer = self.start(under=FIRST_PROCESS, sanitizer=':detect_leaks=0')
        self.wait_waiting()
        with open('/proc/%d/task/%d/children' % (outer.pid, outer.pid), encoding='ascii') as file:
            os.kill(int(file.read()), signal.SIGTERM)
        self.ends_well(outer)
        self.assertIn('signal=SIGTERM', outer.find('stopped'))

    # ---- while it serves

    def serve_held(self, *flags):
        """Starts a server that serves, and that loads a version from a disk that does not
        answer."""
        server = self.start(*flags).wait_ready()
        self.hold()
        write_model(self.repository.path, 'spec', 2, [spec_table()])
        self.wait_waiting()
        return server

    def test_a_load_is_given_up_when_the_drain_is_over(self):
        server = self.serve_held('--drain-timeout-ms', '300')
        self.drain(server)
        self.ends_well(server)
        self.assertIn('path=' + self.repository.join('spec', '2'), server.find('given_up'))
        self.assertTrue(server.find('stopped'))

    def test_two_loads_are_given_up(self):
        server = self.serve_held('--drain-timeout-ms', '300')
        os.remove(self.hold_name + '.waiting')
        write_model(self.repository.path, 'other', 1, [spec_table()])
        self.wait_waiting()
        self.drain(server)
        self.ends_well(server)
        self.assertTrue(server.find('given_up'))
        self.assertTrue(server.find('stopped'))

    def test_a_second_signal_gives_a_load_up(self):
        server = self.serve_held('--drain-timeout-ms', '3600000')
        self.drain(server)
        server.terminate()
        self.ends_well(server)
        self.assertTrue(server.find('cutting'))
        self.assertTrue(server.find('given_up'))

    def test_a_look_at_the_repository_is_given_up(self):
        server = self.start('--drain-timeout-ms', '300').wait_ready()
        self.hold()
        with open(self.repository.join('spec', 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 3}\n')
        self.wait_waiting()
        self.drain(server)
        self.ends_well(server)
        self.assertIn('path=' + self.repository.path, server.find('given_up'))

    def test_a_comparison_of_resident_tables_is_given_up(self):
        directory = make_tmpfs_directory(self)
        flags = ('--resident-dir', directory, '--resident-small-pages', 'allow',
                 '--watch-poll-ms', '100', '--drain-timeout-ms', '300')
        owner = self.serve(*flags)
        server = self.start(*flags).wait_ready()
        self.hold()
        owner.kill()
        self.wait_waiting()
        self.assertTrue(server.find('resident_owned'))
        self.drain(server)
        self.ends_well(server)
        self.assertIn('path=' + self.repository.path, server.find('given_up'))
        self.assertFalse(server.find('resident_uncompared'))

    def test_connections_have_their_time_first(self):
        server = self.serve_held('--drain-timeout-ms', '3600000', '--access-log-per-s-max', '1')
        with Connection(server.port) as peer:
            for _ in range(20):
                self.assertNotEqual(peer.status(peer.call(message(b'?'))), OK)
            half = peer.open()
            peer.data(half, message(b'?')[:3], end=False)
            self.drain(server)
            peer.data(half, message(b'?')[3:])
            self.assertNotEqual(peer.status(half), OK)
            self.assertFalse(server.find('given_up'))
            server.terminate()
            self.ends_well(server)
        logged = sum('event=request ' in line for line in server.lines)
        left_out = sum(int(line.rpartition('failed=')[2].split()[0]) for line in server.lines
                       if 'event=requests_not_logged' in line)
        self.assertEqual(logged + left_out, 21)

    def test_what_ends_in_time_is_not_given_up(self):
        server = self.serve_held('--drain-timeout-ms', '3600000')
        self.drain(server)
        self.release()
        self.ends_well(server)
        self.assertFalse(server.find('given_up'))


if __name__ == '__main__':
    unittest.main()
