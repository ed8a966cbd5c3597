"""`cancel` on a stream: a cancelled request is not answered, and no other request is affected."""

import unittest

import numpy as np

from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from raw_stream import ask_at_once
from rpc import Requests, as_bytes, error_of
from served import SEED, OwnServerTest, scaled
from table_files import Table

ROUNDS = 8


def cancel(request_id, **fields):
    """Returns a message that cancels a request."""
    return pb.LookupRequest(request_id=request_id, cancel=True, **fields)


class Cancel(OwnServerTest):
    """One thread computes all requests in order, and the first takes long. If the computation is
    nevertheless faster than the loop, the request is finished before it is cancelled and is
    answered. Such a round checks only what must hold in any case."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 43])
        self.table = Table.of_values('emb_table', 'f32', self.rng.normal(size=(500, 4096)))
        self.server = self.serve('--inline-below-us', '0', '--threads', '1', tables=[self.table])
        self.client = self.connect(self.server)
        self.slow_rows = scaled(2000)

    def slow(self, request_id, **fields):
        """Returns a request of 30 MB of rows, and of more in later rounds."""
        query = to_message(Query('emb_table', self.rng.integers(0, 500, self.slow_rows),
                                 num_bags=1, index_form='i32'))
        return pb.LookupRequest(model='spec', request_id=request_id, queries=[query], **fields)

    def row(self, request_id, row, **fields):
        """Returns a request of one row."""
        query = to_message(Query('emb_table', np.array([row]), num_bags=1))
        return pb.LookupRequest(model='spec', request_id=request_id, queries=[query], **fields)

    def check_row(self, answer, row):
        """Checks the answer to a request of one row."""
        self.assertEqual(answer.error_code, 0, answer.error_message)
        self.assertEqual(answer.results[0].values, self.table.raw[row].tobytes())

    def send(self, requests):
        """Sends all requests in one piece on a stream that then ends; returns the answers."""
        fields, answers = ask_at_once(self.server.port, requests)
        self.assertEqual(fields['grpc-status'], '0', fields)
        return answers

    def rounds(self, attempt):
        """Repeats an attempt, with more work each time, until the cancel has come in time once."""
        self.slow_rows = scaled(2000)
        for _ in range(ROUNDS):
            if attempt():
                return
            self.slow_rows *= 2
        self.fail('no success in %d rounds' % ROUNDS)

    def test_what_is_withdrawn_is_not_answered(self):
        def attempt():
            answers = self.send([self.slow(1), self.slow(2), self.slow(3), cancel(2),
                                 self.row(4, 7)])
            ids = [answer.request_id for answer in answers]
            self.assertEqual(len(set(ids)), len(ids))
            self.assertLessEqual({1, 3, 4}, set(ids))
            self.check_row(answers[ids.index(4)], 7)
            return 2 not in ids
        self.rounds(attempt)

    def test_the_one_that_is_being_computed(self):
        self.rounds(lambda: self.send([self.slow(1), cancel(1)]) == [])

    def test_the_id_may_be_used_again_at_once(self):
        def attempt():
            answers = self.send([self.slow(1), self.slow(2), cancel(2), self.row(2, 5)])
            ids = [answer.request_id for answer in answers]
            self.assertEqual(ids.count(1), 1)
            self.assertIn(ids.count(2), (1, 2))
            self.check_row(answers[-1], 5)
            return ids.count(2) == 1
        self.rounds(attempt)

    def test_all_of_many(self):
        def attempt():
            count = 20
            answers = self.send([self.slow(n + 1) for n in range(count)]
                                + [cancel(n + 1) for n in range(count)] + [self.row(1000, 3)])
            self.check_row(answers[-1], 3)
            return len(answers) < count
        self.rounds(attempt)

    def test_parts_that_are_still_to_come(self):
        def attempt():
            parts = self.slow(1, partial=True)
            parts.queries.extend([parts.queries[0]] * 19)
            answers = self.send([parts, cancel(1), self.row(2, 9)])
            self.check_row(next(a for a in answers if a.request_id == 2), 9)
            own = [answer for answer in answers if answer.request_id == 1]
            self.assertTrue(all(answer.more for answer in own[:-1]))
            return len(own) < 20 and all(answer.more for answer in own)
        self.rounds(attempt)

    def test_an_id_that_is_not_in_flight(self):
        answers = self.send([cancel(7), self.row(1, 2), cancel(7), cancel(0), cancel(2**64 - 1)])
        self.assertEqual([answer.request_id for answer in answers], [1])
        self.check_row(answers[0], 2)
        self.assertEqual(self.send([cancel(7)]), [])

    def test_twice(self):
        def attempt():
            answers = self.send([self.slow(1), cancel(1), cancel(1), self.row(2, 1)])
            self.check_row(answers[-1], 1)
            return len(answers) == 1
        self.rounds(attempt)

    def test_the_rest_of_the_message_does_not_matter(self):
        def attempt():
            answers = self.send([self.slow(1), cancel(1, model='nowhere', queries=[
                pb.BagQuery(table='nowhere')]), self.row(2, 1)])
            self.check_row(answers[-1], 1)
            return len(answers) == 1
        self.rounds(attempt)

    def test_what_is_answered_already(self):
        requests = Requests()
        answers = self.client.stream(requests)
        for row in range(20):
            requests.put(self.row(1, row))
            self.check_row(next(answers), row)
            requests.put(cancel(1))
        requests.end()
        self.assertEqual(list(answers), [])
        self.assertEqual(answers.code().name, 'OK')

    def test_another_streams_request_of_that_id(self):
        """Each stream has its own ids, even on one connection."""
        slow, quick = Requests(), Requests()
        answers = [self.client.stream(slow), self.client.stream(quick)]
        for number in range(10):
            slow.put(self.slow(1))
            quick.put(cancel(1))
            quick.put(self.row(2, number))
            self.check_row(next(answers[1]), number)
            self.assertEqual(next(answers[0]).error_code, 0)
        for requests in (slow, quick):
            requests.end()
        self.assertEqual([list(answer) for answer in answers], [[], []])

    def test_the_stream_lives_on(self):
        requests = Requests()
        answers = self.client.stream(requests)
        for number in range(scaled(100)):
            requests.put(self.slow(1))
            requests.put(cancel(1))
            requests.put(self.row(2, number % 500))
            answer = next(answers)
            while answer.request_id != 2:
                answer = next(answers)
            self.check_row(answer, number % 500)
        requests.end()
        self.assertLessEqual({answer.request_id for answer in answers}, {1})
        self.assertEqual(answers.code().name, 'OK')

    def test_a_unary_call(self):
        for request in (cancel(1), self.row(1, 2, cancel=True)):
            code, text = error_of(self.client.lookup, request)
            self.assertEqual(code.name, 'INVALID_ARGUMENT', text)
            self.assertRegex(text, 'cancel')

    def test_a_faulty_one(self):
        """An invalid cancel takes effect: neither it nor the request that it names is answered."""
        malformed = (cancel(1, unnormalized=True), cancel(1, priority=9),
                     cancel(1, output_type=77),
                     cancel(1, model='a\0b'),
                     cancel(1, queries=[pb.BagQuery(table='t', num_bags=1)] * 5000))
        for faulty in malformed:
            self.assertEqual(self.send([faulty]), [])
            self.rounds(lambda faulty=faulty: self.send([self.slow(1), faulty]) == [])

    def test_bytes_that_are_no_message_end_the_stream(self):
        fields, answers = ask_at_once(self.server.port, [as_bytes(cancel(1)) + b'\xff'])
        self.assertEqual((fields['grpc-status'], answers), ('13', []))


if __name__ == '__main__':
    unittest.main()
