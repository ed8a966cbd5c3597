"""A control group with a limit on memory, v1 or v2, in which tests let memory run out."""

import os
import re
import subprocess
import sys
import tempfile
import unittest
from collections import namedtuple

from embagd_process import wait_until

MOUNT = '/sys/fs/cgroup'
SECONDS = 60
MIB = 1 << 20
MARGIN = 4 * MIB    # what a greedy process leaves
# Join the group and run a command there; the second is the first that the kernel kills there.
JOIN = 'echo $$ >"$0/cgroup.procs" && exec "$@"'
JOIN_AS_FIRST = 'echo 1000 >/proc/self/oom_score_adj && ' + JOIN
# Takes memory until almost none is left in the group, and again whenever there is some.
GREEDY = '''
import sys, time
used, limit = sys.argv[1], int(sys.argv[2])
taken = []
while True:
    with open(used) as file:
        if int(file.read()) < limit:
            taken.append(bytearray(b'x') * %d)
            continue
    time.sleep(0.01)
''' % MIB

# Names of files: the limit, the bytes in use, and where `oom_kill N` stands; and the text that
# removes the limit.
Files = namedtuple('Files', 'limit used kills unlimited')
VERSION_1 = Files('memory.limit_in_bytes', 'memory.usage_in_bytes', 'memory.oom_control', '-1')
VERSION_2 = Files('memory.max', 'memory.current', 'memory.events', 'max')


def _parents():
    """Yields directories in which a group may be made, with the names of its files: the group of
    this process, which a container may see at the mount, and the mount."""
    with open('/proc/self/cgroup', encoding='ascii') as file:
        groups = re.findall(r'^\d+:(.*?):(.*)$', file.read(), re.M)
    for controllers, group in groups:
        if 'memory' in controllers.split(','):
            mount = os.path.join(MOUNT, 'memory')
            yield mount + group, VERSION_1
            yield mount, VERSION_1
        elif not controllers and os.path.exists(os.path.join(MOUNT, 'cgroup.controllers')):
            yield MOUNT + group, VERSION_2
            yield MOUNT, VERSION_2


def _make_in(parent):
    try:
        return tempfile.mkdtemp(prefix='embag-test-', dir=parent)
    except OSError:
        return None


class MemoryGroup:
    """A group of its own, empty and without a limit. Raises SkipTest if none can be made."""

    def __init__(self):
        for parent, files in _parents():
            self.files = files
            self.path = _make_in(parent)
            if self.path and self._is_good():
                return
            if self.path:
                os.rmdir(self.path)
        raise unittest.SkipTest('a control group that limits memory cannot be made below '
                                + MOUNT + ': root and a writable mount are needed')

    def _join(self, name):
        return os.path.join(self.path, name)

    def _is_good(self):
        """Returns whether the group has a limit that a process can reach: swap is not used."""
        if not os.path.exists(self._join(self.files.limit)):
            return False
        for name in 'memory.swappiness', 'memory.swap.max':
            if os.path.exists(self._join(name)):
                self._write(name, 0)
        return True

    def _write(self, name, value):
        with open(self._join(name), 'w', encoding='ascii') as file:
            file.write(str(value))

    def _read(self, name):
        with open(self._join(name), encoding='ascii') as file:
            return file.read()

    def command(self):
        """Returns the beginning of a command that runs the rest of it in the group. If memory runs
        out there, the kernel kills that process before others."""
        return ('sh', '-c', JOIN_AS_FIRST, self.path)

    def limit(self, size):
        """Limits the group's memory. None: removes the limit."""
        self._write(self.files.limit, self.files.unlimited if size is None else size)

    def used(self):
        """Returns how many bytes of memory the group uses."""
        return int(self._read(self.files.used))

    def kills(self):
        """Returns how often the kernel has killed a process of the group for lack of memory."""
        return int(re.search(r'^oom_kill (\d+)$', self._read(self.files.kills), re.M).group(1))

    def take_all(self, limit):
        """Starts a process that takes all memory that the limit leaves, and waits until it has
        done so. Returns the process, which the caller kills and waits for."""
        greedy = subprocess.Popen(['sh', '-c', JOIN, self.path, sys.executable, '-c', GREEDY,
                                   self._join(self.files.used), str(limit - MARGIN)])
        try:
            wait_until(lambda: self.used() >= limit - MARGIN, SECONDS, 'memory to be short')
        except BaseException:
            greedy.kill()
            greedy.wait()
            raise
        return greedy

    def remove(self):
        """Removes the group, whose processes have ended."""
        def is_removed():
            try:
                os.rmdir(self.path)
            except OSError:
                return False
            return True
        wait_until(is_removed, SECONDS, 'an empty control group')
