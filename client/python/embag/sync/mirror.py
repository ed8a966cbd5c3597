"""Copies what a server needs of a model repository from a store to a directory."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass

from embag.importer.progress import Progress, readable
from embag.sync.download import Download, WrongDownload
from embag.sync.errors import Stopped, SyncError, error_text, retry
from embag.sync.local_repository import (LocalRepository, parse_version, read_file, remove_tree,
                                         sync_folder, write_file)
from embag.sync.stores import Listing, Store
from embag.sync.verify import HEADER_BYTES, PlainVerifier, head_bytes
from embag.sync.version_files import (BYTES_MAX, CONFIG_NAME, NAME, Role, VersionFile, VersionFiles,
                                      is_name, named_versions, read_version_files)

_CHUNK_BYTES = 1 << 20
# Bytes that must stay free on the disk, for model.yaml and folders.
_FREE_BYTES = 1 << 20


@dataclass(frozen=True)
class Options:
    """What is copied, and how.

    - role: the server that reads the copy
    - models: names of models; empty: all
    - versions: of each model, copies this many of the highest versions that the role needs, and
      those that model.yaml serves or gives labels; 0: all
    - grace_s: seconds for which a copied version stays when it is not wanted any more
    - connections: files that are copied at the same time
    """

    role: Role = Role()
    models: tuple[str, ...] = ()
    versions: int = 0
    grace_s: float = 3600.0
    connections: int = 4


@dataclass
class Summary:
    """What a round changed, and the errors of versions that could not be copied."""

    copied: int = 0
    removed: int = 0
    present: int = 0
    problems: int = 0


@dataclass(frozen=True)
class _Version:
    """A version in the store that the role needs."""

    model: str
    number: int
    manifest: bytes
    files: VersionFiles

    @property
    def path(self) -> str:
        """Its path in the store."""
        return '%s/%d' % (self.model, self.number)


class Mirror:
    """Copies from a store to a directory, round by round.

    - log: called with each line for the user; the second argument says whether it is an error
    """

    def __init__(self, store: Store, local: LocalRepository, options: Options,
                 log: Callable[[str, bool], None]) -> None:
        self._store, self._local, self._options, self._log = store, local, options, log
        self._halt = threading.Event()
        # Ends the downloads under way after one has failed. Each set has its own event.
        self._end_downloads = threading.Event()
        # The manifests that were read, with their tags, by their paths.
        self._manifests: dict[str, tuple[str, bytes]] = {}
        # The digests of manifests whose versions were found to be whole.
        self._whole: dict[tuple[str, int], bytes] = {}
        # Files that need not be downloaded again, by their paths.
        self._wrong_files: dict[str, WrongDownload] = {}

    def stop(self) -> None:
        """Ends a round that is under way: it raises Stopped. Signal handlers may call it."""
        self._halt.set()
        self._end_downloads.set()

    def pause(self, seconds: float) -> None:
        """Waits. Raises Stopped after stop()."""
        if self._halt.wait(seconds):
            raise Stopped

    def run_round(self) -> Summary:
        """Copies what the store has now. Errors of one model or version are logged, and the others
        go on. Raises SyncError if the store cannot be read or has no models, OSError, and
        Stopped."""
        summary = Summary()
        models = [name for name in self._list('').folders if is_name(name)]
        if not models:
            raise self._no_models()
        for model in self._options.models:
            if model not in models:
                self._problem('%s: has no model %s' % (self._store.url, model), summary)
        if self._options.models:
            models = [name for name in self._options.models if name in models]
        has_versions = False
        for model in models:
            with self._noting(model, summary):
                listing = self._list(model)
                has_versions = has_versions or bool(_numbers(listing))
                self._copy_model(model, listing, summary)
        if not has_versions and not summary.problems and not self._options.models:
            raise self._no_models()
        for model in self._local.models():
            if model not in models:
                with self._noting(model, summary):
                    self._local.drop_stages(model, set())
                    self._remove_others(model, set(), summary)
                    self._tell_dropped(model, self._local.forget_model(model))
        return summary

    def _no_models(self) -> SyncError:
        """Returns the error of a store without models. No model is removed then: it is likelier
        that the URL is wrong."""
        return SyncError('%s: has no models; expected MODEL/VERSION/manifest.yaml below it'
                         % self._store.url)

    def has_version(self, model: str) -> bool:
        """Returns whether the directory has a version that a server with this role can use, which
        may be one that others wrote. Raises OSError."""
        return any(self._is_usable(model, number) for number in self._local.versions(model))

    # ---- what is wanted ----

    def _list(self, path: str) -> Listing:
        return retry(lambda: self._store.list(path), self._halt)

    def _read(self, path: str) -> bytes | None:
        """Returns a small object, from memory if it has not changed."""
        tag, data = self._manifests.get(path, ('', b''))
        content = retry(lambda: self._store.read(path, BYTES_MAX, tag), self._halt)
        if content is None:
            self._manifests.pop(path, None)
            return None
        if content.data is not None:
            data = content.data
            self._manifests[path] = content.tag, data
        return data

    def _read_version(self, model: str, number: int) -> _Version | None:
        """Returns a version, or None if it is not complete yet or not needed."""
        path = '%s/%d/%s' % (model, number, NAME)
        manifest = self._read(path)
        if manifest is None:
            return None
        where = '%s/%s' % (self._store.url, path)
        files = read_version_files(manifest, where, self._options.role)
        return _Version(model, number, manifest, files) if files else None

    def _wanted(self, model: str, numbers: list[int], named: set[int], kept: set[int],
                summary: Summary) -> Iterator[_Version]:
        """Yields the versions to have, the highest first. Adds those that cannot be judged to
        `kept`."""
        for path in [each for each in self._manifests if each.startswith(model + '/')]:
            if path.endswith('/' + NAME) and int(path.split('/')[1]) not in numbers:
                del self._manifests[path]
        left = self._options.versions or len(numbers)
        for number in sorted(numbers, reverse=True):
            if left <= 0 and number not in named:
                continue
            try:
                version = self._read_version(model, number)
            except SyncError as error:
                self._problem(str(error), summary)
                kept.add(number)
                continue
            if version:
                left -= 1
                yield version

    def _problem(self, text: str, summary: Summary) -> None:
        summary.problems += 1
        self._log(text, True)

    @contextmanager
    def _noting(self, path: str, summary: Summary) -> Iterator[None]:
        """Logs an error, counts it, and ends it. `path` is that of the model or version in the
        store."""
        try:
            yield
        except SyncError as error:
            self._problem(str(error), summary)
        except OSError as error:
            self._problem('%s/%s: %s' % (self._store.url, path, error_text(error)), summary)

    def _copy_config(self, model: str) -> set[int] | None:
        """Copies model.yaml. Returns the versions that it names, or None if the store has none."""
        path = '%s/%s' % (model, CONFIG_NAME)
        config = self._read(path)
        if config is None:
            return None
        if self._local.write_config(model, config):
            self._log('%s: copied' % path, False)
        return named_versions(config, '%s/%s' % (self._store.url, path))

    def _tell_dropped(self, model: str, is_dropped: bool | None) -> None:
        """Logs what became of a model.yaml that the store no longer has, unless others wrote it."""
        if is_dropped is not None:
            self._log('%s/%s: %s' % (
                model, CONFIG_NAME, 'removed' if is_dropped else
                'kept, because it was changed after it was copied'), False)

    # ---- a model ----

    def _copy_model(self, model: str, listing: Listing, summary: Summary) -> None:
        # If model.yaml cannot be read, it may name any of the versions that are here.
        named: set[int] | None = set(self._local.versions(model))
        kept = set(self._local.versions(model))
        with self._noting(model, summary):
            named = self._copy_config(model)
            kept.clear()
        # An empty folder is a model that is being removed: its model.yaml goes with its versions.
        is_gone = named is None and listing.folders and CONFIG_NAME not in listing.files
        if is_gone:
            self._tell_dropped(model, self._local.drop_config(model))
        versions = sorted(self._wanted(model, _numbers(listing), named or set(), kept, summary),
                          key=lambda each: each.number)
        kept.update(each.number for each in versions)
        self._local.drop_stages(model, kept)
        # The lowest first, as part servers load them.
        for version in versions:
            with self._noting(version.path, summary):
                if self._is_whole(version):
                    summary.present += 1
                else:
                    self._copy_version(version)
                    summary.copied += 1
                self._local.want(model, version.number)
        self._remove_others(model, kept, summary)

    def _remove_others(self, model: str, kept: set[int], summary: Summary) -> None:
        for number in self._local.versions(model):
            if number in kept:
                continue
            with self._noting('%s/%d' % (model, number), summary):
                if self._local.let_go(model, number, time.time(), self._options.grace_s):
                    self._whole.pop((model, number), None)
                    summary.removed += 1
                    self._log('%s/%d: removed' % (model, number), False)

    # ---- a version ----

    def _is_whole(self, version: _Version) -> bool:
        """Returns whether the version is in the directory. Its files are examined once."""
        key, path = (version.model, version.number), self._local.path(version.model, version.number)
        if read_file(os.path.join(path, NAME)) != version.manifest:
            return False
        if self._whole.get(key) == version.manifest:
            return True
        is_whole = _has_files(path, version.files)
        if is_whole:
            self._whole[key] = version.manifest
        return is_whole

    def _is_usable(self, model: str, number: int) -> bool:
        """Returns whether a server with this role can use a version in the directory."""
        path = self._local.path(model, number)
        manifest = read_file(os.path.join(path, NAME))
        if manifest is None:
            # Versions without parts that others wrote may have none.
            return self._options.role.is_whole and os.path.isdir(path)
        files = self._accepted(manifest, path)
        return files is not None and _has_files(path, files)

    def _accepted(self, manifest: bytes, path: str) -> VersionFiles | None:
        """Returns the files of a version in the directory that the role needs, or None if its
        manifest is not one for this role."""
        try:
            return read_version_files(manifest, path, self._options.role)
        except SyncError:
            return None

    def _copy_version(self, version: _Version) -> None:
        model, number = version.model, version.number
        final = self._local.path(model, number)
        if os.path.lexists(final) and not self._local.is_copied(model, number):
            raise SyncError('%s: differs from %s/%s, and was not copied by embag-sync; remove it, '
                            'or copy to another directory' % (
                                final, self._store.url, version.path))
        stage = self._local.stage(model, number, version.files.folder)
        self._drop_strangers(stage, version)
        missing = [(index, each) for index, each in enumerate(version.files.files)
                   if not has_digest(os.path.join(stage, each.path), each, True)]
        missing = self._link_known(version, stage, missing)
        begin = time.monotonic()
        copied = self._download_all(version, stage, missing)
        write_file(os.path.join(stage, NAME), version.manifest)
        if version.files.folder:
            sync_folder(os.path.join(stage, version.files.folder))
        sync_folder(stage)
        self._local.publish(model, number)
        self._whole[model, number] = version.manifest
        self._log('%s: copied, %d files of %d, %s in %.1f s' % (
            version.path, len(missing), len(version.files.files), readable(copied),
            time.monotonic() - begin), False)

    @staticmethod
    def _drop_strangers(stage: str, version: _Version) -> None:
        """Removes what an attempt at other files with the same number has left."""
        count = len(version.files.files)
        wanted = {each.path for each in version.files.files} | {
            _partial(index) for index in range(count)}
        for at, folders, names in os.walk(stage):
            for name in names + folders:
                path = os.path.relpath(os.path.join(at, name), stage)
                if path not in wanted and path != version.files.folder:
                    remove_tree(os.path.join(stage, path))
            folders[:] = [name for name in folders if name == version.files.folder]

    def _link_known(self, version: _Version, stage: str,
                    missing: list[tuple[int, VersionFile]]) -> list[tuple[int, VersionFile]]:
        """Links files that other versions of the model have. Returns those that no version has."""
        known = {}
        for number in self._local.versions(version.model):
            known.update(self._files_of(version.model, number))
        left = []
        for index, each in missing:
            path = known.get((each.digest, each.is_packed))
            if not path or not has_digest(path, each, False) or not _link(
                    path, os.path.join(stage, each.path)):
                left.append((index, each))
        return left

    def _files_of(self, model: str, number: int) -> dict[tuple[int, bool], str]:
        """Returns the paths of a local version's files, by digest."""
        path = self._local.path(model, number)
        manifest = read_file(os.path.join(path, NAME))
        if manifest is None or not self._local.is_copied(model, number):
            return {}
        found = self._accepted(manifest, path)
        return {(each.digest, each.is_packed): os.path.join(path, each.path)
                for each in (found.files if found else ())}

    def _sizes(self, version: _Version) -> dict[str, int]:
        """Returns the sizes of the version's files in the store, by path."""
        sizes: dict[str, int] = {}
        for folder in {os.path.dirname(each.path) for each in version.files.files}:
            path = '/'.join(each for each in (version.path, folder) if each)
            sizes.update((os.path.join(folder, name), size)
                         for name, size in self._list(path).files.items())
        return sizes

    def _download_all(self, version: _Version, stage: str,
                      missing: list[tuple[int, VersionFile]]) -> int:
        """Copies files, several at a time. Returns their bytes."""
        if not missing:
            return 0
        sizes = self._sizes(version)
        for _, each in missing:
            if each.path not in sizes:
                raise SyncError('%s/%s/%s: is missing, but the manifest names it' % (
                    self._store.url, version.path, each.path))
        total = sum(sizes[each.path] for _, each in missing)
        self._check_room(stage, missing, total)
        self._log('%s: copying %d files of %d, %s' % (
            version.path, len(missing), len(version.files.files), readable(total)), False)
        downloads = [
            (Download(self._store, '%s/%s' % (version.path, each.path), sizes[each.path], each,
                      self._wrong_files),
             os.path.join(stage, _partial(index)), os.path.join(stage, each.path))
            for index, each in missing]
        self._run_downloads(downloads, total)
        return total

    def _run_downloads(self, downloads: list[tuple[Download, str, str]], total: int) -> None:
        lock = threading.Lock()
        end = self._end_downloads = threading.Event()
        if self._halt.is_set():     # before stop() could see this event
            end.set()
        with Progress(total, program='embag-sync') as progress:
            def advance(size: int) -> None:
                with lock:
                    progress.advance(size)
            with ThreadPoolExecutor(self._options.connections) as pool:
                futures = [pool.submit(download.run, partial, target, end, advance)
                           for download, partial, target in downloads]
                wait(futures, return_when=FIRST_EXCEPTION)
                if any(each.done() and each.exception() for each in futures):
                    end.set()
        _raise_first([each.exception() for each in futures])

    @staticmethod
    def _check_room(stage: str, missing: list[tuple[int, VersionFile]], total: int) -> None:
        have = 0
        for index, _ in missing:
            path = os.path.join(stage, _partial(index))
            have += os.path.getsize(path) if os.path.exists(path) else 0
        room = os.statvfs(stage)
        needed, available = total - have + _FREE_BYTES, room.f_bavail * room.f_frsize
        if needed > available:
            raise SyncError('%s: needs %d bytes, but only %d are free; free some space or lower '
                            '--versions' % (stage, needed, available))


def _raise_first(errors: list[BaseException | None]) -> None:
    """Raises the error that ended the downloads, if there is one."""
    found = [error for error in errors if error]
    for error in found:
        if not isinstance(error, Stopped):
            raise error
    if found:
        raise found[0]


def _numbers(listing: Listing) -> list[int]:
    """Returns the versions in the folder of a model."""
    return [n for n in map(parse_version, listing.folders) if n is not None]


def _partial(index: int) -> str:
    """Returns the name of a file that is not complete. No file of a version begins with a dot."""
    return '.%d' % index


def _link(source: str, target: str) -> bool:
    """Makes a hard link. Returns False if the file system cannot."""
    try:
        os.link(source, target)
    except OSError:
        return False
    return True


def _has_files(path: str, files: VersionFiles) -> bool:
    """Returns whether all files of a version are there, by their headers and sizes."""
    return os.path.isdir(os.path.join(path, files.folder)) and all(
        has_digest(os.path.join(path, each.path), each, False) for each in files.files)


def has_digest(path: str, file: VersionFile, is_read: bool) -> bool:
    """Returns whether a file is there and, by its header, the one that the manifest names. If
    `is_read` is set, all bytes of files without a header are compared; files with one were compared
    when they were written."""
    try:
        with open(path, 'rb', buffering=0) as opened:
            size = os.fstat(opened.fileno()).st_size
            if file.bytes not in (None, size):
                return False
            if file.is_packed:
                head_bytes(opened.read(HEADER_BYTES), file, size)
            elif is_read:
                verifier = PlainVerifier(file, size)
                while data := opened.read(_CHUNK_BYTES):
                    verifier.update(memoryview(data))
                verifier.finish()
    except (OSError, SyncError):
        return False
    return True
