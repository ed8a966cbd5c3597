"""How a server is reached: address, TLS, token; the same for both clients."""

from __future__ import annotations

import ipaddress
import math
import os
import re
from collections.abc import Sequence
from typing import Any, TypedDict

import grpc

from embag import errors
from embag.v1 import embedding_bag_pb2 as pb

_SERVICE = '/embag.v1.EmbeddingBag/'

# gRPC refuses answers above 4 MiB otherwise; the server has limits of its own.
_OPTIONS = {'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1}
# Some thirty years: what waits takes no number of seconds that is much larger.
_SECONDS_MAX = 1e9
# gRPC takes the environment's proxies (http_proxy and others) for loopback addresses too.
_NO_PROXY: dict[str, Any] = {'grpc.enable_http_proxy': 0,
                             'grpc.address_http_proxy_enabled_addresses': ''}


class ConnectFields(TypedDict, total=False):
    """How a server is reached:

    - token: sent with every call, as `authorization: Bearer TOKEN`
    - token_file: a file that holds it, read again when it changes
    - tls: whether the connection is encrypted; it is wherever one of the following is given
    - ca_file: PEM certificates that the server's must lead to, instead of gRPC's own
    - cert_file, key_file: PEM certificate and key that say who the client is (mutual TLS)
    - server_name: whom the server's certificate must name, instead of the address
    - options: channel options of gRPC, which override those of the package

    Without TLS a token could be read by everyone on the way: it is sent to this machine only, by a
    loopback address or a unix socket, and by no proxy, whatever the options. Without TLS and token
    this machine is reached by a proxy only where the options turn grpc.enable_http_proxy on.
    """

    token: str | None
    token_file: str | None
    tls: bool
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    server_name: str | None
    options: Sequence[tuple[str, Any]]


def seconds(timeout: float | None, otherwise: float | None = None) -> float | None:
    """How long gRPC and threads are to wait: the timeout, or `otherwise` where it is None. None: no
    bound, which infinity is too. ValueError: it is no number."""
    wait = otherwise if timeout is None else timeout
    if wait is None or wait == math.inf:
        return None
    if math.isnan(wait):
        raise ValueError('timeout is not a number')
    return max(0.0, min(wait, _SECONDS_MAX))


def readable(reply: Any) -> Any:
    """Returns what gRPC has received. Raises `Internal` for None, which grpcio returns if OK came
    without a message, and grpc.aio also if the message cannot be decoded."""
    if reply is None:
        raise errors.Internal('there is no answer, or its bytes are no message')
    return reply


def _content(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, 'rb') as file:
        return file.read()


class _Token:
    """What is sent beside each call."""

    def __init__(self, token: str | None, path: str | None) -> None:
        if token is not None and path is not None:
            raise ValueError('token and token_file: only one of them')
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._metadata = self._of(token) if token is not None else ()

    @staticmethod
    def _of(token: str) -> tuple[tuple[str, str], ...]:
        return (('authorization', 'Bearer ' + token.strip()),)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """OSError: the file cannot be read."""
        if self._path is not None:
            status = os.stat(self._path)
            stamp = status.st_mtime_ns, status.st_ino, status.st_size
            if stamp != self._stamp:
                self._metadata = self._of((_content(self._path) or b'').decode())
                self._stamp = stamp
        return self._metadata


def _is_local(address: str) -> bool:
    """Whether what is sent to it, a name as gRPC takes it, stays on this machine."""
    if address.startswith(('unix:', 'unix-abstract:')):
        return True
    # Of dns://SERVER/NAME, and of schemes that are not known here, others say where it leads.
    target = re.sub('^(dns|ipv4|ipv6):(///|/(?!/))?', '', address)
    return all(_is_loopback(one.rpartition(':')[0].strip('[]')) for one in target.split(','))


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == 'localhost' or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Channel:
    """A channel of `grpc` or of `grpc.aio`, and the service's calls on it. OSError: a file cannot
    be read."""

    def __init__(self, module: Any, address: str, *, token: str | None = None,
                 token_file: str | None = None, tls: bool = False, ca_file: str | None = None,
                 cert_file: str | None = None, key_file: str | None = None,
                 server_name: str | None = None,
                 options: Sequence[tuple[str, Any]] = ()) -> None:
        if (cert_file is None) != (key_file is None):
            raise ValueError('cert_file and key_file: both of them, or none')
        is_encrypted = bool(tls or ca_file or cert_file or server_name)
        has_token = token is not None or token_file is not None
        is_local = _is_local(address)
        if has_token and not is_encrypted and not is_local:
            raise ValueError('a token is not sent to %s in clear: ask for TLS (tls or ca_file), or '
                             'go by a loopback address or a unix socket' % address)
        # Of an option that is there twice gRPC takes the first; its name may come as bytes.
        named: dict[str, Any] = _OPTIONS | {
            name.decode() if isinstance(name, bytes) else name: value for name, value in options}
        if is_local and not is_encrypted:
            named = named | _NO_PROXY if has_token else _NO_PROXY | named
        if server_name is not None:
            named['grpc.ssl_target_name_override'] = server_name
        every = tuple(named.items())
        if is_encrypted:
            credentials = grpc.ssl_channel_credentials(
                _content(ca_file), _content(key_file), _content(cert_file))
            self.channel = module.secure_channel(address, credentials, options=every)
        else:
            self.channel = module.insecure_channel(address, options=every)
        self.metadata = _Token(token, token_file).metadata
        self.lookup = self._unary('Lookup', pb.LookupRequest, pb.LookupResponse)
        self.list_models = self._unary('ListModels', pb.ListModelsRequest, pb.ListModelsResponse)
        self.get_model = self._unary('GetModel', pb.GetModelRequest, pb.Model)
        self.get_server = self._unary('GetServer', pb.GetServerRequest, pb.Server)
        self.lookup_stream = self.channel.stream_stream(
            _SERVICE + 'LookupStream', request_serializer=pb.LookupRequest.SerializeToString,
            response_deserializer=pb.LookupResponse.FromString)

    def _unary(self, method: str, request: Any, answer: Any) -> Any:
        return self.channel.unary_unary(
            _SERVICE + method, request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString)
