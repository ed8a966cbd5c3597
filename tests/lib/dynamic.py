"""Calls services without generated code, with descriptors from protoc or from a server."""

import os
import subprocess

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def pool_of(files):
    """Returns a pool of FileDescriptorProtos, which may be in any order."""
    pool = descriptor_pool.DescriptorPool()
    waiting = {file.name: file for file in files}
    while waiting:
        ready = [file for file in waiting.values()
                 if not any(name in waiting for name in file.dependency)]
        for file in ready:
            pool.Add(waiting.pop(file.name))
    return pool


def load(*names):
    """Returns a pool of some of the project's .proto files."""
    protos = os.path.join(SOURCE, 'proto')
    data = subprocess.run(
        ['protoc', '-I', protos, '--include_imports', '--descriptor_set_out=/dev/stdout', *names],
        cwd=protos, check=True, stdout=subprocess.PIPE).stdout
    return pool_of(descriptor_pb2.FileDescriptorSet.FromString(data).file)


def message_type(pool, name):
    """Returns the class of a message."""
    return message_factory.MessageFactory(pool).GetPrototype(pool.FindMessageTypeByName(name))


class Method:
    """A method of a service in a pool, called over a channel."""

    def __init__(self, pool, service, name):
        found = pool.FindServiceByName(service).methods_by_name[name]
        self.path = '/%s/%s' % (service, name)
        self.request = message_type(pool, found.input_type.full_name)
        self.answer = message_type(pool, found.output_type.full_name)

    def _open(self, make, **options):
        return make(self.path, request_serializer=self.request.SerializeToString,
                    response_deserializer=self.answer.FromString, **options)

    def unary(self, channel, timeout=30, metadata=None, **fields):
        """Sends one request with these fields. Returns its answer."""
        return self._open(channel.unary_unary)(
            self.request(**fields), timeout=timeout, metadata=metadata)

    def feed(self, channel, timeout=30, **fields):
        """Sends one request. Returns an iterator over its answers (server streaming)."""
        return self._open(channel.unary_stream)(self.request(**fields), timeout=timeout)

    def stream(self, channel, requests, timeout=30):
        """Sends many requests. Returns an iterator over the answers (bidirectional)."""
        return self._open(channel.stream_stream)(iter(requests), timeout=timeout)
