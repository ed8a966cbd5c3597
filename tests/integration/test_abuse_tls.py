"""Peers that keep OpenSSL busy without data: their connections are closed; others are served."""

import os
import subprocess
import unittest

import served
from attacker import Bystander
from embagd_process import wait_until
from rpc import SecureClient
from test_tls import TlsTest

UPDATES = 1000000
SECONDS_MAX = 60
REASON = 'too many TLS records without data'


class Updates(TlsTest):
    """KeyUpdates, sent by an OpenSSL client."""

    def test_again_and_again_end_the_connection(self):
        server = self.serve_tls('--loops', '1')
        with Bystander(server, connect=lambda: SecureClient(
                'localhost:%d' % server.port, self.authority)):
            for number in range(1, 4):
                done = subprocess.run(
                    [os.path.join(served.BUILD, 'embag-key-update-probe'), str(server.port),
                     self.authority.path('ca.pem'), str(UPDATES)],
                    capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
                self.assertEqual(done.returncode, 0, done)
                wait_until(lambda: server.log.count(REASON) == number, SECONDS_MAX, REASON)


if __name__ == '__main__':
    unittest.main()
