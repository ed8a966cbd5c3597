"""Untrusted pickles: the names in them are refused or stay names, and nothing is executed."""

import builtins
import collections
import copyreg
import os
import pickle
import struct
import subprocess
import tempfile
import unittest

from embag.importer import unpickle
from embag.importer.source import CheckpointError
from embag.importer.unpickle import Global, Instance, allow, read_pickle

NOTHING = allow({})
KNOWN = allow({'torch': frozenset({'Size', 'float32'}), 'collections': frozenset({'OrderedDict'}),
               'builtins': frozenset({'getattr'})})
SIZE = b'ctorch\nSize\n'


class Calls:
    """Is pickled as a call."""

    def __init__(self, function, *args, state=None):
        self.reduced = (function, args) if state is None else (function, args, state)

    def __reduce__(self):
        return self.reduced


class PlainData(unittest.TestCase):
    """Pickles without classes, and with known ones."""

    def test_plain_values_of_every_protocol_are_read(self):
        value = {'a': [1, 255, 65535, -1, 2**31 - 1, 2**62, -2**63, 0.5, None, True, False],
                 3: ('x', (), (1,), (1, 2), (1, 2, 3), (1, 2, 3, 4)), 'text': 'é' * 300,
                 'empty': [[], {}, ''], 'more': list(range(2000))}
        for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
            self.assertEqual(read_pickle(pickle.dumps(value, protocol), NOTHING), value)

    def test_bytes_and_shared_values_are_read(self):
        shared = ['x']
        value = read_pickle(pickle.dumps([shared, shared, b'a', b'b' * 300], 4), NOTHING)
        self.assertEqual(value[2:], [b'a', b'b' * 300])
        self.assertIs(value[0], value[1])

    def test_a_known_class_stays_a_name(self):
        value = read_pickle(b'\x80\x02' + SIZE + b'K\x02K\x03\x86\x85R.', KNOWN)
        self.assertEqual((value.cls, value.args, value.state), (Global('torch', 'Size'),
                                                                ((2, 3),), None))

    def test_an_ordered_dict_is_a_dict(self):
        pickled = pickle.dumps(collections.OrderedDict(a=1, b=2), 2)
        self.assertEqual(read_pickle(pickled, KNOWN), {'a': 1, 'b': 2})

    def test_a_state_is_kept_and_not_set(self):
        value = read_pickle(b'\x80\x02' + SIZE + b')\x81}X\x01\x00\x00\x00aK\x01sb.', KNOWN)
        self.assertIsInstance(value, Instance)
        self.assertEqual(value.state, {'a': 1})

    def test_getattr_is_a_name_that_nothing_calls(self):
        value = read_pickle(pickle.dumps(Calls(getattr, 'text', '__class__')), KNOWN)
        self.assertEqual(value.cls, Global('builtins', 'getattr'))
        self.assertEqual(value.args, ('text', '__class__'))

    def test_a_persistent_id_is_given_to_the_caller(self):
        self.assertEqual(read_pickle(b'\x80\x02K\x05Q.', NOTHING, lambda given: given + 1), 6)


class Malicious(unittest.TestCase):
    """Pickles that would run something."""

    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.witness = os.path.join(scratch.name, 'ran')
        self.command = 'touch ' + self.witness

    def tearDown(self):
        self.assertFalse(os.path.exists(self.witness), 'a pickle ran a command')

    def check_refused(self, pickled, name, allowed=KNOWN):
        """Checks that a pickle is refused, and that the error names the class."""
        with self.assertRaisesRegex(CheckpointError, name):
            read_pickle(pickled, allowed)

    def test_the_witness_would_see_a_command(self):
        pickle.loads(pickle.dumps(Calls(os.system, self.command)))
        self.assertTrue(os.path.exists(self.witness))
        os.remove(self.witness)

    def test_calls_are_refused_by_name(self):
        calls = [(Calls(os.system, self.command), 'posix.system'),
                 (Calls(builtins.eval, f'open({self.witness!r}, "w")'), 'builtins.eval'),
                 (Calls(builtins.exec, f'open({self.witness!r}, "w")'), 'builtins.exec'),
                 (Calls(open, self.witness, 'w'), 'io.open'),
                 (Calls(subprocess.check_output, ['touch', self.witness]),
                  'subprocess.check_output'),
                 (Calls(builtins.__import__, 'os'), 'builtins.__import__'),
                 (Calls(copyreg._reconstructor, object, object, None), 'copyreg._reconstructor')]
        for call, name in calls:
            for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
                with self.subTest(name, protocol=protocol), self.assertRaises(CheckpointError):
                    read_pickle(pickle.dumps(call, protocol), KNOWN)
            with self.subTest(name):
                self.check_refused(pickle.dumps(call, 4), name)

    def test_calls_inside_of_other_values_are_refused(self):
        call = Calls(os.system, self.command)
        for value in ([call], {'a': (1, call)}, {'k': {'k': [[call]]}},
                      collections.OrderedDict(a=call),
                      Calls(collections.OrderedDict, state={'a': call})):
            self.check_refused(pickle.dumps(value, 4), 'posix.system')

    def test_names_that_are_made_from_parts_are_refused(self):
        def stack(module, name):
            return b'\x80\x04\x8c%c%s\x8c%c%s\x93.' % (len(module), module, len(name), name)

        self.check_refused(stack(b'os', b'system'), 'os.system')
        self.check_refused(stack(b'torch', b'Size.__class__'), r'torch\.Size\.__class__')
        self.check_refused(stack(b'torch.Size', b'__init__'), r'torch\.Size\.__init__')
        self.check_refused(stack(b'torch', b'hub.load'), 'torch.hub.load')
        self.check_refused(stack(b'torch.serialization', b'os.system'), 'os.system')
        self.check_refused(b'\x80\x04K\x01K\x02\x93.', 'not text')
        self.check_refused(b'\x80\x04}]\x93.', 'not text')
        self.check_refused(b'\x80\x02cos\nsystem\n.', 'os.system')

    def test_a_long_name_is_shown_in_part(self):
        with self.assertRaises(CheckpointError) as raised:
            read_pickle(b'c' + b'm' * 100000 + b'\nname\n.', KNOWN)
        self.assertLess(len(str(raised.exception)), 400)

    def test_known_names_cannot_be_called_with_effect_or_changed(self):
        for tail in (b'}b.',                                         # a state for a class
                     b'N}X\x08\x00\x00\x00__init__K\x01s\x86b.'):   # attributes of a class
            with self.assertRaisesRegex(CheckpointError, 'type'):
                read_pickle(b'\x80\x02' + SIZE + tail, KNOWN)
        for call in (b'\x80\x02K\x01)R.', b'\x80\x02X\x01\x00\x00\x00a)R.', b'\x80\x02])\x81.',
                     SIZE + b'K\x01R.', SIZE + b')R)R.', SIZE + b')\x81)\x81.'):
            with self.assertRaisesRegex(CheckpointError, 'not a known name'):
                read_pickle(call, KNOWN)
        with self.assertRaisesRegex(CheckpointError, 'second state'):
            read_pickle(SIZE + b')\x81}b}b.', KNOWN)

    def test_other_instructions_are_refused(self):
        for code in (b'\x82\x01', b'\x83\x01\x00', b'\x84\x01\x00\x00\x00',    # copyreg extensions
                     b'i', b'o', b'\x92', b'P1\n', b'I1\n', b'L1L\n', b'S"a"\n', b'V\n',
                     b'\x96' + bytes(8), b'\x97', b'\x98', b'\x8f', b'\x90', b'\x91', b'\x8b',
                     b'1', b'2', b'd', b'l', b'F1\n', b'T' + bytes(4), b'U\x00', b'g0\n', b'p0\n',
                     b'\xff', b'\x00'):
            with self.subTest(code=code), self.assertRaisesRegex(CheckpointError, 'instruction'):
                read_pickle(b'\x80\x02' + code + b'.', KNOWN)


class Broken(unittest.TestCase):
    """Pickles that are not complete, or larger than they may be."""

    def check_refused(self, pickled, text, **more):
        """Checks that a pickle is refused."""
        with self.assertRaisesRegex(CheckpointError, text):
            read_pickle(pickled, KNOWN, **more)

    def test_stated_lengths_are_not_believed(self):
        for code in (b'X\xff\xff\xff\xff', b'B\xff\xff\xff\xff', b'\x8d' + b'\xff' * 8,
                     b'\x8e' + b'\xff' * 8, b'\x8d' + struct.pack('<Q', 1 << 40), b'\x8c\x05abc',
                     b'C\x05abc', b'M\x01', b'J\x01', b'G\x01', b'h', b'j\x00', b'\x95\x00',
                     b'\x8a\x09\x00'):
            with self.subTest(code=code):
                self.check_refused(b'\x80\x04' + code, 'ends at byte')

    def test_every_truncation_is_refused(self):
        value = {'a': [1, (2, 'x')], 'b': collections.OrderedDict(c=2**40)}
        for protocol in (2, 4):
            pickled = pickle.dumps(value, protocol)
            self.assertEqual(read_pickle(pickled, KNOWN), value)
            for end in range(len(pickled)):
                with self.assertRaises(CheckpointError):
                    read_pickle(pickled[:end], KNOWN)

    def test_every_changed_byte_is_read_or_refused(self):
        pickled = pickle.dumps({'a': [1, (2, 'x')], 'b': collections.OrderedDict(c=2**40)}, 4)
        for at in range(len(pickled)):
            for byte in range(256):
                changed = pickled[:at] + bytes([byte]) + pickled[at + 1:]
                try:
                    read_pickle(changed, KNOWN)
                except CheckpointError:
                    pass

    def test_values_that_are_not_there_are_refused(self):
        self.check_refused(b'.', 'needs a value')
        self.check_refused(b'(.', 'needs a value')
        self.check_refused(b't.', 'needs a mark')
        self.check_refused(b'h\x00.', 'memo')
        self.check_refused(b'N\x94j\xff\xff\xff\xff.', 'memo')
        self.check_refused(b'NN.', 'leaves 1 values')
        self.check_refused(b'NQ.', 'persistent id')
        self.check_refused(b'N(K\x01e.', 'type')
        self.check_refused(b'](K\x01u.', 'type')
        self.check_refused(b'}(K\x01u.', 'without a value')
        self.check_refused(b'}]K\x01s.', 'list as a key')
        self.check_refused(b'X\x01\x00\x00\x00\xff.', 'UTF-8')

    def test_a_value_nested_in_itself_costs_no_more_than_its_size(self):
        doubled = b')\x94' + b''.join(b'0h%ch%c\x86\x94' % (i, i) for i in range(200)) + b'.'
        read_pickle(doubled, KNOWN)
        with self.assertRaisesRegex(CheckpointError, 'tuple as a key'):
            read_pickle(b'}' + doubled[:-1] + b'Ns.', KNOWN)
        deep = read_pickle(b')' + b'\x85' * 1_000_000 + b'.', KNOWN)
        del deep

    def test_a_memo_index_takes_no_memory(self):
        self.assertIsNone(read_pickle(b'Nr\xff\xff\xff\xff.', KNOWN))

    def test_integers_have_at_most_64_bits_and_a_sign(self):
        self.assertEqual(read_pickle(pickle.dumps(2**64 - 1), KNOWN), 2**64 - 1)
        edge = b'\x8a\x09' + b'\xff' * 8 + b'\x7f.'
        self.assertEqual(read_pickle(edge, KNOWN), 2**71 - 1)
        self.check_refused(b'\x8a\x0a' + bytes(10) + b'.', 'integer of 10 bytes')

    def test_the_largest_pickle_is_read_and_no_larger_one(self):
        text = unpickle.PICKLE_BYTES_MAX - 6
        pickled = b'B' + struct.pack('<I', text) + bytes(text) + b'.'
        self.assertEqual(len(read_pickle(pickled, KNOWN)), text)
        self.check_refused(pickled + b'.', 'expected at most')

    def test_the_largest_number_of_instructions_is_read_and_not_one_more(self):
        repeated = (unpickle.INSTRUCTIONS_MAX - 2) // 2 * b'N0'
        self.assertIsNone(read_pickle(repeated + b'N.', KNOWN))
        self.check_refused(repeated + b'NN0.', 'more than')


if __name__ == '__main__':
    unittest.main()
