"""Servers whose disk does not answer while a test holds it."""

import os
import shutil

import numpy as np

import served
from embagd_process import NO_RACES, Embagd, wait_until
from served import OwnServerTest, spec_table
from table_files import write_model

SECONDS = 60


class HeldDiskTest(OwnServerTest):
    """Tests each of which has its own server, with the specification's table as version 1. The
    server's reads block while the test holds the disk."""

    def setUp(self):
        super().setUp()
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        self.hold_name = self.repository.path + '.held'
        self.addCleanup(self.release)

    def hold(self, part=''):
        """Blocks from now on all reads of files whose path contains `part`."""
        with open(self.hold_name + '.new', 'w', encoding='utf-8') as file:
            file.write(part)
        os.replace(self.hold_name + '.new', self.hold_name)

    def release(self):
        """Lets all reads continue."""
        for name in self.hold_name, self.hold_name + '.waiting':
            if os.path.exists(name):
                os.remove(name)

    def start(self, *flags, environment=None, sanitizer='', **keywords):
        """Starts a server on that disk and does not wait for it; `sanitizer` extends its sanitizer
        options."""
        environment = {'LD_PRELOAD': os.path.join(served.BUILD, 'embag-held-disk.so'),
                       'HELD_DISK': self.hold_name,
                       'ASAN_OPTIONS': 'verify_asan_link_order=0' + sanitizer,
                       'TSAN_OPTIONS': 'suppressions=' + NO_RACES + sanitizer,
                       **(environment or {})}
        server = Embagd(self.repository.path, *flags, environment=environment, **keywords)
        self.addCleanup(lambda: server.has_ended() or server.kill())
        return server

    def publish(self, version, tables):
        """Publishes a version of the model, all of its files at once."""
        directory = write_model(self.repository.path, '.new', version, tables)
        for table in tables:
            if table.keys is not None:
                np.save(os.path.join(directory, table.name + '.keys.npy'), table.keys)
        os.rename(self.repository.join('.new', str(version)),
                  self.repository.join('spec', str(version)))
        shutil.rmtree(self.repository.join('.new'))

    def wait_waiting(self):
        """Waits until a read is blocked."""
        wait_until(lambda: os.path.exists(self.hold_name + '.waiting'), SECONDS, 'a blocked read')

    def drain(self, server):
        """Sends the first signal and waits until it takes effect."""
        server.terminate()
        wait_until(lambda: server.find('draining'), SECONDS, 'the drain to begin')

    def ends_well(self, server):
        """Checks that the exit status is 0 and that the log reports nothing bad."""
        self.assertEqual(server.wait(SECONDS), 0, server.log[-4000:])
        server.check_log()
