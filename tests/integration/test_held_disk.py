"""embagd ends when it is told to, though a disk does not answer."""

import os
import signal
import subprocess
import unittest

import served
from embagd_process import Embagd, wait_until
from served import OwnServerTest, spec_table
from table_files import write_model

SECONDS = 30
FIRST_PROCESS = ('unshare', '--user', '--map-root-user', '--pid', '--fork', '--kill-child')


class HeldDisk(OwnServerTest):
    """Each with a server of its own, whose reads wait while the test holds its disk."""

    def setUp(self):
        super().setUp()
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        self.hold_name = self.repository.path + '.held'
        self.addCleanup(self.release)

    def hold(self):
        """No read returns from now on."""
        with open(self.hold_name, 'w', encoding='utf-8'):
            pass

    def release(self):
        """All reads go on."""
        for name in self.hold_name, self.hold_name + '.waiting':
            if os.path.exists(name):
                os.remove(name)

    def start(self, *flags, sanitizer='', **keywords):
        """A server on that disk, as it starts; `sanitizer` adds to its options."""
        environment = {'LD_PRELOAD': os.path.join(served.BUILD, 'embag-held-disk.so'),
                       'HELD_DISK': self.hold_name,
                       'ASAN_OPTIONS': 'verify_asan_link_order=0' + sanitizer}
        server = Embagd(self.repository.path, *flags, environment=environment, **keywords)
        self.addCleanup(lambda: server.has_ended() or server.kill())
        return server

    def wait_waiting(self):
        """Until something waits for the disk."""
        wait_until(lambda: os.path.exists(self.hold_name + '.waiting'), SECONDS, 'a read waits')

    def ends_well(self, server):
        """Exit status 0 and nothing bad in the log."""
        self.assertEqual(server.wait(SECONDS), 0, server.log[-4000:])
        server.check_log()

    # ---- before it serves

    def test_a_first_load_ends(self):
        for number, name in (signal.SIGTERM, 'SIGTERM'), (signal.SIGINT, 'SIGINT'):
            self.hold()
            server = self.start()
            self.wait_waiting()
            server.process.send_signal(number)
            self.ends_well(server)
            self.assertIn('signal=' + name, server.find('stopped'))
            self.release()

    def test_the_first_process_of_a_container_gets_its_signals(self):
        if subprocess.run([*FIRST_PROCESS, 'true'], stderr=subprocess.DEVNULL,
                          check=False).returncode != 0:
            self.skipTest('no namespaces can be made here')
        self.hold()
        # It finds no leaks where /proc has the processes of another namespace.
        outer = self.start(under=FIRST_PROCESS, sanitizer=':detect_leaks=0')
        self.wait_waiting()
        with open('/proc/%d/task/%d/children' % (outer.pid, outer.pid), encoding='ascii') as file:
            os.kill(int(file.read()), signal.SIGTERM)
        self.ends_well(outer)
        self.assertIn('signal=SIGTERM', outer.find('stopped'))


if __name__ == '__main__':
    unittest.main()
