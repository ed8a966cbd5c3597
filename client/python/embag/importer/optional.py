"""Imports packages that only some checkpoints, or copies, need."""

from __future__ import annotations

import importlib
from typing import Any

from embag.importer.source import CheckpointError

# The Debian package of each module that has one.
_DEBIAN = {'boto3': 'python3-boto3', 'torch': 'python3-torch', 'tqdm': 'python3-tqdm',
           'xxhash': 'python3-xxhash', 'yaml': 'python3-yaml'}
# The name of the package on the index, where it differs from the module's.
_INDEX = {'yaml': 'PyYAML'}


def need(module: str, purpose: str) -> Any:
    """Returns the module.

    Raises CheckpointError, which says how to install it, if it is not installed. `purpose` says
    what needs it, as in "reading parquet files".
    """
    package = module.split('.')[0]
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split('.')[0] != package:
            raise
    debian = ' (Debian: %s)' % _DEBIAN[package] if package in _DEBIAN else ''
    raise CheckpointError('%s needs the package %s, which is not installed: pip install %s%s' % (
        purpose, package, _INDEX.get(package, package), debian))
