"""Reads pickles without running anything that they name.

A pickle is a program, and Python's unpickler calls whatever that program names. This module reads
pickles that hold plain data and instances of known classes: it has no way to call or import
anything. A class or function in the pickle becomes a `Global`, its name. An instance becomes an
`Instance`: a name, the arguments of the call that would have made it, and its state. Names that the
caller did not allow are refused, as are instructions that plain data does not need.

Memory is bounded by the caps below: no length that the pickle states is believed before the bytes
are there.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from embag.importer.source import CheckpointError

# The largest pickle. It bounds the memory for the text in it.
PICKLE_BYTES_MAX = 64 << 20
# The largest number of instructions. It bounds the memory for what they make to some 500 MB.
INSTRUCTIONS_MAX = 6_000_000
# The largest integer, in bytes: sizes and offsets have 64 bits, and a sign.
INT_BYTES_MAX = 9
# The longest module or class name that an error shows.
_SHOWN_NAME_MAX = 200


class Global(NamedTuple):
    """The name of a class, a function or a constant such as torch.float32."""

    module: str
    name: str

    def __str__(self) -> str:
        return f'{self.module}.{self.name}'


@dataclass(eq=False)
class Instance:
    """An instance of a class, or the result of a function, that was not made.

    - cls: the class or function
    - args: the arguments
    - state: its state: a dict or a tuple; None if the pickle has none
    """

    __slots__ = ('cls', 'args', 'state')

    cls: Global
    args: tuple[Any, ...]
    state: Any


class _Mark:
    """A place in the stack where a list of values begins."""


_MARK = _Mark()
_KEY_TYPES = (str, int, float, bool, type(None), Instance)


class _Reader:
    """The stack and the memo while a pickle is read.

    - data, at: the pickle, and how far it was read
    - allowed: says of each global whether the pickle may name it
    - persistent: turns a persistent id into a value; None if the pickle may have none
    """

    def __init__(self, data: bytes, allowed: Callable[[Global], bool],
                 persistent: Callable[[Any], Any] | None) -> None:
        self.data = data
        self.at = 0
        self.allowed = allowed
        self.persistent = persistent
        self.stack: list[Any] = []
        self.memo: dict[int, Any] = {}

    def take(self, count: int) -> bytes:
        """Takes the next bytes."""
        if count > len(self.data) - self.at:
            raise CheckpointError(f'ends at byte {len(self.data)}, inside of a value of {count} '
                                  'bytes')
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, form: str) -> int:
        """Takes a number in a format of struct."""
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def line(self) -> str:
        """Takes the text up to the next line feed."""
        end = self.data.find(b'\n', self.at)
        if end < 0:
            raise CheckpointError('ends inside of a line')
        text = self.text(end - self.at)
        self.at += 1
        return text

    def text(self, count: int) -> str:
        """Takes text of a number of bytes."""
        try:
            return self.take(count).decode('utf-8')
        except UnicodeDecodeError as error:
            raise CheckpointError(f'has text that is not UTF-8 before byte {self.at}') from error

    def pop(self, kind: type | tuple[type, ...] = object) -> Any:
        """Pops a value of a type."""
        if not self.stack or self.stack[-1] is _MARK:
            raise CheckpointError(f'needs a value at byte {self.at} that was not pushed')
        value = self.stack.pop()
        if not isinstance(value, kind):
            raise CheckpointError(f'has a {type(value).__name__} at byte {self.at}, where another '
                                  'type is needed')
        return value

    def top(self, kind: type) -> Any:
        """Returns the value on top of the stack, which must have a type."""
        value = self.pop(kind)
        self.stack.append(value)
        return value

    def pop_marked(self) -> list[Any]:
        """Pops the values above the last mark, and the mark."""
        for position in range(len(self.stack) - 1, -1, -1):
            if self.stack[position] is _MARK:
                values = self.stack[position + 1:]
                del self.stack[position:]
                return values
        raise CheckpointError(f'needs a mark at byte {self.at} that was not set')

    def push_global(self, module: Any, name: Any) -> None:
        """Pushes the name of a class, function or constant."""
        if not isinstance(module, str) or not isinstance(name, str):
            raise CheckpointError('names a class by something that is not text')
        named = Global(module, name)
        if not self.allowed(named):
            shown = str(named)[:_SHOWN_NAME_MAX]
            raise CheckpointError(f'refers to {shown!r}, which a checkpoint does not need: refused')
        self.stack.append(named)

    def get(self, index: int) -> None:
        """Pushes a value of the memo."""
        if index not in self.memo:
            raise CheckpointError(f'needs value {index} of the memo, which was not stored')
        self.stack.append(self.memo[index])

    def put(self, index: int) -> None:
        """Stores the top of the stack in the memo."""
        self.memo[index] = self.top(object)

    def make(self, cls: Any, args: Any) -> None:
        """Pushes what a call or a class would have made."""
        if not isinstance(cls, Global) or not isinstance(args, tuple):
            raise CheckpointError(f'calls something at byte {self.at} that is not a known name')
        if cls == ('collections', 'OrderedDict') and not args:
            self.stack.append({})
        else:
            self.stack.append(Instance(cls, args, None))

    def build(self) -> None:
        """Gives an instance its state."""
        state = self.pop((dict, tuple))
        instance = self.top(Instance)
        if instance.state is not None:
            raise CheckpointError(f'gives a second state to an instance of {instance.cls}')
        instance.state = state

    def set_items(self, items: list[Any]) -> None:
        """Sets items of the dict on top of the stack; `items` has keys and values in turns."""
        target = self.top(dict)
        if len(items) % 2:
            raise CheckpointError(f'has a key without a value at byte {self.at}')
        for key, value in zip(items[::2], items[1::2]):
            if not isinstance(key, _KEY_TYPES):
                raise CheckpointError(f'has a {type(key).__name__} as a key')
            target[key] = value

    def integer(self) -> int:
        """Takes an integer of some bytes."""
        count = self.number('<B')
        if count > INT_BYTES_MAX:
            raise CheckpointError(f'has an integer of {count} bytes: expected at most '
                                  f'{INT_BYTES_MAX}')
        return int.from_bytes(self.take(count), 'little', signed=True)

    def push_persistent(self) -> None:
        """Replaces a persistent id by its value."""
        if self.persistent is None:
            raise CheckpointError('has a persistent id: expected none')
        self.stack.append(self.persistent(self.pop()))


def _append(reader: _Reader, values: list[Any]) -> None:
    reader.top(list).extend(values)


def _tuple(reader: _Reader, count: int) -> None:
    values = tuple(reader.pop() for _ in range(count))
    reader.stack.append(values[::-1])


def _stack_global(reader: _Reader) -> None:
    name, module = reader.pop(), reader.pop()
    reader.push_global(module, name)


def _make(reader: _Reader) -> None:
    args, cls = reader.pop(), reader.pop()
    reader.make(cls, args)


def _set_item(reader: _Reader) -> None:
    value, key = reader.pop(), reader.pop()
    reader.set_items([key, value])


# Effects of the instructions, by their codes.
_INSTRUCTIONS: dict[int, Callable[[_Reader], object]] = {
    code[0]: effect for code, effect in {
        b'(': lambda r: r.stack.append(_MARK),
        b'0': lambda r: r.pop(),
        b'N': lambda r: r.stack.append(None),
        b'\x88': lambda r: r.stack.append(True),
        b'\x89': lambda r: r.stack.append(False),
        b'K': lambda r: r.stack.append(r.number('<B')),
        b'M': lambda r: r.stack.append(r.number('<H')),
        b'J': lambda r: r.stack.append(r.number('<i')),
        b'\x8a': lambda r: r.stack.append(r.integer()),
        b'G': lambda r: r.stack.append(r.number('>d')),
        b'\x8c': lambda r: r.stack.append(r.text(r.number('<B'))),
        b'X': lambda r: r.stack.append(r.text(r.number('<I'))),
        b'\x8d': lambda r: r.stack.append(r.text(r.number('<Q'))),
        b'C': lambda r: r.stack.append(r.take(r.number('<B'))),
        b'B': lambda r: r.stack.append(r.take(r.number('<I'))),
        b'\x8e': lambda r: r.stack.append(r.take(r.number('<Q'))),
        b')': lambda r: r.stack.append(()),
        b'\x85': lambda r: _tuple(r, 1),
        b'\x86': lambda r: _tuple(r, 2),
        b'\x87': lambda r: _tuple(r, 3),
        b't': lambda r: r.stack.append(tuple(r.pop_marked())),
        b']': lambda r: r.stack.append([]),
        b'a': lambda r: _append(r, [r.pop()]),
        b'e': lambda r: _append(r, r.pop_marked()),
        b'}': lambda r: r.stack.append({}),
        b's': _set_item,
        b'u': lambda r: r.set_items(r.pop_marked()),
        b'h': lambda r: r.get(r.number('<B')),
        b'j': lambda r: r.get(r.number('<I')),
        b'q': lambda r: r.put(r.number('<B')),
        b'r': lambda r: r.put(r.number('<I')),
        b'\x94': lambda r: r.put(len(r.memo)),
        b'\x95': lambda r: r.take(8),    # the length of a frame, which is not needed
        b'\x80': lambda r: r.take(1),    # the version of the protocol
        b'c': lambda r: r.push_global(r.line(), r.line()),
        b'\x93': _stack_global,
        b'R': _make,
        b'\x81': _make,
        b'b': lambda r: r.build(),
        b'Q': lambda r: r.push_persistent(),
    }.items()}


def read_pickle(data: bytes, allowed: Callable[[Global], bool],
                persistent: Callable[[Any], Any] | None = None) -> Any:
    """Returns the value that a pickle describes, with `Global` and `Instance` in place of classes
    and instances. `allowed` says which globals it may name, `persistent` turns a persistent id
    into a value.

    Raises CheckpointError if the pickle names anything else, is not complete, has instructions that
    are not needed for plain data, or is larger than the caps allow. The text begins with a verb:
    its subject is the pickle.
    """
    if len(data) > PICKLE_BYTES_MAX:
        raise CheckpointError(f'has {len(data)} bytes: expected at most {PICKLE_BYTES_MAX}')
    reader = _Reader(data, allowed, persistent)
    for _ in range(INSTRUCTIONS_MAX):
        code = reader.take(1)[0]
        if code == ord('.'):
            value = reader.pop()
            if reader.stack:
                raise CheckpointError(f'leaves {len(reader.stack)} values: expected one')
            return value
        effect = _INSTRUCTIONS.get(code)
        if effect is None:
            raise CheckpointError(f'has the instruction 0x{code:02x} at byte {reader.at - 1}, '
                                  'which plain data does not need: refused')
        effect(reader)
    raise CheckpointError(f'has more than {INSTRUCTIONS_MAX} instructions')


def allow(names: Mapping[str, frozenset[str]]) -> Callable[[Global], bool]:
    """Returns a function that allows the globals that `names` lists by their modules."""
    return lambda named: named.name in names.get(named.module, frozenset())
