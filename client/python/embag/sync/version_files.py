"""Reads manifest.yaml, and finds out which files of a version a server needs.

A manifest lists either files (server/formats/manifest.h), or tables with their places in parts
(server/formats/parts_manifest.h).
"""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from typing import Any

from embag.sync.errors import SyncError, need

NAME = 'manifest.yaml'
CONFIG_NAME = 'model.yaml'
# Limits, as the server has them (manifest_text.h, manifest.h, part_of.h).
BYTES_MAX = 16 << 20
PARTS_MAX = 4096
_FILE_BYTES_MAX = 1 << 44
_NAME_BYTES_MAX = 255
PACKED_SUFFIX = '.embag'
_DIGEST = re.compile('[0-9a-f]{16}')
_NUMBER = re.compile('[0-9]{1,18}')


@dataclass(frozen=True)
class Role:
    """What a server is: a part server if `parts` is not 0, a router, or a server that has all
    tables of versions without parts."""

    part: int = 0
    parts: int = 0
    is_router: bool = False

    @property
    def is_whole(self) -> bool:
        """Whether the server has all tables of versions without parts."""
        return not self.parts and not self.is_router

    def __str__(self) -> str:
        if self.is_router:
            return 'a router'
        return 'part %d/%d' % (self.part, self.parts) if self.parts else 'a whole server'


def parse_part(text: str, host: str | None = None) -> Role:
    """Returns the role of K/P, or of hostname/P, where K is the number at the end of the host's
    name, modulo P. Raises ValueError."""
    found = re.fullmatch('([0-9]{1,9}|hostname)/([0-9]{1,9})', text)
    if not found or not 1 <= int(found[2]) <= PARTS_MAX:
        raise ValueError('expected K/P or hostname/P with P from 1 to %d and K from 0 to P - 1'
                         % PARTS_MAX)
    parts = int(found[2])
    if found[1] != 'hostname':
        if int(found[1]) >= parts:
            raise ValueError('expected K from 0 to %d' % (parts - 1))
        return Role(int(found[1]), parts)
    name = (socket.gethostname() if host is None else host).split('.')[0]
    ordinal = re.search('[0-9]{1,9}$', name)
    if not ordinal or re.search('[0-9]{10}$', name):
        raise ValueError('the host\'s name is "%.64s", but expected a name with a number of at '
                         'most 9 digits at its end' % name)
    return Role(int(ordinal[0]) % parts, parts)


@dataclass(frozen=True)
class VersionFile:
    """A file of a version: its path there, and its digest: of a packed table the one in its header,
    and otherwise that of all bytes. `bytes` is None if the manifest does not say it."""

    path: str
    digest: int
    bytes: int | None

    @property
    def is_packed(self) -> bool:
        """Whether it is a packed table."""
        return self.path.endswith(PACKED_SUFFIX)


@dataclass(frozen=True)
class VersionFiles:
    """The files of a version that a server needs, and the folder that must be there even if it is
    empty ('': none)."""

    files: tuple[VersionFile, ...]
    folder: str = ''


class _Wrong(Exception):
    """A field that is not valid."""


def _field(value: Any, where: str, pattern: re.Pattern[str], expected: str) -> str:
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise _Wrong('%s: %.64r; expected %s' % (where, value, expected))
    return value


def _digest(value: Any, where: str) -> int:
    return int(_field(value, where, _DIGEST, '16 hex digits'), 16)


def _number(value: Any, where: str, least: int, most: int) -> int:
    expected = 'a number from %d to %d' % (least, most)
    number = int(_field(value, where, _NUMBER, expected))
    if not least <= number <= most:
        raise _Wrong('%s: %d; expected %s' % (where, number, expected))
    return number


def is_name(name: Any) -> bool:
    """Returns whether a file or folder may have the name."""
    return (isinstance(name, str) and 0 < len(name.encode('utf-8', 'replace')) <= _NAME_BYTES_MAX
            and name[0] != '.' and '/' not in name
            and not any(ord(each) < 32 or ord(each) == 127 for each in name)
            and not any(0xd800 <= ord(each) < 0xe000 for each in name))


def _name(value: Any, where: str) -> str:
    if not is_name(value):
        raise _Wrong('%s: %.64r; expected a name of a file' % (where, value))
    return str(value)


def _entries(manifest: dict[str, Any], key: str) -> list[dict[str, Any]]:
    entries = manifest.get(key)
    if not isinstance(entries, list) or not entries or not all(
            isinstance(each, dict) for each in entries):
        raise _Wrong('%s: expected a list of maps' % key)
    return entries


def _listed_files(manifest: dict[str, Any]) -> VersionFiles:
    files = []
    for index, entry in enumerate(_entries(manifest, 'files')):
        where = 'files[%d].' % index
        files.append(VersionFile(
            _name(entry.get('name'), where + 'name'),
            _digest(entry.get('xxh3_64'), where + 'xxh3_64'),
            _number(entry.get('bytes'), where + 'bytes', 0, _FILE_BYTES_MAX)))
    return VersionFiles(tuple(files))


def _table_digests(entry: dict[str, Any], where: str, count: int) -> list[int]:
    digests = entry.get('digests')
    if not isinstance(digests, list) or len(digests) != count:
        raise _Wrong('%sdigests: expected a list of %d' % (where, count))
    return [_digest(each, '%sdigests[%d]' % (where, number))
            for number, each in enumerate(digests)]


def _part_files(manifest: dict[str, Any], parts: int, role: Role) -> VersionFiles:
    """Returns the files of a part or of a router."""
    folder = '' if role.is_router else 'part-%05d-of-%05d' % (role.part, parts)
    files = []
    for index, entry in enumerate(_entries(manifest, 'tables')):
        where = 'tables[%d].' % index
        name = _name(entry.get('name'), where + 'name') + PACKED_SUFFIX
        placement = entry.get('placement')
        if placement not in ('everywhere', 'whole', 'rows'):
            raise _Wrong('%splacement: %.64r; expected everywhere, whole or rows' % (
                where, placement))
        digests = _table_digests(entry, where, parts if placement == 'rows' else 1)
        if placement == 'everywhere':
            if role.is_router:
                files.append(VersionFile(name, digests[0], None))
            continue
        number = role.part
        if placement == 'whole':
            if _number(entry.get('part'), where + 'part', 0, parts - 1) != role.part:
                continue
            number = 0
        if not role.is_router:
            files.append(VersionFile('%s/%s' % (folder, name), digests[number], None))
    return VersionFiles(tuple(files), folder)


def load_yaml(text: bytes, where: str) -> dict[str, Any]:
    """Returns the map in a file, whose scalars are all texts. Raises SyncError."""
    yaml = need('yaml', 'reading a manifest')
    try:
        value = yaml.load(text, getattr(yaml, 'CBaseLoader', yaml.BaseLoader))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError) as error:
        raise SyncError('%s: %s' % (where, ' '.join(str(error).split())[:300])) from None
    if not isinstance(value, dict):
        raise SyncError('%s: expected a map of keys and values' % where)
    return value


def read_version_files(text: bytes, where: str, role: Role) -> VersionFiles | None:
    """Returns the files of a version that a server with this role needs, or None if versions like
    this one do not exist for it. `where` names the manifest in errors. Raises SyncError."""
    manifest = load_yaml(text, where)
    has_parts = 'tables' in manifest
    try:
        _number(manifest.get('format'), 'format', 1, 1)
        parts = _number(manifest.get('parts'), 'parts', 1, PARTS_MAX if has_parts else 1)
        if not has_parts:
            found = _listed_files(manifest) if role.is_whole else None
        else:
            is_needed = role.is_router or role.parts == parts
            found = _part_files(manifest, parts, role) if is_needed else None
        if found and len({each.path for each in found.files}) < len(found.files):
            raise _Wrong('a file is listed twice')
    except _Wrong as error:
        raise SyncError('%s: %s' % (where, error)) from None
    return found


def named_versions(config: bytes, where: str) -> set[int]:
    """Returns the numbers of the versions that model.yaml serves or gives labels. Raises
    SyncError."""
    versions = load_yaml(config, where).get('versions') if config.strip() else None
    if not isinstance(versions, dict):
        return set()
    labels = versions.get('labels')
    named = [versions.get('serve')]
    named += [each.get('version') for each in (labels if isinstance(labels, list) else ())
              if isinstance(each, dict)]
    return {int(each) for each in named if isinstance(each, str) and _NUMBER.fullmatch(each)}
