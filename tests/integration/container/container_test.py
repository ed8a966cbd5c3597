"""Tests the container image, run as users run it.

    container_test.py PODMAN BASE EMBAG

BASE is the image on which it is built. EMBAG is the command-line tool, which runs outside the
container. Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import unittest
import urllib.error
import urllib.request

import numpy as np

import guide
import summary
from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import wait_until
from h2raw import DATA, Connection, message

LIMITS = ('--ulimit', 'nofile=20000:20000', '--ulimit', 'nproc=1000:1000')
# Options as strict as the security policies of clusters.
STRICT = ('--read-only', '--read-only-tmpfs=false', '--cap-drop', 'ALL',
          '--security-opt', 'no-new-privileges')
SECONDS = 60
TOP_BYTES_MAX = 40 << 20  # size of the image without its base
MEMORY_BYTES = 768 << 20
# Settings for a container with MEMORY_BYTES of memory. The defaults are for larger machines.
SMALL = ('--env', 'EMBAG_RECEIVE_MEMORY_BYTES=128MiB', '--env', 'EMBAG_ANSWER_MEMORY_BYTES=256MiB')
LOOKUP = pb.LookupRequest(model='spec', request_id=7, queries=[
    pb.BagQuery(table='emb_table', indices=[0, 2], num_bags=1)])


def podman(*words, check=True):
    """Runs podman, which must succeed; returns its output."""
    done = subprocess.run([PODMAN, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, timeout=120, check=False)
    if check and done.returncode != 0:
        raise AssertionError('podman %s: %s%s' % (' '.join(words), done.stdout, done.stderr))
    return done.stdout.strip()


class Container:
    """A running container; its ports are published on the loopback interface, with numbers that the
    system chooses."""

    def __init__(self, identity):
        self.id = identity
        self.address = podman('port', self.id, '8600')
        self.http = 'http://' + podman('port', self.id, '8601')

    def inspect(self, template):
        """Returns what `podman inspect` reports with this template."""
        return podman('inspect', '--format', template, self.id)

    def log(self):
        """Returns all of embagd's output."""
        done = subprocess.run([PODMAN, 'logs', self.id], stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, timeout=SECONDS, check=True)
        return done.stdout

    def wait_event(self, event):
        """Waits until the container's log has an event."""
        wait_until(lambda: 'event=' + event in self.log(), SECONDS, event)

    def wait_ready(self):
        """Waits until the server is ready. Fails if it exits instead."""
        def is_ready():
            if self.inspect('{{.State.Running}}') != 'true':
                raise AssertionError('embagd has exited:\n' + self.log())
            return 'event=ready' in self.log()
        wait_until(is_ready, SECONDS, 'embagd to serve')
        return self

    def get(self, path):
        """Returns the status and the text of a path on the port for operators."""
        try:
            with urllib.request.urlopen(self.http + path, timeout=SECONDS) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def check_health(self):
        """Returns whether the container's health check passes."""
        done = subprocess.run([PODMAN, 'healthcheck', 'run', self.id], check=False,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                              timeout=SECONDS)
        return done.returncode == 0

    def remove(self):
        """Removes the container, whatever its state, or does nothing if it is gone."""
        podman('rm', '--force', '--ignore', '--time', '0', self.id)


class ImageTest(unittest.TestCase):
    """Checks that need no running container."""

    def test_is_small(self):
        sizes = [int(podman('image', 'inspect', '--format', '{{.Size}}', image))
                 for image in ('localhost/embag', BASE)]
        top = sizes[0] - sizes[1]
        print('on top of its base: %.1f MiB' % (top / (1 << 20)))
        self.assertLess(top, TOP_BYTES_MAX)

    def test_says_how_it_is_to_be_run(self):
        config = json.loads(podman('image', 'inspect', 'localhost/embag'))[0]
        self.assertEqual(config['User'], '10001:10001')
        self.assertEqual(config['Config']['Entrypoint'], ['embagd'])
        self.assertEqual(set(config['Config']['ExposedPorts']), {'8600/tcp', '8601/tcp'})
        self.assertTrue(config.get('HealthCheck') or config.get('Healthcheck'))

    def test_has_the_tools_and_all_that_they_need(self):
        for tool in ('embagd', 'embag', 'embag-load'):
            said = podman('run', '--rm', *LIMITS, *STRICT, '--entrypoint', tool,
                          'localhost/embag', '--help')
            self.assertIn('Usage: ' + tool, said)

    def test_leaves_balancers_time_unless_it_is_told_otherwise(self):
        for options, flags, delay in (([], [], 2000), (['--env', 'EMBAG_DRAIN_DELAY_MS=0'], [], 0),
                                      ([], ['--drain-delay-ms', '1'], 1)):
            said = podman('run', '--rm', *LIMITS, *STRICT, *options, 'localhost/embag', *flags,
                          '--print-config')
            self.assertIn('\ndrain_delay_ms: %d #' % delay, said)

    def test_says_what_is_missing(self):
        """Without models embagd exits, and the log says why."""
        done = subprocess.run(
            [PODMAN, 'run', '--rm', *LIMITS, *STRICT, 'localhost/embag'],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=SECONDS,
            check=False)
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn('model_repository', done.stdout)


class RunTest(unittest.TestCase):
    """A container that serves the specification's table."""

    def setUp(self):
        self.models = tempfile.mkdtemp(prefix='embag-test-')
        self.addCleanup(shutil.rmtree, self.models)
        os.chmod(self.models, 0o755)
        subprocess.run([EMBAG, 'make-model', '--example', 'spec', self.models], check=True,
                       stdout=subprocess.DEVNULL)

    def keep(self, identity):
        """Waits until the container with this id serves, and returns it. It is removed at the end
        of the test."""
        container = Container(identity)
        self.addCleanup(container.remove)
        return container.wait_ready()

    def start(self, *options):
        """Starts a container with as few rights as possible."""
        return self.keep(podman(
            'run', '--detach', *LIMITS, *STRICT, *options, '--volume', self.models + ':/models:ro',
            '--publish', '127.0.0.1::8600', '--publish', '127.0.0.1::8601', 'localhost/embag'))

    def call_slowly(self, container):
        """Starts a call that stays in flight. Returns the stream and, before it, the connection,
        which accepts one byte of the answer at a time."""
        peer = Connection(int(container.address.rpartition(':')[2]), window=1)
        self.addCleanup(peer.close)
        stream = peer.call(message(LOOKUP.SerializeToString()))
        peer.wait_frame(DATA)
        return peer, stream

    def lookup(self, container):
        """Makes a lookup with the tool, from outside; the values must be right."""
        said = subprocess.run(
            [EMBAG, 'lookup', '--server', container.address, '--model', 'spec', '--table',
             'emb_table', '--indices', '0,2', '--offsets', '0'],
            stdout=subprocess.PIPE, text=True, check=True, timeout=SECONDS).stdout
        self.assertIn('-2.1', said)
        self.assertIn('-2.4', said)

    def write_large_model(self, name):
        """Writes a model of a table that does not fit into memory; its file is sparse."""
        rows = MEMORY_BYTES // 256 + 1
        hidden = os.path.join(self.models, '.' + name)
        os.makedirs(os.path.join(hidden, '1'))
        with open(os.path.join(hidden, '1', 'table.npy'), 'wb') as file:
            np.lib.format.write_array_header_1_0(
                file, {'descr': '<f4', 'fortran_order': False, 'shape': (rows, 64)})
            file.truncate(file.tell() + rows * 256)
        os.rename(hidden, os.path.join(self.models, name))

    def test_serves_with_as_little_as_may_be(self):
        container = self.start()
        self.lookup(container)
        self.assertEqual(container.get('/readyz')[0], 200)
        self.assertIn('embag_requests_total', container.get('/metrics')[1])
        self.assertTrue(container.check_health())
        owner = podman('exec', container.id, 'stat', '--format', '%u', '/proc/1')
        self.assertEqual(owner, '10001')
        status = podman('exec', container.id, 'cat', '/proc/1/status')
        for line in ('CapEff:\t0000000000000000', 'CapBnd:\t0000000000000000', 'NoNewPrivs:\t1'):
            self.assertIn(line, status)
        for path in ('/here', '/models/here', '/tmp/here'):
            with self.assertRaises(AssertionError, msg=path):
                podman('exec', container.id, 'touch', path)

    def test_drains_when_it_is_stopped(self):
        container = self.start()
        peer, stream = self.call_slowly(container)
        stop = threading.Thread(target=podman, args=('stop', '--time', '60', container.id))
        stop.start()
        self.addCleanup(stop.join)
        container.wait_event('drain_delayed signal=SIGTERM drain_delay_ms=2000')
        fields, body = peer.finish(stream)
        self.assertEqual(fields['grpc-status'], '0')
        answer = pb.LookupResponse.FromString(body[5:])
        self.assertEqual((answer.request_id, len(answer.results)), (7, 1))
        stop.join()
        self.assertEqual(container.inspect('{{.State.ExitCode}}'), '0')
        self.assertIn('event=stopped', container.log())

    def test_keeps_to_the_cpus_and_memory_it_has(self):
        container = self.start('--memory', str(MEMORY_BYTES), '--memory-swap', str(MEMORY_BYTES),
                               '--cpus', '1', *SMALL)
        self.lookup(container)
        self.assertIn(' threads=1 ', container.log())
        self.write_large_model('large')
        wait_until(lambda: 'event=model_failed model=large' in container.log(), SECONDS,
                   'the log to name the model that does not fit')
        self.assertIn('bytes more memory than is available', container.log())
        self.lookup(container)
        self.assertEqual(container.inspect('{{.State.OOMKilled}}'), 'false')

    def test_is_unhealthy_while_it_drains(self):
        container = self.start()
        self.assertTrue(container.check_health())
        peer, stream = self.call_slowly(container)
        podman('kill', '--signal', 'TERM', container.id)
        wait_until(lambda: container.get('/readyz')[0] == 503, SECONDS, 'status 503')
        self.assertFalse(container.check_health())
        # The check failed because of the answer: commands still run in the container, and it has
        # not exited.
        podman('exec', container.id, 'true')
        self.assertEqual(peer.status(stream)[:2], ('200', 0))

    def run_printed(self, section, *places):
        """Runs the command of a section of the guide with ports and directories of the test's own;
        returns the container."""
        text = guide.section(guide.read('deploy', 'OPERATIONS.md'), section)
        command = re.search(r'^podman run (?:.*\\\n)*.*$', text, re.M)[0]
        for printed, ours in (('podman run', PODMAN + ' run --detach --ulimit nproc=1000:1000'),
                              ('/var/lib/embag/models', self.models), *places,
                              ('-p 8600:', '-p 127.0.0.1::'), (':8601:8601', '::8601')):
            self.assertIn(printed, command)
            command = command.replace(printed, ours)
        return self.keep(subprocess.run(
            ['bash', '-c', command], stdout=subprocess.PIPE, text=True, check=True,
            timeout=SECONDS).stdout.strip())

    def test_runs_as_the_guide_says(self):
        container = self.run_printed('Installing')
        self.lookup(container)
        self.assertTrue(container.check_health())

    def test_a_new_container_takes_the_resident_tables_of_the_last_one(self):
        resident = tempfile.mkdtemp(prefix='embag-test-', dir='/dev/shm')
        self.addCleanup(shutil.rmtree, resident)
        os.chown(resident, 10001, 10001)
        for is_first in True, False:
            container = self.run_printed('Models', ('/srv/embag-resident', resident))
            self.lookup(container)
            loaded = re.search(r'event=model_loaded\b.*', container.log())[0]
            adopted = re.search(r'\badopted_bytes=(\d+)', loaded)
            self.assertEqual(not adopted or adopted[1] == '0', is_first, loaded)
            container.remove()


if __name__ == '__main__':
    PODMAN, BASE, EMBAG = sys.argv[1:4]
    sys.exit(summary.run_tests())
