"""The Open Inference Protocol with tritonclient, perf_analyzer, and a program that uses grpc++.

    triton_test.py EMBAGD INFER_SEQUENCE PERF_ANALYZER

Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

import numpy as np

import embagd_process
import summary
from embagd_process import Embagd, Repository
from spec_lookups import ROWS, random_lookup
from table_files import Table, write_model

try:
    import tritonclient.grpc as triton
    import tritonclient.grpc.aio as triton_aio
except ImportError:
    triton = None

LOOKUPS = 300
SEQUENCE_SECONDS = 60
ANALYZER_SECONDS = 120


def tensor(name, values, datatype='INT64'):
    """Returns an input."""
    array = np.array(values, {'INT64': '<i8', 'INT32': '<i4', 'FP32': '<f4'}[datatype])
    made = triton.InferInput(name, array.shape, datatype)
    made.set_data_from_numpy(array)
    return made


class TritonTest(unittest.TestCase):
    """One server with the specification's table and one of integers."""

    @classmethod
    def setUpClass(cls):
        cls.repository = Repository()
        write_model(cls.repository.path, 'spec', 1, [Table.of_values('emb_table', 'f32', ROWS)])
        write_model(cls.repository.path, 'two', 5, [
            Table('whole', 'i32', np.arange(12, dtype='<i4').reshape(4, 3)),
            Table.of_values('emb_table', 'f32', ROWS)])
        cls.server = Embagd(cls.repository.path).wait_ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.repository.remove()

    def client(self):
        """Opens a connection that is closed at the end of the test."""
        if triton is None:
            self.skipTest('tritonclient is not installed')
        client = triton.InferenceServerClient(self.server.address)
        self.addCleanup(client.close)
        return client

    def test_grpcpp_calls_in_the_order_of_a_client(self):
        subprocess.run([SEQUENCE, self.server.address], check=True, timeout=SEQUENCE_SECONDS)

    def analyze(self, data, *options):
        """Returns perf_analyzer's report on requests of this data, two at a time."""
        if not os.path.exists(ANALYZER):
            self.skipTest('perf_analyzer is not installed')
        data = {'data': [{'emb_table.' + name: {'content': content, 'shape': shape}
                          for name, (content, shape) in data.items()}]}
        with tempfile.NamedTemporaryFile('w', suffix='.json') as file:
            json.dump(data, file)
            file.flush()
            # Changes of up to 1 000 % count as stable, so that a slow machine does not fail the
            # test.
            done = subprocess.run(
                [ANALYZER, '-m', 'spec', '-u', self.server.address, '-i', 'grpc',
                 '--input-data', file.name,
                 '--measurement-mode', 'count_windows', '--measurement-request-count', '50',
                 '--concurrency-range', '2', '-s', '1000', *options],
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
                timeout=ANALYZER_SECONDS)
        self.assertEqual(done.returncode, 0, done.stdout)
        return done.stdout

    def test_perf_analyzer_measures_it(self):
        offsets = {'indices': ([0, 2, 3, 4], [4]), 'offsets': ([0, 2], [2])}
        packed = {'indices': ([0, 2, 3, 4], [2, 2])}
        shape = ('--shape', 'emb_table.indices:2,2')
        for data, options in ((offsets, ['--sync']), (offsets, ['--async']),
                              (packed, ['--sync', *shape]),
                              (packed, ['--async', *shape, '--request-parameter',
                                        'reduction:mean:string'])):
            with self.subTest(options):
                told = self.analyze(data, *options)
                count = re.search(r'Request count: ([0-9]+)', told)
                self.assertTrue(count and int(count[1]) >= 50, told)

    def test_tells_what_it_is(self):
        client = self.client()
        self.assertTrue(client.is_server_live())
        self.assertTrue(client.is_server_ready())
        self.assertTrue(client.is_model_ready('spec'))
        self.assertFalse(client.is_model_ready('spec', '2'))
        self.assertEqual(client.get_server_metadata().name, 'embag')
        self.assertEqual(list(client.get_model_metadata('two').versions), ['5'])
        config = client.get_model_config('spec', as_json=True)['config']
        self.assertEqual(config['output'][0], {
            'name': 'emb_table.pooled', 'data_type': 'TYPE_FP32', 'dims': ['-1', '2']})

    def test_infers(self):
        client = self.client()
        result = client.infer('spec', [
            tensor('emb_table.indices', [0, 2, 3, 4]),
            tensor('emb_table.offsets', [0, 2, 2], 'INT32'),
        ], request_id='first', parameters={'reduction': 'max'})
        self.assertEqual(result.get_response().id, 'first')
        np.testing.assert_array_equal(
            result.as_numpy('emb_table.pooled'),
            [np.maximum(ROWS[0], ROWS[2]), [0, 0], np.maximum(ROWS[3], ROWS[4])])

    def test_infers_outputs_as_they_are_asked_for(self):
        client = self.client()
        outputs = [triton.InferRequestedOutput(name + '.pooled') for name in ('emb_table', 'whole')]
        result = client.infer('two', [
            tensor('whole.indices', [[0, 3]]), tensor('emb_table.indices', [[1], [2]]),
            tensor('emb_table.per_sample_weights', [[0.5], [2]], 'FP32'),
        ], outputs=outputs, model_version='5')
        self.assertEqual([output.name for output in result.get_response().outputs],
                         ['emb_table.pooled', 'whole.pooled'])
        np.testing.assert_array_equal(
            result.as_numpy('emb_table.pooled'), [ROWS[1] / 2, ROWS[2] * 2])
        np.testing.assert_array_equal(result.as_numpy('whole.pooled'), [[9, 11, 13]])

    def test_random_lookups(self):
        """Uses the request arguments that tritonclient offers."""
        client = self.client()
        rng = np.random.default_rng(7)
        for n in range(LOOKUPS):
            lookup = random_lookup(rng)
            parameters = {'include_last_offset': lookup.include_last_offset}
            if lookup.default_index is not None:
                parameters['default_index'] = lookup.default_index
            datatype = 'INT32' if n % 2 else 'INT64'
            result = client.infer('spec', [
                tensor('emb_table.indices', lookup.indices, datatype),
                tensor('emb_table.offsets', lookup.offsets, datatype),
            ], parameters=parameters, priority=n % 3, timeout=60000000, sequence_id=0)
            np.testing.assert_array_equal(result.as_numpy('emb_table.pooled'), lookup.result())

    def test_says_what_of_its_arguments_is_not_taken(self):
        client = self.client()
        for arguments, part in (({'sequence_id': 7, 'sequence_start': True}, 'are not supported'),
                                ({'sequence_id': 'a'}, 'sequences are not supported'),
                                ({'priority': 3}, '"priority" must be 0 or 1')):
            with self.assertRaises(triton.InferenceServerException) as raised:
                client.infer('spec', [tensor('emb_table.indices', [[1]])], **arguments)
            self.assertEqual(raised.exception.status(), 'StatusCode.INVALID_ARGUMENT')
            self.assertIn(part, raised.exception.message())

    def test_tells_what_is_wrong(self):
        client = self.client()
        with self.assertRaises(triton.InferenceServerException) as raised:
            client.infer('spec', [tensor('emb_table.indices', [[5]])])
        self.assertEqual(raised.exception.status(), 'StatusCode.OUT_OF_RANGE')
        self.assertIn('"emb_table": indices[0] = 5', raised.exception.message())

    def test_infers_many_at_once(self):
        self.client()

        async def infer_all():
            client = triton_aio.InferenceServerClient(self.server.address)
            try:
                return await asyncio.gather(*(
                    client.infer('spec', [tensor('indices', [[n % 5]])]) for n in range(200)))
            finally:
                await client.close()
        for n, result in enumerate(asyncio.run(infer_all())):
            np.testing.assert_array_equal(result.as_numpy('pooled'), ROWS[n % 5:n % 5 + 1])


if __name__ == '__main__':
    embagd_process.EMBAGD, SEQUENCE, ANALYZER = (
        os.path.abspath(path) for path in sys.argv[1:4])
    sys.exit(summary.run_tests())
