"""Runs embagd for a test, and checks that it ends cleanly.

The server listens on a free port, and its repository is in a temporary directory.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

EMBAGD = None     # path of the server, set by run.py
SANITIZE = None   # sanitizer that it was built with, as in -fsanitize=..., set by run.py
NO_RACES = os.path.join(os.path.dirname(os.path.abspath(__file__)), 'thread_sanitizer.supp')
START_SECONDS = 60
STOP_SECONDS = 60
SANITIZER_MARKS = ('AddressSanitizer', 'LeakSanitizer', 'ThreadSanitizer', 'runtime error:',
                   'Assertion `')


def wait_until(condition, seconds, what):
    """Polls `condition` until it returns a true value, and returns that value.

    Raises AssertionError with the text `what` if that takes longer than `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError('timed out after %g s, waiting for: %s' % (seconds, what))
        time.sleep(0.01)


def clean_environment():
    """Returns our environment without variables that embagd reads or rejects as settings."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith('EMBAG_')}
    return {**ours, 'TSAN_OPTIONS': 'suppressions=' + NO_RACES}


class Repository:
    """A model repository in a temporary directory of its own."""

    def __init__(self):
        self.path = tempfile.mkdtemp(prefix='embag-test-')

    def join(self, *names):
        """Returns a path inside the repository."""
        return os.path.join(self.path, *names)

    def remove(self):
        """Deletes the repository and everything in it."""
        shutil.rmtree(self.path, ignore_errors=True)


class Embagd:
    """One server process.

    - http: address of the operators' port, by default none
    - host: address at which the test reaches the server
    - under: command that runs embagd, such as a debugger

    A thread reads the log, so that the server never blocks on a full pipe.
    """

    def __init__(self, repository, *flags, listen=('127.0.0.1:0',), http='none', environment=None,
                 user=None, under=()):
        command = [*under, EMBAGD, '--model-repository', repository, '--http-listen', http]
        if SANITIZE == 'thread' and '--threads' not in flags:
            # The thread sanitizer does not see OpenMP's barriers. A team of one needs none.
            command += ['--threads', '1']
        for address in listen:
            command += ['--listen', address]
        self.process = subprocess.Popen(
            command + list(flags), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE, env={**clean_environment(), **(environment or {})}, user=user)
        self.host = '127.0.0.1'
        self.is_terminated = False
        self.is_killed = False
        self.lines = []
        self.reader = threading.Thread(target=self._read_log, daemon=True)
        self.reader.start()

    def _read_log(self):
        for line in self.process.stderr:
            self.lines.append(line.decode('utf-8', 'replace').rstrip('\n'))

    @property
    def pid(self):
        """Id of the process."""
        return self.process.pid

    @property
    def log(self):
        """The log so far."""
        return '\n'.join(self.lines)

    def find(self, event):
        """Returns the first log line of an event, or None."""
        marked = re.compile(r'\bevent=%s(\s|$)|"event":"%s"' % ((re.escape(event),) * 2))
        return next((line for line in list(self.lines) if marked.search(line)), None)

    def has_ended(self):
        """Returns whether the process has ended."""
        return self.process.poll() is not None

    def wait_ready(self):
        """Waits until the server is ready. Returns self.

        Raises AssertionError if the server ends instead, or is not ready in time.
        """
        wait_until(lambda: self.find('ready') or self.has_ended(), START_SECONDS, 'event=ready')
        if self.has_ended():
            self.reader.join()
            raise AssertionError('embagd ended at start:\n' + self.log)
        return self

    def _port_of(self, event):
        line = wait_until(lambda: self.find(event), START_SECONDS, 'event=' + event)
        return int(re.search(r'address(?:="?|":")[^\s"]*:(\d+)', line).group(1))

    @property
    def port(self):
        """TCP port that the server listens on."""
        return self._port_of('listening')

    @property
    def http_port(self):
        """TCP port for operators."""
        return self._port_of('http_listening')

    @property
    def address(self):
        """Address of the server, as HOST:PORT."""
        return '%s:%d' % (self.host, self.port)

    def terminate(self):
        """Sends SIGTERM, which makes the server drain."""
        self.is_terminated = True
        self.process.send_signal(signal.SIGTERM)

    def kill(self):
        """Kills the server, like a crash."""
        self.is_killed = True
        self.process.kill()
        self.wait()

    def hold(self):
        """Stops the process with SIGSTOP, until `release`. All its threads have stopped then."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def release(self):
        """Lets a process go on that `hold` has stopped. Does nothing if it has ended."""
        if not self.has_ended():
            self.process.send_signal(signal.SIGCONT)

    def wait(self, seconds=STOP_SECONDS):
        """Waits until the process ends. Returns its exit status.

        Kills the process and raises AssertionError if it does not end in time.
        """
        try:
            status = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise AssertionError(
                'embagd did not end within %g s:\n%s' % (seconds, self.log[-4000:])) from None
        self.reader.join()
        self.process.stderr.close()
        return status

    def check_log(self):
        """Raises AssertionError if the log has a sanitizer's report or a failed assertion."""
        for mark in SANITIZER_MARKS:
            if mark in self.log:
                raise AssertionError('%r in the log of embagd:\n%s' % (mark, self.log[-8000:]))

    def stop(self, seconds=STOP_SECONDS):
        """Drains the server and checks that it ended cleanly. Does nothing after `kill`."""
        if self.is_killed:
            return
        alive = self.is_terminated or not self.has_ended()
        if not self.is_terminated and alive:
            self.terminate()
        status = self.wait(seconds)
        self.check_log()
        if not alive or status != 0:
            raise AssertionError('embagd %s with status %d:\n%s' % (
                'drained' if alive else 'ended early', status, self.log[-4000:]))

    def start_fails(self, seconds=START_SECONDS):
        """Checks that the start fails, with a positive exit status. Returns the log."""
        wait_until(lambda: self.has_ended() or self.find('ready'), seconds, 'the start to fail')
        ready = self.find('ready')
        if ready:
            self.stop()
            raise AssertionError('embagd started, but its start should fail:\n' + self.log)
        status = self.wait()
        self.check_log()
        if status <= 0:
            raise AssertionError('the start failed with status %d, expected a positive one:\n%s'
                                 % (status, self.log))
        return self.log
