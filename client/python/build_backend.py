"""Build backend for pip: setuptools, plus grpcio-tools if nothing else compiles .proto files.

Says which packages to install if the build needs some that are not there.
"""

import importlib.util
import os
import shutil
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def missing_tools():
    """Returns the names of the packages that the build needs and that are not installed."""
    if not importlib.util.find_spec('setuptools'):
        return ['setuptools', 'wheel']
    # setuptools 70.1 and newer makes wheels by itself.
    has_wheel = (importlib.util.find_spec('wheel')
                 or importlib.util.find_spec('setuptools.command.bdist_wheel'))
    return [] if has_wheel else ['wheel']


if missing := missing_tools():
    sys.exit('embag cannot be built without %s: install %s (Debian) or %s (pip), or omit '
             '--no-build-isolation and --no-index, so that pip downloads it' % (
                 ' and '.join(missing), ' and '.join('python3-' + name for name in missing),
                 ' and '.join(missing)))

from setuptools.build_meta import *  # noqa: E402,F403


def get_requires_for_build_wheel(config_settings=None):
    """Returns the packages that the build needs in addition to those in pyproject.toml."""
    # A source distribution holds the messages; a checkout has no PKG-INFO.
    is_distribution = os.path.exists(os.path.join(HERE, 'PKG-INFO'))
    return [] if is_distribution or shutil.which('protoc') else ['grpcio-tools']


get_requires_for_build_sdist = get_requires_for_build_wheel
