"""embagd exits when it is told to, even if a disk does not answer."""

import os
import signal
import subprocess
import unittest

import served
from embagd_process import Embagd, wait_until
from h2raw import Connection, message
from served import OwnServerTest, spec_table
from table_files import write_model

SECONDS = 30
OK = ('200', 0, '')
FIRST_PROCESS = ('unshare', '--user', '--map-root-user', '--pid', '--fork', '--kill-child')


class HeldDisk(OwnServerTest):
    """Tests each of which has its own server. The server's reads block while the test holds the
    disk."""

    def setUp(self):
        super().setUp()
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        self.hold_name = self.repository.path + '.held'
        self.addCleanup(self.release)

    def hold(self):
        """Blocks all reads from now on."""
        with open(self.hold_name, 'w', encoding='utf-8'):
            pass

    def release(self):
        """Lets all reads continue."""
        for name in self.hold_name, self.hold_name + '.waiting':
            if os.path.exists(name):
                os.remove(name)

    def start(self, *flags, sanitizer='', **keywords):
        """Starts a server on that disk and does not wait for it; `sanitizer` extends its sanitizer
        options."""
        environment = {'LD_PRELOAD': os.path.join(served.BUILD, 'embag-held-disk.so'),
                       'HELD_DISK': self.hold_name,
                       'ASAN_OPTIONS': 'verify_asan_link_order=0' + sanitizer}
        server = Embagd(self.repository.path, *flags, environment=environment, **keywords)
        self.addCleanup(lambda: server.has_ended() or server.kill())
        return server

    def wait_waiting(self):
        """Waits until a read is blocked."""
        wait_until(lambda: os.path.exists(self.hold_name + '.waiting'), SECONDS, 'a blocked read')

    def ends_well(self, server):
        """Checks that the exit status is 0 and that the log reports nothing bad."""
        self.assertEqual(server.wait(SECONDS), 0, server.log[-4000:])
        server.check_log()

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

    def drain(self, server):
        """Sends the first signal and waits until it takes effect."""
        server.terminate()
        wait_until(lambda: server.find('draining'), SECONDS, 'the drain to begin')

    def test_a_load_is_given_up_when_the_drain_is_over(self):
        server = self.serve_held('--drain-timeout-ms', '300')
        self.drain(server)
        self.ends_well(server)
        self.assertIn('path=' + self.repository.join('spec', '2'), server.find('given_up'))
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
