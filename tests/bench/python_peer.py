"""A server that embag is compared with, as one quickly writes it in Python.

    python_peer.py MODEL_VERSION_DIRECTORY numpy|onnx

It uses grpcio, and NumPy or ONNX Runtime; the graph of the latter gathers and sums the rows of each
table. It answers unary Lookups with one bag and SUM in each query, in f32 tables NAME.npy, and
ListModels. It prints its address. PYTHONPATH must have the messages that protoc generated. onnx
needs the packages onnx and onnxruntime.
"""

import os
import sys
from concurrent import futures

import grpc
import numpy as np

from embag.v1 import embedding_bag_pb2 as pb

WORKERS = 4


class NumpyTables:
    """Tables whose rows NumPy gathers and sums."""

    def __init__(self, tables):
        self.tables = tables

    def pool(self, queries):
        """Returns the vector of each query, which is a table's name and indices."""
        return [self.tables[name][indices].sum(0) for name, indices in queries]


class OnnxTables:
    """Tables whose rows ONNX Runtime gathers and sums, for all tables of a request in one run."""

    def __init__(self, tables):
        import onnx
        import onnxruntime
        helper, numbers = onnx.helper, onnx.TensorProto
        axes = helper.make_tensor('axes', numbers.INT64, [1], [0])
        nodes, inputs, outputs, rows = [], [], [], [axes]
        for name, table in tables.items():
            rows.append(onnx.numpy_helper.from_array(table, name + '_rows'))
            inputs.append(helper.make_tensor_value_info(name, numbers.INT64, [None]))
            outputs.append(helper.make_tensor_value_info(name + '_sum', numbers.FLOAT, [None]))
            nodes.append(helper.make_node('Gather', [name + '_rows', name], [name + '_taken']))
            nodes.append(helper.make_node('ReduceSum', [name + '_taken', 'axes'], [name + '_sum'],
                                          keepdims=0))
        graph = helper.make_graph(nodes, 'bags', inputs, outputs, rows)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid('', 13)], ir_version=8)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model.SerializeToString(), options)

    def pool(self, queries):
        """Returns the vector of each query. There must be a query for every table of the model."""
        return self.session.run([name + '_sum' for name, _ in queries], dict(queries))


def answer(tables, request):
    """Returns the answer to a LookupRequest."""
    queries = [(query.table, np.frombuffer(query.indices_i64, '<i8') if query.indices_i64
                else np.frombuffer(query.indices_i32, '<i4').astype('<i8'))
               for query in request.queries]
    response = pb.LookupResponse(request_id=request.request_id, model=request.model, version=1)
    for number, vector in enumerate(tables.pool(queries)):
        response.results.add(query=number, type=pb.DATA_TYPE_F32, shape=[1, vector.size],
                             values=vector.tobytes())
    return response


def describe(rows):
    """Returns the answer to ListModels."""
    response = pb.ListModelsResponse()
    version = response.models.add(name='dlrm-v2', served_version=1).versions.add(
        version=1, state=pb.ModelVersion.STATE_SERVING)
    for name, table in rows.items():
        version.tables.add(name=name, rows=len(table), shape=table.shape[1:],
                           type=pb.DATA_TYPE_F32, storage='f32')
    return response


def main():
    """Serves until the process is killed."""
    directory, kind = sys.argv[1:]
    names = sorted(name[:-4] for name in os.listdir(directory) if name.endswith('.npy'))
    rows = {name: np.load(os.path.join(directory, name + '.npy')) for name in names}
    tables = {'numpy': NumpyTables, 'onnx': OnnxTables}[kind](rows)
    methods = {
        'Lookup': (lambda request, _: answer(tables, request), pb.LookupRequest),
        'ListModels': (lambda *_: describe(rows), pb.ListModelsRequest),
    }
    handlers = {
        name: grpc.unary_unary_rpc_method_handler(
            function, message.FromString, lambda response: response.SerializeToString())
        for name, (function, message) in methods.items()}
    server = grpc.server(futures.ThreadPoolExecutor(WORKERS))
    server.add_generic_rpc_handlers(
        [grpc.method_handlers_generic_handler('embag.v1.EmbeddingBag', handlers)])
    print('event=listening address=127.0.0.1:%d' % server.add_insecure_port('127.0.0.1:0'))
    server.start()
    print('event=ready', flush=True)
    server.wait_for_termination()


if __name__ == '__main__':
    main()
