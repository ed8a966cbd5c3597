"""The Open Inference Protocol with KServe's client, InferenceGRPCClient, with its defaults.

    kserve_test.py EMBAGD

Prints "N passed, N failed" at the end; the exit status is 0 if none failed.
"""

import os
import sys
import unittest

import grpc
import numpy as np
from kserve import InferenceGRPCClient, InferInput, InferRequest
from kserve.protocol.infer_type import RequestedOutput

import embagd_process
import summary
from embagd_process import Embagd, Repository
from spec_lookups import ROWS, random_lookup
from table_files import Table, write_model

LOOKUPS = 300


def tensor(name, array, parameters=None, **options):
    """Returns an input, with raw contents unless the options say otherwise."""
    datatype = {'int64': 'INT64', 'int32': 'INT32', 'float32': 'FP32'}[array.dtype.name]
    made = InferInput(name, list(array.shape), datatype, parameters=parameters)
    made.set_data_from_numpy(array, **options)
    return made


class KServeTest(unittest.IsolatedAsyncioTestCase):
    """One server with the specification's table."""

    @classmethod
    def setUpClass(cls):
        cls.repository = Repository()
        write_model(cls.repository.path, 'spec', 1, [Table.of_values('emb_table', 'f32', ROWS)])
        cls.server = Embagd(cls.repository.path).wait_ready()

    @classmethod
    def tearDownClass(cls):
        cls.server.stop()
        cls.repository.remove()

    async def asyncSetUp(self):
        self.client = InferenceGRPCClient(self.server.address)

    async def asyncTearDown(self):
        await self.client.close()

    async def infer(self, inputs, **fields):
        """Returns the only output, as an array."""
        response = await self.client.infer(InferRequest('spec', inputs, **fields))
        output, = response.outputs
        return output.as_numpy()

    async def test_tells_what_it_is(self):
        self.assertTrue(await self.client.is_server_live())
        self.assertTrue(await self.client.is_server_ready())
        self.assertTrue(await self.client.is_model_ready('spec'))

    async def test_infers_by_default(self):
        ids = np.array([[0, 2], [3, 4]])
        made = tensor('emb_table.indices', ids)
        self.assertEqual(made.parameters, {'binary_data_size': 32})
        np.testing.assert_array_equal(
            await self.infer([made]), [ROWS[0] + ROWS[2], ROWS[3] + ROWS[4]])

    async def test_random_lookups(self):
        rng = np.random.default_rng(7)
        for n in range(LOOKUPS):
            lookup = random_lookup(rng)
            parameters = {'include_last_offset': lookup.include_last_offset}
            if lookup.default_index is not None:
                parameters['default_index'] = lookup.default_index
            width = 'int32' if n % 2 else 'int64'
            # Parameters may be those of the request or of the tensors, and contents may be raw or
            # not. The result is the same.
            of_tensors = n % 3 == 0
            indices = {name: value for name, value in parameters.items()
                       if of_tensors and name == 'default_index'}
            offsets = {name: value for name, value in parameters.items()
                       if of_tensors and name != 'default_index'}
            options = {'binary_data': False} if n % 5 == 0 else {}
            np.testing.assert_array_equal(await self.infer(
                [tensor('emb_table.indices', lookup.indices.astype(width), indices, **options),
                 tensor('emb_table.offsets', lookup.offsets.astype(width), offsets, **options)],
                parameters=None if of_tensors else parameters), lookup.result())

    async def test_outputs_that_are_asked_for_as_binary(self):
        for binary in (True, False):
            np.testing.assert_array_equal(await self.infer(
                [tensor('emb_table.indices', np.array([[1]]))],
                request_outputs=[RequestedOutput('emb_table.pooled', {'binary_data': binary})],
                parameters={'binary_data_output': binary}), ROWS[1:2])

    async def test_says_what_is_wrong_with_a_size(self):
        for binary, text in (
                (True, '"binary_data_size" is 9, but raw_input_contents has 8 bytes'),
                (False, '"binary_data_size" is 9, but the request has no raw_input_contents')):
            made = tensor('emb_table.indices', np.array([[1]]), {}, binary_data=binary)
            made.parameters['binary_data_size'] = 9
            with self.assertLogs('kserve.trace', 'ERROR'), \
                    self.assertRaises(grpc.RpcError) as raised:
                await self.infer([made])
            self.assertEqual(raised.exception.code(), grpc.StatusCode.INVALID_ARGUMENT)
            self.assertIn(text, raised.exception.details())

    async def test_typed_contents_come_without_a_size(self):
        made = tensor('emb_table.indices', np.array([[1]]))
        made.set_data_from_numpy(np.array([[2]]), binary_data=False)
        self.assertNotIn('binary_data_size', made.parameters)
        np.testing.assert_array_equal(await self.infer([made]), ROWS[2:3])


if __name__ == '__main__':
    embagd_process.EMBAGD = os.path.abspath(sys.argv[1])
    sys.exit(summary.run_tests())
