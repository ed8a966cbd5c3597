"""A part server that answers lookups as a test says."""

from concurrent import futures

import grpc

from embag.v1 import embedding_bag_pb2 as pb
from rpc import SERVICE, as_bytes

THREADS = 16
SECONDS = 3600


class RoguePart:
    """Passes everything but lookups on to a part server.

    - answer: function of a LookupRequest that returns the LookupResponse
    - count: number of lookups that came
    """

    def __init__(self, address, answer):
        self.answer = answer
        self.count = 0
        self.channel = grpc.insecure_channel(address)
        handlers = {
            'GetServer': grpc.unary_unary_rpc_method_handler(
                lambda request, _: self.pass_on('GetServer', pb.Server)(request, timeout=10),
                pb.GetServerRequest.FromString, as_bytes),
            'WatchModels': grpc.unary_stream_rpc_method_handler(
                self.watch, pb.WatchModelsRequest.FromString, as_bytes),
            'Lookup': grpc.unary_unary_rpc_method_handler(
                lambda request, _: self.lookup(request), pb.LookupRequest.FromString, as_bytes),
            'LookupStream': grpc.stream_stream_rpc_method_handler(
                lambda requests, _: map(self.lookup, requests), pb.LookupRequest.FromString,
                as_bytes),
        }
        self.pool = futures.ThreadPoolExecutor(THREADS)
        self.server = grpc.server(self.pool)
        self.server.add_generic_rpc_handlers((
            grpc.method_handlers_generic_handler(SERVICE.strip('/'), handlers),))
        self.address = '127.0.0.1:%d' % self.server.add_insecure_port('127.0.0.1:0')
        self.server.start()

    def pass_on(self, method, answer_type):
        """Returns a callable for a unary method of the part server."""
        return self.channel.unary_unary(SERVICE + method, request_serializer=as_bytes,
                                        response_deserializer=answer_type.FromString)

    def watch(self, request, context):
        """Passes on what the part server tells."""
        call = self.channel.unary_stream(
            SERVICE + 'WatchModels', request_serializer=as_bytes,
            response_deserializer=pb.WatchModelsResponse.FromString)(request, timeout=SECONDS)
        context.add_callback(call.cancel)
        try:
            yield from call
        except grpc.RpcError as error:
            if error.code() is not grpc.StatusCode.CANCELLED:
                raise

    def lookup(self, request):
        """Answers a lookup."""
        self.count += 1
        answer = self.answer(request)
        answer.request_id = request.request_id
        return answer

    def stop(self):
        """Ends all calls."""
        self.server.stop(None).wait()
        self.channel.close()
        self.pool.shutdown()
