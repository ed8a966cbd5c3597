"""Connects to a server: address, channels, TLS and token. Both clients use it."""

from __future__ import annotations

import ipaddress
import math
import os
import re
import ssl
import threading
import time
from collections.abc import Sequence
from typing import Any, TypedDict

import grpc

from embag import errors
from embag.v1 import embedding_bag_pb2 as pb

_SERVICE = '/embag.v1.EmbeddingBag/'

# By default gRPC refuses answers above 4 MiB. The server has limits of its own.
_OPTIONS = {'grpc.max_receive_message_length': -1, 'grpc.max_send_message_length': -1}
# About thirty years. Functions that wait do not accept much larger numbers of seconds.
_SECONDS_MAX = 1e9
# gRPC uses the proxies of the environment (http_proxy and others) for loopback addresses too.
_NO_PROXY: dict[str, Any] = {'grpc.enable_http_proxy': 0,
                             'grpc.address_http_proxy_enabled_addresses': ''}
# gRPC shares connections among channels with the same options, unless each channel has a pool of
# its own.
_OWN_POOL: dict[str, Any] = {'grpc.use_local_subchannel_pool': 1}
# Each channel has at least one connection, and the server limits their number.
_CHANNELS_MAX = 256
_POLL_S = 2.0   # time between two comparisons of the certificate files' stamps
_QUIET_S = 1.0  # time for which changed files must stay the same before they are read

_Stamp = tuple[int, ...]


class ConnectFields(TypedDict, total=False):
    """Connection settings of a client.

    - token: sent with every call, as `authorization: Bearer TOKEN`
    - token_file: file that holds the token, read again when it changes
    - tls: whether to encrypt the connection; ca_file, cert_file and server_name imply it
    - ca_file: PEM root certificates to trust instead of gRPC's own
    - cert_file, key_file: PEM certificate and key that identify the client (mutual TLS)
    - server_name: name that the server's certificate must have, instead of the address
    - options: channel options of gRPC, which override those of the package
    - channels: number of gRPC channels, each with connections of its own; a call uses the channel
      with the fewest calls under way, and channels with equally many in turn

    Certificate files are read again when they change. Calls look for changes every two seconds. If
    the files have been the same for a second, and the key fits its certificate, later calls use a
    new connection with the new files. Calls in flight, and streams, end on the connection that they
    began on. While the new files are not valid, the former ones stay in use.

    Without TLS anyone on the network path could read a token. The client then sends it only to this
    machine (a loopback address or a unix socket), and never through a proxy, whatever the options
    are. Connections to this machine without TLS and token go through a proxy only if the options
    turn grpc.enable_http_proxy on.
    """

    token: str | None
    token_file: str | None
    tls: bool
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    server_name: str | None
    options: Sequence[tuple[str, Any]]
    channels: int


def seconds(timeout: float | None, otherwise: float | None = None) -> float | None:
    """Returns the seconds that gRPC and threads wait: `timeout`, or `otherwise` if that is None.

    Returns None for no limit, also for infinity. Raises ValueError for NaN.
    """
    wait = otherwise if timeout is None else timeout
    if wait is None or 0.0 <= wait <= _SECONDS_MAX:
        return wait
    if math.isnan(wait):
        raise ValueError('timeout is not a number')
    return None if wait == math.inf else max(0.0, min(wait, _SECONDS_MAX))


def readable(reply: Any) -> Any:
    """Returns the message that gRPC received.

    Raises `Internal` for None, which grpcio returns if the status was OK without a message, and
    which grpc.aio also returns if it cannot decode the message.
    """
    if reply is None:
        raise errors.Internal('the server sent no answer, or one that could not be decoded')
    return reply


def _content(path: str | None) -> bytes | None:
    if path is None:
        return None
    with open(path, 'rb') as file:
        return file.read()


def _stamp(path: str) -> _Stamp:
    """Returns the identity, size and times of a file, the time of its last change last."""
    status = os.stat(path)
    return (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


class _Certificates:
    """The files of TLS, read again when they change. Any thread may use them.

    - credentials: those of the files that were valid last
    """

    def __init__(self, ca_file: str | None, cert_file: str | None, key_file: str | None) -> None:
        """Raises OSError if a file cannot be read."""
        self._ca_file, self._cert_file, self._key_file = ca_file, cert_file, key_file
        self._paths = [path for path in (ca_file, cert_file, key_file) if path is not None]
        self._lock = threading.Lock()  # held while the files are examined
        self._used = self._seen = self._stamps()
        self._due = time.monotonic() + _POLL_S if self._paths else math.inf
        self.credentials = self._read()

    def _stamps(self) -> list[_Stamp]:
        return [_stamp(path) for path in self._paths]

    def _read(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            _content(self._ca_file), _content(self._key_file), _content(self._cert_file))

    def _check(self) -> None:
        """Raises OSError, such as ssl.SSLError, if the files are not valid or do not fit."""
        if not all(map(os.path.isfile, self._paths)):
            raise OSError('not a regular file')  # reading a pipe again could block for ever
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.set_ciphers('DEFAULT:@SECLEVEL=0')  # gRPC decides which keys are too weak
        if self._ca_file is not None:
            context.load_verify_locations(self._ca_file)
        if self._cert_file is not None:
            # Without a password, OpenSSL would ask for that of an encrypted key.
            context.load_cert_chain(self._cert_file, self._key_file, password='')

    def renew(self) -> None:
        """Replaces the credentials if the files have changed and are valid.

        Does nothing if they were compared a short time ago, or if another thread compares them.
        """
        if time.monotonic() < self._due or not self._lock.acquire(blocking=False):
            return
        try:
            self._due = time.monotonic() + _POLL_S
            stamps = self._stamps()
            if stamps != self._used:
                self._take(stamps)
        except OSError:
            pass  # tried again later
        finally:
            self._lock.release()

    def _take(self, stamps: list[_Stamp]) -> None:
        changed_s = max(stamp[-1] for stamp in stamps) / 1e9
        if stamps != self._seen and time.time() < changed_s + _QUIET_S:
            self._seen = stamps
            self._due = time.monotonic() + _QUIET_S
            return
        self._check()
        credentials = self._read()
        # A file that is replaced meanwhile may not fit the others.
        if self._stamps() == stamps:
            self._used = stamps
            self.credentials = credentials


class _Token:
    """The token, which is sent as metadata of each call."""

    def __init__(self, token: str | None, path: str | None) -> None:
        if token is not None and path is not None:
            raise ValueError('token and token_file are both given: expected one of them')
        self._path = path
        self._stamp: tuple[int, ...] = ()
        self._metadata = self._of(token) if token is not None else ()

    @staticmethod
    def _of(token: str) -> tuple[tuple[str, str], ...]:
        return (('authorization', 'Bearer ' + token.strip()),)

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns the metadata of a call. Raises OSError if the token file cannot be read."""
        if self._path is not None:
            status = os.stat(self._path)
            stamp = status.st_mtime_ns, status.st_ino, status.st_size
            if stamp != self._stamp:
                self._metadata = self._of((_content(self._path) or b'').decode())
                self._stamp = stamp
        return self._metadata


def _is_local(address: str) -> bool:
    """Returns whether data sent to `address`, a gRPC target name, stays on this machine."""
    if address.startswith(('unix:', 'unix-abstract:')):
        return True
    # Targets of the form dns://SERVER/NAME and of unknown schemes count as remote, because
    # something else decides where they lead.
    target = re.sub('^(dns|ipv4|ipv6):(///|/(?!/))?', '', address)
    return all(_is_loopback(one.rpartition(':')[0].strip('[]')) for one in target.split(','))


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == 'localhost' or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Methods:
    """The service's methods on one gRPC channel."""

    def __init__(self, channel: Any) -> None:
        self.channel = channel
        self.call_count = 0  # calls under way; guarded by the lock of the `Channel`
        # Requests of lookups are encoded already.
        self.lookup = channel.unary_unary(
            _SERVICE + 'Lookup', response_deserializer=pb.LookupResponse.FromString)
        self.list_models = self._unary('ListModels', pb.ListModelsRequest, pb.ListModelsResponse)
        self.get_model = self._unary('GetModel', pb.GetModelRequest, pb.Model)
        self.get_server = self._unary('GetServer', pb.GetServerRequest, pb.Server)
        self.lookup_stream = channel.stream_stream(
            _SERVICE + 'LookupStream', response_deserializer=pb.LookupResponse.FromString)

    def _unary(self, method: str, request: Any, answer: Any) -> Any:
        return self.channel.unary_unary(
            _SERVICE + method, request_serializer=request.SerializeToString,
            response_deserializer=answer.FromString)


class Channel:
    """The channels of a client, of `grpc` or of `grpc.aio`.

    They are replaced when certificate files change.

    Raises ValueError for fields that do not go together, and OSError if a file cannot be read.
    """

    def __init__(self, module: Any, address: str, *, token: str | None = None,
                 token_file: str | None = None, tls: bool = False, ca_file: str | None = None,
                 cert_file: str | None = None, key_file: str | None = None,
                 server_name: str | None = None,
                 options: Sequence[tuple[str, Any]] = (), channels: int = 1) -> None:
        if (cert_file is None) != (key_file is None):
            raise ValueError('cert_file and key_file must be given together')
        if not 1 <= channels <= _CHANNELS_MAX:
            raise ValueError('channels is %d: expected 1 to %d' % (channels, _CHANNELS_MAX))
        is_encrypted = bool(tls or ca_file or cert_file or server_name)
        has_token = token is not None or token_file is not None
        is_local = _is_local(address)
        if has_token and not is_encrypted and not is_local:
            raise ValueError('a token is not sent to %s in clear text: turn on TLS (tls or '
                             'ca_file), or use a loopback address or a unix socket' % address)
        # gRPC uses the first of two options with the same name, so the names must be unique here.
        # A name may be bytes.
        named: dict[str, Any] = _OPTIONS | (_OWN_POOL if channels > 1 else {}) | {
            name.decode() if isinstance(name, bytes) else name: value for name, value in options}
        if is_local and not is_encrypted:
            named = named | _NO_PROXY if has_token else _NO_PROXY | named
        if server_name is not None:
            named['grpc.ssl_target_name_override'] = server_name
        self._module, self._address, self._options = module, address, tuple(named.items())
        self._certificates = _Certificates(ca_file, cert_file, key_file) if is_encrypted else None
        self.metadata = _Token(token, token_file).metadata
        self._lock = threading.Lock()  # guards the following
        self._is_closed = False
        self._replaced: list[Methods] = []  # those whose gRPC channels are still to be closed
        self._credentials = self._certificates.credentials if self._certificates else None
        self._methods = [self._open() for _ in range(channels)]
        self._next = 0  # the channel that the next call uses if all have equally many

    def _open(self) -> Methods:
        if self._credentials is None:
            channel = self._module.insecure_channel(self._address, options=self._options)
        else:
            channel = self._module.secure_channel(
                self._address, self._credentials, options=self._options)
        return Methods(channel)

    def begin(self) -> Methods:
        """Returns the methods for a call. When the call is over, `end` must be called."""
        if self._certificates is not None:
            self._certificates.renew()
        with self._lock:
            if self._certificates is not None and not self._is_closed:
                self._replace(self._certificates.credentials)
            chosen = self._choose()
            chosen.call_count += 1
            return chosen

    def _choose(self) -> Methods:
        count = len(self._methods)
        order = [(self._next + step) % count for step in range(count)]
        chosen = min(order, key=lambda place: self._methods[place].call_count)
        self._next = (chosen + 1) % count
        return self._methods[chosen]

    def _replace(self, credentials: grpc.ChannelCredentials) -> None:
        if credentials is not self._credentials:
            self._credentials = credentials
            self._replaced += self._methods
            self._methods = [self._open() for _ in self._methods]

    def end(self, methods: Methods) -> list[Any]:
        """Ends a call. The caller must close the gRPC channels that are returned.

        They have been replaced, and no call uses them any more.
        """
        with self._lock:
            methods.call_count -= 1
            unused = [one for one in self._replaced if one.call_count == 0]
            self._replaced = [one for one in self._replaced if one.call_count > 0]
        return [one.channel for one in unused]

    def close(self) -> list[Any]:
        """Returns all gRPC channels that are open, which the caller must close."""
        with self._lock:
            self._is_closed = True
            every, self._replaced = [*self._replaced, *self._methods], []
        return [one.channel for one in every]
