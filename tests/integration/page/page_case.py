"""What the tests of the status page share: a browser, and what must hold wherever the page is
looked at."""

import json
import os
import unittest

from page_browser import Browser, Tab
from page_server import StatusServer

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
WIDTHS = (1280, 400)
PICTURES = {}   # the folder for them, set by page_test.py


def read(path):
    """A file's text."""
    with open(path, encoding='utf-8') as file:
        return file.read()


class PageTest(unittest.TestCase):
    """A browser for all tests, and a server of its own for each."""

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def serve(self, make):
        """A server that is gone after the test."""
        server = StatusServer(make)
        self.addCleanup(server.close)
        return server

    def open(self, address, **options):
        """A tab that shows what a server has answered."""
        tab = Tab(self.browser, address, **options)
        self.addCleanup(tab.close)
        tab.wait('document.querySelector("#link")?.className === "live"')
        return tab

    def check_looks(self, tab, name):
        """At each width nothing overlaps, is cut off or hard to read; takes pictures."""
        for width in WIDTHS:
            tab.resize(width)
            tab.wait('innerWidth === %d' % width)
            self.assertEqual(tab.value(read(os.path.join(HERE, 'page_checks.js'))), [])
            tab.shoot(os.path.join(PICTURES['folder'], '%s-%d.png' % (name, width)))

    def check_quiet(self, tab, address):
        """No complaints on the console, no requests to anywhere else."""
        self.assertEqual(tab.errors, [])
        others = [url for url in tab.requests
                  if not url.startswith((address, 'data:image/svg+xml,'))]
        self.assertEqual(others, [])

    def rows(self, tab, section):
        """The texts of a list's rows, by column."""
        return tab.value('[...document.querySelectorAll("#%s tbody tr")].map(row => '
                         'Object.fromEntries([...row.cells].map(c => '
                         '[c.dataset.label, c.textContent.replace(/\\u00a0/g, " ")])))' % section)

    @staticmethod
    def quoted(text):
        """A text as JavaScript has it."""
        return json.dumps(text)
