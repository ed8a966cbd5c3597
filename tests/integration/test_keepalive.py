"""Connections that end because of time: pings from both sides, idle connections, old connections.
No call is lost by any of these."""

import json
import os
import socket
import subprocess
import threading
import time
import unittest

import grpc

import served
from embag.v1 import embedding_bag_pb2 as pb
from h2raw import GOAWAY, LOOKUP_STREAM, PING, Connection, call_fields, frame, message
from rpc import OPTIONS, Client, Requests, as_bytes
from served import OwnServerTest, scaled

OK = ('200', 0, '')
GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4], num_bags=1)])
GOOD_BYTES = message(as_bytes(GOOD))
CALM = 11
LONG = str(24 * 3600 * 1000)


def count_messages(body):
    """Returns the number of consecutive gRPC messages."""
    count = 0
    while body:
        body = body[5 + int.from_bytes(body[1:5], 'big'):]
        count += 1
    return count


class Raw(Connection):
    """A connection that pings."""

    def until(self, *kinds):
        """Reads up to the next frame of one of these kinds, on any stream; returns it."""
        got = self.read_frame()
        while got.type not in kinds:
            got = self.read_frame()
        return got

    def ping(self):
        """Sends a ping; returns the answer to it, or a GOAWAY."""
        self.send(frame(PING, 0, 0, b'12345678'))
        return self.until(PING, GOAWAY)

    def is_answered(self):
        """Sends a ping; returns whether it is answered."""
        return self.ping().type == PING


class Pings(OwnServerTest):
    """Pings from clients."""

    def open(self, server):
        """Opens a connection that is closed at the end of the test."""
        peer = Raw(server.port)
        self.addCleanup(peer.close)
        return peer

    def check_turned_away(self, peer, count):
        """Checks that after this many pings the next one is one too many. It may still be
        answered."""
        for _ in range(count):
            self.assertTrue(peer.is_answered())
        got = peer.ping()
        if got.type == PING:
            got = peer.until(GOAWAY)
        self.assertEqual(int.from_bytes(got.payload[4:8], 'big'), CALM)
        self.assertEqual(got.payload[8:], b'too_many_pings')
        self.assertTrue(peer.is_closed())

    def test_three_in_a_row_are_answered_and_the_fourth_ends_the_connection(self):
        server = self.serve('--ping-idle-interval-min-ms', LONG)
        self.check_turned_away(self.open(server), 3)
        peer = self.open(server)
        self.assertEqual(peer.status(peer.call(GOOD_BYTES)), OK)

    def test_those_of_a_connection_with_calls_have_an_interval_of_their_own(self):
        server = self.serve('--ping-interval-min-ms', LONG, '--ping-idle-interval-min-ms', '0')
        peer = self.open(server)
        self.assertTrue(all(peer.is_answered() for _ in range(20)))
        peer.open(call_fields(LOOKUP_STREAM))
        self.check_turned_away(peer, 2)

    def test_as_often_as_it_likes_where_there_is_no_interval(self):
        server = self.serve('--ping-interval-min-ms', '0', '--ping-idle-interval-min-ms', '0')
        peer = self.open(server)
        self.assertTrue(all(peer.is_answered() for _ in range(100)))

    def test_those_that_come_with_answers_are_forgiven(self):
        server = self.serve('--ping-interval-min-ms', LONG, '--ping-idle-interval-min-ms', LONG)
        peer = self.open(server)
        for _ in range(30):
            self.assertTrue(peer.is_answered() and peer.is_answered())
            self.assertEqual(peer.status(peer.call(GOOD_BYTES)), OK)

    def test_a_stock_client_may_ping_now_and_then(self):
        server = self.serve('--ping-interval-min-ms', '500', '--ping-idle-interval-min-ms', '500')
        options = OPTIONS + (('grpc.keepalive_time_ms', 1000),
                             ('grpc.keepalive_permit_without_calls', 1),
                             ('grpc.http2.max_pings_without_data', 0))
        with Client(server.address, options) as client:
            answers = client.stream(requests := Requests())
            requests.put(GOOD)
            self.assertEqual(next(answers).error_code, 0)
            time.sleep(scaled(50) / 10)
            requests.put(GOOD)
            self.assertEqual(next(answers).error_code, 0)
            requests.end()


class Silence(OwnServerTest):
    """Clients that send nothing."""

    def test_one_that_answers_stays(self):
        server = self.serve('--keepalive-ms', '200', '--keepalive-timeout-ms', '5000')
        with Raw(server.port) as peer:
            for _ in range(3):
                self.assertEqual(len(peer.until(PING).payload), 8)
            self.assertEqual(peer.status(peer.call(GOOD_BYTES)), OK)

    def test_one_that_does_not_is_closed(self):
        server = self.serve('--keepalive-ms', '200', '--keepalive-timeout-ms', '300')
        with Raw(server.port) as peer:
            peer.send = lambda data: None
            self.assertTrue(peer.is_closed())

    def test_none_is_pinged_when_it_is_off(self):
        server = self.serve('--keepalive-ms', '0', '--keepalive-timeout-ms', '100')
        with Raw(server.port, timeout=2) as peer, self.assertRaises(socket.timeout):
            peer.until(PING)


class Ages(OwnServerTest):
    """Connections that are old, or have no calls."""

    def final(self, peer):
        """Reads up to the final GOAWAY; returns its last stream and its code."""
        last = (1 << 31) - 1
        notices = 0
        while last == (1 << 31) - 1:
            payload = peer.wait_frame(GOAWAY).payload
            last, notices = int.from_bytes(payload[:4], 'big'), notices + 1
        self.assertEqual(notices, 2)
        return last, int.from_bytes(payload[4:8], 'big')

    def test_an_idle_one_is_ended_in_two_steps(self):
        server = self.serve('--connection-idle-max-ms', '3000')
        with Raw(server.port) as peer:
            stream = peer.call(GOOD_BYTES)
            self.assertEqual(peer.status(stream), OK)
            self.assertEqual(self.final(peer), (stream, 0))
            self.assertTrue(peer.is_closed())

    def test_one_with_a_call_is_not_idle(self):
        """The connection with a call outlives one that was opened later and has no call."""
        server = self.serve('--connection-idle-max-ms', '3000')
        with Raw(server.port) as peer:
            stream = peer.open(call_fields(LOOKUP_STREAM))
            with Raw(server.port) as idle:
                self.final(idle)
                self.assertTrue(idle.is_closed())
            peer.data(stream, GOOD_BYTES)
            fields, _ = peer.finish(stream)
            self.assertEqual(fields['grpc-status'], '0')

    def test_an_old_one_answers_what_it_has_and_ends_its_streams_after_the_grace(self):
        server = self.serve('--connection-age-max-ms', '3000', '--connection-grace-ms', '5000')
        with Raw(server.port) as peer:
            stream = peer.open(call_fields(LOOKUP_STREAM))
            peer.data(stream, GOOD_BYTES, end=False)
            self.assertEqual(self.final(peer)[0], stream)
            peer.data(stream, GOOD_BYTES, end=False)
            fields, body = peer.finish(stream)
            self.assertEqual(fields['grpc-status'], '14')
            self.assertEqual(count_messages(body), 2)
            self.assertTrue(peer.is_closed())

    def test_one_that_does_not_end_is_cut(self):
        """The peer never acknowledges the ping between the two steps."""
        server = self.serve('--connection-age-max-ms', '300', '--connection-grace-ms', '100',
                            '--drain-timeout-ms', '200')
        with Raw(server.port) as peer:
            peer.send = lambda data: None
            self.assertTrue(peer.is_closed())
        self.assertFalse(server.has_ended())

    def hammer(self, server, seconds):
        """Makes unary calls and short streams one after the other; returns those that failed.
        Without a retry policy gRPC resends only calls that it knows no server has begun, such as
        those that it had not sent yet when the GOAWAY arrived."""
        failed, counts = [], [0]
        with_retries = tuple(o for o in OPTIONS if o[0] != 'grpc.enable_retries')
        end = time.monotonic() + seconds

        def run(kind):
            with Client(server.address, with_retries) as client:
                while time.monotonic() < end:
                    try:
                        if kind == 'unary':
                            client.lookup(GOOD)
                        else:
                            answers = list(client.stream([GOOD, GOOD]))
                            failed.extend(a for a in answers if a.error_code)
                    except grpc.RpcError as error:
                        failed.append(error)
                    counts[0] += 1

        threads = [threading.Thread(target=run, args=(kind,))
                   for kind in ('unary', 'unary', 'stream', 'stream')]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertGreater(counts[0], 0)
        return failed

    def test_no_call_is_lost_when_connections_grow_old(self):
        server = self.serve('--connection-age-max-ms', '300', '--connection-idle-max-ms', '200',
                            '--log-level', 'debug')
        self.assertEqual(self.hammer(server, scaled(60) / 10 + 2), [])
        ended = [line for line in server.lines if 'event=connection_closed' in line]
        self.assertGreater(len(ended), 3)

    def test_our_client_does_not_notice(self):
        """The client opens another connection and repeats the requests that a stream left
        unanswered."""
        server = self.serve('--connection-age-max-ms', '300', '--connection-grace-ms', '100')
        for mode in 'unary', 'stream':
            done = subprocess.run(
                [os.path.join(served.BUILD, 'embag-load'), '--server', server.address, '--model',
                 'spec', '--tables', 'emb_table', '--bags', '1', '--indices-per-bag', '2', '--mode',
                 mode, '--connections', '2', '--duration', str(scaled(30) / 10), '--json'],
                capture_output=True, text=True, timeout=120, check=False)
            self.assertEqual(done.returncode, 0, done.stderr)
            figures = json.loads(done.stdout)
            self.assertEqual(figures['errors'], 0, figures)
            self.assertGreater(figures['requests'], 0)

    def test_settings_are_shown(self):
        server = self.serve('--connection-age-max-ms', '12345', '--ping-interval-min-ms', '77')
        limits = {limit.name: limit.value for limit in self.connect(server).get_server().limits}
        self.assertEqual(limits['connection_age_max_ms'], 12345)
        self.assertEqual(limits['ping_interval_min_ms'], 77)
        for name in ('ping_idle_interval_min_ms', 'keepalive_ms', 'keepalive_timeout_ms',
                     'connection_idle_max_ms', 'connection_grace_ms'):
            self.assertIn(name, limits)


if __name__ == '__main__':
    unittest.main()
