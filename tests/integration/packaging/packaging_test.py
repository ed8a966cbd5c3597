"""Debian's packages as lintian sees them, and embagd as they install it, in a system with its own
systemd.

    packaging_test.py TAR PACKAGE...

If no such system can run here, or TAR does not exist, the tests that need it are skipped, and a
line says so. Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
"""

import gzip
import os
import re
import shutil
import subprocess
import sys
import unittest

import guide
import summary
from embagd_process import wait_until
from machine import Machine, find_cgroups

PACKAGES = []    # files; libembag-dev, for building programs, is not installed
MACHINE = None   # a system with systemd and the packages' dependencies
BEFORE = set()   # files that existed before the installation
UNIT = 'embagd.service'
MODELS = '/var/lib/embag/models'
SECONDS = 30
LINTIAN_SECONDS = 200
EXPOSURE_MAX = 15  # score of `systemd-analyze security`, in tenths: 0 to 100
# With this drop-in, a system call that the unit does not allow kills the process.
STRICT = '[Service]\nSystemCallErrorNumber=kill\n'
WATCHED = STRICT + 'WatchdogSec=2s\nTimeoutAbortSec=1s\n'
DROP_IN = '/run/systemd/system/embagd.service.d/test.conf'
DOCUMENTS = '/usr/share/doc/embag'
SETTINGS = '/etc/embag/embagd.yaml'
# The RAM file system of resident tables, and a drop-in for its unit.
MOUNT, RESIDENT = 'var-lib-embag-resident.mount', '/var/lib/embag/resident'
NO_SWAP = DOCUMENTS + '/systemd/noswap.conf'
BUILD = '/tmp/build/release'  # the guide's folder of packages, moved below /tmp


def installed():
    """Returns the packages to install."""
    return [path for path in PACKAGES if not os.path.basename(path).startswith('libembag-dev_')]


def install():
    """Installs with dpkg, which does not fetch dependencies; returns its output."""
    return MACHINE.run('dpkg', '-i', *(os.path.join(BUILD, os.path.basename(path))
                                       for path in installed())).stdout


def printed_commands(*programs):
    """Returns the lines of the guide's block on packages that run these programs."""
    section = guide.section(guide.read('deploy', 'OPERATIONS.md'), 'Installing')
    found = [line for line in guide.blocks(section, 'sh')[0].text.splitlines()
             if line.split()[0] in programs]
    if {line.split()[0] for line in found} != set(programs):
        raise AssertionError('the guide does not call all of %s' % ', '.join(programs))
    return found


def can_mount(options):
    """Returns whether the system may mount a tmpfs with these options."""
    return MACHINE.run('sh', '-c', 'mount -t tmpfs -o %s tmpfs /mnt && umount /mnt' % options,
                       check=False).returncode == 0


def install_as_printed():
    """Installs with the guide's command."""
    command, = printed_commands('apt-get')
    first = guide.blocks(guide.read('deploy', 'OPERATIONS.md'), 'sh')[0]
    if command not in first.text.splitlines():
        raise AssertionError('the guide begins with another command than ' + command)
    MACHINE.run('bash', '-c', 'cd /tmp && ' + command)


class Built(unittest.TestCase):
    """Checks of the packages that need no installation."""

    def test_lintian_finds_no_error(self):
        done = subprocess.run(['lintian', '--allow-root', '--fail-on', 'error', *PACKAGES],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              timeout=LINTIAN_SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stdout)


class InstalledTest(unittest.TestCase):
    """A test inside the booted system."""

    def setUp(self):
        self.machine = MACHINE
        self.identity = None

    def use(self, drop_in):
        """Installs a drop-in for this test."""
        self.machine.write(DROP_IN, drop_in)
        self.ask('daemon-reload')

    def ask(self, *words, **keywords):
        """Runs systemctl in the system; returns its output."""
        return self.machine.run('systemctl', *words, **keywords)

    def show(self, name):
        """Returns a property of the service."""
        return self.machine.show(UNIT, name)

    def make_model(self):
        """Writes the table of the specification's examples."""
        if not os.path.exists(self.machine.path(MODELS + '/spec')):
            self.machine.run('embag', 'make-model', '--example', 'spec', MODELS)

    def lookup(self):
        """Checks that a lookup is answered correctly."""
        said = self.machine.run(
            'embag', 'lookup', '--server', '127.0.0.1:8600', '--model', 'spec', '--table',
            'emb_table', '--indices', '0,2,3,4', '--offsets', '0,2,2').stdout
        self.assertIn('0: -2.1 -2.4', said)

    def log(self):
        """Returns the service's log since its last start."""
        self.identity = self.show('InvocationID') or self.identity
        return self.machine.run('journalctl', '--no-pager', '-o', 'cat',
                                '_SYSTEMD_INVOCATION_ID=' + self.identity).stdout

    def wait_log(self, event):
        """Waits until an event is logged; returns its line."""
        def find():
            return re.search(r'.*\bevent=%s\b.*' % event, self.log())
        return wait_until(find, SECONDS, 'event=' + event)[0]


class Installing(InstalledTest):
    """The state before the service has run."""

    def test_installing_starts_nothing(self):
        self.assertEqual(self.show('ActiveState'), 'inactive')
        self.assertEqual(self.show('UnitFileState'), 'disabled')
        self.assertIn('/usr/sbin/nologin', self.machine.run('getent', 'passwd', 'embag').stdout)
        self.machine.run('embag-load', '--help')
        config = self.machine.run('embagd', '--config', '/etc/embag/embagd.yaml', '--print-config')
        self.assertIn('model_repository: ' + MODELS, config.stdout.replace('"', ''))

    def test_every_program_and_command_has_a_manual_page(self):
        pages = {'man8/embagd.8.gz', 'man1/embag.1.gz', 'man1/embag-load.1.gz'}
        commands = re.findall(r'^  ([a-z-]+)  ', self.machine.run('embag', '--help').stdout, re.M)
        self.assertIn('lookup', commands)
        pages.update('man1/embag-%s.1.gz' % command for command in commands)
        for page in sorted(pages):
            with open(self.machine.path('/usr/share/man/' + page), 'rb') as file:
                text = gzip.decompress(file.read()).decode()
            for heading in 'NAME', 'SYNOPSIS', 'DESCRIPTION', 'SEE ALSO':
                self.assertRegex(text, r'(?m)^\.SH "?%s"?$' % heading, page)

    def test_guides_rules_and_dashboard_are_there(self):
        for name in ('README.md', 'OPERATIONS.md', 'CLIENTS.md', 'latency.svg', 'LOAD.md',
                     'MODELS.md', 'monitoring/alerts.yaml', 'monitoring/dashboard.json',
                     'monitoring/prometheus.yaml', 'systemd/noswap.conf'):
            self.machine.run('test', '-s', os.path.join(DOCUMENTS, name))


class Service(InstalledTest):
    """The service under the hardening of its unit."""

    def setUp(self):
        super().setUp()
        self.use(STRICT)
        self.make_model()
        self.addCleanup(self.ask, 'stop', 'embagd.socket', UNIT)

    def read_status(self, name):
        """Returns a value from /proc/PID/status of the main process."""
        text = self.machine.run('cat', '/proc/%s/status' % self.show('MainPID')).stdout
        return re.search(r'^%s:\s*(.*)$' % name, text, re.M)[1].split()

    def wait_status(self, text):
        """Waits until the service reports this status."""
        wait_until(lambda: self.show('StatusText') == text, SECONDS, text)

    def test_it_is_active_when_it_serves(self):
        self.ask('start', UNIT)
        self.assertEqual(self.show('ActiveState'), 'active')
        self.wait_log('ready')
        self.wait_status('Serving 1 of 1 models: spec 1')
        self.lookup()
        self.ask('stop', UNIT)
        self.assertEqual([self.show(name) for name in ('Result', 'ExecMainStatus')],
                         ['success', '0'])
        self.wait_log('stopped')

    def test_it_has_no_rights_beyond_its_user(self):
        self.ask('start', UNIT)
        user = self.machine.run('id', '-u', 'embag').stdout.strip()
        self.assertEqual(self.read_status('Uid'), [user] * 4)
        for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
            self.assertEqual(int(self.read_status(name)[0], 16), 0, name)
        self.assertEqual([self.read_status(name) for name in ('NoNewPrivs', 'Seccomp')],
                         [['1'], ['2']])
        pid = self.show('MainPID')
        mounts = self.machine.run('cat', '/proc/%s/mounts' % pid).stdout.splitlines()
        root = next(line.split() for line in mounts if line.split()[1] == '/')
        self.assertIn('ro', root[3].split(','))
        # A system in namespaces may not be permitted to set these.
        self.assertEqual(self.show('OOMScoreAdjust'), '-500')
        self.assertEqual(self.show('LimitNOFILE'), '524288')

    def test_it_serves_what_is_published_and_takes_commands(self):
        self.ask('start', UNIT)
        self.machine.run('cp', '-a', MODELS + '/spec/1', MODELS + '/spec/.7')
        self.machine.run('mv', MODELS + '/spec/.7', MODELS + '/spec/7')
        self.addCleanup(self.machine.run, 'rm', '-r', MODELS + '/spec/7')
        self.wait_status('Serving 1 of 1 models: spec 7')
        self.lookup()
        said = self.machine.run('embag', 'models', 'status', '--server',
                                'unix:/run/embag/admin.sock').stdout
        self.assertRegex(said, r'7\s+serving')
        self.assertEqual(self.machine.run(
            'stat', '-c', '%a %U', '/run/embag/admin.sock').stdout, '600 embag\n')

    def test_it_computes_with_tables_in_pages_of_their_own(self):
        self.machine.run('embag', 'make-model', '--workload', 'dlrm-v2', '--scale', '20000', MODELS)
        self.addCleanup(self.machine.run, 'rm', '-r', MODELS + '/dlrm-v2')
        self.ask('start', UNIT)
        self.wait_status('Serving 2 of 2 models: dlrm-v2 1, spec 1')
        self.machine.run('embag', 'demo', '--server', '127.0.0.1:8600', '--lookups', '20')

    def test_the_commands_of_the_guide_succeed(self):
        for command in printed_commands('systemctl', 'journalctl', 'embag'):
            said = self.machine.run('bash', '-c', command).stdout
            if 'status' in command:
                self.assertRegex(said, 'Serving 1 of 1 models|serving')
        self.wait_log('reloaded')
        self.addCleanup(self.ask, 'disable', UNIT)

    def test_it_reads_again_and_stays(self):
        self.ask('start', UNIT)
        pid = self.show('MainPID')
        self.ask('reload', UNIT)
        self.wait_log('reloaded')
        wait_until(lambda: self.show('ActiveState') == 'active', SECONDS, 'an active service')
        self.assertEqual(self.show('MainPID'), pid)
        self.lookup()

    def test_one_that_hangs_is_started_again(self):
        self.use(WATCHED)
        self.ask('start', UNIT)
        pid = self.show('MainPID')
        self.machine.run('sh', '-c', 'kill -STOP ' + pid)
        wait_until(lambda: self.show('MainPID') not in (pid, '0'), SECONDS, 'a restart')
        wait_until(lambda: self.show('ActiveState') == 'active', SECONDS, 'an active service')
        self.assertEqual(self.show('NRestarts'), '1')
        self.lookup()

    def test_one_that_answers_is_let_live(self):
        self.use(WATCHED)
        self.ask('start', UNIT)
        started = int(self.show('WatchdogTimestampMonotonic'))
        wait_until(lambda: int(self.show('WatchdogTimestampMonotonic')) > started + 4000000,
                   SECONDS, 'watchdog messages for longer than the timeout')
        self.assertEqual(self.show('NRestarts'), '0')

    def test_settings_that_are_wrong_are_not_tried_again(self):
        self.machine.write('/etc/default/embagd', 'EMBAG_LOOPS=none\n')
        self.addCleanup(self.machine.write, '/etc/default/embagd', '')
        self.assertNotEqual(self.ask('start', UNIT, check=False).returncode, 0)
        self.assertEqual([self.show(name) for name in ('ActiveState', 'ExecMainStatus')],
                         ['failed', '2'])
        self.ask('reset-failed', UNIT)

    def test_it_is_started_by_its_socket(self):
        self.ask('start', 'embagd.socket')
        self.assertEqual(self.show('ActiveState'), 'inactive')
        self.lookup()
        self.assertIn('passed=1', self.wait_log('listening'))
        self.ask('stop', UNIT)
        self.lookup()

    def test_it_is_not_started_without_models(self):
        self.machine.run('mv', MODELS + '/spec', '/tmp/spec')
        self.addCleanup(self.machine.run, 'mv', '/tmp/spec', MODELS + '/spec')
        self.ask('start', UNIT)
        self.assertEqual([self.show(name) for name in ('ActiveState', 'ConditionResult')],
                         ['inactive', 'no'])

    def test_its_units_are_as_systemd_wants_them(self):
        self.assertEqual(self.machine.run(
            'systemd-analyze', 'verify', UNIT, 'embagd.socket', MOUNT).stdout, '')

    def test_it_is_exposed_little(self):
        said = self.machine.run('systemd-analyze', 'security', '--no-pager',
                                '--threshold=%d' % EXPOSURE_MAX, UNIT).stdout
        print(said.strip().splitlines()[-1])


class Resident(InstalledTest):
    """The service with tables in the RAM file system of the mount unit."""

    def setUp(self):
        super().setUp()
        if not can_mount('huge=always'):
            self.skipTest('no tmpfs can be mounted here')
        self.use(STRICT)
        self.make_model()
        settings = self.machine.run('cat', SETTINGS).stdout
        self.addCleanup(self.machine.write, SETTINGS, settings)
        self.addCleanup(self.ask, 'disable', '--now', MOUNT)
        self.addCleanup(self.ask, 'stop', UNIT)

    def mounted_options(self):
        """Returns the options of the file system, as the kernel reports them; None if there is
        none."""
        mounts = self.machine.run('cat', '/proc/mounts').stdout.splitlines()
        return next((line.split()[3].split(',') for line in mounts if line.split()[1] == RESIDENT),
                    None)

    def run_printed(self, words):
        """Runs the commands of the guide's block that has these words."""
        text = guide.read('deploy', 'OPERATIONS.md')
        block, = (block.text for block in guide.blocks(text, 'sh') if words in block.text)
        self.machine.run('bash', '-euo', 'pipefail', '-c', block)

    def use_resident(self):
        """Makes the service's tables resident, by the commands of the guide."""
        self.run_printed('systemctl enable --now ' + MOUNT)

    def adopted_bytes(self):
        """Returns how many bytes of tables the service found when it started."""
        return int(re.search(r'\badopted_bytes=(\d+)', self.wait_log('model_loaded'))[1])

    def test_a_restart_takes_the_tables_that_are_there(self):
        self.use_resident()
        self.assertEqual(self.adopted_bytes(), 0)
        self.lookup()
        self.ask('restart', UNIT)
        self.assertGreater(self.adopted_bytes(), 0)
        self.lookup()
        pid = self.show('MainPID')
        self.machine.run('sh', '-c', 'kill -KILL ' + pid)
        wait_until(lambda: self.show('MainPID') not in (pid, '0'), SECONDS, 'a restart')
        wait_until(lambda: self.show('ActiveState') == 'active', SECONDS, 'an active service')
        self.assertGreater(self.adopted_bytes(), 0)
        self.lookup()

    def test_it_serves_without_the_repository(self):
        self.use_resident()
        self.wait_log('ready')
        self.ask('stop', UNIT)
        self.machine.run('mv', MODELS + '/spec', '/tmp/spec')
        self.addCleanup(self.machine.run, 'mv', '/tmp/spec', MODELS + '/spec')
        self.ask('start', UNIT)
        self.wait_log('serving_from_resident')
        self.lookup()

    def test_the_service_needs_the_mount_only_if_it_is_enabled(self):
        self.ask('start', UNIT)
        self.assertIsNone(self.mounted_options())
        self.ask('stop', UNIT)
        self.ask('enable', MOUNT)
        self.ask('start', UNIT)
        options = self.mounted_options()
        self.assertLessEqual({'nosuid', 'nodev', 'noexec', 'huge=always', 'mode=700'},
                             set(options))
        self.assertIn('uid=' + self.machine.run('id', '-u', 'embag').stdout.strip(), options)
        self.ask('stop', MOUNT)
        self.assertEqual(self.show('ActiveState'), 'inactive')
        self.assertIsNone(self.mounted_options())

    def test_the_drop_in_adds_only_noswap(self):
        unit, drop_in = (
            re.findall(r'^Options=(.*)$', guide.read('deploy', 'systemd', name), re.M)[0].split(',')
            for name in (MOUNT, os.path.basename(NO_SWAP)))
        self.assertEqual(sorted(drop_in), sorted(unit + ['noswap']))
        if not can_mount('noswap'):
            self.skipTest('this kernel does not know noswap')
        self.use_resident()
        self.addCleanup(self.ask, 'daemon-reload')
        self.addCleanup(self.machine.run, 'rm', '-r', '/etc/systemd/system/%s.d' % MOUNT)
        self.run_printed(NO_SWAP)
        self.assertIn('noswap', self.mounted_options())
        self.assertEqual(self.adopted_bytes(), 0)
        self.lookup()


class Leaving(InstalledTest):
    """From upgrade to purge, in the order of the tests' names."""

    def test_1_an_upgrade_lets_it_serve_on(self):
        self.make_model()
        self.ask('enable', '--now', UNIT)
        self.ask('enable', MOUNT)
        if can_mount('huge=always'):
            self.ask('start', MOUNT)
        pid = self.show('MainPID')
        self.assertIn('systemctl restart embagd', install())
        self.assertEqual(self.show('MainPID'), pid)
        self.lookup()

    def test_2_removing_stops_it_and_keeps_what_was_set(self):
        self.machine.run('dpkg', '--remove', 'embag-server')
        self.assertEqual(self.show('ActiveState'), 'inactive')
        self.assertNotIn(RESIDENT, self.machine.run('cat', '/proc/mounts').stdout)
        self.assertTrue(os.path.exists(self.machine.path(SETTINGS)))
        self.assertTrue(os.path.exists(self.machine.path(MODELS + '/spec/1')))

    def test_3_purging_leaves_nothing_but_models(self):
        names = [os.path.basename(path).split('_')[0] for path in installed()]
        self.machine.run('dpkg', '--purge', *names)
        self.assertNotEqual(self.machine.run('getent', 'passwd', 'embag', check=False).returncode,
                            0)
        left = self.machine.list_files() - BEFORE
        self.assertEqual({path for path in left if not path.startswith('var/lib/embag/models/')},
                         {'var/lib/embag', 'var/lib/embag/models'})
        self.assertEqual(BEFORE - self.machine.list_files(), set())


def boot(tar):
    """Boots the system, with the packages in its /tmp. Raises RuntimeError if it cannot boot
    here."""
    if not os.path.exists(tar):
        raise RuntimeError('no archive of Debian packages is reachable')
    if os.geteuid() != 0:
        raise RuntimeError('only root can boot a system')
    if not find_cgroups():
        raise RuntimeError('there is no writable cgroup2')
    machine = Machine(tar).wait_running()
    os.makedirs(machine.path(BUILD))
    for path in installed():
        shutil.copy(path, machine.path(BUILD))
    return machine


def run_tests(*cases):
    """Returns how many tests passed and how many failed."""
    load = unittest.defaultTestLoader.loadTestsFromTestCase
    return summary.count(unittest.TextTestRunner(sys.stdout, verbosity=2).run(
        unittest.TestSuite(map(load, cases))))


def main():
    """Returns the exit status."""
    global MACHINE, BEFORE
    PACKAGES.extend(sys.argv[2:])
    try:
        MACHINE = boot(sys.argv[1])
    except RuntimeError as error:
        print('packages: skipped, %s' % error)
        return summary.say(*run_tests(Built))
    try:
        BEFORE = MACHINE.list_files()
        install_as_printed()
        counts = run_tests(Built, Installing, Service, Resident, Leaving)
    finally:
        MACHINE.stop()
    return summary.say(*counts)


if __name__ == '__main__':
    sys.exit(main())
