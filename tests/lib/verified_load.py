"""Runs embag-load, which compares every answer with the published values of `embag make-model`."""

import json
import os
import signal
import subprocess
import tempfile

import served
from embagd_process import SANITIZER_MARKS, wait_until

END_SECONDS = 60
START_SECONDS = 60
DURATION = ('--warmup', '0', '--duration', '86400')
# A timeout that no request exceeds, even on a slow machine.
PATIENT = ('--timeout-us', '20000000')


class VerifiedLoad:
    """A load that runs until it is finished.

    - messages: what the program has written on stderr
    """

    def __init__(self, addresses, workload, *flags, under=()):
        # Files, because nobody reads while the load runs.
        self.messages_file = tempfile.TemporaryFile('w+')
        self.process = subprocess.Popen(
            [*under, os.path.join(served.BUILD, 'embag-load'), '--server', ','.join(addresses),
             '--workload', workload, '--requests', '64', '--verify', '--json', *DURATION, *PATIENT,
             *flags], stdout=subprocess.PIPE, stderr=self.messages_file, text=True)

    @property
    def messages(self):
        """What the program has written on stderr."""
        self.messages_file.seek(0)
        return self.messages_file.read()

    def wait_started(self):
        """Waits until there is an answer. Returns self."""
        wait_until(lambda: ' of 86400 s: ' in self.messages or self.process.poll() is not None,
                   START_SECONDS, 'the load to start')
        return self

    def interrupt(self):
        """Ends the load. Returns its report."""
        self.process.send_signal(signal.SIGINT)
        out, _ = self.process.communicate(timeout=END_SECONDS)
        messages = self.messages
        if self.process.returncode not in (0, 1) or not out or \
                any(mark in messages for mark in SANITIZER_MARKS):
            raise AssertionError('the load ended with status %d:\n%s'
                                 % (self.process.returncode, messages[-8000:]))
        return json.loads(out)

    def finish(self):
        """Ends a load of which no request has failed and no answer is wrong. Returns its report."""
        report = self.interrupt()
        bad = {key: report[key] for key in ('errors', 'errors_by_code', 'wrong', 'lost', 'unsent')
               if report[key]}
        if bad or report['answers'] == 0:
            raise AssertionError('of %d answers: %s\n%s' % (report['answers'], bad,
                                                             self.messages[-8000:]))
        return report

    def close(self):
        """Ends the program if it still runs."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()
        self.process.stdout.close()
        self.messages_file.close()
