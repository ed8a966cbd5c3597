"""Reads and writes model.yaml."""

from __future__ import annotations

import json
import re
from typing import Any

from embag.importer.file_bytes import file_size, read_range
from embag.importer.optional import need
from embag.importer.source import CheckpointError

# Limits of the server.
BYTES_MAX = 4 << 20
STORAGES = ('f32', 'f16', 'bf16', 'f8_e4m3', 'f8_e5m2', 'int8', 'int4', 'int2')
REDUCTIONS = ('sum', 'mean', 'weighted_mean', 'sqrtn', 'max', 'min', 'none')
# Fields whose texts are names or patterns. The texts of all others are words or numbers.
_PLAIN = re.compile(r'[A-Za-z_][\w./-]*', re.ASCII)
_WORDS = {'null', 'true', 'false', 'yes', 'no', 'on', 'off', 'y', 'n'}

Config = dict[str, Any]


def _scalar(value: Any) -> str:
    """Returns a value as YAML, in quotes if it could be read as something else than a text."""
    if isinstance(value, int):
        return str(value)
    text = str(value)
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    # YAML refuses some characters that are not printable, and takes others for the end of a line.
    return ''.join(char if char.isprintable() else '\\U%08x' % ord(char)
                   for char in json.dumps(text, ensure_ascii=False))


def _flow(value: Any) -> str:
    if isinstance(value, dict):
        return '{%s}' % ', '.join('%s: %s' % (key, _flow(each)) for key, each in value.items())
    if isinstance(value, list):
        return '[%s]' % ', '.join(map(_flow, value))
    return _scalar(value)


def write(config: Config, comments: dict[str, str]) -> str:
    """Returns the text of a model.yaml.

    `config` has the file's keys; lists and dicts are empty or absent if the file has none.
    `comments` has a comment for tables, by name. Raises CheckpointError if the text is longer than
    the server accepts.
    """
    lines = []
    for key, value in config.items():
        if isinstance(value, list) and value and isinstance(value[0], dict):
            lines.append('%s:' % key)
            for entry in value:
                comment = comments.get(entry.get('name', '')) if key == 'tables' else None
                lines.append('  - %s%s' % (_flow(entry), '  # ' + comment if comment else ''))
        elif value:
            lines.append('%s: %s' % (key, _flow(value)))
    text = ''.join(line + '\n' for line in lines)
    if len(text.encode('utf-8')) > BYTES_MAX:
        raise CheckpointError('model.yaml would have %d bytes, expected at most %d: import fewer '
                              'tables into one model' % (len(text.encode('utf-8')), BYTES_MAX))
    return text


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _check_entries(path: str, config: Config) -> None:
    """Checks what the importer uses; the server checks the rest."""
    for key, needed in (('tables', ('name',)), ('features', ('name', 'table')),
                        ('groups', ('name', 'features'))):
        entries = config.get(key) or []
        if not isinstance(entries, list):
            raise CheckpointError('%s: %s: expected a list' % (path, key))
        for number, entry in enumerate(entries):
            where = '%s: %s[%d]' % (path, key, number)
            if not isinstance(entry, dict):
                raise CheckpointError('%s: expected keys such as %s' % (where, needed[0]))
            for name in needed:
                if name not in entry:
                    raise CheckpointError('%s.%s: is missing' % (where, name))
            for name, value in entry.items():
                is_list = key == 'groups' and name == 'features'
                if not (_is_text_list(value) if is_list else isinstance(value, str)):
                    raise CheckpointError('%s.%s: expected %s' % (
                        where, name, 'a list of names' if is_list else 'one value'))


def read(path: str) -> tuple[str, Config]:
    """Returns the text of a model.yaml and its content, in which every value is a text.

    Raises CheckpointError if it is not YAML of that form.
    """
    size = file_size(path)
    if size > BYTES_MAX:
        raise CheckpointError('%s: has %d bytes, expected at most %d' % (path, size, BYTES_MAX))
    yaml = need('yaml', 'reading model.yaml')
    try:
        text = read_range(path, 0, size).tobytes().decode('utf-8')
        # Aliases, which the server refuses too, could stand for any amount of memory.
        if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.BaseLoader)):
            raise CheckpointError('%s: has an alias, expected none' % path)
        config = yaml.load(text, yaml.BaseLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise CheckpointError('%s: not valid YAML: %s' % (
            path, ' '.join(str(error).split()))) from error
    if not isinstance(config, dict):
        raise CheckpointError('%s: expected keys such as tables and features' % path)
    _check_entries(path, config)
    return text, config
