"""Publishes one version of a workload's model per second.

Each version is written beforehand, so that publishing it takes only one rename.
"""

import os
import shutil
import subprocess
import threading
import time

MODEL = 'dlrm-v2'


class VersionSwapper:
    """A repository with the model, which unloads a version as soon as another one is served."""

    def __init__(self, make_model, path):
        self.make_model = make_model    # command, to which version and repository are appended
        self.folder = os.path.join(path, MODEL)
        self.hidden = os.path.join(path, '.written')
        self.path = path
        self.renamed = {}               # publish times by version
        self._write(path, 1)
        with open(os.path.join(self.folder, 'model.yaml'), 'w', encoding='utf-8') as file:
            file.write('versions: {keep: 1, keep_s: 0}\n')

    def _write(self, repository, version):
        subprocess.run([*self.make_model, '--version', str(version), repository], check=True,
                       capture_output=True)

    def prepare(self, versions):
        """Writes versions to a hidden folder, and removes all but the last published one."""
        for name in os.listdir(self.folder):
            if name.isdigit() and int(name) < versions[0] - 1:
                shutil.rmtree(os.path.join(self.folder, name))
        for version in versions:
            self._write(self.hidden, version)
        os.sync()   # So that no data is written to disk during a measurement.

    def publish(self, version):
        """Publishes a version that was written before."""
        self.renamed[version] = time.time()
        os.rename(os.path.join(self.hidden, MODEL, str(version)),
                  os.path.join(self.folder, str(version)))

    def publish_each_second(self, versions):
        """Starts a thread that publishes one of the versions each second. Returns the thread."""
        thread = threading.Thread(target=self._run, args=(versions,), daemon=True)
        thread.start()
        return thread

    def _run(self, versions):
        begun = time.monotonic()
        for number, version in enumerate(versions):
            time.sleep(max(begun + number - time.monotonic(), 0))
            self.publish(version)
