"""Encodes parts of messages as protobuf does.

A request is mostly arrays. protobuf would copy them into a query, from there into a request, and
then into bytes; here they are copied once into the bytes of the query and once into those of the
request.
"""

from __future__ import annotations

import functools
from typing import Any

# The wire type of fields that begin with their length: bytes, strings, messages.
_LENGTH_DELIMITED = 2


@functools.lru_cache(maxsize=4096)
def varint(number: int) -> bytes:
    """Returns a number that is not negative, seven bits in each byte, the lowest first."""
    encoded = bytearray()
    while number >= 128:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def tag(message: Any, field: str) -> bytes:
    """Returns the bytes that begin a field of bytes, or of messages; its length follows."""
    return varint(message.DESCRIPTOR.fields_by_name[field].number << 3 | _LENGTH_DELIMITED)


def array_tags(message: Any, field: str) -> dict[int, bytes]:
    """Returns the tags of the two forms of an array of integers, by the bytes of an element."""
    return {4: tag(message, field + '_i32'), 8: tag(message, field + '_i64')}
