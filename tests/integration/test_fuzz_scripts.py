"""tests/fuzz/keep_found.sh, with a stand-in for the fuzz target."""

import os
import shutil
import subprocess
import tempfile
import unittest

SCRIPT = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))),
                      'fuzz', 'keep_found.sh')
# Keeps the inputs that contain "new". SIGNAL and STATUS say how the merge ends.
TARGET = """#!/bin/bash
if [[ $1 == -runs=0 ]]; then
    echo '#9 DONE   cov: 7 ft: 9' >&2
    exit 0
fi
[[ -z ${SIGNAL:-} ]] || kill "-$SIGNAL" "$PPID"
[[ -z ${STATUS:-} ]] || { echo 'out of memory' >&2; exit "$STATUS"; }
for file in "${@: -1}"/*; do
    ! grep -q new "$file" || cp "$file" "${@: -2:1}/$(sha1sum "$file" | head -c 40)"
done
"""


class KeepFound(unittest.TestCase):
    """One target with a corpus, and inputs that runs have found."""

    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        self.corpus = os.path.join(self.root, 'tests/fuzz/corpus/some')
        found = os.path.join(self.root, 'build/fuzz/found/some/corpus')
        os.makedirs(self.corpus)
        os.makedirs(found)
        shutil.copy(SCRIPT, os.path.join(self.root, 'tests/fuzz'))
        target = os.path.join(self.root, 'build/fuzz/fuzz_some')
        with open(target, 'w', encoding='utf-8') as file:
            file.write(TARGET)
        os.chmod(target, 0o755)
        for folder, name, text in ((self.corpus, 'empty', 'named'),
                                   (self.corpus, 'found_old', 'old'),
                                   (self.corpus, 'found_kept', 'new 1'),
                                   (found, 'x', 'new 2'), (found, 'y', 'old 2')):
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
                file.write(text)

    def keep(self, **environment):
        """Runs the script; returns its exit status and messages."""
        done = subprocess.run([os.path.join(self.root, 'tests/fuzz/keep_found.sh'), 'some'],
                              env={**os.environ, 'TMPDIR': self.root, **environment},
                              capture_output=True, text=True, timeout=60, check=False)
        return done.returncode, done.stderr

    def inputs(self):
        """Returns the corpus: texts by name."""
        texts = {}
        for name in os.listdir(self.corpus):
            with open(os.path.join(self.corpus, name), encoding='utf-8') as file:
                texts[name] = file.read()
        return texts

    def test_replaces_what_was_found_by_what_the_merge_keeps(self):
        self.assertEqual(self.keep(), (0, ''))
        kept = self.inputs()
        self.assertEqual(kept.pop('empty'), 'named')
        self.assertEqual(sorted(kept.values()), ['new 1', 'new 2'])
        for name in kept:
            self.assertRegex(name, '^found_[0-9a-f]{12}$')
        self.assertEqual(self.keep(), (0, ''))
        self.assertEqual(self.inputs(), {'empty': 'named', **kept})

    def test_a_merge_that_fails_leaves_the_corpus_as_it_was(self):
        before = self.inputs()
        status, messages = self.keep(STATUS='71')
        self.assertNotEqual(status, 0)
        self.assertIn('out of memory', messages)
        self.assertEqual(self.inputs(), before)

    def test_a_merge_that_is_interrupted_leaves_the_corpus_as_it_was(self):
        before = self.inputs()
        for signal in ('TERM', 'HUP'):
            with self.subTest(signal=signal):
                self.assertNotEqual(self.keep(SIGNAL=signal, STATUS='1')[0], 0)
                self.assertEqual(self.inputs(), before)
