"""Base class for tests of the Python package against the shared server."""

import embag
from served import ServedTest


class PackageTest(ServedTest):
    """A test with a client of the package, `self.embag`, on the shared server."""

    def setUp(self):
        super().setUp()
        self.embag = embag.Client(self.server.address, timeout=60)
        self.addCleanup(self.embag.close)

    def look_up(self, *arguments, **fields):
        """Looks up bags in the specification's model."""
        return self.embag.lookup(*arguments, model='spec', **fields)
