"""Writes files as torch does, without torch.

Classes with the names of torch's are put into sys.modules while they are pickled.
"""

import collections
import contextlib
import io
import os
import pickle
import sys
import types
import zipfile

METADATA = 'torch.distributed.checkpoint.metadata'
FILES = 'torch.distributed.checkpoint.filesystem'
OLD_PROPERTIES = 'torch.distributed._shard.sharded_tensor.metadata'
STORAGES = {'f4': 'FloatStorage', 'f8': 'DoubleStorage', 'f2': 'HalfStorage', 'i8': 'LongStorage',
            'u1': 'ByteStorage', 'i1': 'CharStorage'}
DTYPES = {'f4': 'float32', 'f8': 'float64', 'f2': 'float16', 'i8': 'int64', 'u1': 'uint8',
          'i1': 'int8'}


def define(module, name, base=object, **members):
    """Returns a class that is pickled as one of that module."""
    return type(name, (base,), {'__module__': module, '__qualname__': name, **members})


class Named:
    """A constant, such as torch.float32, that is pickled by its name."""

    def __init__(self, module, name):
        self.__module__ = module
        self.name = name

    def __reduce__(self):
        return self.name


@contextlib.contextmanager
def importable(*members):
    """Makes modules of classes and constants importable."""
    before = dict(sys.modules)
    try:
        for member in members:
            name = member.__module__
            for end in [i for i, letter in enumerate(name + '.') if letter == '.']:
                if not isinstance(sys.modules.get(name[:end]), Module):
                    sys.modules[name[:end]] = Module(name[:end])
            setattr(sys.modules[name], getattr(member, '__qualname__', None) or member.name, member)
        yield
    finally:
        sys.modules.clear()
        sys.modules.update(before)


class Module(types.ModuleType):
    """A module that exists only while something is pickled."""


class Call:
    """Something that is pickled as the call of a class or function."""

    def __init__(self, function, *args):
        self.call = function, args

    def __reduce__(self):
        return self.call


class Storage:
    """The storage of a tensor, which is pickled as a persistent id."""

    def __init__(self, *place):
        self.place = place


class TorchPickler(pickle.Pickler):
    """Pickles a tensor as torch.save does."""

    def persistent_id(self, value):
        return value.place if isinstance(value, Storage) else None


def saved_tensor(array, compression=zipfile.ZIP_STORED, big_endian=False, strides=None, members=()):
    """Returns the bytes that torch.save would write for an array."""
    kind = array.dtype.str[1:]
    storage = define('torch', STORAGES[kind])
    rebuild = types.FunctionType((lambda: None).__code__, {}, '_rebuild_tensor_v2')
    rebuild.__module__, rebuild.__qualname__ = 'torch._utils', '_rebuild_tensor_v2'
    steps = strides or tuple(step // array.itemsize for step in array.strides)
    described = Call(rebuild, Storage('storage', storage, '0', 'cpu', array.size), 0, array.shape,
                     steps, False, collections.OrderedDict())
    text = io.BytesIO()
    with importable(storage, rebuild):
        TorchPickler(text, 2).dump(described)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, 'w', compression) as file:
        file.writestr('archive/data.pkl', text.getvalue())
        file.writestr('archive/byteorder', 'big' if big_endian else 'little')
        file.writestr('archive/data/0', array.tobytes())
        for name, content in members:
            file.writestr('archive/' + name, content)
    return archive.getvalue()


class Names:
    """The classes of torch's metadata, as some versions of torch have them."""

    def __init__(self, old=False):
        properties = OLD_PROPERTIES if old else METADATA
        self.members = []
        for module, names in ((METADATA, ('Metadata', 'MetadataIndex', 'StorageMeta',
                                          'TensorStorageMetadata', 'BytesStorageMetadata',
                                          'ChunkStorageMetadata')),
                              (FILES, ('_StorageInfo',)), (properties, ('TensorProperties',))):
            for name in names:
                setattr(self, name.strip('_'), self.add(module, name))
        self.size = self.add('torch', 'Size', base=tuple,
                             __reduce__=lambda size: (self.size, (tuple(size),)))
        self.layout = types.FunctionType((lambda: None).__code__, {}, '_get_layout')
        self.layout.__module__ = 'torch.serialization'
        self.layout.__qualname__ = '_get_layout'
        self.encoding = self.add(properties, 'MEM_FORMAT_ENCODING' if old else
                                 '_MEM_FORMAT_ENCODING')
        self.dtypes = {name: Named('torch', name) for name in [*DTYPES.values(), 'bool']}
        self.members += [self.layout, *self.dtypes.values()]

    def add(self, module, name, **members):
        """Adds a class."""
        made = define(module, name, **members)
        self.members.append(made)
        return made

    @staticmethod
    def make(cls, **state):
        """Returns an instance with a state."""
        instance = cls()
        instance.__dict__.update(state)
        return instance

    def properties(self, dtype):
        """Returns the properties of a tensor."""
        state = (self.dtypes[dtype], Call(self.layout, 'torch.strided'), False,
                 Call(self.encoding, 0), False)
        made = self.TensorProperties()
        type(made).__getstate__ = lambda properties: properties.state
        made.state = state
        return made

    def chunk(self, offsets, sizes):
        """Returns the position of a shard in its tensor."""
        return self.make(self.ChunkStorageMetadata, offsets=self.size(offsets),
                         sizes=self.size(sizes))

    def tensor(self, dtype, shape, places):
        """Returns the description of a tensor; `places` are pairs of offsets and sizes."""
        return self.make(self.TensorStorageMetadata, properties=self.properties(dtype),
                         size=self.size(shape), chunks=[self.chunk(*place) for place in places])

    def index(self, name, offsets):
        """Returns the key of a shard."""
        return self.make(self.MetadataIndex, fqn=name, offset=self.size(offsets), index=None)

    def info(self, file, offset, length, **more):
        """Returns the position of a shard in a file."""
        return self.make(self.StorageInfo, relative_path=file, offset=offset, length=length, **more)

    def pickle(self, tensors, stored, **more):
        """Returns the pickled metadata of a checkpoint."""
        metadata = self.make(self.Metadata, state_dict_metadata=tensors, storage_data=stored,
                             planner_data={name: (name,) for name in tensors}, **more)
        with importable(*self.members):
            return pickle.dumps(metadata, 4)


def write_checkpoint(directory, arrays, old=False, save=saved_tensor):
    """Writes a checkpoint of arrays. `arrays` has for each name an array and the boxes of its
    shards, pairs of offsets and sizes. Each box has a file of its own."""
    names = Names(old)
    tensors, stored = {}, {}
    for name, (array, boxes) in arrays.items():
        tensors[name] = names.tensor(DTYPES[array.dtype.str[1:]], array.shape, boxes)
        for offsets, sizes in boxes:
            part = array[tuple(slice(o, o + s) for o, s in zip(offsets, sizes))]
            content = save(part.copy())
            file = f'__{len(stored)}_0.distcp'
            stored[names.index(name, offsets)] = names.info(file, 3, len(content))
            with open(os.path.join(directory, file), 'wb') as output:
                output.write(b'...' + content)
    with open(os.path.join(directory, '.metadata'), 'wb') as output:
        output.write(names.pickle(tensors, stored))
