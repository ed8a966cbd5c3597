"""Reads objects of a bucket, or files of a directory in place of one.

Paths have parts separated by slashes and are relative to the store's URL. All functions raise
SyncError.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

from embag.sync.errors import SyncError, need

_CONNECT_SECONDS, _READ_SECONDS = 10, 60
# Errors of S3 that end by themselves, besides all with a status of 500 or more.
_TRANSIENT = {'RequestTimeout', 'RequestTimeTooSkewed', 'SlowDown', 'Throttling',
              'ThrottlingException', 'TooManyRequests', '429'}
_MISSING = {'NoSuchKey', 'NotFound', '404'}


@dataclass
class Listing:
    """What lies directly in a folder: names of folders, and sizes of files by their names."""

    folders: list[str] = field(default_factory=list)
    files: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Content:
    """A small object. The tag changes when the bytes do. `data` is None if the tag is the known
    one."""

    tag: str
    data: bytes | None


class Reader(Protocol):
    """An open object."""

    tag: str
    size: int

    def read(self, count: int) -> bytes:
        """Returns the next bytes, at most `count`. Returns none at the end."""


class Store(Protocol):
    """A place that has a model repository."""

    url: str

    def list(self, path: str) -> Listing:
        """Lists a folder, which is empty if there is none."""

    def read(self, path: str, bytes_max: int, known_tag: str) -> Content | None:
        """Returns an object of at most `bytes_max` bytes, or None if it does not exist."""

    def open(self, path: str, offset: int) -> Any:
        """Returns a context manager of a Reader that begins at `offset`."""


def _too_large(where: str, size: int, bytes_max: int) -> SyncError:
    return SyncError('%s: has %d bytes, expected at most %d' % (where, size, bytes_max))


def _entries(folder: str) -> list[os.DirEntry[str]]:
    """Returns the entries of a folder, or none if it does not exist. Raises OSError."""
    try:
        opened = os.scandir(folder)
    except FileNotFoundError:
        return []
    with opened as entries:
        return list(entries)


class _FileReader:
    """An open file."""

    def __init__(self, file: Any, path: str) -> None:
        status = os.fstat(file.fileno())
        self.tag = '%d-%d-%d' % (status.st_ino, status.st_size, status.st_mtime_ns)
        self.size = status.st_size
        self._file, self._path = file, path

    def read(self, count: int) -> bytes:
        """Returns the next bytes."""
        try:
            data = self._file.read(count)
        except OSError as error:
            raise SyncError('%s: %s' % (self._path, error.strerror), is_transient=True) from None
        return bytes(data)


class DirectoryStore:
    """A directory, such as a mounted file system."""

    def __init__(self, root: str) -> None:
        self.url = root

    def list(self, path: str) -> Listing:
        """Lists a folder."""
        listing = Listing()
        where = os.path.join(self.url, path)
        try:
            for entry in _entries(where):
                if entry.is_dir():
                    listing.folders.append(entry.name)
                elif entry.is_file():
                    with suppress(FileNotFoundError):    # removed since
                        listing.files[entry.name] = entry.stat().st_size
        except OSError as error:
            raise SyncError('%s: %s' % (where, error.strerror), is_transient=True) from None
        return listing

    def read(self, path: str, bytes_max: int, known_tag: str) -> Content | None:
        """Returns a small file."""
        where = os.path.join(self.url, path)
        if not os.path.lexists(where):
            return None
        with self.open(path, 0) as reader:
            if reader.tag == known_tag:
                return Content(reader.tag, None)
            if reader.size > bytes_max:
                raise _too_large(where, reader.size, bytes_max)
            return Content(reader.tag, reader.read(bytes_max + 1))

    @contextmanager
    def open(self, path: str, offset: int) -> Iterator[Reader]:
        """Opens a file."""
        where = os.path.join(self.url, path)
        try:
            file = open(where, 'rb', buffering=0)
        except OSError as error:
            raise SyncError('%s: %s' % (where, error.strerror)) from None
        with file:
            file.seek(offset)
            yield _FileReader(file, where)


class _S3Reader:
    """The body of an answer."""

    def __init__(self, store: S3Store, where: str, answer: Any, offset: int) -> None:
        self.tag = answer['ETag']
        self.size = offset + answer['ContentLength']
        self._store, self._where, self._body = store, where, answer['Body']

    def read(self, count: int) -> bytes:
        """Returns the next bytes."""
        with self._store.errors_of(self._where):
            return bytes(self._body.read(count))


class S3Store:
    """A bucket of S3, or of a service with the same interface."""

    def __init__(self, url: str, endpoint: str | None) -> None:
        parts = urlsplit(url)
        self.url = url.rstrip('/')
        self._bucket, self._prefix = parts.netloc, unquote(parts.path).strip('/')
        boto3 = need('boto3', 'copying from s3://')
        self._errors = need('botocore.exceptions', 'copying from s3://')
        config = need('botocore.config', 'copying from s3://').Config(
            connect_timeout=_CONNECT_SECONDS, read_timeout=_READ_SECONDS, max_pool_connections=64,
            retries={'mode': 'standard', 'max_attempts': 2}, user_agent_extra='embag-sync',
            # With an endpoint of one's own, names below the endpoint's name seldom exist.
            s3={'addressing_style': 'path'} if endpoint else None)
        with self.errors_of(self.url):
            self._client = boto3.session.Session().client(
                's3', endpoint_url=endpoint, config=config)

    @contextmanager
    def errors_of(self, where: str) -> Iterator[None]:
        """Turns errors of boto3 into SyncError."""
        errors = self._errors
        try:
            yield
        except errors.ClientError as error:
            said = error.response.get('Error', {})
            status = error.response.get('ResponseMetadata', {}).get('HTTPStatusCode', 0)
            code = str(said.get('Code', status))
            raise SyncError('%s: %s: %s' % (where, code, said.get('Message', 'no message')),
                            status >= 500 or code in _TRANSIENT) from None
        except errors.BotoCoreError as error:
            is_transient = isinstance(error, (
                errors.ConnectionError, errors.HTTPClientError, errors.IncompleteReadError,
                errors.CredentialRetrievalError, errors.ProxyConnectionError))
            raise SyncError('%s: %s' % (where, error), is_transient) from None
        except ValueError as error:    # an endpoint that is no URL
            raise SyncError('%s: %s' % (where, error)) from None

    def _key(self, path: str) -> str:
        return '/'.join(each for each in (self._prefix, path) if each)

    def list(self, path: str) -> Listing:
        """Lists the keys that begin with a folder's."""
        listing = Listing()
        key = self._key(path)
        prefix = key + '/' if key else ''
        where = '%s/%s' % (self.url, path)
        with self.errors_of(where):
            pages = self._client.get_paginator('list_objects_v2').paginate(
                Bucket=self._bucket, Prefix=prefix, Delimiter='/')
            for page in pages:
                listing.folders += [each['Prefix'][len(prefix):].rstrip('/')
                                    for each in page.get('CommonPrefixes', ())]
                listing.files.update((each['Key'][len(prefix):], each['Size'])
                                     for each in page.get('Contents', ()))
        return listing

    def _get(self, path: str, **fields: Any) -> Any:
        return self._client.get_object(Bucket=self._bucket, Key=self._key(path), **fields)

    def read(self, path: str, bytes_max: int, known_tag: str) -> Content | None:
        """Returns a small object."""
        where = '%s/%s' % (self.url, path)
        known = {'IfNoneMatch': known_tag} if known_tag else {}
        with self.errors_of(where):
            try:
                answer = self._get(path, **known)
            except self._errors.ClientError as error:
                code = str(error.response.get('Error', {}).get('Code', ''))
                if code in ('304', 'NotModified'):
                    return Content(known_tag, None)
                if code in _MISSING:
                    return None
                raise
            with answer['Body'] as body:
                if answer['ContentLength'] > bytes_max:
                    raise _too_large(where, answer['ContentLength'], bytes_max)
                return Content(answer['ETag'], body.read())

    @contextmanager
    def open(self, path: str, offset: int) -> Iterator[Reader]:
        """Opens an object."""
        where = '%s/%s' % (self.url, path)
        fields = {'Range': 'bytes=%d-' % offset} if offset > 0 else {}
        with self.errors_of(where):
            answer = self._get(path, **fields)
        with answer['Body']:
            yield _S3Reader(self, where, answer, offset)


def open_store(url: str, endpoint: str | None = None) -> Store:
    """Returns the store of a URL: s3://BUCKET/PREFIX, file:///DIRECTORY, or a directory.

    `endpoint` is the URL of a service that has the interface of S3; by default that of the
    environment, or of AWS.
    """
    parts = urlsplit(url)
    if parts.scheme == 's3' and parts.netloc:
        endpoint = endpoint or os.environ.get('AWS_ENDPOINT_URL_S3') or os.environ.get(
            'AWS_ENDPOINT_URL')
        return S3Store(url, endpoint or None)
    if parts.scheme == 'file' and parts.netloc in ('', 'localhost') and parts.path:
        return DirectoryStore(unquote(parts.path))
    if not parts.scheme and url:
        return DirectoryStore(url)
    raise SyncError('invalid source "%.200s": expected s3://BUCKET/PREFIX or file:///DIRECTORY'
                    % url)
