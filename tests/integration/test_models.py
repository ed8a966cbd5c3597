"""ListModels, GetModel, GetServer, and the command-line tool's view of them."""

import json
import subprocess
import unittest

import served
from element_types import TYPE_NUMBERS
from rpc import error_of
from served import OwnServerTest, ServedTest

LIMITS = {
    'request_bytes_max': 16 << 20, 'response_bytes_max': 64 << 20, 'queries_max': 4096,
    'indices_max': 4000000, 'bags_max': 4000000, 'row_bytes_max': 65536, 'name_bytes_max': 255,
    'header_fields_max': 64, 'header_bytes_max': 16384, 'streams_max': 256, 'in_flight_max': 256,
    'connections_max': 10000, 'handshakes_per_s_max': 500, 'header_timeout_ms': 5000,
    'message_timeout_ms': 15000,
    'write_timeout_ms': 30000, 'deadline_max_ms': 60000, 'drain_timeout_ms': 30000,
    'drain_delay_ms': 0, 'outbound_bytes_max': 64 << 20, 'ping_interval_min_ms': 5000,
    'ping_idle_interval_min_ms': 30000, 'keepalive_ms': 7200000, 'keepalive_timeout_ms': 20000,
    'auth_timeout_ms': 10000, 'access_log_sample': 1000, 'access_log_per_s_max': 100,
    'connection_idle_max_ms': 0, 'connection_age_max_ms': 0, 'connection_grace_ms': 60000,
}
ALL_LIMITS = set(LIMITS) | {'receive_memory_bytes', 'answer_memory_bytes', 'queue_bytes_max',
                            'inline_below_us', 'watch_poll_ms', 'load_bytes_per_s', 'load_threads',
                            'load_jitter_s', 'kept_versions_max', 'kept_bytes_max',
                            'claim_grace_s', 'pin_ttl_s', 'flip_replicas', 'route_slab_bytes',
                            'hedge_percent',
                            'route_resolve_ms', 'route_settle_ms', 'next_wait_s',
                            'hedge_delay_min_us'}


class Models(ServedTest):
    """The server's description of itself and its models."""

    def check_model(self, model):
        """Compares a Model with the files from which it was loaded."""
        tables = self.tables[model.name]
        version, = model.versions
        self.assertEqual((version.version, version.state), (model.served_version, 3))
        self.assertEqual([table.name for table in version.tables], sorted(tables))
        self.assertGreaterEqual(version.bytes, sum(t.raw.nbytes for t in tables.values()))
        for said in version.tables:
            table = tables[said.name]
            self.assertEqual(
                (said.rows, tuple(said.shape), said.type, said.storage, said.keyed),
                (table.rows, table.dims, TYPE_NUMBERS[table.type], table.storage, False))
            self.assertGreaterEqual(said.resident_bytes, table.raw.nbytes)

    def test_lists_all_models(self):
        models = self.client.list_models().models
        self.assertEqual([model.name for model in models], sorted(self.tables))
        for model in models:
            self.check_model(model)

    def test_describes_one_model(self):
        self.check_model(self.client.get_model('every'))
        self.check_model(self.client.get_model('every', 3))
        self.assertEqual(self.client.get_model('packed').served_version, 12)

    def test_does_not_find_other_models_or_versions(self):
        for name, version in (('nowhere', 0), ('every', 2), ('every', 2**64 - 1)):
            code, text = error_of(self.client.get_model, name, version)
            self.assertEqual(code.name, 'NOT_FOUND', text)

    def test_tells_its_limits(self):
        server = self.client.get_server()
        limits = {limit.name: limit.value for limit in server.limits}
        self.assertEqual(set(limits), ALL_LIMITS)
        self.assertEqual({name: limits[name] for name in LIMITS}, LIMITS)
        self.assertTrue(server.version and server.build and server.isa)
        self.assertGreaterEqual(min(server.loops, server.threads), 1)

    def test_the_tool_lists_the_same_models(self):
        run = subprocess.run([served.EMBAG, 'models', '--server', self.server.address, '--json'],
                             stdout=subprocess.PIPE, check=True, timeout=60)
        self.assertEqual([model['name'] for model in json.loads(run.stdout)['models']],
                         sorted(self.tables))

    def test_the_tool_answers_the_first_example(self):
        run = subprocess.run(
            [served.EMBAG, 'lookup', '--server', self.server.address, '--model', 'spec',
             '--table', 'emb_table', '--indices', '0,2,3,4', '--offsets', '0,2,2', '--weights',
             '0.5,0.5,0.5,0.5', '--default-index', '0', '--json'],
            stdout=subprocess.PIPE, check=True, timeout=60)
        result, = json.loads(run.stdout)['results']
        values = sum(result['values'], []) if isinstance(result['values'][0], list) \
            else result['values']
        for got, want in zip(values, [-1.05, -1.2, -0.2, -0.6, -0.1, 0.4]):
            self.assertAlmostEqual(got, want, places=6)

    def test_the_tool_reports_a_refusal(self):
        for json_flag in ([], ['--json']):
            run = subprocess.run(
                [served.EMBAG, 'lookup', '--server', self.server.address, '--model', 'spec',
                 '--table', 'emb_table', '--indices', '0,9', '--offsets', '0', *json_flag],
                capture_output=True, check=False, timeout=60)
            self.assertEqual((run.returncode, run.stdout), (1, b''))
            self.assertRegex(run.stderr.decode(), r'OUT_OF_RANGE.*9')

    def test_the_tool_does_not_take_empty_weights_for_none(self):
        for indices, length, status, error in (
                ('0,1', '2', 1, 'INVALID_ARGUMENT.*no weights'), ('', '0', 0, '^$')):
            run = subprocess.run(
                [served.EMBAG, 'lookup', '--server', self.server.address, '--model', 'spec',
                 '--table', 'emb_table', '--indices', indices, '--lengths', length,
                 '--weights', ''],
                capture_output=True, check=False, timeout=60)
            self.assertEqual(run.returncode, status, run.stderr)
            self.assertRegex(run.stderr.decode(), error)

    def test_the_tool_takes_a_flag_once(self):
        run = subprocess.run(
            [served.EMBAG, 'lookup', '--server', self.server.address, '--model', 'spec',
             '--table', 'emb_table', '--indices', '0', '--offsets', '0', '--offsets', '0'],
            capture_output=True, check=False, timeout=60)
        self.assertEqual((run.returncode, run.stdout), (2, b''))
        self.assertEqual(run.stderr, b'embag: --offsets 0: the flag is given twice\n')


class OnlyModel(OwnServerTest):
    """A server of one model needs no model name in a request."""

    def test_an_empty_name_means_the_only_model(self):
        client = self.connect(self.serve())
        self.assertEqual(client.lookup(b'').model, 'spec')
        self.assertEqual(client.get_model('').name, 'spec')


if __name__ == '__main__':
    unittest.main()
