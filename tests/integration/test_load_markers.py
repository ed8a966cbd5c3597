"""A version that kills the server while it loads does not kill it at every start."""

import os
import shutil
import signal
import subprocess
import tempfile
import unittest

import served
from embagd_process import Embagd, Repository, wait_until
from served import spec_table
from table_files import write_model, write_sparse_npy
from tmpfs_directory import make_tmpfs_directory

SECONDS = 60
MIB = 1 << 20
SPARSE_BYTES = 16 * MIB
SLOW = ('--load-bytes-per-s', str(MIB))


class LoadMarkersTest(unittest.TestCase):
    """A repository with version 8 of a model, and a directory for the server's state."""

    def setUp(self):
        self.repository = Repository()
        self.addCleanup(self.repository.remove)
        self.state = tempfile.mkdtemp(prefix='embag-state-')
        self.addCleanup(shutil.rmtree, self.state)
        self.socket = 'unix:' + os.path.join(self.state, 'admin.sock')
        write_model(self.repository.path, 'spec', 8, [spec_table()])

    def start(self, *flags, **keywords):
        """Starts a server with the directory for state, and does not wait for it."""
        server = Embagd(self.repository.path, '--state-dir', self.state, '--admin-listen',
                        self.socket, *flags, **keywords)
        self.addCleanup(lambda: server.has_ended() or server.stop())
        return server

    def publish_large(self, version=9):
        """Publishes a version that takes 16 s to load at the slow pace."""
        write_sparse_npy(self.repository.join('.new'), SPARSE_BYTES)
        os.rename(self.repository.join('.new'), self.repository.join('spec', str(version)))

    def markers(self, kind):
        """Returns the names of the markers of one kind."""
        return sorted(name for name in os.listdir(os.path.join(self.state, 'embag'))
                      if name.startswith(kind + '-'))

    def wait_marker(self, deaths, version=9):
        """Waits until a load is marked, with this number of deaths before."""
        wait_until(lambda: any(name.startswith('loading-spec-%d-' % version) and
                               name.endswith('-%d' % deaths) for name in self.markers('loading')),
                   SECONDS, 'a marker')

    def die_twice(self, *flags):
        """Kills the server twice while it loads version 9, the second time after a restart."""
        server = self.start(*SLOW, *flags).wait_ready()
        self.publish_large()
        self.wait_marker(0)
        server.kill()
        again = self.start(*SLOW, *flags).wait_ready()
        self.assertIn('version=9 deaths=1', again.find('load_killed'))
        self.assertIn('version=8', again.find('model_serving'))
        self.wait_marker(1)
        again.kill()

    def models(self, *command):
        """Runs `embag models`, which must succeed. Returns its output."""
        return subprocess.run([served.EMBAG, 'models', *command, '--server', self.socket],
                              check=True, timeout=SECONDS, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True).stdout

    def test_the_second_death_makes_a_version_fail_until_a_command_asks_for_it(self):
        self.die_twice()
        for _ in range(2):
            server = self.start().wait_ready()
            self.assertIn('the process died twice while loading it', server.find('model_failed'))
            self.assertIn('the process died twice', self.models('status'))
            self.assertEqual(self.markers('loading'), [])
            server.stop()
            self.assertEqual(len(self.markers('died')), 1)
        server = self.start().wait_ready()
        self.models('load', 'spec', '9')
        wait_until(lambda: 'version=9 before=8' in server.log, SECONDS, 'version 9 to be served')
        self.assertEqual(self.markers('died') + self.markers('loading'), [])

    def test_a_start_without_the_repository_keeps_deaths_for_its_return(self):
        flags = ('--resident-dir', make_tmpfs_directory(self), '--resident-small-pages', 'allow',
                 '--watch-poll-ms', '100')
        self.die_twice(*flags)
        died = [name.rsplit('-', 1)[0] for name in self.markers('loading')]
        away = self.repository.path + '.away'
        os.rename(self.repository.path, away)
        try:
            server = self.start(*flags).wait_ready()
        finally:
            os.rename(away, self.repository.path)
        self.assertIn('version=8', server.find('model_serving'))
        wait_until(lambda: server.find('model_failed'), SECONDS, 'version 9 to be refused')
        self.assertIn('the process died twice while loading it', server.find('model_failed'))
        self.assertIn('version=9 deaths=2', server.find('load_killed'))
        self.assertEqual([name.rsplit('-', 1)[0].replace('died', 'loading')
                          for name in self.markers('died')], died)
        self.assertEqual(self.markers('loading'), [])
        self.assertNotIn('version=9 before=8', server.log)

    def test_one_death_lets_a_version_load_after_the_start(self):
        server = self.start(*SLOW).wait_ready()
        self.publish_large()
        self.wait_marker(0)
        server.kill()
        again = self.start().wait_ready()
        wait_until(lambda: 'version=9 before=8' in again.log, SECONDS, 'version 9 to be served')
        self.assertLess(again.log.index('event=ready'), again.log.index('version=9 before=8'))
        self.assertEqual(self.markers('died') + self.markers('loading'), [])

    def test_other_files_are_loaded(self):
        self.die_twice()
        shutil.rmtree(self.repository.join('spec', '9'))
        write_model(self.repository.path, 'spec', 9, [spec_table()])
        server = self.start().wait_ready()
        self.assertIn('version=9 before=0', server.find('model_serving'))
        self.assertEqual(self.markers('died'), [])

    def test_files_that_change_later_are_loaded(self):
        self.die_twice()
        server = self.start('--watch-poll-ms', '100').wait_ready()
        shutil.rmtree(self.repository.join('spec', '9'))
        wait_until(lambda: self.markers('died') == [], SECONDS, 'the death to be forgotten')
        write_model(self.repository.path, 'spec', 9, [spec_table()])
        wait_until(lambda: 'version=9 before=8' in server.log, SECONDS, 'version 9 to be served')

    def test_a_model_with_nothing_else_is_loaded(self):
        self.die_twice()
        shutil.rmtree(self.repository.join('spec', '8'))
        server = self.start().wait_ready()
        self.assertIn('version=9 deaths=2', server.find('load_killed'))
        self.assertIn('version=9 before=0', server.find('model_serving'))
        self.assertEqual(self.markers('died') + self.markers('loading'), [])

    def test_an_orderly_end_leaves_no_marker(self):
        server = self.start(*SLOW).wait_ready()
        self.publish_large()
        self.wait_marker(0)
        server.stop()
        self.assertEqual(self.markers('loading') + self.markers('died'), [])

    def test_an_end_during_the_first_load_leaves_no_marker(self):
        hold = self.repository.path + '.held'
        for name in hold, hold + '.waiting':
            self.addCleanup(lambda name=name: os.path.exists(name) and os.remove(name))
        with open(hold, 'w', encoding='utf-8'):
            pass
        environment = {'LD_PRELOAD': os.path.join(served.BUILD, 'embag-held-disk.so'),
                       'HELD_DISK': hold, 'ASAN_OPTIONS': 'verify_asan_link_order=0'}
        server = self.start(environment=environment)
        wait_until(lambda: os.path.exists(hold + '.waiting'), SECONDS, 'a blocked read')
        self.wait_marker(0, 8)
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.wait(SECONDS), 0)
        self.assertEqual(self.markers('loading') + self.markers('died'), [])

    def test_a_directory_that_cannot_be_written_does_not_hinder_a_load(self):
        server = self.start().wait_ready()
        shutil.rmtree(os.path.join(self.state, 'embag'))
        write_model(self.repository.path, 'spec', 9, [spec_table()])
        wait_until(lambda: 'version=9 before=8' in server.log, SECONDS, 'version 9 to be served')
        self.assertIn('version=9', server.find('load_unmarked'))

    def test_the_start_fails_without_the_directory(self):
        server = Embagd(self.repository.path, '--state-dir', os.path.join(self.state, 'absent'))
        log = server.start_fails()
        self.assertIn('No such file or directory', log)
        self.assertIn('create the directory', log)


if __name__ == '__main__':
    unittest.main()
