"""Calls embag with stock grpcio. run.py puts the generated messages on the path."""

import queue

import grpc

from embag.v1 import embedding_bag_pb2 as pb
from embag.v1 import model_admin_pb2 as admin_pb

SERVICE = '/embag.v1.EmbeddingBag/'
ADMIN = '/embag.v1.ModelAdmin/'
OPTIONS = (
    ('grpc.max_receive_message_length', -1),
    ('grpc.max_send_message_length', -1),
    ('grpc.use_local_subchannel_pool', 1),
    ('grpc.enable_retries', 0),
)
TIMEOUT_SECONDS = 30


def as_bytes(message):
    """Serialises a message, or returns bytes unchanged."""
    return message if isinstance(message, bytes) else message.SerializeToString()


class Client:
    """A client with its own connection."""

    def __init__(self, address, options=OPTIONS, compression=None):
        self.channel = grpc.insecure_channel(address, options=options, compression=compression)

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.close()

    def close(self):
        """Closes the connection."""
        self.channel.close()

    def unary(self, method, answer_type):
        """Returns a callable for a unary method of the service."""
        return self.channel.unary_unary(
            SERVICE + method, request_serializer=as_bytes,
            response_deserializer=answer_type.FromString)

    def lookup(self, request, timeout=TIMEOUT_SECONDS):
        """Calls Lookup with a message or raw bytes."""
        return self.unary('Lookup', pb.LookupResponse)(request, timeout=timeout)

    def lookup_future(self, request, timeout=TIMEOUT_SECONDS):
        """Calls Lookup without waiting. Returns a future."""
        return self.unary('Lookup', pb.LookupResponse).future(request, timeout=timeout)

    def stream(self, requests, timeout=TIMEOUT_SECONDS):
        """Calls LookupStream. Returns an iterator over the answers."""
        call = self.channel.stream_stream(
            SERVICE + 'LookupStream', request_serializer=as_bytes,
            response_deserializer=pb.LookupResponse.FromString)
        return call(iter(requests), timeout=timeout)

    def messages_as_unary(self, messages, timeout=TIMEOUT_SECONDS):
        """Calls Lookup with any number of messages, although the method takes exactly one."""
        call = self.channel.stream_unary(
            SERVICE + 'Lookup', request_serializer=as_bytes,
            response_deserializer=pb.LookupResponse.FromString)
        return call(iter(messages), timeout=timeout)

    def list_models(self):
        """Calls ListModels."""
        return self.unary('ListModels', pb.ListModelsResponse)(
            pb.ListModelsRequest(), timeout=TIMEOUT_SECONDS)

    def get_model(self, model, version=0):
        """Calls GetModel."""
        return self.unary('GetModel', pb.Model)(
            pb.GetModelRequest(model=model, version=version), timeout=TIMEOUT_SECONDS)

    def get_server(self):
        """Calls GetServer."""
        return self.unary('GetServer', pb.Server)(pb.GetServerRequest(), timeout=TIMEOUT_SECONDS)


class SecureClient(Client):
    """A client with a TLS connection."""

    def __init__(self, address, authority, certificate=None, options=()):
        credentials = grpc.ssl_channel_credentials(
            authority.read('ca.pem'),
            certificate and authority.read(certificate + '.key'),
            certificate and authority.read(certificate + '.pem'))
        self.channel = grpc.secure_channel(address, credentials, options=OPTIONS + tuple(options))


class Admin(Client):
    """A client that may also call ModelAdmin."""

    def begin(self, method, request, timeout=TIMEOUT_SECONDS):
        """Starts a command with a message or raw bytes. Returns an iterator over its progress."""
        call = self.channel.unary_stream(
            ADMIN + method, request_serializer=as_bytes,
            response_deserializer=admin_pb.VersionProgress.FromString)
        return call(request, timeout=timeout)

    def command(self, method, model, version=0):
        """Runs a command to its end. Returns all of its progress messages."""
        return list(self.begin(method, admin_pb.VersionRequest(model=model, version=version)))

    def list_versions(self, model='', version=0):
        """Calls ListVersions."""
        call = self.channel.unary_unary(
            ADMIN + 'ListVersions', request_serializer=as_bytes,
            response_deserializer=pb.ListModelsResponse.FromString)
        return call(admin_pb.VersionRequest(model=model, version=version), timeout=TIMEOUT_SECONDS)


class Requests:
    """The requests of an open stream: an iterator that a test feeds."""

    def __init__(self):
        self.queue = queue.Queue()

    def put(self, request):
        """Sends a request."""
        self.queue.put(request)

    def end(self):
        """Half-closes the stream."""
        self.queue.put(None)

    def __iter__(self):
        return iter(self.queue.get, None)


def error_of(function, *arguments, **keywords):
    """Returns status code and text of a call that must fail."""
    try:
        answer = function(*arguments, **keywords)
    except grpc.RpcError as error:
        return error.code(), error.details()
    raise AssertionError('the call should fail, but it returned: %.200s' % answer)
