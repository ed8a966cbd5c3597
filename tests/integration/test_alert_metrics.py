"""The metrics on which alerts are based are correct: from the start on, for every call, and for
facts that only the server knows: its certificate, repository, loads and limits."""

import os
import re
import signal
import time
import unittest

import grpc
import numpy as np
import yaml

from certificates import HERE, Authority
from embag.v1 import embedding_bag_pb2 as pb
from embag.v1 import model_admin_pb2 as admin_pb
from embagd_process import wait_until
from h2raw import Connection, call_fields, message
from http_peer import Metrics
from rpc import as_bytes
from served import OwnServerTest, spec_table
from table_files import Table, write_sparse_npy

HTTP = '127.0.0.1:0'
SECONDS = 60
DAY_SECONDS = 86400
MIB = 1 << 20
REFUSALS = 5
SPARSE_BYTES = 64 * MIB
ALERTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..', '..', 'deploy',
                      'monitoring', 'alerts.yaml')
GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4, 2, 1], indices_per_bag=2)])
# These alerts wait longer than the range of their rates, so a counter need not exist before it
# grows.
PATIENT_ALERTS = ('EmbagCallersDenied', 'EmbagOverLimits')
NO_MESSAGE = b'\xff\xff'
SERVICE = 'embag.v1.EmbeddingBag'
REQUESTS = 'embag_requests_total'
UNDECODABLE = 'embag_requests_undecodable_total'


class AlertMetrics(OwnServerTest):
    """Tests each of which has its own server."""

    def serve(self, *flags, **keywords):
        return super().serve(*flags, **{'http': HTTP, **keywords})

    def comes_to(self, server, wanted, name, **labels):
        """Waits until a metric has the value."""
        wait_until(lambda: Metrics(server).get(name, **labels) == wanted, SECONDS,
                   '%s %s to be %s' % (name, labels, wanted))


class Requests(AlertMetrics):
    """How calls end."""

    def test_codes_that_alerts_ask_for_are_there_from_the_start(self):
        metrics = Metrics(self.serve())
        with open(ALERTS, encoding='utf-8') as file:
            rules = yaml.safe_load(file)['groups'][0]['rules']
        codes = {code for rule in rules if rule['alert'] not in PATIENT_ALERTS
                 for codes in re.findall(r'code=~?"([^"]*)"', rule['expr'])
                 for code in codes.split('|')}
        self.assertGreater(len(codes), 4)
        for method in 'Lookup', 'LookupStream':
            for code in codes:
                self.assertEqual(metrics.get(REQUESTS, service=SERVICE, method=method, code=code),
                                 0, (method, code))
        self.assertEqual(metrics.get(REQUESTS, service='', method='', code='INTERNAL'), 0)

    def refuse(self, call, *arguments):
        """Checks that a call is answered with INTERNAL."""
        with self.assertRaises(grpc.RpcError) as caught:
            list(call(*arguments, timeout=SECONDS))
        self.assertEqual(caught.exception.code(), grpc.StatusCode.INTERNAL)

    def test_what_is_no_message_is_counted_apart(self):
        socket = self.repository.join('.admin.sock')
        server = self.serve('--admin-listen', 'unix:' + socket)
        client = self.connect(server)
        lookups = client.channel
        self.refuse(lookups.unary_stream('/%s/Lookup' % SERVICE), NO_MESSAGE)
        self.refuse(lookups.unary_stream('/%s/ListModels' % SERVICE), NO_MESSAGE)
        self.refuse(lookups.unary_stream('/grpc.health.v1.Health/Watch'), NO_MESSAGE)
        self.refuse(lookups.stream_stream('/%s/LookupStream' % SERVICE),
                    iter([as_bytes(GOOD), NO_MESSAGE]))
        self.refuse(lookups.unary_stream('/inference.GRPCInferenceService/ModelInfer'),
                    NO_MESSAGE)
        with grpc.insecure_channel('unix:' + socket) as admin:
            self.refuse(admin.unary_stream('/embag.v1.ModelAdmin/LoadVersion'),
                        admin_pb.VersionRequest(model='m').SerializeToString()[:-1])
        with Connection(server.port) as peer:  # a message that ends early, and an invalid flag
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD))[:-1]))[1], 13)
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD), 2)))[1], 13)
        wait_until(lambda: Metrics(server).get(UNDECODABLE) == 8, SECONDS, 'a count of eight')
        self.assertEqual(Metrics(server).sum(REQUESTS, code='INTERNAL'), 8)

    def test_what_is_refused_by_its_headers_is_counted_and_logged(self):
        server = self.serve()
        refusals = [(call_fields('/' + 'x' * 300), (), 12)] * 6
        refusals += [(None, (('x-large', 'y' * 20000),), 8)] * 4
        refusals += [(call_fields(grpc_timeout='soon'), (), 3)]
        with Connection(server.port) as peer:
            for fields, extra, status in refusals:
                stream = peer.call(message(as_bytes(GOOD)), fields, extra)
                self.assertEqual(peer.status(stream)[1], status)
        metrics = Metrics(server)
        self.assertEqual(metrics.sum(REQUESTS, service='', method=''), 6)
        for code, count in ('RESOURCE_EXHAUSTED', 4), ('INVALID_ARGUMENT', 1):
            self.assertEqual(metrics.get(REQUESTS, service=SERVICE, method='Lookup', code=code),
                             count)
        self.assertEqual(metrics.sum(REQUESTS), 11)
        self.assertEqual(metrics.get('embag_calls_started_total'), 11)
        wait_until(lambda: server.log.count('event=request ') == 11, SECONDS, 'eleven lines')


class Memory(AlertMetrics):
    """Requests for which there is no memory: each counts as one refused request."""

    def fills(self, server, pool, wanted):
        """Waits until this many bytes are in use."""
        wait_until(lambda: Metrics(server).get('embag_pool_bytes', pool=pool) >= wanted, SECONDS,
                   'the memory is in use')

    def refuses(self, server):
        """Checks that all these requests were refused, for lack of memory; returns the metrics."""
        metrics = Metrics(server)
        self.assertEqual(metrics.get('embag_refused_total', reason='memory'), REFUSALS)
        self.assertEqual(metrics.sum('embag_refused_total'), REFUSALS)
        self.assertEqual(metrics.sum(REQUESTS, code='RESOURCE_EXHAUSTED'), REFUSALS)
        return metrics

    def test_answers_that_are_not_taken_leave_none_to_others(self):
        wide = Table.of_values('wide', 'f32', np.zeros((1, 1024)))
        server = self.serve('--loops', '1', '--answer-memory-bytes', str(128 * MIB),
                            tables=[spec_table(), wide])
        large = message(as_bytes(pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='wide', num_bags=40 * 256)])))  # answered with 40 MiB
        for _ in range(2):
            slow = Connection(server.port, window=0)
            self.addCleanup(slow.close)
            slow.call(large)
        self.fills(server, 'answer', 80 * MIB)
        with Connection(server.port) as peer:
            for _ in range(REFUSALS):
                self.assertEqual(peer.status(peer.call(large))[1], 8)
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD))))[1], 0)
        metrics = self.refuses(server)
        self.assertGreaterEqual(metrics.get('embag_answer_memory_shortages_total'), REFUSALS)
        self.assertEqual(metrics.get('embag_receive_memory_shortages_total'), 0)

    def test_requests_that_are_not_ended_leave_none_to_others(self):
        server = self.serve('--loops', '1', '--receive-memory-bytes', str(32 * MIB),
                            '--request-bytes-max', str(4 * MIB))
        large = message(as_bytes(pb.LookupRequest(model='spec', queries=[
            pb.BagQuery(table='emb_table', indices_i32=bytes(4 * MIB - 1024), num_bags=1)])))
        for _ in range(7):
            slow = Connection(server.port)
            self.addCleanup(slow.close)
            slow.call(large, end=False)
        self.fills(server, 'receive', 28 * MIB)
        with Connection(server.port) as peer:
            for _ in range(REFUSALS):
                self.assertEqual(peer.status(peer.call(large))[1], 8)
            self.assertEqual(peer.status(peer.call(message(as_bytes(GOOD))))[1], 0)
        metrics = self.refuses(server)
        self.assertGreaterEqual(metrics.get('embag_receive_memory_shortages_total'), REFUSALS)
        self.assertEqual(metrics.get('embag_answer_memory_shortages_total'), 0)


class Server(AlertMetrics):
    """Facts that only the server knows."""

    def test_limits_are_the_settings(self):
        metrics = Metrics(self.serve('--queue-bytes-max', '123456789', '--connections-max', '77'))
        limits = {key[1][1]: value for key, value in metrics.samples.items()
                  if key[0] == 'embag_limit'}
        self.assertEqual(limits['queue_bytes_max'], 123456789)
        self.assertEqual(limits['connections_max'], 77)
        self.assertGreater(limits['receive_memory_bytes'], MIB)
        self.assertGreater(limits['answer_memory_bytes'], MIB)

    def test_tells_whether_the_repository_can_be_read(self):
        server = self.serve('--watch', 'poll', '--watch-poll-ms', '100')
        name = 'embag_repository_readable'
        self.assertEqual(Metrics(server).get(name), 1)
        aside = self.repository.path + '.aside'
        os.rename(self.repository.path, aside)
        try:
            self.comes_to(server, 0, name)
        finally:
            os.rename(aside, self.repository.path)
        self.comes_to(server, 1, name)

    def test_does_not_tell_of_a_repository_that_nobody_looks_at(self):
        server = self.serve('--watch', 'off')
        self.assertIsNone(Metrics(server).get('embag_repository_readable'))

    def test_counts_a_version_that_cannot_be_looked_at_as_a_failed_load(self):
        server = self.serve('--watch', 'poll', '--watch-poll-ms', '100')
        failed = 'embag_model_loads_total'
        self.assertEqual(Metrics(server).get(failed, result='failed'), 0)
        os.symlink('8', self.repository.join('spec', '8'))
        self.comes_to(server, 1, 'embag_model_versions', model='spec', state='failed')
        self.assertEqual(Metrics(server).get(failed, result='failed'), 1)

    def test_tells_how_far_a_load_is(self):
        server = self.serve('--watch', 'poll', '--watch-poll-ms', '100',
                            '--load-bytes-per-s', str(16 * MIB))
        self.assertEqual(Metrics(server).get('embag_load_total_bytes'), 0)
        write_sparse_npy(self.repository.join('.large', '1'), SPARSE_BYTES)
        os.rename(self.repository.join('.large'), self.repository.join('large'))
        seen = {}

        def is_loading():
            metrics = Metrics(server)
            seen['total'] = metrics.get('embag_load_total_bytes')
            seen['done'] = metrics.get('embag_load_done_bytes')
            return seen['total'] > 0 and seen['done'] > 0
        wait_until(is_loading, SECONDS, 'progress of the load')
        self.assertGreaterEqual(seen['total'], SPARSE_BYTES)
        self.assertLessEqual(seen['done'], seen['total'])
        self.comes_to(server, 1, 'embag_model_serving_version', model='large')
        self.comes_to(server, 0, 'embag_load_total_bytes')

    def test_has_no_certificate_where_there_is_none(self):
        metrics = Metrics(self.serve())
        self.assertIsNone(metrics.get('embag_certificate_expiry_timestamp_seconds'))
        self.assertEqual(metrics.sum('embag_reloads_total'), 0)

    def test_counts_no_reload_of_nothing(self):
        server = self.serve()
        for count in 1, 2:  # the first reload is counted before the second is logged
            server.process.send_signal(signal.SIGHUP)
            wait_until(lambda: server.log.count('event=reloaded ') == count, SECONDS, 'a reload')
        self.assertEqual(Metrics(server).sum('embag_reloads_total'), 0)

    def test_tells_of_certificates_and_reloads(self):
        authority = Authority()
        self.addCleanup(authority.remove)
        authority.issue('server', names=HERE)
        certificate, key = authority.path('server.pem'), authority.path('server.key')
        server = self.serve('--tls-cert', certificate, '--tls-key', key)
        expiry = 'embag_certificate_expiry_timestamp_seconds'
        left_s = Metrics(server).get(expiry) - time.time()
        days, = re.findall(r'event=certificate.* days_left=(\d+)', server.log)
        self.assertLessEqual(int(days) * DAY_SECONDS - SECONDS, left_s)
        self.assertLess(left_s, (int(days) + 1) * DAY_SECONDS)
        server.process.send_signal(signal.SIGHUP)
        self.comes_to(server, 1, 'embag_reloads_total', result='done')
        with open(certificate, 'w', encoding='utf-8') as file:
            file.write('no certificate')
        server.process.send_signal(signal.SIGHUP)
        self.comes_to(server, 1, 'embag_reloads_total', result='failed')
        self.assertEqual(Metrics(server).get('embag_reloads_total', result='done'), 1)
        self.assertAlmostEqual(Metrics(server).get(expiry) - time.time(), left_s, delta=SECONDS)


if __name__ == '__main__':
    unittest.main()
