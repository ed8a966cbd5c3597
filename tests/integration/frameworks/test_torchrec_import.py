"""Modules of TorchRec, imported and served: stored bytes are those of the module, rows are equal
bit by bit, and pooled vectors lie within the bound that the server promises."""

import os
import unittest

import numpy as np
import torch
import torchrec
from torch import nn
from torch.distributed import checkpoint
from torchrec.modules.embedding_configs import (DataType, EmbeddingBagConfig, EmbeddingConfig,
                                                PoolingType, QuantConfig)
from torchrec.modules.fp_embedding_modules import FeatureProcessedEmbeddingBagCollection
from torchrec.modules.feature_processor_ import PositionWeightedModuleCollection
from torchrec.modules.mc_embedding_modules import ManagedCollisionEmbeddingBagCollection
from torchrec.modules.mc_modules import (DistanceLFU_EvictionPolicy, ManagedCollisionCollection,
                                         MCHManagedCollisionModule)
from torchrec.quant.embedding_modules import EmbeddingCollection as QuantisedSequences
from torchrec.quant.embedding_modules import (
    quant_prep_enable_quant_state_dict_split_scale_bias as enable_split)

import embag
from differential import Rows, check_bags, fused_rows, unpack_codes
from embag import Group
from embag.importer import Choices, import_checkpoint, import_module, open_source
from embag.importer.module_config import module_config
from embag.importer.plan import make_plan
from embag.importer.source import CheckpointError
from embag.importer.torchrec_model import open_module
from embagd_process import Embagd
from served import SEED, OwnServerTest, scaled

QUANTISED = {torch.quint8: (8, (4, 12, 16, 28, 60)), torch.quint4x2: (4, (4, 16, 28, 64)),
             torch.quint2x4: (2, (8, 16, 48, 104))}
REQUESTS = 200


def bag_config(name, features, dim=8, rows=10, pooling=PoolingType.SUM, kind=DataType.FP32):
    """Returns the configuration of a table that is pooled."""
    return EmbeddingBagConfig(name=name, embedding_dim=dim, num_embeddings=rows, data_type=kind,
                              feature_names=features, pooling=pooling)


def row_config(name, features, dim=8, rows=10, kind=DataType.FP32):
    """Returns the configuration of a table that is not pooled."""
    return EmbeddingConfig(name=name, embedding_dim=dim, num_embeddings=rows, data_type=kind,
                           feature_names=features)


def bags(*configs, **fields):
    """Returns an EmbeddingBagCollection."""
    return torchrec.EmbeddingBagCollection(tables=list(configs), **fields)


def sequences(*configs):
    """Returns an EmbeddingCollection."""
    return torchrec.EmbeddingCollection(tables=list(configs))


def quantise(collection, dtypes, default=torch.quint8):
    """Returns a quantised collection; `dtypes` has the types of its tables by name."""
    observer = torch.quantization.PlaceholderObserver
    collection.qconfig = QuantConfig(
        activation=observer.with_args(dtype=torch.float32),
        weight=observer.with_args(dtype=default), per_table_weight_dtype=dtypes)
    if isinstance(collection, torchrec.EmbeddingCollection):
        return QuantisedSequences.from_float(collection)
    return torchrec.quant.EmbeddingBagCollection.from_float(collection)


def fused_bytes(collection):
    """Returns the bytes of each table of a quantised collection, uint8 [rows, bytes]."""
    made = {}
    for key, value in collection.state_dict().items():
        made[key.split('.')[-2]] = getattr(value, 'elem', value).numpy()
    return made


def rows_of_fused(raw, bits, dim):
    """Returns the rows that TorchRec's bytes hold: f16 scale, f16 bias, codes."""
    return fused_rows(raw[:, 0:2].copy().view('<f2'), unpack_codes(raw[:, 4:], bits, dim),
                      raw[:, 2:4].copy().view('<f2'))


def jagged(rng, sizes, weighted=False):
    """Returns random bags of features; `sizes` has the number of ids of each feature."""
    stride = int(rng.integers(1, 7))
    lengths = rng.integers(0, rng.integers(1, 13), (len(sizes), stride))
    values = [rng.integers(0, rows, count.sum()) for rows, count in zip(sizes.values(), lengths)]
    values = np.concatenate(values).astype('i8')
    weights = torch.from_numpy(rng.normal(size=len(values)).astype('f4')) if weighted else None
    return torchrec.KeyedJaggedTensor(
        keys=list(sizes), values=torch.from_numpy(values), weights=weights,
        lengths=torch.from_numpy(lengths.reshape(-1).astype('i4')), stride=stride)


class Names(unittest.TestCase):
    """Names of tables, features and groups."""

    def names(self, module):
        """Returns the names of tables with their tensors, features, and groups."""
        tables, features, groups = module_config(module)
        self.assertEqual(open_module(module).groups, groups)
        return ({table.name: table.tensor.name for table in tables},
                {feature.name: (feature.table, feature.reduction) for feature in features}, groups)

    def test_a_collection_is_named_by_its_configuration(self):
        collection = bags(bag_config('t0', ['a', 'b']),
                          bag_config('t1', ['c'], pooling=PoolingType.MEAN))
        tables, features, groups = self.names(collection)
        self.assertEqual(tables, {'t0': 'embedding_bags.t0.weight',
                                  't1': 'embedding_bags.t1.weight'})
        self.assertEqual(features, {'a': ('t0', 'sum'), 'b': ('t0', 'sum'), 'c': ('t1', 'mean')})
        self.assertEqual(groups, {'embeddings': ['a', 'b', 'c']})

    def test_a_feature_of_two_tables_is_named_as_in_the_answer(self):
        collection = bags(bag_config('t0', ['f0', 'f1']), bag_config('t1', ['f0']))
        _, features, groups = self.names(collection)
        kjt = torchrec.KeyedJaggedTensor.from_lengths_sync(
            keys=['f0', 'f1'], values=torch.tensor([0, 1]), lengths=torch.tensor([1, 1]))
        self.assertEqual(groups['embeddings'], collection(kjt).keys())
        self.assertEqual(list(features), ['f0@t0', 'f1', 'f0@t1'])

    def test_a_quantised_collection_keeps_the_order_of_its_answer(self):
        collection = quantise(bags(bag_config('t0', ['a'], 16), bag_config(
            't1', ['b'], 16, pooling=PoolingType.MEAN), bag_config('t2', ['c'], 16)), {})
        kjt = torchrec.KeyedJaggedTensor.from_lengths_sync(
            keys=['a', 'b', 'c'], values=torch.tensor([0, 1, 2]), lengths=torch.tensor([1, 1, 1]))
        self.assertEqual(self.names(collection)[2]['embeddings'], collection(kjt).keys())
        self.assertEqual(collection(kjt).keys(), ['a', 'c', 'b'])

    def test_names_that_two_collections_have_get_their_paths(self):
        model = nn.ModuleDict({'x': bags(bag_config('t', ['f', 'g'])),
                               'y': sequences(row_config('t', ['f', 'h']))})
        tables, features, groups = self.names(model)
        self.assertEqual(tables, {name: name for name in ('x.embedding_bags.t.weight',
                                                          'y.embeddings.t.weight')})
        self.assertEqual(features, {
            'x.f': ('x.embedding_bags.t.weight', 'sum'), 'g': ('x.embedding_bags.t.weight', 'sum'),
            'y.f': ('y.embeddings.t.weight', 'none'), 'h': ('y.embeddings.t.weight', 'none')})
        self.assertEqual(groups, {'x': ['x.f', 'g'], 'y': ['y.f', 'h']})

    def test_a_table_with_the_name_of_a_feature_is_named_by_its_tensor(self):
        tables, features, _ = self.names(bags(bag_config('user', ['user']), bag_config('t', [])))
        self.assertEqual(list(tables), ['embedding_bags.user.weight', 'embedding_bags.t.weight'])
        self.assertEqual(list(features), ['user', 't'])

    def test_modules_at_any_depth_are_found(self):
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.arch = nn.ModuleDict({'ebc': bags(bag_config('t', ['f']))})
                self.plain = nn.ModuleList([nn.EmbeddingBag(4, 3, mode='mean')])
                self.dense = nn.Linear(2, 3)

        found = open_module(Model())
        self.assertEqual({table.name: table.tensor.name for table in found.tables},
                         {'t': 'arch.ebc.embedding_bags.t.weight', 'plain.0.weight':
                          'plain.0.weight'})
        self.assertEqual({f.name: f.reduction for f in found.features},
                         {'f': 'sum', 'plain.0': 'mean'})
        self.assertEqual(found.groups, {'arch.ebc': ['f']})
        self.assertEqual([name for name, _ in found.left], ['dense.weight', 'dense.bias'])

    def test_what_a_request_must_bring_is_noted(self):
        weighted = bags(bag_config('t', ['f']), is_weighted=True)
        processed = FeatureProcessedEmbeddingBagCollection(
            weighted, PositionWeightedModuleCollection({'f': 5}))
        left = dict(open_module(processed).left)
        self.assertIn('weight', left[''])
        self.assertEqual(module_config(processed)[2], {'embeddings': ['f']})
        self.assertIn('is weighted', dict(open_module(nn.ModuleDict({'e': bags(
            bag_config('t', ['f']), is_weighted=True)})).left)['e'])

    def test_ids_that_the_module_maps_are_noted(self):
        config = bag_config('t', ['f'])
        mapped = ManagedCollisionCollection({'t': MCHManagedCollisionModule(
            zch_size=10, device=torch.device('cpu'), eviction_interval=1,
            eviction_policy=DistanceLFU_EvictionPolicy())}, [config])
        found = open_module(nn.ModuleDict({
            'x': ManagedCollisionEmbeddingBagCollection(bags(config), mapped)}))
        self.assertEqual(found.groups, {'x': ['f']})
        self.assertIn('maps ids', dict(found.left)['x'])

    def test_a_collection_of_several_types_is_imported_without_its_group(self):
        found = open_module(nn.ModuleDict({'e': bags(
            bag_config('t0', ['f']), bag_config('t1', ['g'], kind=DataType.FP16))}))
        plan = make_plan(found, Choices())
        self.assertEqual([feature.name for feature in plan.features], ['f', 'g'])
        self.assertEqual(plan.groups, {})
        self.assertIn('types F16 and F32', dict(plan.left)['group e'])

    def test_two_uses_of_one_name_are_refused(self):
        model = nn.ModuleDict({'x': bags(bag_config('t', ['x.weight', 'f'])), 'y': nn.ModuleDict(
            {'z': nn.Embedding(3, 2)})})
        module_config(model)
        model['x'] = bags(bag_config('t', ['y.z.weight']))
        with self.assertRaisesRegex(CheckpointError, 'are called y.z.weight'):
            module_config(model)

    def test_a_module_without_values_is_described_and_not_read(self):
        collection = bags(bag_config('t', ['f']), device=torch.device('meta'))
        table, = module_config(collection)[0]
        self.assertEqual((table.tensor.dtype, table.tensor.shape), ('F32', (10, 8)))


class Stored(unittest.TestCase):
    """The bytes that are read from quantised collections."""

    def test_quantised_rows_are_read_bit_by_bit(self):
        for dtype, (bits, dims) in QUANTISED.items():
            for dim in dims:
                for make, config in ((bags, bag_config), (sequences, row_config)):
                    collection = quantise(make(config('t', ['f'], dim, 37)), {'t': dtype})
                    table, = open_module(collection).tables
                    raw = fused_bytes(collection)['t']
                    with self.subTest(bits=bits, dim=dim):
                        self.assertEqual((table.format, table.dim),
                                         (f'torchrec_int{bits}', dim))
                        self.assertEqual(table.tensor.shape, raw.shape)
                        np.testing.assert_array_equal(table.tensor.read(0, 37), raw)
                        np.testing.assert_array_equal(table.tensor.read(5, 9), raw[5:9])

    def test_rows_with_separate_scales_are_read_as_fused_ones(self):
        for dtype, (_, dims) in QUANTISED.items():
            collection = bags(bag_config('t', ['f'], dims[1], 20))
            fused = fused_bytes(quantise(collection, {'t': dtype}))['t']
            enable_split(collection)
            split = quantise(collection, {'t': dtype})
            self.assertIn('embedding_bags.t.weight_qscale', split.state_dict())
            found = open_module(split)
            table, = found.tables
            np.testing.assert_array_equal(table.tensor.read(0, 20), fused)
            self.assertEqual(found.left, [])

    def test_float_rows_of_a_quantised_collection_are_read_as_floats(self):
        for dtype, name in ((torch.float32, 'F32'), (torch.float16, 'F16')):
            collection = bags(bag_config('t', ['f'], 5, 9))
            weight = collection.embedding_bags['t'].weight.detach().to(dtype)
            table, = open_module(quantise(collection, {}, dtype)).tables
            self.assertEqual((table.tensor.dtype, table.tensor.shape, table.format),
                             (name, (9, 5), None))
            np.testing.assert_array_equal(table.tensor.read(0, 9),
                                          weight.view(torch.uint8).numpy())


class SavedStates(OwnServerTest):
    """State_dicts in files, with the model.yaml of the live module."""

    def version_files(self, model):
        """Returns the contents of the tables in version 1 of a model, by file name."""
        contents = {}
        for name in os.listdir(self.repository.join(model, '1')):
            if name != 'manifest.yaml':
                with open(self.repository.join(model, '1', name), 'rb') as file:
                    contents[name] = file.read()
        return contents

    def check_saved(self, name, collection):
        """Checks that a saved state_dict is imported as the live module is."""
        import_module(collection, self.repository.join(name))
        model_yaml = self.repository.join(name, 'model.yaml')
        state = {'model': collection.state_dict()}
        torch.save(state, self.repository.join('.state.pt'))
        checkpoint.save(state, checkpoint_id=self.repository.join('.dcp'), no_dist=True)
        for source, kind in (('.state.pt', 'torch'), ('.dcp', 'dcp')):
            with self.subTest(name, source=source):
                imported = name + source
                import_checkpoint(open_source(self.repository.join(source), kind),
                                  self.repository.join(imported),
                                  choices=Choices(model_yaml=model_yaml))
                with open(model_yaml, encoding='utf-8') as first, \
                        open(self.repository.join(imported, 'model.yaml'),
                             encoding='utf-8') as second:
                    self.assertEqual(first.read(), second.read())
                self.assertTrue(self.version_files(name))
                self.assertEqual(self.version_files(name), self.version_files(imported))

    def test_float_states_are_imported_as_the_module_is(self):
        self.check_saved('m', bags(
            bag_config('t0', ['a', 'both'], 8), bag_config('t1', ['both'], 5,
                                                           pooling=PoolingType.MEAN)))

    def test_quantised_states_are_imported_as_the_module_is(self):
        self.check_saved('m', quantise(bags(
            bag_config('t0', ['a', 'both'], 16), bag_config('t1', ['both'], 12)), {}))


class ServedModules(OwnServerTest):
    """Modules that are imported and served by one server."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng([SEED, 29])
        torch.manual_seed(SEED)
        self.server = None

    def add(self, name, module):
        """Imports a module."""
        import_module(module, self.repository.join(name))

    def connect_client(self):
        """Starts the server, and returns a client."""
        server = Embagd(self.repository.path)
        self.addCleanup(server.stop)
        client = embag.Client(server.wait_ready().address)
        self.addCleanup(client.close)
        return client

    def random_bags(self, quantised):
        """Returns a random collection, and for each feature its rows and its reduction."""
        weighted = bool(self.rng.integers(2))
        half = not quantised and not weighted and self.rng.integers(3) == 0
        configs, dtypes = [], {}
        for number in range(self.rng.integers(1, 5)):
            dtype = list(QUANTISED)[self.rng.integers(3)]
            dims = QUANTISED[dtype][1] if quantised else (1, 3, 8, 17, 64)
            mean = not weighted and self.rng.integers(2)
            configs.append(bag_config(
                f't{number}', [f'f{number}', f'g{number}'][:self.rng.integers(1, 3)] + ['both'],
                int(dims[self.rng.integers(len(dims))]), int(self.rng.integers(1, 60)),
                PoolingType.MEAN if mean else PoolingType.SUM,
                DataType.FP16 if half else DataType.FP32))
            dtypes[f't{number}'] = dtype
        collection = bags(*configs, is_weighted=weighted)
        for config in configs:
            nn.init.normal_(collection.embedding_bags[config.name].weight)
        return (quantise(collection, dtypes) if quantised else collection), configs, dtypes

    def rows_of(self, collection, configs, dtypes, quantised):
        """Returns the exact rows of each table."""
        if not quantised:
            return {config.name: Rows(collection.embedding_bags[config.name].weight.detach()
                                      .double().numpy()) for config in configs}
        raw = fused_bytes(collection)
        return {config.name: rows_of_fused(raw[config.name], QUANTISED[dtypes[config.name]][0],
                                           config.embedding_dim) for config in configs}

    def check_request(self, client, model, collection, configs, rows):
        """Sends one random request, and checks its answer and the collection's own."""
        sizes = {}
        for config in configs:
            for feature in config.feature_names:
                sizes[feature] = min(sizes.get(feature, 1 << 30), config.num_embeddings)
        kjt = jagged(self.rng, sizes, collection.is_weighted())
        own = collection(kjt)
        per_feature = kjt.to_dict()
        uses = [(f'{feature}@{config.name}' if feature == 'both' and len(configs) > 1 else feature,
                 feature, config) for config in configs for feature in config.feature_names]
        uses.sort(key=lambda use: own.keys().index(use[0]))
        parts = [per_feature[feature] for _, feature, _ in uses]
        lengths = np.stack([part.lengths().numpy() for part in parts])
        weights = None
        if collection.is_weighted():
            weights = np.concatenate([part.weights().numpy() for part in parts])
        got = client.lookup(Group(
            'embeddings', np.concatenate([part.values().numpy() for part in parts]), lengths,
            weights=weights), model=model, output_type='f32').values
        self.assertEqual(got.shape, tuple(own.values().shape))
        column = 0
        for (name, _, config), part in zip(uses, parts):
            reduction = config.pooling.value.lower()
            columns = slice(column, column + config.embedding_dim)
            column += config.embedding_dim
            given = (rows[config.name], part.values().numpy(), part.lengths().numpy(),
                     part.weights().numpy() if weights is not None else None, reduction)
            check_bags(got[:, columns], *given)
            if config.data_type == DataType.FP32:    # others are rounded to f16 on the way
                check_bags(own[name].detach().numpy(), *given)

    def check_collections(self, quantised):
        """Checks collections with many requests each."""
        made = {}
        for number in range(scaled(12)):
            collection, configs, dtypes = self.random_bags(quantised)
            made[f'm{number}'] = (collection, configs,
                                  self.rows_of(collection, configs, dtypes, quantised))
            self.add(f'm{number}', collection)
        client = self.connect_client()
        for model, (collection, configs, rows) in made.items():
            _, features, groups = module_config(collection)
            served, = client.model(model, 1).versions
            self.assertEqual({group.name: list(group.features) for group in served.groups}, groups)
            self.assertEqual({feature.name for feature in served.features},
                             {feature.name for feature in features})
            for case in range(scaled(REQUESTS)):
                with self.subTest(seed=SEED, model=model, case=case):
                    self.check_request(client, model, collection, configs, rows)

    def test_pooled_vectors_of_float_collections_lie_within_the_bound(self):
        self.check_collections(quantised=False)

    def test_pooled_vectors_of_quantised_collections_lie_within_the_bound(self):
        self.check_collections(quantised=True)

    def check_sequences(self, client, model, collection):
        """Looks up random sequences: all features by their group, and one of them alone."""
        kjt = jagged(self.rng, {'a': 40, 'b': 30, 'both': 30})
        names = module_config(collection)[2]['embeddings']
        parts = [kjt[name.partition('@')[0]] for name in names]
        own = collection(kjt)
        expected = [own[name].values().detach().numpy().view('u4') for name in names]
        got = client.lookup(Group(
            'embeddings', np.concatenate([part.values().numpy() for part in parts]),
            np.stack([part.lengths().numpy() for part in parts])), model=model)
        np.testing.assert_array_equal(got.values.view('u4'), np.concatenate(expected))
        number = int(self.rng.integers(len(names)))
        alone = client.lookup(names[number], parts[number].values().numpy(), model=model)
        np.testing.assert_array_equal(alone.values.view('u4'), expected[number])

    def test_rows_of_sequence_collections_are_equal_bit_by_bit(self):
        made = {}
        for number, dtype in enumerate([None, *QUANTISED] * scaled(3)):
            dims = QUANTISED[dtype][1] if dtype else (1, 8, 33)
            dim = int(dims[self.rng.integers(len(dims))])
            collection = sequences(row_config('t0', ['a', 'both'], dim, 40),
                                   row_config('t1', ['b', 'both'], dim, 30))
            if dtype:
                collection = quantise(collection, {}, dtype)
            made[f's{number}'] = collection
            self.add(f's{number}', collection)
        client = self.connect_client()
        for model, collection in made.items():
            for case in range(scaled(REQUESTS)):
                with self.subTest(seed=SEED, model=model, case=case):
                    self.check_sequences(client, model, collection)

    def test_single_rows_of_quantised_bags_are_equal_bit_by_bit(self):
        made = {}
        for dtype, (bits, dims) in QUANTISED.items():
            for dim in dims:
                collection = bags(bag_config('t', ['f'], dim, 50))
                made[f'int{bits}_{dim}'] = quantise(collection, {}, dtype)
        for name, collection in made.items():
            self.add(name, collection)
        client = self.connect_client()
        for name, collection in made.items():
            own = collection(torchrec.KeyedJaggedTensor(
                keys=['f'], values=torch.arange(50), lengths=torch.ones(50, dtype=torch.int32)))
            got = client.lookup('f', np.arange(50), model=name, reduction='none').values
            np.testing.assert_array_equal(got.view('u4'), own['f'].numpy().view('u4'))

    def test_stored_bytes_are_those_of_the_module(self):
        collection, _, _ = self.random_bags(quantised=True)
        self.add('m', collection)
        self.assertTrue(os.path.exists(self.repository.join('m', '1')))
        everything = b''
        for directory, _, files in os.walk(self.repository.join('m', '1')):
            for file in files:
                with open(os.path.join(directory, file), 'rb') as opened:
                    everything += opened.read()
        for name, raw in fused_bytes(collection).items():
            self.assertIn(raw.tobytes(), everything, name)


if __name__ == '__main__':
    unittest.main()
