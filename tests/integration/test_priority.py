"""Which requests are served first under load, which are refused first, and what a refusal says."""

import threading
import time
import unittest

import numpy as np

from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from h2raw import Connection, call_fields, message
from raw_stream import ask_at_once
from rpc import as_bytes, error_of
from served import SEED, OwnServerTest, scaled
from table_files import Table

DEADLINE, EXHAUSTED = 4, 8
FLOODS = 30
ROUNDS = 8


class LoadTest(OwnServerTest):
    """A server with one thread. A test that depends on submitting work faster than this thread
    finishes it is tried several times, and must succeed once."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 46])
        self.table = Table.of_values('emb_table', 'f32', self.rng.normal(size=(500, 4096)))
        self.server = self.serve('--inline-below-us', '0', '--threads', '1', *self.flags(),
                                 tables=[self.table])
        self.client = self.connect(self.server)

    def flags(self):
        """Returns more settings."""
        return ()

    def heavy(self, request_id, rows=2000, **fields):
        """Returns a request for this many rows of 16 KiB."""
        query = to_message(Query('emb_table', self.rng.integers(0, 500, scaled(rows)), num_bags=1,
                                 index_form='i32'))
        return pb.LookupRequest(model='spec', request_id=request_id, queries=[query], **fields)

    def row(self, request_id, **fields):
        """Returns a request of one row."""
        query = to_message(Query('emb_table', np.array([request_id % 500]), num_bags=1))
        return pb.LookupRequest(model='spec', request_id=request_id, queries=[query], **fields)

    def check_row(self, answer):
        """Checks the answer to a request of one row."""
        self.assertEqual(answer.error_code, 0, answer.error_message)
        self.assertEqual(answer.results[0].values,
                         self.table.raw[answer.request_id % 500].tobytes())

    def send(self, requests):
        """Sends requests in one piece on a stream that then ends; returns the answers in order."""
        fields, answers = ask_at_once(self.server.port, requests)
        self.assertEqual(fields['grpc-status'], '0', fields)
        self.assertEqual(sorted(a.request_id for a in answers),
                         sorted(request.request_id for request in requests))
        return answers

    def rounds(self, attempt):
        """Repeats an attempt until it succeeds once."""
        for _ in range(ROUNDS):
            if attempt():
                return
        self.fail('no success in %d rounds' % ROUNDS)


class Priority(LoadTest):
    """Interactive and batch requests."""

    def test_interactive_requests_overtake_batch_ones(self):
        def attempt():
            batch = [self.heavy(n + 1, priority=1) for n in range(12)]
            answers = self.send(batch + [self.row(100), self.row(101)])
            self.assertEqual({answer.error_code for answer in answers}, {0})
            order = [answer.request_id for answer in answers]
            self.assertEqual([n for n in order if n < 100], list(range(1, 13)))
            return order.index(101) < 6
        self.rounds(attempt)

    def test_equals_wait_for_their_turn(self):
        requests = [self.heavy(n + 1, 200) for n in range(20)] + [self.row(100)]
        self.assertEqual([answer.request_id for answer in self.send(requests)],
                         [request.request_id for request in requests])

    def test_batch_requests_are_computed_when_nothing_else_waits(self):
        answers = self.send([self.row(n + 1, priority=1) for n in range(50)])
        for answer in answers:
            self.check_row(answer)
        self.assertEqual(self.client.lookup(self.row(7, priority=1)).results[0].values,
                         self.table.raw[7].tobytes())

    def test_both_give_the_same_bytes(self):
        request = self.heavy(1)
        batch = pb.LookupRequest()
        batch.CopyFrom(request)
        batch.priority = 1
        self.assertEqual(self.client.lookup(request).results, self.client.lookup(batch).results)

    def test_there_are_two(self):
        code, text = error_of(self.client.lookup, self.row(1, priority=2))
        self.assertEqual(code.name, 'INVALID_ARGUMENT', text)
        self.assertRegex(text, 'priority')
        refused, good = self.send([self.row(1, priority=2**32 - 1), self.row(2)])
        self.assertEqual(refused.error_code, 3)
        self.check_row(good)


class Turns(LoadTest):
    """One connection that floods, and one that makes a request at a time."""

    def flags(self):
        return ('--queue-bytes-max', '1024GiB')

    def test_a_flood_does_not_keep_others_waiting(self):
        """The flood grows until it lasts long enough on this machine."""
        sizes = (20000 * 3**(n // 2) for n in range(ROUNDS))
        with self.connect(self.server) as polite:
            polite.lookup(self.row(0))
            self.rounds(lambda: self.attempt_polite(self.flood(next(sizes)), polite))

    def flood(self, rows):
        return [self.heavy(n + 1, rows) for n in range(15)]

    def attempt_polite(self, flood, polite):
        """Returns whether some requests, made one after the other, were answered before a third of
        the flood."""
        answers = self.client.stream(flood)
        seen = [next(answers)]
        reader = threading.Thread(target=lambda: seen.extend(answers))
        reader.start()
        for number in range(5):
            self.check_row(polite.lookup(self.row(number)))
        count = len(seen)
        reader.join()
        self.assertEqual([answer.request_id for answer in seen], list(range(1, len(flood) + 1)))
        self.assertEqual({answer.error_code for answer in seen}, {0})
        return count < len(flood) // 3


class InlineTurns(Turns):
    """The same tests, with all requests computed on the loop's thread."""

    def flags(self):
        return ('--inline-below-us', '1000', '--loops', '1')

    def flood(self, rows):
        return [self.heavy(n + 1, 400) for n in range(rows // 400)]

    def test_each_of_many_floods_is_answered(self):
        """A connection that had to wait for time slices, and used up its last one just as it had no
        more to read, is read again."""
        for _ in range(FLOODS):
            answers = self.client.stream(self.flood(20000))
            self.assertEqual([answer.error_code for answer in answers], [0] * 50)


class Refusal(LoadTest):
    """A queue of 64 MiB, of which batch requests may fill half."""

    def flags(self):
        return ('--queue-bytes-max', '64MiB')

    def test_a_full_queue_says_when_to_come_again(self):
        def attempt():
            answers = self.send([self.heavy(n + 1, 8000) for n in range(12)])
            refused = [answer for answer in answers if answer.error_code]
            for answer in answers:
                self.assertIn(answer.error_code, (0, EXHAUSTED), answer.error_message)
                self.assertEqual(answer.retry_after_ms > 0, answer.error_code == EXHAUSTED)
            self.assertLess(len(refused), len(answers))
            return refused
        self.rounds(attempt)

    def test_batch_requests_are_refused_first(self):
        def attempt():
            answers = {answer.request_id: answer for answer in self.send(
                [self.heavy(1, 20000, priority=1), self.heavy(2, 20, priority=1), self.row(3)])}
            self.assertEqual((answers[1].error_code, answers[3].error_code), (0, 0))
            self.check_row(answers[3])
            return answers[2].error_code == EXHAUSTED and answers[2].retry_after_ms > 0
        self.rounds(attempt)


class Late(LoadTest):
    """A request whose deadline cannot be met is refused at once."""

    def slow(self):
        """Returns a request, and a quarter of its computing time on this machine, in
        microseconds."""
        request = self.heavy(1, 40000)
        answer, = self.client.stream([request])
        return request, max(answer.compute_us // 4, 1)

    def test_on_a_stream(self):
        """The request is refused at once, and the answer says when to retry."""
        def attempt():
            slow, too_short_us = self.slow()
            answers = self.send([slow, self.row(2, timeout_us=too_short_us),
                                 self.row(3, timeout_us=59000000)])
            answers = {answer.request_id: answer for answer in answers}
            late = answers[2]
            self.assertEqual(answers[1].error_code, 0)
            self.check_row(answers[3])
            self.assertIn(late.error_code, (0, DEADLINE))
            return late.error_code == DEADLINE and late.retry_after_ms > 0
        self.rounds(attempt)

    def test_of_a_unary_call(self):
        """The trailer says when to retry."""
        def attempt():
            request, too_short_us = self.slow()
            with Connection(self.server.port, window=1 << 24) as peer:
                slow = peer.call(message(as_bytes(request)))
                late = peer.call(message(as_bytes(self.row(2))), call_fields(
                    grpc_timeout='%du' % too_short_us))
                fields, _ = peer.finish(late)
                self.assertIn(fields['grpc-status'], ('0', '4'), fields)
                self.assertEqual(peer.status(slow)[1], 0)
            return (fields['grpc-status'] == '4'
                    and int(fields.get('grpc-retry-pushback-ms', 0)) > 0)
        self.rounds(attempt)


class Times(LoadTest):
    """Deadlines of a stream's requests, and the times that answers report."""

    def test_each_request_has_its_own_deadline(self):
        requests = []
        for number in range(20):
            requests.append(self.heavy(3 * number + 1, 200))
            requests.append(self.heavy(3 * number + 2, timeout_us=1))
            requests.append(self.row(3 * number + 3, timeout_us=2**64 - 1))
        answers = {answer.request_id: answer for answer in self.send(requests)}
        for number in range(20):
            self.assertEqual(answers[3 * number + 1].error_code, 0)
            self.assertEqual(answers[3 * number + 2].error_code, DEADLINE)
            self.check_row(answers[3 * number + 3])

    def test_an_id_may_be_used_again_after_its_deadline(self):
        for answer in self.client.stream([self.heavy(1, timeout_us=1)]):
            self.assertEqual(answer.error_code, DEADLINE)
        answer, = self.client.stream([self.row(1)])
        self.check_row(answer)

    def test_times_fit_into_what_the_client_waits(self):
        for request in (self.heavy(1), self.row(2), self.heavy(3, 100, partial=True)):
            begun = time.monotonic()
            answer, = self.client.stream([request])
            waited_us = (time.monotonic() - begun) * 1e6
            self.assertGreaterEqual(waited_us, answer.queue_us + answer.compute_us)

    def test_what_waits_behind_others_says_so(self):
        def attempt():
            answers = self.send([self.heavy(n + 1) for n in range(6)])
            queued = [answer.queue_us for answer in answers]
            self.assertTrue(all(answer.error_code == 0 for answer in answers))
            return queued == sorted(queued) and queued[-1] > queued[0] > -1
        self.rounds(attempt)


if __name__ == '__main__':
    unittest.main()
