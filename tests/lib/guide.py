"""The documents' programs and commands, for tests that run them as they are printed there."""

import os
import re

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
FENCED = re.compile(r'^```(\w+)(?: (\S+))?\n(.*?)^```$', re.M | re.S)


class Block:
    """A fenced block: its language, the word behind that (a file's name, or how it is run) or '',
    and its text."""

    def __init__(self, language, word, text):
        self.language, self.word, self.text = language, word or '', text


def read(*names):
    """A document, by its path in the tree."""
    with open(os.path.join(SOURCE, *names), encoding='utf-8') as file:
        return file.read()


def section(text, heading):
    """What is under a heading, up to the next one of its level or of a higher one."""
    found = re.search(r'^(#+) %s$(.*?)(?=^#{1,2} |\Z)' % re.escape(heading), text, re.M | re.S)
    if not found:
        raise AssertionError('there is no section "%s"' % heading)
    return found.group(2)


def sections(text):
    """All sections below the title, by heading."""
    return dict(re.findall(r'^## ([^\n]+)\n(.*?)(?=^## |\Z)', text, re.M | re.S))


def blocks(text, *languages):
    """The fenced blocks, of these languages or of all."""
    every = (Block(*found.groups()) for found in FENCED.finditer(text))
    return [block for block in every if not languages or block.language in languages]
