"""The repository on the disk, in which every version is whole at any time.

A version is assembled in REPOSITORY/.embag-sync/new/MODEL/N and renamed when all of it is on the
disk. REPOSITORY/.embag-sync/copied/MODEL/N says that the version N was copied, and since when it
is not wanted any more; copied/MODEL/model.yaml says that model.yaml was, and has its digest.
Versions that others wrote are never replaced or removed, and a model.yaml that others wrote, or
changed, is never removed.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil

from embag.sync.errors import SyncError
from embag.sync.version_files import CONFIG_NAME, is_name

STATE_FOLDER = '.embag-sync'
_VERSION = re.compile('[1-9][0-9]{0,18}')
VERSION_MAX = 2**63 - 1


def parse_version(name: str) -> int | None:
    """Returns the version that a folder is named after, or None if the name is not a version."""
    return int(name) if _VERSION.fullmatch(name) and int(name) <= VERSION_MAX else None


def sync_folder(path: str) -> None:
    """Writes a folder's entries to the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: str, data: bytes) -> None:
    """Writes a file to the disk, in place of an older one."""
    with open(path, 'wb') as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_file(path: str) -> bytes | None:
    """Returns the bytes of a file, or None if the file does not exist."""
    try:
        with open(path, 'rb') as file:
            return file.read()
    except (FileNotFoundError, NotADirectoryError):
        return None


def _digest(data: bytes) -> bytes:
    return hashlib.sha256(data).hexdigest().encode()


def _names(path: str) -> list[str]:
    try:
        return sorted(os.listdir(path))
    except (FileNotFoundError, NotADirectoryError):
        return []


def remove_tree(path: str) -> None:
    """Removes a file, or a folder with all that is in it, if it is there."""
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


class LocalRepository:
    """The repository in a directory, which is created if need be. One process at a time may have
    it. Methods raise OSError, the constructor also SyncError."""

    def __init__(self, root: str) -> None:
        self.root = os.path.abspath(root)
        self._state = os.path.join(self.root, STATE_FOLDER)
        os.makedirs(self._state, exist_ok=True)
        self._lock = os.open(os.path.join(self._state, 'lock'),
                             os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise SyncError('%s: another embag-sync copies to this directory' % root) from None
        remove_tree(os.path.join(self._state, 'old'))

    def close(self) -> None:
        """Lets other processes have the directory."""
        os.close(self._lock)

    def models(self) -> list[str]:
        """Returns the names of the models with copied versions, or with a copied model.yaml."""
        return [name for name in _names(os.path.join(self._state, 'copied')) if is_name(name)]

    def versions(self, model: str) -> list[int]:
        """Returns the numbers of a model's versions, from the lowest to the highest."""
        found = (parse_version(name) for name in _names(os.path.join(self.root, model)))
        return sorted(number for number in found if number is not None)

    def path(self, model: str, version: int) -> str:
        """Returns the path of a version, whether it is there or not."""
        return os.path.join(self.root, model, str(version))

    def _marker(self, model: str, copied: int | str) -> str:
        return os.path.join(self._state, 'copied', model, str(copied))

    def _mark(self, model: str, copied: int | str, text: bytes = b'') -> None:
        """Notes that a version or model.yaml is copied, and creates the model's folder for it."""
        marker = self._marker(model, copied)
        for folder in (os.path.dirname(marker), os.path.join(self.root, model)):
            if not os.path.isdir(folder):
                os.makedirs(folder)
                sync_folder(os.path.dirname(folder))
        write_file(marker, text)
        sync_folder(os.path.dirname(marker))

    def is_copied(self, model: str, version: int) -> bool:
        """Returns whether the version was copied, and not written by others."""
        return os.path.exists(self._marker(model, version))

    def stage(self, model: str, version: int, folder: str) -> str:
        """Returns the path at which a version is assembled, and creates it with a folder in it."""
        path = os.path.join(self._state, 'new', model, str(version))
        os.makedirs(os.path.join(path, folder), exist_ok=True)
        return path

    def drop_stages(self, model: str, wanted: set[int]) -> None:
        """Removes what was assembled of other versions."""
        folder = os.path.join(self._state, 'new', model)
        for name in _names(folder):
            if parse_version(name) not in wanted:
                remove_tree(os.path.join(folder, name))

    def publish(self, model: str, version: int) -> None:
        """Renames an assembled version into place, which must be on the disk. An older version with
        the number is removed."""
        final = self.path(model, version)
        self._mark(model, version)
        self._move_away(model, version)
        os.rename(os.path.join(self._state, 'new', model, str(version)), final)
        sync_folder(os.path.dirname(final))
        remove_tree(os.path.join(self._state, 'old'))

    def _move_away(self, model: str, version: int) -> None:
        if os.path.lexists(self.path(model, version)):
            old = os.path.join(self._state, 'old')
            remove_tree(old)
            os.mkdir(old)
            os.rename(self.path(model, version), os.path.join(old, str(version)))

    def want(self, model: str, version: int) -> None:
        """Notes that a version is wanted, perhaps again."""
        marker = self._marker(model, version)
        if read_file(marker):
            write_file(marker, b'')

    def let_go(self, model: str, version: int, now: float, grace_s: float) -> bool:
        """Notes that a copied version is not wanted. Removes it, and returns True, if that was so
        for `grace_s` seconds."""
        marker = self._marker(model, version)
        text = read_file(marker)
        if text is None:
            return False
        since = float(text) if re.fullmatch(rb'[0-9]+\.[0-9]{6}', text) else None
        if since is None or since > now:
            write_file(marker, b'%.6f' % now)
            since = now
        if now - since < grace_s:
            return False
        self._move_away(model, version)
        sync_folder(os.path.join(self.root, model))
        os.unlink(marker)
        remove_tree(os.path.join(self._state, 'old'))
        return True

    def forget_model(self, model: str) -> bool | None:
        """Removes the model.yaml and the folder of a model that has no copied versions, unless
        others wrote to them. Returns the same as drop_config."""
        if any(self.is_copied(model, version) for version in self.versions(model)):
            return None
        is_dropped = self.drop_config(model)
        for name in _names(os.path.join(self._state, 'copied', model)):
            os.unlink(os.path.join(self._state, 'copied', model, name))
        folder = os.path.join(self.root, model)
        if os.path.isdir(folder) and not os.listdir(folder):
            os.rmdir(folder)
        os.rmdir(os.path.join(self._state, 'copied', model))
        return is_dropped

    def write_config(self, model: str, data: bytes) -> bool:
        """Replaces model.yaml. Returns whether it differed."""
        path, digest = os.path.join(self.root, model, CONFIG_NAME), _digest(data)
        if read_file(path) == data:
            if read_file(self._marker(model, CONFIG_NAME)) not in (None, digest):
                self._mark(model, CONFIG_NAME, digest)
            return False
        new = os.path.join(self._state, CONFIG_NAME)
        write_file(new, data)
        self._mark(model, CONFIG_NAME, digest)
        os.rename(new, path)
        sync_folder(os.path.dirname(path))
        return True

    def drop_config(self, model: str) -> bool | None:
        """Removes model.yaml if it was copied. Returns None if it was not. Returns False if it has
        been changed since then: it stays, as one that others wrote."""
        marker, folder = self._marker(model, CONFIG_NAME), os.path.join(self.root, model)
        digest, path = read_file(marker), os.path.join(folder, CONFIG_NAME)
        if digest is None:
            return None
        data = read_file(path)
        is_own = data is None or _digest(data) == digest
        if is_own and os.path.isdir(folder):
            remove_tree(path)
            sync_folder(folder)
        os.unlink(marker)
        return is_own
