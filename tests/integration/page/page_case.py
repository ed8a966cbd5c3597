"""Base of the tests of the status page: a browser, and checks for every view of the page."""

import json
import os
import unittest

from page_browser import Browser, Tab
from page_server import StatusServer

HERE = os.path.dirname(os.path.abspath(__file__))
TESTS = os.path.dirname(os.path.dirname(HERE))
WIDTHS = (1280, 400)
PICTURES = {}   # the folder for screenshots, set by page_test.py


def read(path):
    """Returns a file's text."""
    with open(path, encoding='utf-8') as file:
        return file.read()


class PageTest(unittest.TestCase):
    """One browser for all tests, and a server for each."""

    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()

    @classmethod
    def tearDownClass(cls):
        cls.browser.close()

    def serve(self, make):
        """Starts a server that is stopped after the test."""
        server = StatusServer(make)
        self.addCleanup(server.close)
        return server

    def open(self, address, **options):
        """Opens a tab and waits until it shows a server's status."""
        tab = Tab(self.browser, address, **options)
        self.addCleanup(tab.close)
        tab.wait('document.querySelector("#link")?.className === "live"')
        return tab

    def check_looks(self, tab, name):
        """Checks at each width that nothing overlaps, is cut off or is hard to read; takes
        screenshots."""
        for width in WIDTHS:
            tab.resize(width)
            tab.wait('innerWidth === %d' % width)
            self.assertEqual(tab.value(read(os.path.join(HERE, 'page_checks.js'))), [])
            tab.shoot(os.path.join(PICTURES['folder'], '%s-%d.png' % (name, width)))

    def check_quiet(self, tab, address):
        """Checks that the console has no messages and that no request went elsewhere."""
        self.assertEqual(tab.errors, [])
        others = [url for url in tab.requests
                  if not url.startswith((address, 'data:image/svg+xml,'))]
        self.assertEqual(others, [])

    def rows(self, tab, section):
        """Returns the rows of a list of the page, each as a dict of texts by column."""
        return tab.value('[...document.querySelectorAll("#%s tbody tr")].map(row => '
                         'Object.fromEntries([...row.cells].map(c => '
                         '[c.dataset.label, c.textContent.replace(/\\u00a0/g, " ")])))' % section)

    @staticmethod
    def quoted(text):
        """Returns a text as a JavaScript literal."""
        return json.dumps(text)
