"""LookupStream."""

import threading
import unittest

import numpy as np

import bag_model
from bag_query import Query, to_message
from embag.v1 import embedding_bag_pb2 as pb
from raw_stream import ask_at_once
from rpc import Client, Requests, error_of
from served import SEED, ServedTest, scaled


def one_row(row, **fields):
    """Returns a lookup of one row of the specification's table."""
    query = Query('emb_table', np.array([row]), num_bags=1)
    return pb.LookupRequest(**{'model': 'spec', 'queries': [to_message(query)], **fields})


class Streams(ServedTest):
    """Streams on the shared server."""

    def check_row(self, answer, row):
        """Checks the answer to one_row(row)."""
        self.assertEqual((answer.error_code, answer.error_message), (0, ''))
        want = self.tables['spec']['emb_table'].raw[row]
        np.testing.assert_array_equal(np.frombuffer(answer.results[0].values, '<f4'), want)

    def test_answers_many_requests_by_their_ids(self):
        count = scaled(5000)
        requests = [one_row(n % 5, request_id=n + 1) for n in range(count)]
        answers = {answer.request_id: answer for answer in self.client.stream(requests)}
        self.assertEqual(sorted(answers), list(range(1, count + 1)))
        for number in range(count):
            self.check_row(answers[number + 1], number % 5)

    def test_answers_before_the_client_ends(self):
        requests = Requests()
        answers = self.client.stream(requests)
        for number in range(20):
            requests.put(one_row(number % 5, request_id=number + 1))
            answer = next(answers)
            self.assertEqual((answer.request_id, answer.model, answer.version),
                             (number + 1, 'spec', 1))
        requests.end()
        self.assertEqual(list(answers), [])
        self.assertEqual(answers.code().name, 'OK')

    def test_an_empty_stream_ends_well(self):
        answers = self.client.stream([])
        self.assertEqual(list(answers), [])
        self.assertEqual(answers.code().name, 'OK')

    def test_errors_are_answers(self):
        requests = [one_row(1, request_id=1), one_row(9, request_id=2),
                    one_row(2, request_id=3), one_row(0, request_id=4, model='nowhere'),
                    one_row(3, request_id=5), one_row(0, request_id=6, unnormalized=True)]
        answers = {a.request_id: a for a in self.client.stream(requests)}
        self.assertEqual([answers[n].error_code for n in range(1, 7)], [0, 11, 0, 5, 0, 12])
        self.assertRegex(answers[2].error_message, r'queries\[0\] "emb_table": indices\w*\[0\] = 9')
        self.assertEqual(len(answers[2].results), 0)
        for number in (1, 3, 5):
            self.check_row(answers[number], {1: 1, 3: 2, 5: 3}[number])

    def slow_request(self, request_id):
        """Returns a request that takes a while: megabytes of rows."""
        rng = np.random.default_rng(SEED)
        query = Query('large', rng.integers(0, 50000, 60000), layout='offsets',
                      bounds=np.arange(0, 60000, 100), index_form='i32')
        return pb.LookupRequest(model='wide', request_id=request_id, queries=[to_message(query)])

    def test_refuses_an_id_in_flight(self):
        """Two requests have the id of a request in flight. Their answers say that the id is in use,
        and that the answer of the first request is still to come."""
        def attempt():
            requests = [self.slow_request(8), one_row(0, request_id=8),
                        one_row(0, request_id=8, unnormalized=True), one_row(1, request_id=9)]
            _, answers = ask_at_once(self.server.port, requests)
            self.assertEqual(sorted(a.request_id for a in answers), [8, 8, 8, 9])
            for answer in answers:
                # A request that arrives after the first one's answer gets an answer of its own.
                self.assertEqual(answer.more, answer.error_code == 3, answer.error_message)
            return sorted(a.error_code for a in answers) == [0, 0, 3, 3]
        self.assertTrue(any(attempt() for _ in range(8)))

    def test_an_id_may_be_used_again_later(self):
        requests = Requests()
        answers = self.client.stream(requests)
        for number in range(10):
            requests.put(one_row(number % 5, request_id=1))
            self.check_row(next(answers), number % 5)
        requests.end()
        self.assertEqual(list(answers), [])

    def test_a_deadline_of_one_request_does_not_end_the_stream(self):
        late = self.slow_request(1)
        late.timeout_us = 1
        answers = {a.request_id: a for a in self.client.stream([late, one_row(1, request_id=2)])}
        self.assertEqual(answers[1].error_code, 4, answers[1].error_message)
        self.check_row(answers[2], 1)

    def test_a_deadline_that_is_met_changes_nothing(self):
        answer, = self.client.stream([one_row(2, request_id=1, timeout_us=10000000)])
        self.check_row(answer, 2)
        answer, = self.client.stream([one_row(2, request_id=1, timeout_us=2**64 - 1)])
        self.check_row(answer, 2)

    def test_slow_and_quick_requests_are_all_answered(self):
        requests = []
        for number in range(scaled(40)):
            requests += [self.slow_request(2 * number + 1), one_row(3, request_id=2 * number + 2)]
        answers = {a.request_id: a for a in self.client.stream(requests)}
        self.assertEqual(len(answers), len(requests))
        self.assertEqual({a.error_code for a in answers.values()}, {0})

    def test_streams_and_calls_side_by_side(self):
        """Several connections, each with several streams and unary calls in between."""
        failures = []

        def work(number):
            try:
                with Client(self.server.address) as client:
                    self.work_on(client, number)
            except Exception as error:  # reported in the main thread
                failures.append(error)

        threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])

    def work_on(self, client, number):
        """Runs two streams and some unary calls on one connection, checked against the model."""
        rng = np.random.default_rng([SEED, number])
        table = self.tables['wide']['large']
        streams = [Requests(), Requests()]
        answers = [client.stream(requests) for requests in streams]
        for request_id in range(1, scaled(100) + 1):
            query = Query('large', rng.integers(0, 50000, 50), layout='offsets',
                          bounds=np.array([0, 20]))
            request = pb.LookupRequest(model='wide', request_id=request_id,
                                       queries=[to_message(query)])
            for requests in streams:
                requests.put(request)
            expected = bag_model.expect(query, table)
            for answer in (next(answers[0]), next(answers[1]), client.lookup(request)):
                bag_model.check_result(expected, table, answer.results[0])
        for requests in streams:
            requests.end()

    def test_a_cancelled_stream_leaves_the_connection_usable(self):
        for _ in range(20):
            requests = [one_row(0, request_id=9)] + [self.slow_request(n + 1) for n in range(3)]
            answers = self.client.stream(requests)
            next(answers)
            answers.cancel()
            self.check_row(self.client.lookup(one_row(4)), 4)

    def test_a_stream_ends_at_its_deadline(self):
        requests = Requests()
        answers = self.client.stream(requests, timeout=0.3)
        requests.put(one_row(0, request_id=1))
        self.check_row(next(answers), 0)
        code, _ = error_of(next, answers)
        self.assertEqual(code.name, 'DEADLINE_EXCEEDED')
        requests.end()


if __name__ == '__main__':
    unittest.main()
