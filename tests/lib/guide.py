"""Extracts the programs and commands of documents, for tests that run them as printed."""

import os
import re

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCED = re.compile(r'^```(\w+)(?: (\S+))?\n(.*?)^```$', re.M | re.S)


class Block:
    """A fenced block of a document.

    `word` is the word after the language: a file name, or how to run the block. It is '' if no word
    follows the language.
    """

    def __init__(self, language, word, text):
        self.language, self.word, self.text = language, word or '', text


def read(*names):
    """Returns the text of a document, by its path in the tree."""
    with open(os.path.join(SOURCE, *names), encoding='utf-8') as file:
        return file.read()


def section(text, heading):
    """Returns the text under a heading, up to the next heading of level 1 or 2."""
    found = re.search(r'^(#+) %s$(.*?)(?=^#{1,2} |\Z)' % re.escape(heading), text, re.M | re.S)
    if not found:
        raise AssertionError('the document has no section "%s"' % heading)
    return found.group(2)


def sections(text):
    """Returns the text of all sections of level 2, by heading."""
    return dict(re.findall(r'^## ([^\n]+)\n(.*?)(?=^## |\Z)', text, re.M | re.S))


def blocks(text, *languages):
    """Returns the fenced blocks in these languages, or all if none are given."""
    every = (Block(*found.groups()) for found in FENCED.finditer(text))
    return [block for block in every if not languages or block.language in languages]
