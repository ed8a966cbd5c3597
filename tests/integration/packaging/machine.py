"""A system with its own systemd, in namespaces of this machine: the environment that a service
meets when it is installed. Needs root and a writable cgroup2."""

import contextlib
import os
import shutil
import subprocess
import tempfile

from embagd_process import wait_until

HERE = os.path.dirname(os.path.abspath(__file__))
BOOT_SECONDS = 60
COMMAND_SECONDS = 120
NAMESPACES = ('--mount', '--pid', '--ipc', '--uts', '--net', '--cgroup')
# Paths that change by themselves, or with every package.
NOT_LISTED = ('dev', 'proc', 'run', 'sys', 'tmp', 'var/cache', 'var/lib/apt', 'var/lib/dpkg',
              'var/lib/systemd', 'var/log')


def find_cgroups():
    """Returns the mount point of cgroup2, or None."""
    with open('/proc/mounts', encoding='utf-8') as mounts:
        words = [line.split() for line in mounts]
    return next((line[1] for line in words if line[2] == 'cgroup2' and 'ro' not in
                 line[3].split(',')), None)


class Machine:
    """Boots the system that a tar file contains; `stop` deletes it."""

    def __init__(self, tar):
        with contextlib.ExitStack() as made:
            self.folder = tempfile.mkdtemp(prefix='embag-machine-')
            made.callback(shutil.rmtree, self.folder)
            self.root = os.path.join(self.folder, 'root')
            os.mkdir(self.root)
            # The service's user reaches the system's root through this folder.
            os.chmod(self.folder, 0o755)
            subprocess.run(['tar', '-C', self.root, '-xf', tar], check=True)
            cgroup = tempfile.mkdtemp(prefix='embag-machine-', dir=find_cgroups())
            made.callback(remove_cgroup, cgroup)
            with open(os.path.join(self.folder, 'boot.log'), 'wb') as log:
                self.process = subprocess.Popen(
                    ['sh', '-c', 'echo $$ >"$0/cgroup.procs" && exec "$@"', cgroup,
                     'unshare', *NAMESPACES, '--fork', '--kill-child',
                     'bash', os.path.join(HERE, 'boot.sh'), self.root],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            self.made = made.pop_all()

    def wait_running(self):
        """Waits until the system has booted; returns this machine. Raises RuntimeError if it cannot
        boot here."""
        def is_running():
            return self.process.poll() is not None or self.first_pid() and self.run(
                'systemctl', 'is-system-running', check=False).stdout.strip() in (
                    'running', 'degraded')
        try:
            wait_until(is_running, BOOT_SECONDS, 'the system to boot')
        except AssertionError:
            pass
        if self.process.poll() is None and self.first_pid() and os.path.exists(
                os.path.join(self.root, 'bin/systemctl')):
            return self
        with open(os.path.join(self.folder, 'boot.log'), encoding='utf-8') as log:
            text = log.read()
        self.stop()
        raise RuntimeError('no system can be booted here: ' + text[-500:].strip())

    def first_pid(self):
        """Returns the process id of the system's systemd, or None."""
        path = '/proc/%d/task/%d/children' % (self.process.pid, self.process.pid)
        try:
            with open(path, encoding='utf-8') as children:
                first = children.read().split()
            with open('/proc/%s/comm' % first[0], encoding='utf-8') as name:
                return int(first[0]) if name.read() == 'systemd\n' else None
        except (OSError, IndexError):
            return None

    def run(self, *command, check=True):
        """Runs a command inside the system; its output is text."""
        done = subprocess.run(
            ['nsenter', '-t', str(self.first_pid()), '-m', '-p', '-i', '-u', '-n', '-C', '-r', '--',
             'env', '-i', 'PATH=/usr/sbin:/usr/bin:/sbin:/bin', *command],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding='utf-8', timeout=COMMAND_SECONDS, check=False)
        if check and done.returncode != 0:
            raise AssertionError('%s: status %d\n%s' % (
                ' '.join(command), done.returncode, done.stdout))
        return done

    def show(self, unit, name):
        """Returns a property of a unit."""
        return self.run('systemctl', 'show', '-P', name, unit).stdout.strip()

    def path(self, path):
        """Returns the path, as seen from outside, of a file in the system's mounts."""
        return '/proc/%d/root%s' % (self.first_pid(), path)

    def write(self, path, text):
        """Writes a file in the system."""
        os.makedirs(os.path.dirname(self.path(path)), exist_ok=True)
        with open(self.path(path), 'w', encoding='utf-8') as file:
            file.write(text)

    def list_files(self):
        """Returns all paths except those that change by themselves."""
        found = set()
        for folder, folders, names in os.walk(self.root):
            inside = os.path.relpath(folder, self.root)
            folders[:] = [name for name in folders
                          if os.path.normpath(os.path.join(inside, name)) not in NOT_LISTED]
            found.update(os.path.normpath(os.path.join(inside, name)) for name in folders + names)
        return found

    def stop(self):
        """Ends all processes in the system, and deletes the system."""
        self.process.kill()
        self.process.wait()
        self.made.close()


def remove_cgroup(cgroup):
    """Removes a cgroup and its children; waits for their processes to exit."""
    for folder, _, _ in os.walk(cgroup, topdown=False):
        wait_until(lambda folder=folder: not os.path.isdir(folder) or remove(folder), 10,
                   'an empty cgroup')


def remove(folder):
    """Returns whether a cgroup could be removed."""
    try:
        os.rmdir(folder)
        return True
    except OSError:
        return False
