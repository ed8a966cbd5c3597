"""Calls embag in the Open Inference Protocol, through stock grpcio and messages made by protoc, as
its clients do."""

import numpy as np

from element_types import raw_bits
from inference import open_inference_pb2 as oip
from rpc import TIMEOUT_SECONDS, as_bytes

SERVICE = '/inference.GRPCInferenceService/'

# By this project's names of types.
DATATYPES = {
    'f32': 'FP32', 'f64': 'FP64', 'f16': 'FP16', 'bf16': 'BF16', 'i8': 'INT8', 'u8': 'UINT8',
    'i16': 'INT16', 'u16': 'UINT16', 'i32': 'INT32', 'u32': 'UINT32', 'i64': 'INT64',
    'u64': 'UINT64',
}
TYPED_FIELDS = {
    'INT64': 'int64_contents', 'INT32': 'int_contents', 'FP32': 'fp32_contents',
    'FP64': 'fp64_contents',
}


def call(client, method, request, timeout=TIMEOUT_SECONDS):
    """Calls a method with its request, a message, over the client's connection."""
    return call_bytes(client, method, request.SerializeToString(), timeout)


def call_bytes(client, method, request, timeout=TIMEOUT_SECONDS):
    """The same with bytes."""
    answer = getattr(oip, method + 'Response')
    return client.channel.unary_unary(
        SERVICE + method, request_serializer=as_bytes,
        response_deserializer=answer.FromString)(request, timeout=timeout)


def set_parameters(message, parameters):
    """Each in the form of its type."""
    for name, value in parameters.items():
        form = {bool: 'bool_param', int: 'int64_param', str: 'string_param',
                float: 'double_param'}[type(value)]
        setattr(message.parameters[name], form, value)


class Inference:
    """A ModelInferRequest in the making, whose contents are all raw or all typed."""

    def __init__(self, model, version='', is_typed=False, **parameters):
        self.request = oip.ModelInferRequest(model_name=model, model_version=version)
        self.is_typed = is_typed
        set_parameters(self.request, parameters)

    def input(self, name, array, datatype='INT64', **parameters):
        """Adds one, of elements that are as the datatype has them."""
        tensor = self.request.inputs.add(name=name, datatype=datatype, shape=array.shape)
        set_parameters(tensor, parameters)
        if self.is_typed:
            getattr(tensor.contents, TYPED_FIELDS[datatype]).extend(array.ravel().tolist())
        else:
            self.request.raw_input_contents.append(np.ascontiguousarray(array).tobytes())
        return self

    def indices(self, table, values, width='i8', **parameters):
        """TABLE.indices."""
        name = table + '.indices' if table else 'indices'
        datatype = {'i8': 'INT64', 'i4': 'INT32'}[width]
        return self.input(name, np.array(values, '<' + width), datatype, **parameters)

    def offsets(self, table, values, width='i8', **parameters):
        """TABLE.offsets."""
        name = table + '.offsets' if table else 'offsets'
        datatype = {'i8': 'INT64', 'i4': 'INT32'}[width]
        return self.input(name, np.array(values, '<' + width), datatype, **parameters)

    def weights(self, table, raw, type_name='f32'):
        """TABLE.per_sample_weights, of raw elements of that type."""
        name = table + '.per_sample_weights' if table else 'per_sample_weights'
        array = raw if self.is_typed else raw_bits(raw)
        return self.input(name, array, DATATYPES[type_name])

    def output(self, name, **parameters):
        """Asks for one."""
        set_parameters(self.request.outputs.add(name=name), parameters)
        return self

    def ask(self, client):
        """ModelInfer."""
        return call(client, 'ModelInfer', self.request)
