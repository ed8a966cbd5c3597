"""Repositories that cannot be served, in whole or in part. The start fails with one line that names
the file and the error, or a lower version is served instead."""

import json
import os
import struct
import unittest

import numpy as np

from embag.v1 import embedding_bag_pb2 as pb
from embagd_process import Embagd
from rpc import Client
from served import OwnServerTest, spec_table
from table_files import safetensors_bytes, write_model

GOOD = pb.LookupRequest(model='spec', queries=[
    pb.BagQuery(table='emb_table', indices=[0, 4], num_bags=1)])


def npy_bytes(header, data, magic=b'\x93NUMPY', version=(1, 0), size=None):
    """Builds a .npy file by hand."""
    text = header.encode() if isinstance(header, str) else header
    text += b' ' * (-(len(text) + 11) % 64) + b'\n'
    size = len(text) if size is None else size
    width = '<H' if version[0] == 1 else '<I'
    return magic + bytes(version) + struct.pack(width, size) + text + data


def npy_header(descr="'<f4'", order='False', shape='(5, 2)', more=''):
    """Returns the dict literal of an npy header."""
    return "{'descr': %s, 'fortran_order': %s, 'shape': %s, %s}" % (descr, order, shape, more)


DATA = spec_table().raw.tobytes()

# The contents of broken npy files, each with a pattern for the reason that the log must give.
BROKEN_NPY = {
    'empty file': (b'', r'not an npy file'),
    'magic': (npy_bytes(npy_header(), DATA, magic=b'\x93NUMPZ'), r'not an npy file'),
    'version 4': (npy_bytes(npy_header(), DATA, version=(4, 0)), r'npy version 4\.0'),
    'version 0': (npy_bytes(npy_header(), DATA, version=(0, 0)), r'npy version 0\.0'),
    'header size past the file': (npy_bytes(npy_header(), DATA, size=65535),
                                  r'65535 bytes reaches past the end'),
    'header size of 4 GiB': (npy_bytes(npy_header(), DATA, version=(2, 0), size=2**32 - 1),
                             r'4294967295 bytes reaches past the end'),
    'header size 0': (npy_bytes(npy_header(), DATA, size=0), r"expected '{'"),
    'no dict': (npy_bytes('5, 2', DATA), r"expected '{'"),
    'dict cut short': (npy_bytes("{'descr': '<f4', 'fortran_order': False", DATA),
                       r"expected ',' or '}'"),
    'no descr': (npy_bytes("{'fortran_order': False, 'shape': (5, 2), }", DATA),
                 r'one of .* is missing'),
    'no order': (npy_bytes("{'descr': '<f4', 'shape': (5, 2), }", DATA),
                 r'one of .* is missing'),
    'no shape': (npy_bytes("{'descr': '<f4', 'fortran_order': False, }", DATA),
                 r'one of .* is missing'),
    'a field twice': (npy_bytes(npy_header(more="'descr': '<f4', "), DATA), r'given twice'),
    'an unknown field': (npy_bytes(npy_header(more="'more': 1, "), DATA), r'unknown field'),
    'big-endian': (npy_bytes(npy_header("'>f4'"), DATA), r'big-endian'),
    'bool': (npy_bytes(npy_header("'|b1'"), DATA), r'a boolean'),
    'complex': (npy_bytes(npy_header("'<c8'"), DATA), r'a complex number'),
    'object': (npy_bytes(npy_header("'|O'"), DATA), r'a Python object'),
    'string': (npy_bytes(npy_header("'<U1'"), DATA), r'a string'),
    'structured': (npy_bytes(npy_header("[('a', '<f4')]"), DATA), r'several fields'),
    'void': (npy_bytes(npy_header("'|V2'"), DATA), r'raw bytes'),
    'float of 16 bytes': (npy_bytes(npy_header("'<f16'"), DATA), r"'<f16' is not an element type"),
    'no type at all': (npy_bytes(npy_header("''"), DATA), r"'' is not an element type"),
    'Fortran order': (npy_bytes(npy_header(order='True'), DATA), r'column-major order'),
    'order is no bool': (npy_bytes(npy_header(order='0'), DATA),
                         r'fortran_order.*expected True or False'),
    'rank 0': (npy_bytes(npy_header(shape='()'), DATA[:4]), r'a scalar'),
    'negative dim': (npy_bytes(npy_header(shape='(-5, 2)'), DATA), r'dimension is negative'),
    'dim is no number': (npy_bytes(npy_header(shape="('5', 2)"), DATA), r'expected a number'),
    'rows of no value': (npy_bytes(npy_header(shape='(5, 0)'), b''),
                         r'rows of shape \(5, 0\) hold no values'),
    'product overflows': (npy_bytes(npy_header(shape='(4294967296, 4294967296)'), DATA),
                          r'larger than 2\^64'),
    'dim overflows': (npy_bytes(npy_header(shape='(18446744073709551621, 2)'), DATA),
                      r'dimension is above 2\^64'),
    'rank 9': (npy_bytes(npy_header(shape='(5, 2, 1, 1, 1, 1, 1, 1, 1)'), DATA),
               r'more than 8 dimensions'),
    'more rows than data': (npy_bytes(npy_header(shape='(6, 2)'), DATA), r'cut short.*\(6, 2\)'),
    'data cut short': (npy_bytes(npy_header(), DATA[:-1]), r'cut short, 39 bytes'),
    'data too long': (npy_bytes(npy_header(), DATA + b'\0'), r'too long, 41 bytes'),
    'no data': (npy_bytes(npy_header(), b''), r'cut short, 0 bytes'),
    'NUL in the header': (npy_bytes(npy_header().replace('descr', 'des\0r'), DATA),
                          r'string is neither a key'),
}


def entry(dtype='F32', shape=(5, 2), offsets=(0, 40)):
    """Returns one tensor's entry in a safetensors header."""
    return {'dtype': dtype, 'shape': list(shape), 'data_offsets': list(offsets)}


def tensors(data=DATA, **entries):
    """Builds a safetensors file by hand."""
    return safetensors_bytes(entries, data)


def raw_header(text, data=DATA):
    """Builds a safetensors file whose header is this text."""
    return struct.pack('<Q', len(text)) + text + data


GOOD_HEADER = json.dumps({'emb_table': entry()}).encode()
BROKEN_SAFETENSORS = {
    'empty file': (b'', r"ends inside the header's length"),
    'seven bytes': (b'\0' * 7, r"ends inside the header's length"),
    'header of 2^60 bytes': (struct.pack('<Q', 2**60) + GOOD_HEADER + DATA,
                             r'1152921504606846976 bytes is longer than'),
    'header past the file': (struct.pack('<Q', 10000) + GOOD_HEADER + DATA,
                             r'10000 bytes reaches past the end'),
    'header of 0 bytes': (struct.pack('<Q', 0) + DATA, r'not start with'),
    'no JSON': (raw_header(b'{nothing}'), r'not valid JSON.*expected'),
    'an array': (raw_header(b'[]'), r'not start with'),
    'JSON cut short': (raw_header(GOOD_HEADER[:-1]), r'not valid JSON: it ends too early'),
    'bytes behind the JSON': (raw_header(GOOD_HEADER + b'x'),
                              r'not valid JSON: more text after the end'),
    'not UTF-8': (raw_header(GOOD_HEADER.replace(b'emb_table', b'emb\xfftable')),
                  r'not valid JSON: an invalid UTF-8 character'),
    'deep nesting': (raw_header(b'{"a":' * 100000 + b'1' + b'}' * 100000),
                     r'not valid JSON: arrays and objects are nested more than 64 deep'),
    'a name twice': (raw_header(GOOD_HEADER[:-1] + b', ' + GOOD_HEADER[1:]),
                     r'a duplicate'),
    'no dtype': (tensors(emb_table={'shape': [5, 2], 'data_offsets': [0, 40]}),
                 r"'dtype' is missing"),
    'no shape': (tensors(emb_table={'dtype': 'F32', 'data_offsets': [0, 40]}),
                 r"'shape' is missing"),
    'no offsets': (tensors(emb_table={'dtype': 'F32', 'shape': [5, 2]}),
                   r"'data_offsets' is missing"),
    'bool': (tensors(emb_table=entry('BOOL', (40,))), r"'BOOL' is not an element type"),
    'unknown dtype': (tensors(emb_table=entry('F31')), r"'F31' is not an element type"),
    'dtype is a number': (tensors(emb_table=entry(4)), r"'dtype' is missing or not a string"),
    'lower case': (tensors(emb_table=entry('f32')), r"'f32' is not an element type"),
    'shape is a number': (tensors(emb_table={**entry(), 'shape': 10}),
                          r"'shape' is missing or not an array"),
    'negative dim': (tensors(emb_table=entry(shape=(-5, -2))),
                     r'shape.*entry 0 is not an integer from'),
    'dim is a fraction': (tensors(emb_table=entry(shape=(5.0, 2))),
                          r'shape.*entry 0 is not an integer'),
    'rank 0': (tensors(DATA[:4], emb_table=entry(shape=(), offsets=(0, 4))), r'a scalar'),
    'rank 9': (tensors(emb_table=entry(shape=(5, 2, 1, 1, 1, 1, 1, 1, 1))),
               r'more than 8 dimensions'),
    'rows of no value': (tensors(b'', emb_table=entry(shape=(5, 0), offsets=(0, 0))),
                         r'rows of shape \(5, 0\) hold no values'),
    'product overflows': (tensors(emb_table=entry(shape=(2**32, 2**32))), r'larger than 2\^64'),
    'shape larger than its range': (tensors(emb_table=entry(shape=(6, 2))),
                                    r'is 40 bytes, but shape \(6, 2\)'),
    'range larger than its shape': (tensors(DATA + bytes(4), emb_table=entry(offsets=(0, 44))),
                                    r'is 44 bytes, but shape \(5, 2\)'),
    'range past the file': (tensors(DATA[:-4], emb_table=entry()), r'past the last of the'),
    'range backwards': (tensors(emb_table=entry(offsets=(40, 0))), r'0 is before the beginning 40'),
    'negative range': (tensors(emb_table=entry(offsets=(-40, 0))), r'data_offsets.*from 0 to'),
    'range of three': (tensors(emb_table=entry(offsets=(0, 20, 40))),
                       r'data_offsets.*array of two'),
    'overlap': (tensors(DATA + DATA[:20], a=entry(), b=entry(offsets=(20, 60))),
                r"'b'.*at 20, .*overlap"),
    'same range twice': (tensors(a=entry(), b=entry()), r"'b'.*at 0, .*overlap"),
    'hole': (tensors(DATA + bytes(4) + DATA, a=entry(), b=entry(offsets=(44, 84))),
             r"'b'.*bytes in between"),
    'hole at the beginning': (tensors(bytes(4) + DATA, a=entry(offsets=(4, 44))),
                              r"'a'.*bytes in between"),
    'bytes behind the last tensor': (tensors(DATA + b'\0', emb_table=entry()),
                                     r'after the last tensor'),
    'empty name': (tensors(**{'': entry()}), r'name .* is empty'),
    'control character in a name': (tensors(**{'a\nb': entry()}), r'control character'),
    'NUL in a name': (tensors(**{'a\0b': entry()}), r'not valid JSON: an invalid escape or NUL'),
}


class BrokenFiles(OwnServerTest):
    """A broken version 2, with or without a good version 1."""

    def write(self, version, name, data):
        """Writes one file of a version."""
        directory = self.repository.join('spec', str(version))
        os.makedirs(directory, exist_ok=True)
        with open(os.path.join(directory, name), 'wb') as file:
            file.write(data)

    def check_alone(self, name, data, reason):
        """Checks that the start fails with one line that names the file and then the reason."""
        self.write(2, name, data)
        log = Embagd(self.repository.path).start_fails()
        lines = [line for line in log.splitlines() if name in line]
        self.assertTrue(lines, log)
        self.assertRegex(lines[0].split(name, 1)[1], reason)

    def test_broken_npy(self):
        for what, (data, reason) in BROKEN_NPY.items():
            with self.subTest(what):
                self.check_alone('emb_table.npy', data, reason)

    def test_broken_safetensors(self):
        for what, (data, reason) in BROKEN_SAFETENSORS.items():
            with self.subTest(what):
                self.check_alone('tables.safetensors', data, reason)

    def test_falls_back_to_the_next_lower_version(self):
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        for number, (data, _) in enumerate(list(BROKEN_NPY.values())[:20:4]):
            self.write(number + 2, 'emb_table.npy', data)
        server = Embagd(self.repository.path).wait_ready()
        self.addCleanup(server.stop)
        with Client(server.address) as client:
            self.assertEqual(client.lookup(GOOD).version, 1)
            model = client.get_model('spec')
        self.assertEqual(model.served_version, 1)
        states = {v.version: v.state for v in model.versions}
        self.assertEqual(states, {1: 3, 2: 5, 3: 5, 4: 5, 5: 5, 6: 5})
        for version in model.versions:
            self.assertEqual(bool(version.error), version.state == 5)
            if version.error:
                self.assertIn('emb_table.npy', version.error)
        self.assertGreaterEqual(server.log.count('emb_table.npy'), 5)

    def test_serves_the_highest_version_and_numbers_by_value(self):
        for version in (1, 9, 10):
            write_model(self.repository.path, 'spec', version, [spec_table()])
        server = Embagd(self.repository.path).wait_ready()
        self.addCleanup(server.stop)
        with Client(server.address) as client:
            self.assertEqual(client.lookup(GOOD).version, 10)

    def test_ignores_files_and_directories_that_are_not_versions(self):
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        for name in ('.2', '2.tmp', 'latest', '-3', '3x'):
            os.makedirs(self.repository.join('spec', name))
        os.makedirs(self.repository.join('.hidden', '1'))
        with open(self.repository.join('README'), 'w', encoding='utf-8') as file:
            file.write('not a model')
        server = Embagd(self.repository.path).wait_ready()
        self.addCleanup(server.stop)
        with Client(server.address) as client:
            self.assertEqual([m.name for m in client.list_models().models], ['spec'])
            self.assertEqual(client.lookup(GOOD).version, 1)

    def test_one_table_in_two_files(self):
        write_model(self.repository.path, 'spec', 2, [spec_table()])
        self.write(2, 'more.safetensors', tensors(emb_table=entry()))
        log = Embagd(self.repository.path).start_fails()
        self.assertRegex(log, r'emb_table')

    def test_other_broken_files_beside_a_good_one(self):
        for name, reason in (('emb_table.keys.npy', 'not an npy file'),
                             ('a-00000-of-00002.npy', 'not an npy file'),
                             ('a.embag', 'not a packed table'),
                             ('m.safetensors.index.json', 'valid JSON')):
            with self.subTest(name):
                write_model(self.repository.path, 'spec', 2, [spec_table()])
                self.check_alone(name, b'anything', reason)
                self.repository.remove()

    def test_tables_that_are_not_complete(self):
        for name, reason in (('a-00000-of-00002.npy', 'piece 1 of the 2 .* is missing'),
                             ('a.keys.npy', 'keys without rows'),
                             ('emb_table.keys.npy', 'one dimension of int64')):
            with self.subTest(name):
                write_model(self.repository.path, 'spec', 2, [spec_table()])
                self.check_alone(name, npy_bytes(npy_header(), DATA), reason)
                self.repository.remove()

    def test_npy_of_every_version(self):
        for version in ((1, 0), (2, 0), (3, 0)):
            self.write(version[0], 'emb_table.npy', npy_bytes(npy_header(), DATA, version=version))
            server = Embagd(self.repository.path).wait_ready()
            with Client(server.address) as client:
                result, = client.lookup(GOOD).results
                want = spec_table().raw[[0, 4]].sum(0)
                np.testing.assert_array_equal(np.frombuffer(result.values, '<f4'), want)
            server.stop()


class FailedStart(OwnServerTest):
    """Other errors that keep a server from starting."""

    def fails(self, pattern, *flags, repository=None, **keywords):
        """Checks that the start fails with a line that matches."""
        server = Embagd(repository or self.repository.path, *flags, **keywords)
        self.assertRegex(server.start_fails(), pattern)

    def test_a_repository_that_is_not_there(self):
        missing = self.repository.join('missing')
        self.fails(r'missing', repository=missing)

    def test_a_repository_that_is_a_file(self):
        path = self.repository.join('file')
        with open(path, 'wb'):
            pass
        self.fails(r'file', repository=path)

    def test_an_empty_repository(self):
        self.fails(r'(?i)no model')

    def test_a_model_without_versions(self):
        os.makedirs(self.repository.join('spec'))
        self.fails(r'spec')

    def test_a_version_without_tables(self):
        os.makedirs(self.repository.join('spec', '1'))
        self.fails(r'spec/1.*no table')

    def test_a_file_without_tables(self):
        os.makedirs(self.repository.join('spec', '1'))
        with open(self.repository.join('spec', '1', 'a.safetensors'), 'wb') as file:
            file.write(tensors(b''))
        self.fails(r'spec/1.*no table')

    def test_a_directory_that_cannot_be_read(self):
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        os.chmod(self.repository.path, 0o755)
        os.chmod(self.repository.join('spec', '1'), 0)
        self.addCleanup(os.chmod, self.repository.join('spec', '1'), 0o700)
        user = 65534 if os.geteuid() == 0 else None  # root reads every directory
        try:
            self.fails(r'spec/1.*[Pp]ermission', user=user)
        except PermissionError:
            self.skipTest('other users cannot execute the server')

    def test_a_table_larger_than_memory(self):
        """The table is a sparse file of 8 TiB."""
        directory = self.repository.join('spec', '1')
        os.makedirs(directory)
        header = npy_bytes(npy_header(shape='(%d, 4)' % 2**39), b'')
        path = os.path.join(directory, 'emb_table.npy')
        with open(path, 'wb') as file:
            file.write(header)
            try:
                file.truncate(len(header) + 2**43)
            except OSError:
                self.skipTest('the file system has no sparse files of this size')
        self.fails(r'spec/1.*need %d bytes of memory' % 2**43)

    def test_a_port_in_use_by_another_program(self):
        import socket
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        with socket.create_server(('127.0.0.1', 0)) as other:
            address = '127.0.0.1:%d' % other.getsockname()[1]
            self.fails(r'%s.*in use' % address, listen=(address,))

    def test_a_port_in_use_by_another_embagd(self):
        first = self.serve()
        self.fails(r'%s.*in use' % first.address, listen=(first.address,))
        self.fails(r'%s.*in use' % first.address, '--loops', '2', listen=(first.address,))
        self.assertTrue(self.connect(first).lookup(GOOD).results)

    def test_a_unix_socket_in_use(self):
        path = self.repository.join('socket')
        first = self.serve(listen=('127.0.0.1:0', 'unix:' + path))
        self.fails(r'socket.*in use', listen=('unix:' + path,))
        with Client('unix:' + path) as client:
            self.assertTrue(client.lookup(GOOD).results)
        self.assertFalse(first.has_ended())

    def test_a_unix_socket_left_behind_is_replaced(self):
        path = self.repository.join('socket')
        first = self.serve(listen=('127.0.0.1:0', 'unix:' + path))
        first.kill()
        second = Embagd(self.repository.path, listen=('unix:' + path,)).wait_ready()
        self.addCleanup(second.stop)
        with Client('unix:' + path) as client:
            self.assertTrue(client.lookup(GOOD).results)

    @unittest.skipUnless(os.path.exists('/proc/net/if_inet6'), 'no IPv6 here')
    def test_an_address_of_ipv6(self):
        server = self.serve(listen=('[::1]:0',))
        with Client('[::1]:%d' % server.port) as client:
            self.assertTrue(client.lookup(GOOD).results)

    def test_invalid_addresses(self):
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        for bad in ('127.0.0.1', '127.0.0.1:x', '127.0.0.1:65536', ':', 'unix:', '',
                    'unix:' + 'x' * 200, '[::1', '256.1.1.1:1', '127.0.0.1:-1'):
            with self.subTest(bad):
                self.fails(r'listen|address', listen=(bad,))

    def test_invalid_flags(self):
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        for flags in (('--nothing',), ('--loops', '0'), ('--loops', 'x'), ('--threads', '-1'),
                      ('--queries-max', '0'), ('--request-bytes-max', '99999999999999999999'),
                      ('--log-level', 'loud'), ('--isa', 'z80'), ('--config', '/nowhere.yaml'),
                      ('stray',), ('--loops',)):
            with self.subTest(flags):
                self.fails(flags[0].lstrip('-').replace('-', '.'), *flags)

    def test_invalid_environment_variables(self):
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        self.fails(r'EMBAG_LOOPS', environment={'EMBAG_LOOPS': 'many'})
        self.fails(r'EMBAG_LOPS', environment={'EMBAG_LOPS': '1'})

    def test_invalid_configuration_files(self):
        write_model(self.repository.path, 'spec', 1, [spec_table()])
        for text in ('lops: 1\n', 'loops: many\n', 'loops: [1\n', 'loops: 0\n', '\0'):
            path = self.repository.join('embagd.yaml')
            with open(path, 'w', encoding='utf-8') as file:
                file.write(text)
            with self.subTest(text):
                self.fails(r'embagd\.yaml', '--config', path)

    def test_a_configuration_file(self):
        path = self.repository.join('embagd.yaml')
        with open(path, 'w', encoding='utf-8') as file:
            file.write('queries_max: 7\nloops: 1\n')
        client = self.connect(self.serve('--config', path))
        limits = {limit.name: limit.value for limit in client.get_server().limits}
        self.assertEqual(limits['queries_max'], 7)


if __name__ == '__main__':
    unittest.main()
