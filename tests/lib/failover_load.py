"""Runs embag-failover-load (tests/integration/failover_load.c): a load on several servers."""

import json
import os
import subprocess
import tempfile

from embagd_process import SANITIZER_MARKS

END_SECONDS = 120
MESSAGES_MAX = 8000    # characters of messages that a failure quotes


class FailoverLoad:
    """A load that runs until it is finished. Its options are those of the program, as keywords."""

    def __init__(self, build, addresses, under=(), **options):
        command = [*under, os.path.join(build, 'embag-failover-load'),
                   '--server', ','.join(addresses)]
        for name, value in options.items():
            command += ['--' + name.replace('_', '-'), str(value)]
        # A file, because nobody reads while the load runs.
        self.messages_file = tempfile.TemporaryFile('w+')
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.messages_file, text=True)

    @property
    def messages(self):
        """What the program has written on stderr."""
        self.messages_file.seek(0)
        return self.messages_file.read()

    def report(self):
        """Returns the counts so far. Raises AssertionError if the load has ended."""
        try:
            self.process.stdin.write('\n')
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ''
        if not line:
            self.process.wait(END_SECONDS)
            self._check_status(None)
        return json.loads(line)

    def server(self, address):
        """Returns the counts so far of the server at this address."""
        return server_of(self.report(), address)

    def finish(self):
        """Ends the load. Returns the last report."""
        out, _ = self.process.communicate(timeout=END_SECONDS)
        return self._last_report(out)

    def wait(self):
        """Waits until all lookups are sent and answered. Returns the last report."""
        out = self.process.stdout.read()
        self.process.communicate(timeout=END_SECONDS)
        return self._last_report(out)

    def _last_report(self, out):
        self._check_status(0)
        return json.loads(out.splitlines()[-1])

    def fails(self):
        """Waits until the program ends, which must fail. Returns its messages."""
        self.process.communicate(timeout=END_SECONDS)
        self._check_status(1)
        return self.messages

    def _check_status(self, status):
        messages = self.messages
        if self.process.returncode != status or any(mark in messages for mark in SANITIZER_MARKS):
            raise AssertionError('the load ended with status %d:\n%s'
                                 % (self.process.returncode, messages[-MESSAGES_MAX:]))

    def close(self):
        """Ends the program if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self.messages_file.close()


def server_of(report, address):
    """Returns what a report says of the server at this address; None if it is not known."""
    return next((one for one in report['servers'] if one['address'] == address), None)
