"""embag-import: which tables it takes, their names, what it writes, and how it fails."""

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
import xxhash
import yaml

import served
from embagd_process import wait_until
from import_run import MEASURED_IMPORT, ImportTest, command, tree, write_tensors

ROWS = np.arange(24, dtype='<f4').reshape(6, 4)
PREFIX = 'sparse_arch.embedding_bag_collection.embedding_bags.'


class Selection(ImportTest):
    """Which tensors become tables, and the names of the tables."""

    def write(self, *names, **others):
        """Writes a checkpoint with matrices of these names, and other tensors."""
        write_tensors(self.join('m.safetensors'), {**{name: ROWS for name in names}, **others})

    def taken(self, *options):
        """Returns the names of the tables that would be imported."""
        printed = self.imports('m.safetensors', '--dry-run', *options)
        tables = re.search(r'^tables:\n((?:  .*\n)*)', printed, re.M)[1]
        return re.findall(r'^  (\S+)  ', tables, re.M)

    def test_names_of_frameworks_are_recognised(self):
        for name in (PREFIX + 't0.weight', 'emb_l.3.weight', 'user_embedding.weight',
                     'bert.embeddings.word_embeddings.weight', 'model.embed_tokens.weight',
                     'transformer.wte.weight', 'wpe.weight', 'item_emb', 'gpt_neox.embed_in.weight',
                     'encoder.embed_positions.weight', 'user/embeddings', 'shared.weight',
                     'model/layer-0/embeddings/.ATTRIBUTES/VARIABLE_VALUE', 'ItemEmbedding.weight'):
            self.write(name, 'a.b.c')
            self.assertEqual(len(self.taken()), 1, name)

    def test_names_of_other_layers_are_left(self):
        for name in ('over_arch.0.weight', 'lm_head.weight', 'time_embedding.linear_1.weight',
                     'embeddings.proj.weight', 'member.weight', 'remember.table_of.x',
                     'emb.t0.exp_avg', 'optimizer.emb.t0', 'emb.t0.momentum1', 'emb/t0/Adam_1',
                     'embeddings.LayerNorm.weight', 'embedding_proj.0.weight',
                     'user_embedding/kernel', 'emb.t0/.OPTIMIZER_SLOT/adam/m'):
            self.write(name, 'emb.other')
            self.assertEqual(self.taken(), ['other'], name)

    def test_a_matrix_with_a_bias_of_its_rows_is_a_linear_layer(self):
        for size, names in ((6, ['b']), (5, ['a', 'b'])):
            self.write('emb.a.weight', 'emb.b.weight', **{'emb.a.bias': np.zeros(size, '<f4')})
            self.assertEqual([n.rsplit('.', 1)[-1] for n in self.taken()], names)

    def test_an_unclear_name_is_taken_if_there_are_more_rows_than_columns(self):
        for columns, is_taken in ((5, True), (6, False)):
            self.write('emb', shared=np.zeros((6, columns), '<f4'))
            self.assertEqual('shared' in self.taken(), is_taken)

    def test_only_matrices_of_floating_point_numbers_are_found(self):
        self.write('emb.a', **{'emb.b': np.zeros(5, '<f4'), 'emb.c': np.zeros((2, 2, 2), '<f4'),
                               'emb.d': np.zeros((2, 2), '<i8'), 'emb.e': np.zeros((0, 2), '<f4'),
                               'emb.f': np.zeros((2, 0), '<f4')})
        self.assertEqual(self.taken(), ['a'])

    def test_patterns_override_the_rule(self):
        self.write('emb.a', 'over.0.weight', ints=np.zeros((3, 2), '<i4'))
        self.assertEqual(self.taken('--tables', 'over.*', '--tables', 'ints'),
                         ['over.0', 'ints'])
        self.assertEqual(self.taken('--tables', '*', '--exclude', '0'), ['emb.a', 'ints'])
        self.refuses('m.safetensors', '--tables', 'none*', because='matches none of the 3 tensors')
        self.refuses('m.safetensors', '--exclude', 'none*', because='matches none of the 3 tensors')

    def test_refuses_a_checkpoint_without_tables(self):
        self.write('over.0.weight')
        self.refuses('m.safetensors', because=('no embedding table found', '--tables PATTERN',
                                               'over.0.weight F32 [6, 4]'))

    def test_refuses_chosen_tensors_that_cannot_be_tables(self):
        self.write(a=np.zeros((0, 2), '<f4'), b=('BOOL', np.zeros((2, 2), np.uint8)))
        self.refuses('m.safetensors', '--tables', 'a', because='has the shape [0, 2]')
        self.refuses('m.safetensors', '--tables', 'b', because='has the type BOOL')

    def test_names_lose_their_common_prefix(self):
        for names, short in (
                ([PREFIX + 't0.weight'], ['t0']),
                ([PREFIX + 't0.weight', PREFIX + 't1.weight'], ['t0', 't1']),
                (['emb_l.0.weight', 'emb_l.1.weight'], ['emb_l.0', 'emb_l.1']),
                (['user.emb.weight', 'item.emb.weight'], ['user.emb', 'item.emb']),
                (['a.emb.weight', 'a.emb.x.weight'], ['emb', 'emb.x']),
                (['emb.weight'], ['emb'])):
            self.write(*names)
            self.assertEqual(self.taken(), short)

    def test_rules_give_new_names(self):
        self.write(PREFIX + 't0.weight', PREFIX + 't1.weight', 'emb.x.weight')
        self.assertEqual(self.taken('--name', PREFIX + '*.weight=user_*', '--name', 'emb.x=x'),
                         ['user_t0', 'user_t1', 'x'])
        self.refuses('m.safetensors', '--name', 'none=x', because='no table that is taken has this')
        self.refuses('m.safetensors', '--name', '*=x', because='would both be the table x')
        for rule in ('x', '=x', 'x=', 'a=b*', 'a**=b'):
            self.refuses('m.safetensors', '--name', rule, because='is not OLD=NEW', status=2)

    def test_refuses_names_that_the_server_would_refuse(self):
        self.write('emb.x')
        for name, because in (('a' * 256, 'has 256 bytes, expected at most 255'),
                              ('a\nb', 'has control characters'),
                              ('__metadata__', 'is not that of a tensor')):
            self.refuses('m.safetensors', '--name', 'emb.x=' + name, because=because)
        self.assertEqual(self.taken('--name', 'emb.x=' + 'a' * 255), ['a' * 255])

    def test_texts_of_checkpoints_do_not_reach_the_terminal_raw(self):
        self.write('emb.\x1b[31m')
        done = self.run_import('m.safetensors')
        self.assertEqual(done.returncode, 1)
        self.assertNotIn('\x1b', done.stdout + done.stderr)
        self.write('emb.ok', '\x1b]0;title\x07')
        self.assertNotIn('\x1b', self.imports('m.safetensors'))

    def test_errors_have_a_maximum_length(self):
        from embag.importer.cli import _PROBLEM_MAX
        fixed = len('--tables : matches none of the 1 tensors, which include: ') + \
            len('emb.x F32 [6, 4]')
        self.write('emb.x')
        for size, cut in ((_PROBLEM_MAX - fixed, ''), (_PROBLEM_MAX - fixed + 1, ' ...')):
            done = self.run_import('m.safetensors', '--tables', 'y' * size)
            self.assertEqual(done.stderr.removeprefix('embag-import: ')[_PROBLEM_MAX:], cut + '\n')


class Config(ImportTest):
    """model.yaml."""

    def setUp(self):
        super().setUp()
        write_tensors(self.join('m.safetensors'),
                      {PREFIX + 't0.weight': ROWS, PREFIX + 't1.weight': ROWS + 1, 'other': ROWS})

    def write_config(self, text):
        """Writes a description of the tables."""
        with open(self.join('described.yaml'), 'w', encoding='utf-8') as file:
            file.write(text)

    def test_has_tables_and_storage(self):
        self.imports('m.safetensors', '--storage', 'int8')
        self.assertEqual(yaml.safe_load(self.config()), {
            'tables': [{'name': name, 'source': '%s%s.weight' % (PREFIX, name), 'storage': 'int8'}
                       for name in ('t0', 't1')]})

    def test_a_reduction_makes_features_and_renames_their_tables(self):
        self.imports('m.safetensors', '--reduction', 'mean')
        self.assertEqual(yaml.safe_load(self.config())['features'], [
            {'name': name, 'table': name + '_table', 'reduction': 'mean'} for name in ('t0', 't1')])
        self.assert_rows('t1_table', ROWS + 1)

    def test_names_that_yaml_would_read_as_something_else_are_quoted(self):
        for name in ('no', '5', 'a: b', '- x', '"', '\u00e9', 'null', "it's", '#', 'a\\b',
                     'a\u2028b', 'a\ufffe', '\ufeff', '\U0001f600', '\U0001ffff', '\u00a0'):
            self.imports('m.safetensors', '--tables', 't0', '--name', 't0=' + name,
                         '--replace-config')
            self.assertEqual(yaml.safe_load(self.config()), {
                'tables': [{'name': name, 'source': PREFIX + 't0.weight'}]})

    def test_a_description_decides_tables_and_is_used_as_it_is(self):
        text = ('# mine\ntables:\n- {name: a, source: %st1.weight}\n'
                '- {name: other, missing: skip}\n'
                'features: [{name: f, table: a, reduction: mean}]\n'
                'groups: [{name: g, features: [f]}]\n' % PREFIX)
        self.write_config(text)
        printed = self.imports('m.safetensors', '--model-yaml', self.join('described.yaml'))
        self.assertEqual(self.config(), text)
        self.assertIn('f  mean of a', printed)
        self.assertIn('g  f', printed)
        self.assert_rows('a', ROWS + 1)
        self.assert_rows('other', ROWS)
        self.imports('m.safetensors', '--model-yaml', self.join('described.yaml'), '--storage',
                     'f16', '--replace-config')
        written = yaml.safe_load(self.config())
        self.assertEqual(written['tables'][1],
                         {'name': 'other', 'missing': 'skip', 'storage': 'f16'})
        self.assertEqual(written['groups'], yaml.safe_load(text)['groups'])

    def test_a_source_may_be_the_end_of_a_name(self):
        self.write_config('tables: [{name: a, source: embedding_bags.t1.weight}]')
        self.imports('m.safetensors', '--model-yaml', self.join('described.yaml'))
        self.assert_rows('a', ROWS + 1)
        self.write_config('tables: [{name: t0}, {name: b, source: embedding_bags.t1}]')
        self.imports('m.safetensors', '--model-yaml', self.join('described.yaml'),
                     '--replace-config')
        self.assert_rows('t0', ROWS, 2)
        self.write_config('tables: [{name: a, source: weight}]')
        self.refuses('m.safetensors', '--model-yaml', self.join('described.yaml'),
                     because='is the end of 2 names')

    def test_scales_in_tensors_of_their_own_are_imported_with_the_codes(self):
        codes = np.arange(24, dtype=np.uint8).reshape(6, 4)
        scale, bias = np.arange(1, 7, dtype='<f4'), np.ones((6, 1), '<f2')
        write_tensors(self.join('m.safetensors'), {
            PREFIX + 't0.weight': codes, PREFIX + 't0.weight_qscale': scale,
            PREFIX + 't0.weight_qbias': bias, PREFIX + 't1.weight': codes + 1})
        text = ('tables:\n'
                '- {name: a, source: t0.weight, format: codes_int8, scales: t0.weight_qscale, '
                'biases: t0.weight_qbias}\n'
                '- {name: b, source: t1.weight, format: codes_int8, scales: t0.weight_qscale}\n')
        self.write_config(text)
        self.imports('m.safetensors', '--model-yaml', self.join('described.yaml'))
        self.assertEqual(self.config(), text)
        for name, array in (('a', codes), ('b', codes + 1), ('t0.weight_qscale', scale),
                            ('t0.weight_qbias', bias)):
            self.assert_rows(name, array)
        for change, because in ((('scales: t0.weight_qscale', 'scales: t1.weight'),
                                 'expected F32 or F16 [6]'),
                                (('name: b, source: t1.weight', 'name: b, source: t0.weight_qbias'),
                                 'expected U8 [rows, bytes]'),
                                (('scales: t0.weight_qscale', 'scales: none'), 'no tensor none')):
            self.write_config(text.replace(*change))
            self.refuses('m.safetensors', '--model-yaml', self.join('described.yaml'),
                         because=because)
        write_tensors(self.join('m.safetensors'), {'codes': codes, 'scale': scale})
        self.write_config('tables: [{name: a, source: codes, format: codes_int8, scales: scale}, '
                          '{name: scale}]')
        self.refuses('m.safetensors', '--model-yaml', self.join('described.yaml'),
                     because='expected one use')

    def test_refuses_descriptions_that_do_not_fit(self):
        for text, because in (
                ('tables: [{name: a}]', 'the checkpoint has no tensor a'),
                ('tables: [{source: other}]', 'tables[0].name: is missing'),
                ('tables: [{name: [other]}]', 'tables[0].name: expected one value'),
                ('tables: [5]', 'tables[0]: expected keys'),
                ('tables: {other: 1}', 'tables: expected a list'),
                ('tables: []', 'describes no tables'),
                ('tables: [{name: other, dim: x}]', 'is not a number'),
                ('tables: [{name: other, dim: %s}]' % ('9' * 5000), 'is not a number'),
                ('tables: [{name: other, dim: 4}]', 'has dim 4 without a format'),
                ('tables: [{name: "", source: other}]', 'tables[0]: the name "" is empty'),
                ('tables: [{name: "a\\0", source: other}]', 'has control characters'),
                ('tables: [{name: a, source: t0}, {name: a, source: t1}]',
                 'tables[1]: the name "a" is that of another table too'),
                ('tables: [{name: other, format: fbgemm_int8}]', 'expected U8'),
                ('tables: [{name: a, source: other}, {name: other}]', 'have the same source'),
                ('tables: [{name: other}]\ngroups: [{name: g, features: 5}]', 'a list of names'),
                ('a: &a [x]\nb: *a', 'has an alias'),
                ('tables: [', 'not valid YAML'), ('5', 'expected keys'), ('', 'expected keys'),
                ('[' * 5000, 'not valid YAML')):
            self.write_config(text)
            self.refuses('m.safetensors', '--model-yaml', self.join('described.yaml'),
                         because=because)
        for option in (('--tables', 'x'), ('--exclude', 'x'), ('--name', 'a=b'),
                       ('--reduction', 'sum')):
            self.refuses('m.safetensors', '--model-yaml', self.join('described.yaml'), *option,
                         because='does not go with --model-yaml')

    def test_another_config_is_replaced_only_if_told_to(self):
        self.imports('m.safetensors')
        self.imports('m.safetensors')
        first = self.config()
        self.refuses('m.safetensors', '--storage', 'int8', because='--replace-config')
        self.refuses('m.safetensors', '--storage', 'int8', '--dry-run', because='--replace-config')
        self.assertEqual(self.config(), first)
        self.imports('m.safetensors', '--storage', 'int8', '--replace-config')
        self.assertIn('int8', self.config())
        self.assertEqual(tree(self.out)[:3], ['1', '1/manifest.yaml', '1/t0.safetensors'])
        kept = os.path.join(self.out, 'model.yaml')
        with open(kept, 'a', encoding='utf-8') as file:
            file.write('versions: {keep: 3}\n')
        self.imports('m.safetensors', '--model-yaml', kept)
        self.assertIn('keep: 3', self.config())

    def test_refuses_a_storage_for_types_that_have_none(self):
        write_tensors(self.join('m.safetensors'), {'emb': ROWS.astype('<f8')})
        self.refuses('m.safetensors', '--storage', 'int8', because='the type F64')


class Writing(ImportTest):
    """The version's directory."""

    def setUp(self):
        super().setUp()
        write_tensors(self.join('m.safetensors'), {PREFIX + 't0.weight': ROWS,
                                                   PREFIX + 't1.weight': ROWS + 1})

    def test_the_manifest_lists_every_file_with_its_digest(self):
        self.imports('m.safetensors')
        folder = os.path.join(self.out, '1')
        with open(os.path.join(folder, 'manifest.yaml'), encoding='utf-8') as file:
            manifest = yaml.safe_load(file)
        self.assertEqual((manifest['format'], manifest['parts']), (1, 1))
        self.assertEqual({each['name'] for each in manifest['files']},
                         set(os.listdir(folder)) - {'manifest.yaml'})
        for each in manifest['files']:
            with open(os.path.join(folder, each['name']), 'rb') as file:
                data = file.read()
            self.assertEqual((each['bytes'], each['xxh3_64']),
                             (len(data), xxhash.xxh3_64(data).hexdigest()))

    def test_a_dry_run_writes_nothing(self):
        printed = self.imports('m.safetensors', '--dry-run')
        self.assertIn('would write %s/1' % self.out, printed)
        self.assertFalse(os.path.exists(self.out))

    def test_versions_follow_each_other(self):
        for version in (1, 2):
            self.imports('m.safetensors')
            self.assert_rows('t1', ROWS + 1, version)
        self.imports('m.safetensors', '--version', '40')
        self.imports('m.safetensors')
        self.assertTrue(os.path.isdir(os.path.join(self.out, '41')))
        self.refuses('m.safetensors', '--version', '40', because='choose another version')
        for version in ('0', '-1', 'x', '9223372036854775808'):
            self.refuses('m.safetensors', '--version', version, because='not a number', status=2)

    def test_a_version_that_another_importer_writes_is_refused(self):
        os.makedirs(os.path.join(self.out, '.1'))
        self.refuses('m.safetensors', because='another importer is writing version 1')
        self.imports('m.safetensors', '--version', '2')

    def test_of_two_importers_of_the_same_version_one_succeeds(self):
        running = [subprocess.Popen(
            command(self.join('m.safetensors'), '--out', self.out, '--version', '3'),
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) for _ in range(3)]
        texts = [each.communicate(timeout=60)[1] for each in running]
        self.assertEqual(sorted(each.returncode for each in running), [0, 1, 1])
        self.assertEqual(sum('3 exists: ' in text for text in texts), 2, texts)
        self.assert_rows('t1', ROWS + 1, 3)

    def test_a_table_whose_name_is_no_file_name_gets_a_file_of_another_name(self):
        for version, name in enumerate(('a/b', '.x', 'x-00000-of-00002', 'y' * 250), 1):
            self.imports('m.safetensors', '--tables', 't1', '--name', 't1=' + name,
                         '--replace-config')
            self.assertEqual(self.rows('table-0', version)[2], (ROWS + 1).tobytes())

    def test_refuses_a_key_file_whose_name_would_not_stand_for_the_table(self):
        os.mkdir(self.join('dump'))
        np.arange(6).tofile(self.join('dump', 't.keys'))
        ROWS.tofile(self.join('dump', 't.values'))
        for name in ('a/b', '.x', 'x-00000-of-00002', 'y' * 247):
            self.refuses('dump', '--format', 'raw', '--name', 't=' + name,
                         because='does not make a file name')
            self.refuses('dump', '--format', 'raw', '--name', 't=' + name, '--dry-run',
                         because='does not make a file name')
        self.imports('dump', '--format', 'raw', '--name', 't=' + 'y' * 246)

    def test_refuses_a_row_of_one_byte_more_than_the_maximum(self):
        from embag.importer import CheckpointError, Tensor
        from embag.importer.source import Checkpoint, Table
        from embag.importer.writer import ROW_BYTES_MAX, import_checkpoint
        for size, is_read in ((ROW_BYTES_MAX, True), (ROW_BYTES_MAX + 1, False)):
            tensor = Tensor('x', 'U8', (1, size), lambda b, e, n=size: np.zeros((e - b, n), 'u1'))
            checkpoint = Checkpoint('test', tables=[Table(tensor, 'x')])
            if is_read:
                self.assertEqual(import_checkpoint(checkpoint, self.out).version, 1)
            else:
                with self.assertRaisesRegex(CheckpointError, 'expected at most 67108864'):
                    import_checkpoint(checkpoint, self.out)

    def test_a_reader_that_fails_half_way_leaves_nothing_behind(self):
        from embag.importer import CheckpointError, Tensor
        from embag.importer.source import Checkpoint, Table
        from embag.importer.writer import import_checkpoint

        def fail(begin, end):
            if begin > 0:
                raise CheckpointError('row %d cannot be read' % begin)
            return np.zeros((end - begin, 1 << 20), np.uint8)

        tensor = Tensor('x', 'U8', (64, 1 << 20), fail)
        with self.assertRaisesRegex(CheckpointError, 'cannot be read'):
            import_checkpoint(Checkpoint('test', tables=[Table(tensor, 'x')]), self.out)
        self.assertFalse(os.path.exists(self.out))
        short = Tensor('x', 'U8', (4, 8), lambda b, e: np.zeros((e - b, 7), np.uint8))
        with self.assertRaisesRegex(CheckpointError, 'were read as'):
            import_checkpoint(Checkpoint('test', tables=[Table(short, 'x')]), self.out)

    def test_folders_are_created_and_removed_if_the_import_fails(self):
        self.out = self.join('repository', 'a', 'b')
        with open(self.join('m.safetensors'), 'r+b') as file:
            from embag.importer import CheckpointError, open_source
            from embag.importer.writer import import_checkpoint
            checkpoint = open_source(file.name)
            file.truncate(os.path.getsize(file.name) - 1)
            with self.assertRaisesRegex(CheckpointError, 'ends at byte'):
                import_checkpoint(checkpoint, self.out)
        self.assertEqual(tree(self.join('repository')), [])
        self.setUp()
        self.out = self.join('repository', 'a', 'b')
        self.imports('m.safetensors')

    def test_folders_are_removed_if_not_all_can_be_created(self):
        self.out = self.join('repository', 'a', 'b', 'x' * 256)
        self.refuses('m.safetensors', because='File name too long')
        self.assertEqual(tree(self.join('repository')), [])

    def test_numbers_that_are_no_versions_are_refused(self):
        from embag.importer import CheckpointError, import_checkpoint, open_source
        checkpoint = open_source(self.join('m.safetensors'))
        for number, is_good in ((0, False), (-1, False), (2**63, False), (2**63 - 1, True)):
            if is_good:
                self.assertEqual(import_checkpoint(checkpoint, self.out, number).version, number)
                continue
            with self.assertRaisesRegex(CheckpointError, 'expected a number from 1 to'):
                import_checkpoint(checkpoint, self.out, number)
            self.assertFalse(os.path.exists(self.out))
        self.refuses('m.safetensors', because='expected a number from 1 to')

    def test_a_config_that_another_importer_wrote_meanwhile_is_kept(self):
        from embag.importer import CheckpointError, import_checkpoint, open_source

        def write_config(size):
            with open(os.path.join(self.out, 'model.yaml'), 'w', encoding='utf-8') as file:
                file.write('# %d bytes were written\n' % size)

        with self.assertRaisesRegex(CheckpointError, 'differs from what this import would write'):
            import_checkpoint(open_source(self.join('m.safetensors')), self.out,
                              advance=write_config)
        self.assertEqual(tree(self.out), ['model.yaml'])

    def test_a_disk_that_is_full_is_told_and_nothing_is_left(self):
        limited = subprocess.run(
            ['prlimit', '--fsize=150', *command(self.join('m.safetensors'), '--out', self.out)],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(limited.returncode, 1, limited.stderr)
        self.assertEqual(limited.stderr, 'embag-import: %s: File too large\n' % self.out)
        self.assertEqual(tree(self.join('repository')), [])

    def test_signals_end_an_import_and_leave_nothing_behind(self):
        rows = 1 << 18
        with open(self.join('big.safetensors'), 'wb') as file:
            from table_files import safetensors_bytes
            file.write(safetensors_bytes({'emb': {
                'dtype': 'F32', 'shape': [rows, 1024], 'data_offsets': [0, rows * 4096]}}, b''))
            file.truncate(file.tell() + rows * 4096)
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)):
            with subprocess.Popen(command(self.join('big.safetensors'), '--out', self.out),
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                  text=True) as process:
                written = os.path.join(self.out, '.1', 'emb.safetensors')
                wait_until(lambda at=written: os.path.exists(at), 60, written)
                process.send_signal(number)
                self.assertEqual(process.wait(60), status)
                self.assertIn('nothing was written', process.stderr.read())
            self.assertEqual(tree(self.join('repository')), [])

    def test_a_second_signal_does_not_interrupt_the_removal(self):
        from embag.importer import cli, writer
        remove = shutil.rmtree

        def remove_slowly(path):
            os.kill(os.getpid(), signal.SIGINT)
            remove(path)

        with mock.patch.object(cli.Progress, 'advance',
                               lambda *_: os.kill(os.getpid(), signal.SIGTERM)), \
                mock.patch.object(writer.shutil, 'rmtree', remove_slowly):
            done = self.run_import('m.safetensors')
        self.assertEqual((done.returncode, done.stderr),
                         (143, 'embag-import: terminated; nothing was written\n'))
        self.assertEqual(tree(self.join('repository')), [])

    def test_a_killed_import_is_not_a_version(self):
        os.makedirs(os.path.join(self.out, '.1'))
        self.refuses('m.safetensors', because='delete the directory if none is running')
        shutil.rmtree(os.path.join(self.out, '.1'))
        self.imports('m.safetensors')

    def test_memory_does_not_grow_with_the_table(self):
        from table_files import safetensors_bytes
        rows = 1 << 20
        with open(self.join('big.safetensors'), 'wb') as file:
            file.write(safetensors_bytes({'emb': {
                'dtype': 'F32', 'shape': [rows, 256], 'data_offsets': [0, rows * 1024]}}, b''))
            file.truncate(file.tell() + rows * 1024)
        done = subprocess.run(
            [sys.executable, '-I', '-B', '-c', MEASURED_IMPORT, self.join('big.safetensors'),
             self.out],
            capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertLess(int(done.stdout), 64 << 10)


class Features(ImportTest):
    """Features and groups of a model's own configuration."""

    def plan(self, features, groups=None, types=('F32', 'F32'), **choices):
        """Plans the tables a and b, of these types, with these features."""
        from embag.importer import Checkpoint, Choices, Table, Tensor
        from embag.importer.plan import make_plan
        tables = [Table(Tensor('ebc.%s.weight' % name, dtype, (6, 4), lambda b, e: ROWS.view(
            'u1')[b:e]), name) for name, dtype in zip('ab', types)]
        return make_plan(Checkpoint('test', tables=tables, features=features, groups=groups or {}),
                         Choices(**choices))

    def test_are_written_for_the_tables_that_are_taken(self):
        from embag.importer import Feature
        features = [Feature('f', 'a', 'sum'), Feature('g', 'b', 'mean'), Feature('h', 'b', 'none')]
        groups = {'all': ['f', 'g'], 'first': ['f'], 'no': ['f', 'h']}
        config = yaml.safe_load(self.plan(features, groups).config)
        self.assertEqual(config['features'][2], {'name': 'h', 'table': 'b', 'reduction': 'none'})
        self.assertEqual(config['groups'], [{'name': 'all', 'features': ['f', 'g']},
                                            {'name': 'first', 'features': ['f']}])
        plan = self.plan(features, groups, exclude=['a'], names=[('b', 'x')])
        config = yaml.safe_load(plan.config)
        self.assertEqual(config['tables'], [{'name': 'x', 'source': 'ebc.b.weight'}])
        self.assertEqual([each['table'] for each in config['features']], ['x', 'x'])
        self.assertEqual(config['groups'], [{'name': 'all', 'features': ['g']},
                                            {'name': 'no', 'features': ['h']}])
        self.assertIn(('feature f', 'its table a is not taken'), plan.left)
        self.assertIn(('group first', 'none of its features is taken'), plan.left)

    def test_groups_that_the_server_would_refuse_are_left(self):
        from embag.importer import Feature
        features = [Feature('f', 'a', 'sum'), Feature('g', 'b', 'none'), Feature('h', 'b', 'max')]
        plan = self.plan(features, {'x': ['f', 'g'], 'y': ['f', 'h']})
        self.assertEqual(plan.groups, {'y': ['f', 'h']})
        self.assertIn(('group x', 'only some of its features are pooled'), plan.left)
        plan = self.plan(features, {'y': ['f', 'h'], 'z': ['h']}, types=('F32', 'F16'))
        self.assertEqual(plan.groups, {'z': ['h']})
        self.assertIn(('group y', 'its tables have the types F16 and F32'), plan.left)

    def test_a_group_of_rows_is_taken_if_they_have_one_size(self):
        from embag.importer import Checkpoint, Choices, Feature, Table, Tensor
        from embag.importer.plan import make_plan
        tables = [Table(Tensor('t%d' % n, 'F32', (6, dim), lambda b, e: ROWS.view('u1')[b:e]),
                        't%d' % n) for n, dim in enumerate((4, 4, 2))]
        features = [Feature('f%d' % n, 't%d' % n, 'none') for n in range(3)]
        plan = make_plan(Checkpoint('test', tables=tables, features=features, groups={
            'same': ['f0', 'f1'], 'other': ['f1', 'f2']}), Choices())
        self.assertEqual(plan.groups, {'same': ['f0', 'f1']})
        self.assertIn(('group other', 'the rows of its tables have different sizes, and are not '
                       'pooled'), plan.left)

    def test_a_table_with_the_name_of_a_feature_is_renamed(self):
        from embag.importer import Feature
        config = yaml.safe_load(self.plan([Feature('a', 'a', 'sum'), Feature('f', 'a', 'max')])
                                .config)
        self.assertEqual([each['name'] for each in config['tables']], ['a_table', 'b'])
        self.assertEqual([each['table'] for each in config['features']], ['a_table', 'a_table'])

    def test_that_the_server_would_refuse_are_refused(self):
        from embag.importer import CheckpointError, Feature
        for features, because in (
                ([Feature('f', 'a', 'sum'), Feature('f', 'b', 'sum')], 'two features have the'),
                ([Feature('f', 'a', 'median')], 'the reduction is "median"'),
                ([Feature('', 'a', 'sum')], 'is empty')):
            with self.assertRaisesRegex(CheckpointError, because):
                self.plan(features)
        with self.assertRaisesRegex(CheckpointError, 'says how its features are reduced'):
            self.plan([Feature('f', 'a', 'sum')], reduction='mean')


class Terminal(io.StringIO):
    """A stream that says that it is a terminal."""

    def isatty(self):
        """Returns True."""
        return True


class Shown(unittest.TestCase):
    """Progress."""

    def test_a_line_every_few_seconds_has_the_rate_and_the_time_left(self):
        from embag.importer.progress import Progress
        now = [0.0]
        stream = io.StringIO()
        with Progress(10**9, stream, lambda: now[0]) as progress:
            for second in range(1, 10):
                now[0] = second
                progress.advance(10**8)
        self.assertEqual(stream.getvalue(),
                         'embag-import: 500.0 MB of 1.0 GB (50 %), 100.0 MB/s, 5 s left\n')
        self.assertEqual(progress.seconds(), 9)

    def test_a_terminal_shows_a_bar(self):
        from embag.importer.progress import Progress
        stream = Terminal()
        with Progress(10**9, stream) as progress:
            progress.advance(5 * 10**8)
            progress.advance(5 * 10**8)
        self.assertIn('%|', stream.getvalue())
        self.assertIn('1.00G', stream.getvalue())


class Errors(ImportTest):
    """Wrong command lines and files."""

    def test_sources_that_cannot_be_read_are_told_in_one_line(self):
        self.refuses('absent.safetensors', because='No such file or directory')
        self.refuses('absent.safetensors', '--format', 'safetensors', because='No such file')
        os.mkdir(self.join('d.safetensors'))
        self.refuses('d.safetensors', '--format', 'arrow', because='has no files')
        os.mkfifo(self.join('p.safetensors'))
        self.refuses('p.safetensors', because='expected a regular file')

    def test_options_of_other_kinds_are_refused(self):
        write_tensors(self.join('m.safetensors'), {'emb': ROWS})
        self.refuses('m.safetensors', '--dim', '4', because='--dim does not apply')
        self.refuses('m.safetensors', '--key-column', 'a',
                     because='--key-column does not apply')
        self.refuses('m.safetensors', '--type', 'F64', because='--type does not apply')
        for dim in ('0', 'x', '4294967296'):
            self.refuses('m.safetensors', '--dim', dim, because='is not a number', status=2)

    def test_an_output_that_cannot_be_written_is_told(self):
        write_tensors(self.join('m.safetensors'), {'emb': ROWS})
        with open(self.out, 'wb'):
            pass
        self.refuses('m.safetensors', because=self.out)

    def test_the_reference_has_every_option_and_format(self):
        done = subprocess.run(command('--help'), capture_output=True, text=True, timeout=60,
                              check=False)
        path = os.path.join(served.SOURCE, 'client', 'python', 'IMPORT.md')
        with open(path, encoding='utf-8') as file:
            reference = file.read()
        options = re.findall(r'^  (--[\w-]+)', done.stdout, re.M)
        formats = re.findall(r'^  (\w+) {2,}', done.stdout.split('kinds of SOURCE, by')[1], re.M)
        self.assertGreater(len(options), 10)
        self.assertGreater(len(formats), 5)
        for word in options + formats:
            self.assertIn('`' + word, reference)

    def test_help_has_examples(self):
        script = os.path.join(os.path.dirname(sys.executable), 'embag-import')
        done = subprocess.run([script, '--help'], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual((done.returncode, done.stderr), (0, ''))
        self.assertIn('embag-import model.pt --out models/dlrm\n', done.stdout)
        self.assertLessEqual(max(map(len, done.stdout.splitlines())), 100)

    def test_every_reader_can_be_imported(self):
        from embag.importer.readers import READERS
        for reader in READERS:
            module = reader.load()
            self.assertTrue(callable(module.recognises) and callable(module.open_checkpoint))

    def test_arrow_files_say_what_to_install_if_pyarrow_is_absent(self):
        code = ('import sys\nsys.modules["pyarrow"] = None\n'
                'from embag.importer.cli import main\nsys.exit(main(sys.argv[1:]))\n')
        with open(self.join('x.parquet'), 'wb') as file:
            file.write(b'PAR1' + bytes(16))
        done = subprocess.run([sys.executable, '-I', '-B', '-c', code, self.join('x.parquet'),
                               '--out', self.out], capture_output=True, text=True, timeout=60,
                              check=False)
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stderr, 'embag-import: reading parquet files needs the package '
                         'pyarrow, which is not installed: pip install pyarrow\n')
