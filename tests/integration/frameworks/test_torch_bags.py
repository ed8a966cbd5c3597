"""torch.nn.functional.embedding_bag compared with the server, through the plain client."""

import numpy as np
import torch
from torch.nn.functional import embedding_bag

import embag
from served import SEED, OwnServerTest, scaled
from table_files import Table

# The cases are small, and other tests run at the same time.
torch.set_num_threads(1)

TYPES = {'f32': torch.float32, 'f64': torch.float64, 'f16': torch.float16, 'bf16': torch.bfloat16}
MODES = ('sum', 'mean', 'max')
ROWS, COLUMNS = 60, 9
CASES = 6000
QUERIES = 10    # in one request


def half_unit(values, output_type):
    """Returns half a unit in the last place of the type, for an array of doubles."""
    info = torch.finfo(TYPES[output_type])
    magnitude = np.maximum(np.abs(values), info.tiny)
    return np.exp2(np.floor(np.log2(magnitude))) * info.eps / 2


class Case:
    """One random call of embedding_bag, and the equivalent query."""

    def __init__(self, rng, kind):
        self.kind, self.mode = kind, str(rng.choice(MODES))
        self.is_packed = rng.random() < 0.3
        self.has_end = not self.is_packed and rng.random() < 0.3
        self.padding = int(rng.integers(0, ROWS)) if rng.random() < 0.3 else None
        dtype = rng.choice(['i4', 'i8'])
        # torch refuses packed bags without ids.
        bags, longest = int(rng.integers(1, 7)), int(rng.integers(self.is_packed, 9))
        lengths = (np.full(bags, longest) if self.is_packed
                   else rng.integers(0, longest + 1, bags))
        self.ids = rng.integers(0, ROWS, lengths.sum()).astype(dtype)
        if self.padding is not None:
            self.ids[rng.random(self.ids.size) < 0.3] = self.padding
        self.offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(dtype)
        self.lengths = lengths
        self.weights = None
        if self.mode == 'sum' and rng.random() < 0.5:
            self.weights = torch.from_numpy(rng.normal(size=self.ids.size)).to(TYPES[kind])

    def query(self, weight_type):
        """Returns the query. Its padding is missing, and skipped."""
        ids = np.where(self.ids == self.padding, -1, self.ids) if self.padding is not None \
            else self.ids
        fields = {'reduction': self.mode, 'missing': 'skip'}
        if self.is_packed:
            ids = ids.reshape(len(self.lengths), -1)
        elif self.has_end:
            fields.update(offsets=self.offsets, include_last_offset=True)
        else:
            fields['offsets'] = self.offsets[:-1]
        if self.weights is not None:
            fields['weights'] = self.weights.to(weight_type).numpy().reshape(ids.shape)
        return embag.Query(self.kind, ids, **fields)

    def torch(self, table, weights=None):
        """Returns torch's result for a table of any type, as doubles."""
        ids, offsets = torch.from_numpy(self.ids), torch.from_numpy(self.offsets)
        if weights is not None:
            weights = weights.to(table.dtype)
        if self.is_packed:
            shape = len(self.lengths), -1
            ids, offsets = ids.reshape(shape), None
            weights = None if weights is None else weights.reshape(shape)
        elif not self.has_end:
            offsets = offsets[:-1]
        result = embedding_bag(ids, table, offsets, mode=self.mode, per_sample_weights=weights,
                               include_last_offset=self.has_end, padding_idx=self.padding)
        return result.double().numpy()

    def terms(self, table):
        """Returns the sum of the absolute terms of each bag, divided as the mode does."""
        sizes, ids = self.lengths, self.ids
        owner = np.repeat(np.arange(len(sizes)), sizes)
        kept = np.ones(ids.size, bool) if self.padding is None else ids != self.padding
        factors = np.ones(ids.size) if self.weights is None else self.weights.double().numpy()
        sums = np.zeros((len(sizes), COLUMNS))
        np.add.at(sums, owner[kept], np.abs(table[ids] * factors[:, None])[kept])
        counts = np.bincount(owner[kept], minlength=len(sizes))[:, None]
        return (sums / np.maximum(counts, 1) if self.mode == 'mean' else sums), counts


class TorchBags(OwnServerTest):
    """Tables of every floating-point type, with rows of different magnitudes."""

    def setUp(self):
        super().setUp()
        self.rng = np.random.default_rng(SEED)
        values = self.rng.normal(size=(ROWS, COLUMNS)) * 10 ** self.rng.uniform(-2, 2, (ROWS, 1))
        tables = {kind: Table.of_values(kind, kind, values) for kind in TYPES}
        self.doubles = {kind: table.values.astype('f8') for kind, table in tables.items()}
        self.torches = {kind: torch.from_numpy(table).to(TYPES[kind])
                        for kind, table in self.doubles.items()}
        self.client = embag.Client(self.serve(tables=list(tables.values())).address, timeout=60)
        self.addCleanup(self.client.close)

    def native_types(self):
        """Returns the types whose embedding_bag this version of torch has in every mode."""
        native = []
        for kind, table in self.torches.items():
            try:
                for mode in MODES:
                    embedding_bag(torch.tensor([[0, 1]]), table, mode=mode)
            except RuntimeError:
                continue
            native.append(kind)
        return native

    def cases(self):
        """Yields random cases with the server's results."""
        for _ in range(scaled(CASES) // QUERIES):
            kind = str(self.rng.choice(list(TYPES)))
            weight_type = torch.float64 if kind == 'f64' else torch.float32
            cases = [Case(self.rng, kind) for _ in range(QUERIES)]
            answer = self.client.lookup([case.query(weight_type) for case in cases],
                                        output_type='f64' if kind == 'f64' else 'f32')
            yield from zip(cases, (result.values for result in answer))

    def test_every_mode_type_and_layout_is_torchs_within_the_bound(self):
        native, count = self.native_types(), 0
        self.assertLessEqual({'f32', 'f64'}, set(native))
        for case, got in self.cases():
            output = 'f64' if case.kind == 'f64' else 'f32'
            terms, counts = case.terms(self.doubles[case.kind])
            exact = case.torch(torch.from_numpy(self.doubles[case.kind]), case.weights)
            slack = (counts + 4) * torch.finfo(TYPES[output]).eps / 2 * terms
            rounding = half_unit(exact, output)
            # For f64 tables, the reference in double precision has rounding errors too.
            own = slack if case.kind == 'f64' else 0
            self.assertTrue((np.abs(got - exact) <= slack + own + rounding).all(), vars(case))
            if case.kind in native:
                theirs = case.torch(self.torches[case.kind], case.weights)
                slack = 2 * (counts + 4) * torch.finfo(TYPES[case.kind]).eps * terms
                wide = slack + 2 * half_unit(exact, case.kind)
                self.assertTrue((np.abs(got - theirs) <= wide).all(), vars(case))
            count += 1
        self.assertGreaterEqual(count, scaled(CASES) // QUERIES * QUERIES)

    def test_one_row_is_copied_bit_by_bit(self):
        for kind, table in self.torches.items():
            ids = self.rng.integers(0, ROWS, 50)
            for mode in MODES:
                got = self.client.lookup(kind, ids.reshape(-1, 1), reduction=mode).values
                want = embedding_bag(torch.from_numpy(ids).reshape(-1, 1), table.double(),
                                     mode=mode).to(TYPES[kind])
                raw = want.view(torch.int16).numpy() if kind == 'bf16' else want.numpy()
                self.assertEqual(got.tobytes(), raw.tobytes())

    def test_offsets_that_skip_the_first_ids(self):
        # torch wants 0 as the first offset. The server leaves out the ids before the first one.
        ids = self.rng.integers(0, ROWS, 10)
        got = self.client.lookup('f64', ids, offsets=[3, 7], reduction='sum').values
        want = embedding_bag(torch.from_numpy(ids[3:]), self.torches['f64'],
                             torch.tensor([0, 4]), mode='sum').numpy()
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12)

    def test_an_id_outside_the_table_is_an_error_in_both(self):
        ids = torch.tensor([[0, ROWS]])
        with self.assertRaises((IndexError, RuntimeError)):
            embedding_bag(ids, self.torches['f32'])
        with self.assertRaises(embag.OutOfRange):
            self.client.lookup('f32', ids.numpy())
