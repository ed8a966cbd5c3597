"""A proxy in front of embagd that refuses its first call as overloaded and forwards later ones."""

import time
from concurrent import futures

import grpc


class BusyOnce(grpc.GenericRpcHandler):
    """Tells the first caller to retry after `pause_ms`. `times` has the arrival times of calls."""

    def __init__(self, target, pause_ms):
        options = [('grpc.max_receive_message_length', -1)]
        self.channel = grpc.insecure_channel(target, options)
        self.pause_ms = pause_ms
        self.times = []
        self.server = grpc.server(futures.ThreadPoolExecutor(4), handlers=[self], options=options)
        self.port = self.server.add_insecure_port('127.0.0.1:0')
        self.server.start()

    def stop(self):
        """Closes the server and the channel to embagd."""
        self.server.stop(None).wait()
        self.channel.close()

    def service(self, handler_call_details):
        """Handles unary lookups only, and forwards their messages as bytes."""
        if not handler_call_details.method.endswith('/Lookup'):
            return None
        def answer(message, context):
            self.times.append(time.monotonic())
            if len(self.times) == 1:
                context.set_trailing_metadata((('grpc-retry-pushback-ms', str(self.pause_ms)),))
                context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, 'the queue is full')
            return self.channel.unary_unary(handler_call_details.method)(message, timeout=30)
        return grpc.unary_unary_rpc_method_handler(answer)
