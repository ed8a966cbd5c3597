"""Copies versions of models from an object store to the disk that a server reads."""

from embag.sync.errors import SyncError
from embag.sync.mirror import Mirror, Options
from embag.sync.stores import open_store
from embag.sync.version_files import Role

__all__ = ['Mirror', 'Options', 'Role', 'SyncError', 'open_store']
