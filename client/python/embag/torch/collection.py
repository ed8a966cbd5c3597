"""Modules with the interfaces of TorchRec's EmbeddingBagCollection and EmbeddingCollection."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from embag.catalogue import row_size, tables_by_name
from embag.client import Client
from embag.errors import NotFound
from embag.jagged import Bags, Collection, Features, Output, Reduction, outputs_of, shared_name
from embag.request import Query
from embag.torch.connection import Connection
from embag.torch.tensors import jagged_vectors, keyed_vectors, tensor_of
from embag.v1 import embedding_bag_pb2 as pb


@dataclass
class EmbeddingBagConfig:
    """One table, with the attributes of TorchRec's EmbeddingBagConfig and EmbeddingConfig.

    - feature_names: keys of the input that are looked up in the table; empty: its own name
    - pooling: 'sum', 'mean' or another reduction, or TorchRec's PoolingType
    """

    name: str
    embedding_dim: int
    num_embeddings: int
    feature_names: list[str] = field(default_factory=list)
    pooling: Any = 'sum'


def _reduction_of(config: Any) -> str:
    pooling = getattr(config, 'pooling', 'none')
    return str(getattr(pooling, 'value', pooling)).lower()


def _outputs_of_tables(tables: Sequence[Any], names: Mapping[str, str]) -> list[Output]:
    """Returns the keys of the output for the configurations of tables, named as TorchRec does."""
    for config in tables:
        if isinstance(config, str):
            raise TypeError('tables has %r: expected a configuration of a table; names of features '
                            'are given as features=[...]' % config)
    features = [config.feature_names or [config.name] for config in tables]
    counts = Counter(feature for each in features for feature in each)
    outputs = []
    for config, its_features in zip(tables, features):
        for feature in its_features:
            key = feature if counts[feature] == 1 else shared_name(feature, config.name)
            outputs.append(Output(key, feature, names.get(key, key), _reduction_of(config)))
    return outputs


class _Remote(nn.Module):
    """The part that the modules share: the connection, the device, and the tables.

    See `RemoteEmbeddingBagCollection` for the arguments.
    """

    def __init__(self, client: Client | str, tables: Sequence[Any] | None,
                 features: Features | None, reduction: Reduction,
                 device: torch.device | str | None, **fields: Any) -> None:
        super().__init__()
        if tables is None and features is None:
            raise ValueError('neither tables nor features are given: expected one of them')
        if tables is not None and features is not None and not isinstance(features, Mapping):
            raise ValueError('tables and a list of features are given: expected one of them, or a '
                             'dict from outputs to names in the server')
        if tables is None:
            outputs = outputs_of(features or (), reduction)
        else:
            names: Any = features or {}
            outputs = _outputs_of_tables(tables, names)
        self._configs = None if tables is None else list(tables)
        self._collection = Collection(outputs, **fields)
        self._connection = Connection(client)
        self._device = torch.device('cpu' if device is None else device)

    @property
    def device(self) -> torch.device:
        """The device on which the module was placed. Outputs are on the device of the input."""
        return self._device

    def _apply(self, fn: Callable[..., Tensor], *arguments: Any, **fields: Any) -> Any:
        super()._apply(fn, *arguments, **fields)
        self._device = fn(torch.empty(0, device=self._device)).device
        return self

    def extra_repr(self) -> str:
        """Returns the arguments that tell modules apart, for repr()."""
        collection = self._collection
        return '%r, model=%r, features=%s' % (
            self._connection, collection.model, collection.keys)

    def _sizes(self, version: int) -> dict[str, int]:
        """Returns the columns of each output in `version`.

        Raises ValueError if the tables have other columns than the configurations say.
        """
        collection = self._collection
        sizes = collection.sizes(version)
        if sizes is None:
            model = self._connection.client.model(collection.model, version)
            sizes = collection.learn(version, model, self._check_sizes)
        return sizes

    def _check_sizes(self, sizes: dict[str, int]) -> None:
        """Raises ValueError if the outputs have other columns than the configurations say."""
        for config, its_outputs in zip(self._configs or (), self._outputs_by_table()):
            for output in its_outputs:
                if sizes[output.key] != config.embedding_dim:
                    raise ValueError(
                        'table %r has embedding_dim %d, but %r in the server has rows of %d '
                        'values' % (config.name, config.embedding_dim, output.name,
                                    sizes[output.key]))

    def _outputs_by_table(self) -> list[list[Output]]:
        """Returns the outputs of each configuration."""
        outputs = iter(self._collection.outputs)
        return [[next(outputs) for _ in config.feature_names or [config.name]]
                for config in self._configs or ()]

    def _tables(self) -> list[Any]:
        """Returns the configurations; without any, it asks the server for its tables."""
        if self._configs is None:
            collection = self._collection
            version = collection.fields.get('version', 0)
            model = self._connection.client.model(collection.model, version)
            tables = tables_by_name(model, version)
            return _described_tables(collection.outputs, tables, model)
        return self._configs


def _described_tables(outputs: Sequence[Output], tables: dict[str, pb.Table], model: pb.Model
                      ) -> list[EmbeddingBagConfig]:
    """Returns the configurations of the tables of some outputs, as the server describes them."""
    features = {feature.name: feature for version in model.versions
                for feature in version.features}
    found: dict[str, EmbeddingBagConfig] = {}
    for output in outputs:
        if output.name not in tables:
            raise NotFound('model %r has no table or feature %r' % (model.name, output.name))
        table = tables[output.name]
        number = features[output.name].reduction if output.name in features else 0
        pooling = output.reduction or pb.Reduction.Name(number or pb.REDUCTION_SUM)[10:].lower()
        config = found.setdefault(table.name, EmbeddingBagConfig(
            table.name, row_size(table), table.rows, [], pooling))
        config.feature_names.append(output.feature)
    return list(found.values())


class RemoteEmbeddingBagCollection(_Remote):
    """Takes the place of TorchRec's EmbeddingBagCollection; the tables are in a server.

    - client: an `embag.Client`, or 'HOST:PORT' or 'unix:PATH'. The module connects on the first
      lookup, and in other processes anew: after unpickling, and after a fork
    - tables: EmbeddingBagConfigs of TorchRec, or this package's. A feature that several tables
      share has an output FEATURE@TABLE for each of them. Each output is looked up by its name,
      because `describe` and embag-import name features so
    - features: instead of tables, as in `embag.RemoteEmbeddingBagCollection`; together with tables,
      a dict from outputs to features or tables in the server, for outputs that it calls otherwise
    - model, version: name and version of the model; by default the only one and the served one
    - is_weighted: whether weights of the input are factors of the rows; not with 'mean'
    - reduction: with features: as in `embag.RemoteEmbeddingBagCollection`
    - dtype: type of the output: torch.float32, float16 or bfloat16; float64 for float64 tables
    - missing: 'error', 'skip', 'zero' or 'unknown_row'; None: each feature's own, 'error' if it has
      none
    - device: where the module is placed

    The output is on the device of the input, writable, and without gradients. Lookups raise what
    `embag.RemoteEmbeddingBagCollection` and `Client.lookup` raise. Copies share the connection.
    """

    def __init__(self, client: Client | str, tables: Sequence[Any] | None = None, *,
                 features: Features | None = None, model: str = '', version: int = 0,
                 is_weighted: bool = False, reduction: Reduction = None,
                 dtype: torch.dtype = torch.float32, missing: str | None = None,
                 device: torch.device | str | None = None) -> None:
        super().__init__(client, tables, features, reduction, device, model=model, version=version,
                         is_weighted=is_weighted, missing=missing, output_type=_name_of(dtype))

    @classmethod
    def from_module(cls, module: Any, client: Client | str, **fields: Any
                    ) -> RemoteEmbeddingBagCollection:
        """Returns a module that takes the place of an EmbeddingBagCollection.

        The rest of the arguments is as in the constructor.
        """
        fields.setdefault('is_weighted', module.is_weighted())
        fields.setdefault('device', getattr(module, 'device', None))
        return cls(client, module.embedding_bag_configs(), **fields)

    def embedding_bag_configs(self) -> list[Any]:
        """Returns the configurations of the tables.

        Those of the constructor, or if that had features only, the server's description.
        """
        return self._tables()

    def is_weighted(self) -> bool:
        """Returns whether the input has weights."""
        return self._collection.is_weighted

    def forward(self, features: Any) -> Any:
        """Returns the pooled vectors of a KeyedJaggedTensor or `KeyedBags`.

        The result is a KeyedTensor or `KeyedVectors` of [bags, columns], in the order of the
        tables. Bags without ids are zeros, or the server's default row. No bags give [0, columns].
        """
        collection = self._collection
        asked = collection.ask(features)
        answer = self._connection.client.lookup(asked.groups, **collection.fields)
        sizes = self._sizes(answer.version)
        ids = features.values()
        tensors = [tensor_of(result.values, ids) for result in answer]
        columns = collection.columns(asked, tensors, sizes)
        if asked.inverse is not None:
            columns = [tensor.index_select(0, bags.to(ids.device))
                       for tensor, bags in zip(columns, asked.inverse)]
        return keyed_vectors(features, collection.keys, [sizes[key] for key in collection.keys],
                             columns[0] if len(columns) == 1 else torch.cat(columns, 1))


class RemoteEmbeddingCollection(_Remote):
    """Takes the place of TorchRec's EmbeddingCollection: one vector for each id, not pooled.

    The arguments are those of `RemoteEmbeddingBagCollection`, without `reduction`, with
    EmbeddingConfigs, and

    - need_indices: whether the weights of the output are the ids
    """

    def __init__(self, client: Client | str, tables: Sequence[Any] | None = None, *,
                 features: Features | None = None, model: str = '', version: int = 0,
                 need_indices: bool = False, dtype: torch.dtype = torch.float32,
                 missing: str | None = None, device: torch.device | str | None = None) -> None:
        super().__init__(client, tables, features, 'none', device, model=model, version=version,
                         missing=missing, output_type=_name_of(dtype))
        self._need_indices = need_indices

    @classmethod
    def from_module(cls, module: Any, client: Client | str, **fields: Any
                    ) -> RemoteEmbeddingCollection:
        """Returns a module that takes the place of an EmbeddingCollection.

        The rest of the arguments is as in the constructor.
        """
        fields.setdefault('need_indices', module.need_indices())
        fields.setdefault('device', getattr(module, 'device', None))
        return cls(client, module.embedding_configs(), **fields)

    def embedding_configs(self) -> list[Any]:
        """Returns the configurations of the tables, as `embedding_bag_configs` does."""
        return self._tables()

    def need_indices(self) -> bool:
        """Returns whether the weights of the output are the ids."""
        return self._need_indices

    def embedding_dim(self) -> int:
        """Returns the number of columns of the first table; TorchRec wants it of all tables."""
        dim: int = self._tables()[0].embedding_dim
        return dim

    def embedding_names_by_table(self) -> list[list[str]]:
        """Returns the keys of the output, table by table."""
        if self._configs is None:
            return [[key] for key in self._collection.keys]
        return [[output.key for output in outputs] for outputs in self._outputs_by_table()]

    def forward(self, features: Any) -> dict[str, Any]:
        """Returns the vectors of the ids of a KeyedJaggedTensor or `KeyedBags`, by output.

        They are JaggedTensors or `JaggedVectors` of [ids, columns].
        """
        collection = self._collection
        bags = Bags(features)
        bags.check()
        queries = [Query(output.name, bags.values(output.feature), reduction='none',
                         missing=collection.missing) for output in collection.outputs]
        answer = self._connection.client.lookup(queries, **collection.fields)
        sizes = self._sizes(answer.version)
        every = features.values()
        vectors = {}
        for output, result in zip(collection.outputs, answer):
            values = tensor_of(result.values, every)
            ids = every[bags.range(output.feature)] if self._need_indices else None
            lengths = torch.as_tensor(bags.lengths(output.feature), device=every.device)
            vectors[output.key] = jagged_vectors(
                features, values.reshape(-1, sizes[output.key]), lengths, ids)
        return vectors


def _name_of(dtype: torch.dtype) -> str:
    """Returns the name of a type in the server. Raises ValueError for others."""
    names = {torch.float32: 'f32', torch.float16: 'f16', torch.bfloat16: 'bf16',
             torch.float64: 'f64'}
    if dtype not in names:
        raise ValueError('dtype %s: expected one of %s' % (dtype, ', '.join(map(str, names))))
    return names[dtype]
