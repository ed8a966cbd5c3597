"""Looks up again and again, and remembers from which versions the answers came."""

import threading
import time

import grpc

from published import published_sums
from rpc import Client

PAUSE_SECONDS = 0.004
TIMEOUT_SECONDS = 20


class VersionWatch:
    """Lookups at one server until it is closed, one after the other. The request looks up published
    values; each answer is compared with those of its version.

    - seen: [version, time of its first answer, time of its last one], in order
    - errors: texts of lookups that failed, or were answered wrongly
    - times: when the failed lookups began and ended
    """

    def __init__(self, address, request):
        self.request = request
        self.client = Client(address)
        self.seen = []
        self.errors = []
        self.times = []
        self.expected = {}
        self.is_ending = False
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        while not self.is_ending:
            began = time.monotonic()
            try:
                self._take(self.client.lookup(self.request, TIMEOUT_SECONDS), began)
            except grpc.RpcError as error:
                self.errors.append('%s: %s' % (error.code().name, error.details()))
                self.times.append((began, time.monotonic()))
            time.sleep(PAUSE_SECONDS)

    def _take(self, answer, now):
        if answer.version not in self.expected:
            self.expected[answer.version] = published_sums(self.request, answer.version)
        if [result.values for result in answer.results] != self.expected[answer.version]:
            self.errors.append('a wrong answer of version %d' % answer.version)
            self.times.append((now, now))
        if not self.seen or self.seen[-1][0] != answer.version:
            self.seen.append([answer.version, now, now])
        self.seen[-1][2] = now

    @property
    def versions(self):
        """The versions that answered, in order."""
        return [version for version, _, _ in self.seen]

    def first(self, version):
        """Returns when a version answered first, or None if it has not."""
        return next((begin for number, begin, _ in self.seen if number == version), None)

    def close(self):
        """Ends the lookups."""
        self.is_ending = True
        self.thread.join()
        self.client.close()
