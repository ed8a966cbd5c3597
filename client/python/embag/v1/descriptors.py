"""Builds the classes of the messages from `messages.binpb`, without generated code.

That file is a serialised FileDescriptorSet of the project's .proto files; it is made when the
package is built. The classes are in a descriptor pool of their own, so they go together with any
version of the same .proto files that the process has loaded elsewhere.
"""

from __future__ import annotations

import pkgutil
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.internal.enum_type_wrapper import EnumTypeWrapper

_FILE = 'messages.binpb'


def _load() -> Any:
    """Returns a pool with all files of the set. Raises ImportError if it is not installed."""
    try:
        data = pkgutil.get_data(__package__, _FILE)
    except FileNotFoundError:
        data = None
    if data is None:
        raise ImportError('embag/v1/%s is missing: it is made when the package is built, so '
                          'install the package (pip install client/python) instead of importing '
                          'it from a checkout' % _FILE)
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(data).file:
        pool.AddSerializedFile(file.SerializeToString())
    return pool


_pool = _load()
if hasattr(message_factory, 'GetMessageClass'):
    _class_of: Any = message_factory.GetMessageClass
else:
    # protobuf before 4.22.
    _class_of = message_factory.MessageFactory(_pool).GetPrototype


def _message(descriptor: Any, module: str) -> Any:
    """Returns the class of a message, with the messages declared in it as attributes."""
    made = _class_of(descriptor)
    # Pickle finds classes by these two names.
    made.__module__ = module
    made.__qualname__ = descriptor.full_name[len(descriptor.file.package) + 1:]
    for nested in descriptor.nested_types:
        setattr(made, nested.name, _message(nested, module))
    return made


def names_of(file: str, module: str) -> dict[str, Any]:
    """Returns the names that a module generated from a .proto file has: messages, enums, values.

    - file: path of the .proto file, as in the set
    - module: name of the module that will have the names
    """
    descriptor = _pool.FindFileByName(file)
    names: dict[str, Any] = {'DESCRIPTOR': descriptor}
    for name, enum in descriptor.enum_types_by_name.items():
        names[name] = EnumTypeWrapper(enum)
        names.update((value.name, value.number) for value in enum.values)
    for name, message in descriptor.message_types_by_name.items():
        names[name] = _message(message, module)
    return names
