"""Part servers: what they load of versions in parts, and which queries they answer."""

import os
import re
import shutil
import subprocess
import unittest

import grpc
import numpy as np

import served
from embagd_process import Embagd, Repository, wait_until
from rpc import Client, pb
from served import SEED
from table_files import Table, write_model
from test_split import SALT, part_of_key
from test_watch_models import Watch
from tmpfs_directory import make_tmpfs_directory

PARTS = 3
SECONDS = 30
MODEL_YAML = '''
tables:
  - {name: rows, missing: skip, default_index: 5}
  - {name: keyed, unknown_row: 4, default_index: 1000}
  - {name: vector, default_vector: [7], unknown_row: default_vector, missing: unknown_row}
features:
  - {name: feature, table: rows, reduction: mean}
  - {name: of_whole, table: whole, reduction: mean}
groups:
  - {name: group, features: [feature]}
'''
PLACEMENT = '''
tables:
  - {name: rows, placement: rows}
  - {name: int8, placement: rows}
  - {name: numbers, placement: rows}
  - {name: keyed, placement: rows}
  - {name: vector, placement: rows}
  - {name: whole, placement: whole, part: 1}
'''


class WithParts(unittest.TestCase):
    """A repository with a version in three parts, and part servers."""

    def setUp(self):
        rng = np.random.default_rng([SEED, 5])
        self.repository = Repository()
        self.addCleanup(self.repository.remove)
        self.rows = rng.integers(-9, 9, (100, 4)).astype('f4')
        self.keys = rng.integers(-2**63, 2**63, 80, dtype='i8')
        self.keys[7] = 1000
        self.keyed = Table.of_values('keyed', 'f32', rng.integers(-9, 9, (80, 3)))
        self.vector = Table.of_values('vector', 'f32', rng.integers(-9, 9, (80, 2)))
        self.whole = rng.integers(-9, 9, (20, 2)).astype('f8')
        self.numbers = rng.integers(-99, 99, (31, 2), dtype='i4')
        write_model(self.repository.join('source'), 'm', 1, [
            Table.of_values('rows', 'f32', self.rows), Table('numbers', 'i32', self.numbers),
            Table.of_values('whole', 'f64', self.whole), self.keyed, self.vector,
            Table.of_values('small', 'f32', [[1, 2]])])
        for name, array in (('int8', self.rows), ('keyed.keys', self.keys),
                            ('vector.keys', self.keys)):
            np.save(self.repository.join('source', 'm', '1', name + '.npy'), array)
        self.write('source/m/model.yaml', MODEL_YAML.replace(
            'tables:', 'tables:\n  - {name: int8, storage: int8}'))
        self.write('placement.yaml', PLACEMENT)
        self.parts = self.repository.join('parts')
        self.split('1', PARTS)

    def write(self, name, text):
        """Writes a text file into the repository's directory."""
        with open(self.repository.join(name), 'w', encoding='utf-8') as file:
            file.write(text)

    def split(self, version, parts, out=None):
        """Splits version 1 of the source, as version `version`."""
        source = self.repository.join('source', 'm', '1')
        renamed = self.repository.join('source', 'm', version)
        os.rename(source, renamed)
        done = subprocess.run(
            [served.EMBAG, 'split', renamed, '--parts', str(parts), '--salt', SALT,
             '--placement', self.repository.join('placement.yaml'), '--out', out or self.parts],
            capture_output=True, text=True, timeout=60, check=False)
        os.rename(renamed, source)
        self.assertEqual(done.returncode, 0, done.stderr)

    def serve(self, part, *flags):
        """Starts a part server. Returns it and a client."""
        server = Embagd(self.parts, '--part', part, *flags)
        self.addCleanup(server.stop)
        client = Client(server.wait_ready().address)
        self.addCleanup(client.close)
        return server, client

    def assert_refused(self, client, status, text, **query):
        """Expects an error of a lookup of one query."""
        with self.assertRaises(grpc.RpcError) as caught:
            client.lookup(pb.LookupRequest(queries=[pb.BagQuery(num_bags=1, **query)]))
        self.assertEqual(caught.exception.code(), status, caught.exception.details())
        self.assertIn(text, caught.exception.details())

    def sums(self, client, table, indices, **more):
        """Returns the sum of one bag, as an array, and the result."""
        answer = client.lookup(pb.LookupRequest(report_missing=True, queries=[
            pb.BagQuery(table=table, indices=indices, num_bags=1, **more)]))
        result = answer.results[0]
        kind = {pb.DATA_TYPE_F32: '<f4', pb.DATA_TYPE_F64: '<f8', pb.DATA_TYPE_I32: '<i4',
                pb.DATA_TYPE_F16: '<f2'}[result.type]
        return np.frombuffer(result.values, kind), result


class LookupTest(WithParts):
    """What a part server answers."""

    def test_dense_parts_have_their_rows(self):
        for part in range(PARTS):
            _, client = self.serve(f'{part}/{PARTS}')
            here = self.rows[part::PARTS]
            values, _ = self.sums(client, 'rows', range(len(here)), part=part + 1)
            np.testing.assert_array_equal(values, here.sum(0))
            values, _ = self.sums(client, 'numbers', [0, 2], part=part + 1)
            np.testing.assert_array_equal(values, self.numbers[part::PARTS][[0, 2]].sum(0))
            self.assert_refused(client, grpc.StatusCode.OUT_OF_RANGE, 'is outside the table',
                                table='rows', indices=[len(here)], part=part + 1,
                                missing=pb.MISSING_ERROR)

    def test_keyed_parts_have_their_keys(self):
        unknown = self.keyed.values[4]
        for part in range(PARTS):
            _, client = self.serve(f'{part}/{PARTS}')
            here = [i for i in range(80) if part_of_key(self.keys[i], PARTS) == part]
            values, result = self.sums(client, 'keyed', self.keys[here], part=part + 1)
            np.testing.assert_array_equal(values, self.keyed.values[here].sum(0))
            self.assertEqual(result.missing, 0)
            values, result = self.sums(client, 'keyed', [self.keys[here[0]], 12345], part=part + 1,
                                       missing=pb.MISSING_UNKNOWN_ROW)
            np.testing.assert_array_equal(values, self.keyed.values[here[0]] + unknown)
            self.assertEqual(result.missing, 1)
            values, result = self.sums(client, 'vector', [12345, self.keys[here[0]]], part=part + 1,
                                       missing=pb.MISSING_UNKNOWN_ROW)
            np.testing.assert_array_equal(values, self.vector.values[here[0]] + 7)
            _, result = self.sums(client, 'keyed', [12345, self.keys[here[0]]], part=part + 1,
                                  missing=pb.MISSING_SKIP)
            self.assertEqual(np.frombuffer(result.missing_positions, '<u4').tolist(), [0])

    def test_whole_tables_are_in_one_part(self):
        _, client = self.serve(f'1/{PARTS}')
        values, _ = self.sums(client, 'whole', [3, 4])
        np.testing.assert_array_equal(values, self.whole[[3, 4]].sum(0))
        self.assert_refused(client, grpc.StatusCode.INVALID_ARGUMENT, 'part = 2', table='whole',
                            indices=[1], part=2)
        _, client = self.serve(f'0/{PARTS}')
        self.assert_refused(client, grpc.StatusCode.NOT_FOUND, 'whole', table='whole', indices=[1])
        self.assert_refused(client, grpc.StatusCode.NOT_FOUND, 'small', table='small', indices=[0])

    def test_queries_of_another_part_are_refused(self):
        _, client = self.serve(f'1/{PARTS}')
        for part in 0, 1, 3, 4, 2**32 - 1:
            self.assert_refused(client, grpc.StatusCode.FAILED_PRECONDITION,
                                'queries[0] "rows": this server has only part 1 of 3 of the rows, '
                                'counted from 0; ask a router', table='rows', indices=[0],
                                part=part)
        with self.assertRaises(grpc.RpcError) as caught:
            client.lookup(pb.LookupRequest(groups=[pb.FeatureGroup(
                features=['rows'], bags=1, values_i64=bytes(8), lengths_i32=b'\1\0\0\0')]))
        self.assertIn('ask a router', caught.exception.details())

    def test_a_query_has_a_type_of_its_own(self):
        _, client = self.serve(f'1/{PARTS}')
        answer = client.lookup(pb.LookupRequest(output_type=pb.DATA_TYPE_F32, queries=[
            pb.BagQuery(table='rows', indices=[0], num_bags=1, part=2,
                        output_type=pb.DATA_TYPE_F16),
            pb.BagQuery(table='whole', indices=[0], num_bags=1, output_type=pb.DATA_TYPE_F64),
            pb.BagQuery(table='rows', indices=[0], num_bags=1, part=2)]))
        self.assertEqual([result.type for result in answer.results],
                         [pb.DATA_TYPE_F16, pb.DATA_TYPE_F64, pb.DATA_TYPE_F32])
        self.assert_refused(client, grpc.StatusCode.INVALID_ARGUMENT, 'output_type', table='rows',
                            indices=[0], part=2, output_type=99)

    def look_up(self, server, table, index, *flags):
        """Runs embag lookup; returns its exit status, output and messages."""
        done = subprocess.run(
            [served.EMBAG, 'lookup', '--server', server.address, '--table', table,
             f'--indices={index}', '--num-bags', '1', *flags],
            capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stdout, done.stderr

    def test_the_tool_asks_for_a_part(self):
        for part in 0, 2:
            server, _ = self.serve(f'{part}/{PARTS}')
            flags = ('--part', str(part), '--weights', '2', '--reduction', 'sum')
            code, output, errors = self.look_up(server, 'rows', 3, *flags)
            self.assertEqual((code, errors), (0, ''))
            self.assertEqual(output.splitlines()[-1].split(),
                             ['0:', *('%g' % (2 * value) for value in self.rows[3 * PARTS + part])])
            row = next(i for i in range(80) if part_of_key(self.keys[i], PARTS) == part)
            code, output, errors = self.look_up(server, 'keyed', self.keys[row], *flags[:2])
            self.assertEqual((code, errors), (0, ''))
            self.assertEqual(output.splitlines()[-1].split(),
                             ['0:', *('%g' % value for value in self.keyed.values[row])])
        for flags in (), ('--part', '1'):
            code, output, errors = self.look_up(server, 'rows', 3, *flags)
            self.assertEqual((code, output), (1, ''))
            self.assertIn('this server has only part 2 of 3 of the rows, counted from 0', errors)

    def test_quantised_parts_have_the_rows_of_the_whole(self):
        write_model(self.repository.join('flat'), 'm', 1,
                    [Table.of_values('int8', 'f32', self.rows)])
        self.write('flat/m/model.yaml', 'tables: [{name: int8, storage: int8}]\n')
        whole = Embagd(self.repository.join('flat'))
        self.addCleanup(whole.stop)
        with Client(whole.wait_ready().address) as client:
            expected = [self.sums(client, 'int8', [row])[0] for row in range(100)]
        for part in range(PARTS):
            _, client = self.serve(f'{part}/{PARTS}')
            for row in range(part, 100, PARTS):
                values, _ = self.sums(client, 'int8', [row // PARTS], part=part + 1)
                np.testing.assert_array_equal(values, expected[row])


class CatalogueTest(WithParts):
    """What a part server says of itself."""

    def test_says_its_part(self):
        _, client = self.serve(f'2/{PARTS}')
        self.assertEqual(client.get_server().role, 'part 2/3')
        version = client.get_model('m').versions[0]
        self.assertEqual((version.parts, list(version.owned_parts)), (3, [2]))
        self.assertEqual({table.name: table.placement for table in version.tables},
                         {name: 'rows' for name in ('rows', 'int8', 'numbers', 'keyed', 'vector')})
        self.assertEqual(list(version.features) + list(version.groups), [])
        answer = client.lookup(pb.LookupRequest())
        self.assertEqual(answer.digest, version.digest)
        self.assertNotEqual(answer.digest, 0)
        held, = Watch(client).next().holdings
        self.assertEqual((held.model, held.version, held.digest), ('m', 1, version.digest))
        self.assertEqual((held.parts, list(held.owned_parts)), (3, [2]))

    def test_an_ordinary_server_is_in_no_parts(self):
        server = Embagd(self.repository.join('source'))
        self.addCleanup(server.stop)
        with Client(server.wait_ready().address) as client:
            self.assertEqual(client.get_server().role, 'server')
            version = client.get_model('m').versions[0]
            self.assertEqual((version.parts, list(version.owned_parts)), (0, []))
            self.assertEqual(client.lookup(pb.LookupRequest()).digest, 0)
            self.assert_refused(client, grpc.StatusCode.INVALID_ARGUMENT, 'part = 1', table='rows',
                                indices=[0], part=1)


class LoadTest(WithParts):
    """Which versions and files a part server accepts."""

    def file(self, name, part=1):
        """Returns the path of a part's file."""
        return os.path.join(self.parts, 'm', '1', f'part-0000{part}-of-0000{PARTS}',
                            name + '.embag')

    def assert_fails(self, *texts, part=f'1/{PARTS}'):
        """Expects the only version to fail with these texts in the log. The server stays up."""
        server = Embagd(self.parts, '--part', part)
        self.addCleanup(server.stop)
        wait_until(lambda: server.find('model_unserved'), SECONDS, 'event=model_unserved')
        for text in texts:
            self.assertIn(text, server.find('model_failed'))
        self.assertIsNone(server.find('ready'))

    def test_versions_of_other_parts_do_not_exist(self):
        self.split('2', 4)
        shutil.copytree(self.repository.join('source', 'm', '1'),
                        os.path.join(self.parts, 'm', '3'))
        server, client = self.serve(f'1/{PARTS}')
        self.assertEqual([version.version for version in client.get_model('m').versions], [1])
        self.assertIsNone(server.find('model_failed'))
        _, client = self.serve('3/4')
        self.assertEqual([version.version for version in client.get_model('m').versions], [2])

    def test_a_new_version_is_served(self):
        _, client = self.serve(f'1/{PARTS}')
        self.split('2', PARTS)
        wait_until(lambda: client.get_model('m').served_version == 2, SECONDS, 'version 2')

    def test_a_file_that_is_corrected_in_place_is_noticed(self):
        _, client = self.serve(f'1/{PARTS}', '--watch-poll-ms', '100')
        self.split('2', PARTS, out=self.repository.join('other'))
        path = self.file('rows').replace(self.parts, self.repository.join('other'))
        path = path.replace('/1/', '/2/')
        with open(path, 'rb') as file:
            right = file.read()
        with open(path, 'r+b') as file:
            file.write(bytes(len(right)))
        os.rename(self.repository.join('other', 'm', '2'), os.path.join(self.parts, 'm', '2'))
        wait_until(lambda: client.get_model('m').versions[0].state == pb.ModelVersion.STATE_FAILED,
                   SECONDS, 'version 2 to fail')
        with open(self.file('rows').replace('/1/', '/2/'), 'r+b') as file:
            file.write(right)
        wait_until(lambda: client.get_model('m').served_version == 2, SECONDS, 'version 2')

    def test_a_part_may_have_no_key(self):
        for name, array in ('few', np.array([[1, 2]], 'f4')), ('few.keys', np.array([5])):
            np.save(self.repository.join('source', 'm', '1', name + '.npy'), array)
        with open(self.repository.join('placement.yaml'), 'a', encoding='utf-8') as file:
            file.write('  - {name: few, placement: rows}\n')
        self.split('2', PARTS)
        for part in range(PARTS):
            _, client = self.serve(f'{part}/{PARTS}')
            self.assertEqual(client.get_model('m').served_version, 2)
            values, result = self.sums(client, 'few', [5], part=part + 1, missing=pb.MISSING_SKIP)
            is_here = part_of_key(5, PARTS) == part
            self.assertEqual(result.missing, int(not is_here))
            self.assertEqual(values.tolist(), [1, 2] if is_here else [0, 0])

    def test_an_ordinary_server_says_what_is_needed(self):
        log = Embagd(self.parts).start_fails()
        self.assertIn('this version is in 3 parts; start servers with --part K/3', log)

    def test_names_a_missing_file(self):
        os.remove(self.file('rows'))
        self.assert_fails('part-00001-of-00003', "table 'rows' is missing")

    def test_names_a_file_of_another_part(self):
        shutil.copy(self.file('rows', 2), self.file('rows'))
        self.assert_fails('rows.embag', 'part 2 of 3')

    def test_names_a_file_that_is_not_listed(self):
        shutil.copy(self.file('rows'), self.file('other'))
        self.assert_fails('other.embag', 'the manifest does not list this file')

    def test_names_a_file_of_another_split(self):
        self.split('1', PARTS, out=self.repository.join('again'))
        rows = os.path.join(self.repository.join('source', 'm', '1'), 'rows.npy')
        np.save(rows, self.rows + 1)
        self.split('1', PARTS, out=self.repository.join('other'))
        shutil.copy(self.file('rows').replace(self.parts, self.repository.join('other')),
                    self.file('rows'))
        self.assert_fails('rows.embag', 'digest')

    def test_names_an_unknown_row_that_the_split_does_not_have(self):
        self.write('parts/m/model.yaml', 'tables: [{name: keyed, unknown_row: 9}]\n')
        self.assert_fails("'keyed'", 'unknown_row 9', 'split')

    def test_refuses_a_wrong_part(self):
        for part in '3/3', '0/0', '1', '1/', '/3', '-1/3', '1/4097', 'x/3', '1/3x', '99999999999/3':
            log = Embagd(self.parts, '--part', part).start_fails()
            self.assertIn('expected K/P or hostname/P', log)

    def test_a_restart_finds_its_tables_in_memory(self):
        directory = make_tmpfs_directory(self)
        flags = ('--resident-dir', directory, '--resident-small-pages', 'allow')
        first = Embagd(self.parts, '--part', f'1/{PARTS}', *flags).wait_ready()
        first.stop()
        server, client = self.serve(f'1/{PARTS}', '--log-level', 'debug', *flags)
        adopted = int(re.search(r'adopted_bytes=(\d+)', server.find('model_loaded')).group(1))
        self.assertGreater(adopted, 0)
        values, _ = self.sums(client, 'rows', [0], part=2)
        np.testing.assert_array_equal(values, self.rows[1])
        values, _ = self.sums(client, 'keyed', [12345], part=2, missing=pb.MISSING_UNKNOWN_ROW)
        np.testing.assert_array_equal(values, self.keyed.values[4])
        wait_until(lambda: server.find('resident_compared'), SECONDS, 'event=resident_compared')
        self.assertIsNone(server.find('resident_differs'))

    def test_a_part_is_served_without_the_repository(self):
        directory = make_tmpfs_directory(self)
        flags = ('--part', f'1/{PARTS}', '--resident-dir', directory, '--resident-small-pages',
                 'allow')
        Embagd(self.parts, *flags).wait_ready().stop()
        os.rename(self.parts, self.parts + '-away')
        self.addCleanup(os.rename, self.parts + '-away', self.parts)
        server, client = self.serve(f'1/{PARTS}', *flags[2:])
        self.assertIsNotNone(server.find('serving_from_resident'))
        values, _ = self.sums(client, 'rows', [0], part=2)
        np.testing.assert_array_equal(values, self.rows[1])
        values, _ = self.sums(client, 'keyed', [12345], part=2, missing=pb.MISSING_UNKNOWN_ROW)
        np.testing.assert_array_equal(values, self.keyed.values[4])


if __name__ == '__main__':
    unittest.main()
