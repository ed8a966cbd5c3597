"""xds.service.orca.v3: load reports out of band, as gRPC's weighted round robin asks for them."""

import time
import unittest

import grpc

import dynamic
from rpc import OPTIONS, error_of
from served import OwnServerTest
from embag.v1 import embedding_bag_pb2 as pb

SERVICE = 'xds.service.orca.v3.OpenRcaService'
REPORTS = dynamic.Method(dynamic.load('xds/service/orca/v3/orca.proto'), SERVICE,
                         'StreamCoreMetrics')
LOOKUP = '/embag.v1.EmbeddingBag/Lookup'
STREAMS_MAX = 4
EARLIEST_S = 0.87   # a report may come an eighth of a second early
AUTH = 'principals: [{name: one, token_file: token, models: ["*"]}]\n'
LARGE_BAGS = 200000


class LoadReports(OwnServerTest):
    """Tests each of which has its own server."""

    def channel(self, server):
        """Opens a connection that is closed at the end of the test."""
        channel = grpc.insecure_channel(
            server.address, options=[*OPTIONS, ('grpc.use_local_subchannel_pool', 1)])
        self.addCleanup(channel.close)
        return channel

    def look_up(self, channel, bags=1, model='spec'):
        """Makes one lookup; returns its status."""
        query = pb.BagQuery(table='emb_table', num_bags=bags)
        request = pb.LookupRequest(model=model, queries=[query])
        return channel.unary_unary(LOOKUP).future(request.SerializeToString(), timeout=60).code()

    def test_tell_the_rates_of_all_loops_and_connections(self):
        server = self.serve('--loops', '2')
        watcher, *others = [self.channel(server) for _ in range(3)]
        reports = REPORTS.feed(watcher, timeout=120)
        for channel in others:
            for number in range(300):
                code = self.look_up(channel, model='spec' if number % 3 else 'none')
                self.assertEqual(code.name, 'OK' if number % 3 else 'NOT_FOUND')
            report = next(report for report in reports if report.rps_fractional > 0)
            self.check_metrics(report)
            errors = report.eps / report.rps_fractional
            # The counts of another loop may come in the midst of the lookups.
            self.assertTrue(0.2 < errors < 0.5 or report.rps_fractional < 10, report)
            while next(reports).rps_fractional > 0:
                pass

    def check_metrics(self, report):
        """Checks that the utilizations of a report fit together."""
        metrics = report.named_metrics
        self.assertEqual(set(metrics), {'loops', 'executor', 'queue'})
        self.assertAlmostEqual(report.application_utilization,
                               max(metrics['loops'], metrics['executor']) + metrics['queue'])
        self.assertLessEqual(report.cpu_utilization, 1)

    def test_show_a_server_that_is_busy(self):
        server = self.serve('--inline-below-us', '0')
        channel = self.channel(server)
        reports = REPORTS.feed(channel, timeout=60)
        idle = next(reports)
        self.assertEqual(idle.rps_fractional, 0)
        busy = idle
        while busy.application_utilization <= 2 * idle.application_utilization + 0.01:
            begun = time.monotonic()
            while time.monotonic() < begun + 1:
                self.assertEqual(self.look_up(channel, LARGE_BAGS).name, 'OK')
            busy = next(reports)
        self.assertGreater(busy.rps_fractional, 0)
        self.assertGreater(busy.named_metrics['executor'], 0)
        self.assertGreater(busy.cpu_utilization, 0)

    def test_come_in_the_interval_that_is_asked_for(self):
        channel = self.channel(self.serve())
        begun = time.monotonic()
        short, longer = [REPORTS.feed(channel, timeout=60, report_interval=interval)
                         for interval in ({'nanos': 1}, {'seconds': 2})]
        for count in range(1, 3):
            next(short)
            self.assertGreaterEqual(time.monotonic() - begun, count * EARLIEST_S)
        next(longer)
        self.assertGreaterEqual(time.monotonic() - begun, 2 * EARLIEST_S)

    def test_an_invalid_interval_is_refused(self):
        channel = self.channel(self.serve())
        for interval in {'seconds': -1}, {'nanos': -1}, {'nanos': 10**9}, {'seconds': 315576000001}:
            code, text = error_of(next, REPORTS.feed(channel, report_interval=interval))
            self.assertEqual(code.name, 'INVALID_ARGUMENT')
            self.assertIn('report_interval', text)

    def test_a_connection_has_so_many_streams_and_no_more(self):
        channel = self.channel(self.serve())
        feeds = [REPORTS.feed(channel, timeout=60) for _ in range(STREAMS_MAX)]
        for feed in feeds:
            next(feed)
        code, text = error_of(next, REPORTS.feed(channel))
        self.assertEqual(code.name, 'RESOURCE_EXHAUSTED')
        self.assertIn(str(STREAMS_MAX), text)
        next(feeds[0])

    def test_need_no_token(self):
        with open(self.repository.join('.auth'), 'w', encoding='utf-8') as file:
            file.write(AUTH)
        with open(self.repository.join('token'), 'w', encoding='utf-8') as file:
            file.write('a-token-of-this-test')
        channel = self.channel(self.serve('--auth-file', self.repository.join('.auth')))
        self.assertEqual(self.look_up(channel).name, 'UNAUTHENTICATED')
        self.assertGreaterEqual(next(REPORTS.feed(channel)).rps_fractional, 0)

    def test_end_when_the_server_drains(self):
        server = self.serve()
        reports = REPORTS.feed(self.channel(server), timeout=60)
        next(reports)
        server.terminate()
        code, _ = error_of(list, reports)
        self.assertEqual(code.name, 'UNAVAILABLE')
        self.assertEqual(server.wait(), 0)


if __name__ == '__main__':
    unittest.main()
