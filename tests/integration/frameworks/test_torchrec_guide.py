"""Runs the programs and commands of client/python/PYTORCH.md as they are printed there, and takes
the time of each step."""

import os
import re
import subprocess
import sys
import time
import unittest

import guide
import served
from embagd_process import Embagd, wait_until
from served import OwnServerTest

try:
    import torch  # noqa: F401
    import torchrec  # noqa: F401
except ImportError as error:
    raise unittest.SkipTest('TorchRec cannot be imported: %s' % error) from error

PAGE = os.path.join('client', 'python', 'PYTORCH.md')
ADDRESS = '127.0.0.1:8600'
SECONDS_MAX = 180
IMPORT = os.path.join(os.path.dirname(sys.executable), 'embag-import')


class Guide(OwnServerTest):
    """The page, from training to predictions with a server."""

    def setUp(self):
        super().setUp()
        if not os.path.exists(IMPORT):
            self.skipTest('embag-import is not installed')
        self.blocks = guide.blocks(guide.read(PAGE))
        self.server = None
        self.seconds = 0.0
        # The programs use the interpreter of the tests, and the tools of the build.
        tools = self.repository.join('.tools')
        os.mkdir(tools)
        for name, path in (('python', sys.executable), ('embag-import', IMPORT)):
            with open(os.path.join(tools, name), 'w', encoding='utf-8') as file:
                file.write('#!/bin/sh\nexec %s "$@"\n' % path)
            os.chmod(os.path.join(tools, name), 0o755)
        self.environment = {**os.environ, 'PATH': tools + os.pathsep + os.environ['PATH']}

    def write_programs(self):
        """Writes the page's programs; those that call the server need its address."""
        for block in self.blocks:
            if block.language == 'python':
                text = block.text
                if self.server is not None:
                    text = text.replace(ADDRESS, self.server.address)
                with open(self.repository.join(block.word), 'w', encoding='utf-8') as file:
                    file.write(text)

    def serve_command(self, command):
        """Runs the command that starts the server, on a free port."""
        found = re.fullmatch(r'embagd --model-repository (\S+) --listen %s &' % re.escape(ADDRESS),
                             command)
        self.assertIsNotNone(found, command)
        self.server = Embagd(self.repository.join(found.group(1)), '--watch-poll-ms', '1000')
        self.addCleanup(self.server.stop)
        self.server.wait_ready()
        self.write_programs()

    def run_command(self, command):
        """Runs one command and returns its output. Prints its seconds."""
        begin = time.monotonic()
        output = ''
        if command.endswith('&'):
            self.serve_command(command)
        else:
            done = subprocess.run(
                ['bash', '-euo', 'pipefail', '-c', command], cwd=self.repository.path,
                env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL, timeout=SECONDS_MAX, check=False, text=True)
            output = done.stdout
            self.assertEqual(done.returncode, 0, '%s\n%s' % (command, output))
        seconds = time.monotonic() - begin
        self.seconds += seconds
        print('\n%6.1f s  %s' % (seconds, command), end='', flush=True)
        return output

    def manifest(self, model):
        """Returns the manifest of a model's first version, with a digest of each table."""
        path = self.repository.join(model, '1', 'manifest.yaml')
        with open(path, encoding='utf-8') as file:
            return file.read()

    def test_page_leads_from_training_to_predictions(self):
        self.write_programs()
        outputs = {}
        for block in self.blocks:
            if block.language != 'sh' or block.word == 'install':
                continue
            for command in block.text.splitlines():
                outputs[command] = self.run_command(command)
            if block.word == 'plain' and 'models/plain' in block.text:
                wait_until(lambda: 'model=plain' in self.server.log, 60, 'the model "plain"')
        print('\n%6.1f s  in all' % self.seconds, flush=True)
        # Earlier steps work again beside the second model.
        self.assertIn('all within their bounds', self.run_command('python compare.py'))
        self.assertLessEqual(self.seconds, SECONDS_MAX)
        manifests = {self.manifest(model)
                     for model in ('models/dlrm', 'more/distributed', 'more/found')}
        self.assertEqual(len(manifests), 1, manifests)
        self.assertIn('t_cat_25.safetensors', manifests.pop())
        self.assertIn('all within their bounds', outputs['python compare.py'])
        self.assertIn('all within their bounds', outputs['python plain_predict.py'])
        self.assertIn('both in one call: (100, 32)', outputs['python plain_predict.py'])
        predicted = outputs['python predict.py']
        difference = float(re.search(r'500 predictions: (\S+)', predicted).group(1))
        self.assertLess(difference, 1e-5)
        # Two dense parts of two layers each: 13 to 64 to 16, and 368 to 64 to 1.
        self.assertIn('parameters left: %d' % (
            14 * 64 + 65 * 16 + (16 + 27 * 26 // 2 + 1) * 64 + 65), predicted)
