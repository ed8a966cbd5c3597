"""embag.Client.stream()."""

import concurrent.futures
import math
import threading

import numpy as np

import embag
from embagd_process import Embagd, wait_until
from package_test import PackageTest
from served import SPEC_TABLE, OwnServerTest, scaled

ROWS = np.array(SPEC_TABLE, 'f4')


def submit_row(stream, row, **fields):
    """Submits a lookup of one row of the specification's table."""
    return stream.submit('emb_table', [row], num_bags=1, model='spec', **fields)


class FastLane(PackageTest):
    """Tests on the shared server."""

    def setUp(self):
        super().setUp()
        self.stream = self.embag.stream()
        self.addCleanup(self.stream.close)

    def slow(self, **fields):
        """Submits a lookup of a hundred megabytes of rows."""
        indices = np.arange(500_000, dtype='i4') % 50000
        return self.stream.submit('large', indices, lengths=[len(indices)], model='wide', **fields)

    def test_many_at_once_each_with_its_own_answer(self):
        futures = [submit_row(self.stream, n % 5) for n in range(scaled(5000))]
        for number, future in enumerate(futures):
            np.testing.assert_array_equal(future.result(60).values[0], ROWS[number % 5])

    def test_many_threads(self):
        def ask(first):
            futures = [submit_row(self.stream, (first + n) % 5) for n in range(scaled(500))]
            return all((future.result(60).values[0] == ROWS[(first + n) % 5]).all()
                       for n, future in enumerate(futures))
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            self.assertTrue(all(pool.map(ask, range(8))))

    def test_an_error_is_that_of_its_request(self):
        futures = [submit_row(self.stream, row) for row in (0, 9, 1)]
        np.testing.assert_array_equal(futures[2].result(60).values[0], ROWS[1])
        np.testing.assert_array_equal(futures[0].result(60).values[0], ROWS[0])
        error = futures[1].exception(60)
        self.assertIsInstance(error, embag.OutOfRange)
        self.assertEqual(error.query, 0)

    def test_what_is_cancelled_is_withdrawn(self):
        futures = [self.slow() for _ in range(4)]
        self.assertTrue(futures[-1].cancel())
        with self.assertRaises(concurrent.futures.CancelledError):
            futures[-1].result(60)
        self.assertEqual(submit_row(self.stream, 0).result(60).version, 1)
        for future in futures[:-1]:
            future.result(60)
        self.assertEqual(len(self.stream._call.in_flight), 0)

    def test_a_timeout_is_the_servers_to_keep(self):
        futures = [self.slow(timeout=60) for _ in range(4)] + [self.slow(timeout=1e-6)]
        self.assertIsInstance(futures[-1].exception(60), embag.DeadlineExceeded)
        self.assertIsInstance(futures[-1].exception(), TimeoutError)
        for future in futures[:-1]:
            future.result(60)

    def test_a_timeout_without_end(self):
        for timeout in math.inf, 1e300:
            with embag.Client(self.server.address, timeout=timeout) as client:
                client.lookup('emb_table', [0], num_bags=1, model='spec')
                with client.stream() as stream:
                    submit_row(stream, 0).result(60)
            self.embag.lookup('emb_table', [0], num_bags=1, model='spec', timeout=timeout)
            submit_row(self.stream, 0, timeout=timeout).result(60)
        with self.assertRaises(ValueError):
            submit_row(self.stream, 0, timeout=math.nan)
        with self.assertRaises(embag.DeadlineExceeded):
            self.slow(timeout=-math.inf).result(60)

    def test_closing_waits_for_what_is_under_way(self):
        futures = [self.slow() for _ in range(3)]
        self.stream.close()
        self.assertTrue(all(future.done() and future.exception() is None for future in futures))
        with self.assertRaises(ValueError):
            submit_row(self.stream, 0)

    def test_a_stream_whose_client_is_closed(self):
        submit_row(self.stream, 0).result(60)
        self.embag.close()
        # A request that is submitted before the stream notices the close fails through its future.
        with self.assertRaises(ValueError):
            for _ in range(2):
                self.assertIsInstance(submit_row(self.stream, 0).exception(60), embag.Cancelled)
        with self.assertRaises(ValueError):
            submit_row(self.embag.stream(), 0)

    def test_leaves_no_thread(self):
        def ours():
            return [t.name for t in threading.enumerate() if t.name == 'embag-stream']
        before = len(ours())
        for _ in range(5):
            with self.embag.stream() as stream:
                submit_row(stream, 0).result(60)
        self.assertEqual(len(ours()), before)


class Restart(OwnServerTest):
    """A server that goes away and comes back."""

    def test_what_was_not_answered_fails_and_the_next_request_begins_anew(self):
        server = self.serve()
        port = server.port
        with embag.Client(server.address) as client, client.stream() as stream:
            submit_row(stream, 0).result(60)
            server.hold()
            lost = [submit_row(stream, row) for row in range(5)]
            server.kill()
            for future in lost:
                self.assertIsInstance(future.exception(60), embag.Unavailable)
            back = Embagd(self.repository.path, listen=('127.0.0.1:%d' % port,))
            self.addCleanup(back.stop)
            back.wait_ready()

            def answered():
                # gRPC waits between its attempts to connect.
                return submit_row(stream, 2).exception(60) is None
            wait_until(answered, 60, 'the stream to reconnect')

    def test_a_server_that_drains_answers_what_it_has_read(self):
        server = self.serve()
        with embag.Client(server.address) as client, client.stream() as stream:
            futures = [submit_row(stream, 0) for _ in range(scaled(1000))]
            server.terminate()
            outcomes = {type(future.exception(60)) for future in futures}
            self.assertLessEqual(outcomes, {type(None), embag.Unavailable})

            def is_refused():
                # All requests may have been answered before the signal took effect.
                return isinstance(submit_row(stream, 0).exception(60), embag.Unavailable)
            wait_until(is_refused, 60, 'the server to refuse requests')
