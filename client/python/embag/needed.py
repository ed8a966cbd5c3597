"""Checks, when it is imported, that the packages that embag needs are installed.

Raises ImportError, whose text says how to get those that are not. The package imports this module
before all others.
"""

import importlib.util

# By the module that is imported: the names of its package for pip and in Debian.
_PACKAGES = {'grpc': ('grpcio', 'python3-grpcio'), 'numpy': ('numpy', 'python3-numpy'),
             'google.protobuf': ('protobuf', 'python3-protobuf')}


def _is_installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:
        # The parent package is missing.
        return False


def _check() -> None:
    missing = [names for module, names in _PACKAGES.items() if not _is_installed(module)]
    if missing:
        pip, debian = (' '.join(names) for names in zip(*missing))
        raise ImportError('embag needs packages that are not installed: run `pip install %s`, or '
                          'on Debian `apt-get install %s`' % (pip, debian))


_check()
