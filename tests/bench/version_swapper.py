"""Versions of a workload's model that are published one a second: each is written beforehand, so
that publishing it is one rename."""

import os
import shutil
import subprocess
import threading
import time

MODEL = 'dlrm-v2'


class VersionSwapper:
    """A repository of the model, whose versions are dropped as soon as another one is served."""

    def __init__(self, make_model, path):
        self.make_model = make_model    # a command, to which version and repository are added
        self.folder = os.path.join(path, MODEL)
        self.hidden = os.path.join(path, '.written')
        self.path = path
        self.renamed = {}               # when a version was published
        self._write(path, 1)
        with open(os.path.join(self.folder, 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 0}\n')

    def _write(self, repository, version):
        subprocess.run([*self.make_model, '--version', str(version), repository], check=True,
                       capture_output=True)

    def prepare(self, versions):
        """Writes versions that are still hidden, and removes those before the last one."""
        for name in os.listdir(self.folder):
            if name.isdigit() and int(name) < versions[0] - 1:
                shutil.rmtree(os.path.join(self.folder, name))
        for version in versions:
            self._write(self.hidden, version)
        os.sync()   # So that the disk is not written to while something is measured.

    def publish(self, version):
        """What was written becomes a version."""
        self.renamed[version] = time.time()
        os.rename(os.path.join(self.hidden, MODEL, str(version)),
                  os.path.join(self.folder, str(version)))

    def publish_each_second(self, versions):
        """The same for all of them, by a thread that has begun."""
        thread = threading.Thread(target=self._run, args=(versions,), daemon=True)
        thread.start()
        return thread

    def _run(self, versions):
        begun = time.monotonic()
        for number, version in enumerate(versions):
            time.sleep(max(begun + number - time.monotonic(), 0))
            self.publish(version)
