"""Decides which tables of a checkpoint to import, under which names and with which model.yaml."""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from embag.importer import model_yaml
from embag.importer.find_tables import (check_fit, judge, module_names, name_error,
                                         short_names)
from embag.importer.progress import printable
from embag.importer.source import Checkpoint, CheckpointError, Feature, Table, Tensor

# Tensors that an error about missing tables names.
_NAMED_MAX = 3
_TABLE_SUFFIX = '_table'


@dataclass(frozen=True)
class Choices:
    """What the user chose.

    - tables: patterns (fnmatch) of the tensors that are tables; empty to find them by rule
    - exclude: patterns of tensors and tables to leave out
    - names: pairs of a tensor's or table's name and its new name, each with at most one `*`
    - storage, reduction: words of model.yaml for all tables; None for those of the checkpoint
    - model_yaml: path of a model.yaml that describes the tables; None to write one
    """

    tables: Sequence[str] = ()
    exclude: Sequence[str] = ()
    names: Sequence[tuple[str, str]] = ()
    storage: str | None = None
    reduction: str | None = None
    model_yaml: str | None = None


@dataclass(frozen=True)
class Taken:
    """A table to import.

    - source: its name in the files, which is `source` of model.yaml
    - reason: why it is taken
    - scales: the tensors of its scales and biases, by their names in the files, if its rows have
      codes alone
    """

    table: Table
    source: str
    reason: str
    scales: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Plan:
    """What to import, and the text of model.yaml. `left` has pairs of a name and a reason."""

    kind: str
    taken: list[Taken]
    features: list[Feature]
    groups: dict[str, list[str]]
    config: str
    left: list[tuple[str, str]] = field(default_factory=list)


def _matches(table: Table, patterns: Iterable[str]) -> bool:
    """Returns whether a pattern matches a name of the table: that of the tensor, of its module, the
    last part of that, or the table's own."""
    names = (table.tensor.name, *module_names(table.tensor.name), table.name)
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns for name in names)


def _check_patterns(option: str, patterns: Sequence[str], tables: list[Table]) -> None:
    """Raises CheckpointError for a pattern that matches nothing."""
    for pattern in patterns:
        if not any(_matches(table, [pattern]) for table in tables):
            raise CheckpointError('%s %s: matches none of the %d tensors, which include: %s' % (
                option, pattern, len(tables), _largest([t.tensor for t in tables])))


def _largest(tensors: list[Tensor]) -> str:
    """Returns the names of the largest tensors with rows."""
    tensors = sorted((t for t in tensors if len(t.shape) > 1), key=lambda t: -t.shape[0])
    return ', '.join('%s %s %s' % (t.name, t.dtype, list(t.shape))
                     for t in tensors[:_NAMED_MAX]) or 'no matrix'


def _select(checkpoint: Checkpoint, choices: Choices) -> tuple[
        list[tuple[Table, str]], list[tuple[str, str]]]:
    """Returns the tables to take with the reasons, and what is left."""
    every = [*checkpoint.tables, *(Table(tensor, tensor.name) for tensor in checkpoint.tensors)]
    _check_patterns('--tables', choices.tables, every)
    _check_patterns('--exclude', choices.exclude, every)
    shapes = {tensor.name: tensor.shape for tensor in checkpoint.tensors}
    configured: list[tuple[Table, str]] = []
    found: list[tuple[Table, str]] = []
    left: list[tuple[str, str]] = []
    for number, table in enumerate(every):
        is_configured = number < len(checkpoint.tables)
        if _matches(table, choices.exclude):
            is_taken, reason = False, 'excluded'
        elif choices.tables:
            is_taken = _matches(table, choices.tables)
            reason = 'chosen' if is_taken else 'not chosen'
        elif is_configured:
            is_taken, reason = True, "by the checkpoint's own configuration"
        else:
            is_taken, reason = judge(table.tensor, shapes)
        if not is_taken:
            left.append((table.tensor.name, reason))
        else:
            (configured if is_configured else found).append((table, reason))
    short = short_names([table.tensor.name for table, _ in found])
    renamed = [(replace(table, name=name), reason) for (table, reason), name in zip(found, short)]
    return configured + renamed, left


def _renamed(name: str, old: str, new: str) -> str | None:
    """Returns the new name, or None if the rule is for other names."""
    before, star, after = old.partition('*')
    if not star:
        return new if name == old else None
    if len(name) < len(before) + len(after) or not name.startswith(before) or \
            not name.endswith(after):
        return None
    return new.replace('*', name[len(before):len(name) - len(after)], 1)


def _rename(tables: list[Table], rules: Sequence[tuple[str, str]]) -> list[Table]:
    """Returns the tables with new names; the first rule that fits a table counts.

    Raises CheckpointError for a rule that fits none.
    """
    used = set()
    out = []
    for table in tables:
        renamed = table
        for old, new in rules:
            names = (_renamed(each, old, new) for each in (table.tensor.name, table.name))
            name = next((each for each in names if each is not None), None)
            if name is not None:
                used.add(old)
                renamed = replace(table, name=name)
                break
        out.append(renamed)
    for old, new in rules:
        if old not in used:
            raise CheckpointError('--name %s=%s: no table that is taken has this name; they are: '
                                  '%s' % (old, new, ', '.join(t.tensor.name for t in tables[:9])))
    return out


def _check_names(tables: list[Table]) -> None:
    """Raises CheckpointError if two tables have the same name, or a name is not valid."""
    seen: dict[str, str] = {}
    for table in tables:
        error = name_error(table.name)
        if error:
            raise CheckpointError('table %r (%s): the name %s: give another by --name %s=NEW' % (
                table.name[:80], table.tensor.name, error, table.tensor.name))
        if table.name in seen:
            raise CheckpointError('%s and %s would both be the table %s: give one another name by '
                                  '--name %s=NEW' % (seen[table.name], table.tensor.name,
                                                     table.name, table.tensor.name))
        seen[table.name] = table.tensor.name


def _fit_features(checkpoint: Checkpoint, old: list[Table], new: list[Table],
                  left: list[tuple[str, str]]) -> tuple[list[Feature], dict[str, list[str]]]:
    """Returns the features of tables that are taken, under their new names, and the groups of
    these features."""
    names = {before.name: after.name for before, after in zip(old, new)}
    features = []
    for feature in checkpoint.features:
        if feature.table in names:
            features.append(replace(feature, table=names[feature.table]))
        else:
            left.append(('feature ' + feature.name, 'its table %s is not taken' % feature.table))
    known = {feature.name for feature in features}
    groups = {}
    for name, members in checkpoint.groups.items():
        kept = [member for member in members if member in known]
        if kept:
            groups[name] = kept
        else:
            left.append(('group ' + name, 'none of its features is taken'))
    return features, groups


def _check_features(features: list[Feature]) -> None:
    """Raises CheckpointError for features with the same name, or that the server would refuse."""
    tables: dict[str, str] = {}
    for feature in features:
        error = name_error(feature.name)
        if error:
            raise CheckpointError('feature %r: the name %s' % (feature.name[:80], error))
        if feature.reduction not in model_yaml.REDUCTIONS:
            raise CheckpointError('feature %s: the reduction is "%s", expected one of %s' % (
                feature.name, feature.reduction, ', '.join(model_yaml.REDUCTIONS)))
        if feature.name in tables:
            raise CheckpointError('two features have the name %s, of the tables %s and %s' % (
                feature.name, tables[feature.name], feature.table))
        tables[feature.name] = feature.table


def _part_names(tables: list[Table], features: list[Feature]) -> tuple[list[Table], list[Feature]]:
    """Renames tables that have the name of a feature, which the server would refuse."""
    of_features = {feature.name for feature in features}
    names = {table.name: table.name + _TABLE_SUFFIX if table.name in of_features else table.name
             for table in tables}
    return ([replace(table, name=names[table.name]) for table in tables],
            [replace(feature, table=names[feature.table]) for feature in features])


def group_refusal(used: Sequence[Feature], tables: Mapping[str, Table]) -> str | None:
    """Returns why the server would refuse a group of these features; None if it would not."""
    are_rows = {feature.reduction == 'none' for feature in used}
    types = sorted({'F32' if table.format else table.tensor.dtype
                    for table in (tables[feature.table] for feature in used)})
    if len(are_rows) > 1:
        return 'only some of its features are pooled'
    if len(types) > 1:
        return 'its tables have the types ' + ' and '.join(types)
    sizes = {(table.dim,) if table.dim else table.tensor.shape[1:]
             for table in (tables[feature.table] for feature in used)}
    if are_rows == {True} and len(sizes) > 1:
        return 'the rows of its tables have different sizes, and are not pooled'
    return None


def _possible_groups(plan: Plan) -> dict[str, list[str]]:
    """Returns the groups that the server accepts: all features are pooled, or none and their rows
    have one size. All have one type. Notes the others as left."""
    tables = {taken.table.name: taken.table for taken in plan.taken}
    features = {feature.name: feature for feature in plan.features}
    possible = {}
    for name, members in plan.groups.items():
        refusal = group_refusal([features[member] for member in members], tables)
        if refusal is None:
            possible[name] = members
        else:
            plan.left.append(('group ' + name, refusal))
    return possible


def _check_storage(table: Table, storage: str | None) -> None:
    if storage is not None and (table.format is not None or
                                table.tensor.dtype not in ('F32', 'F16', 'BF16')):
        raise CheckpointError('--storage %s: the table %s has %s, expected F32, F16 or BF16' % (
            storage, table.name, 'rows of the format ' + table.format if table.format
            else 'the type ' + table.tensor.dtype))


def _describe(plan: Plan, storage: str | None) -> str:
    """Returns the text of model.yaml."""
    tables = []
    for taken in plan.taken:
        table = taken.table
        _check_storage(table, storage)
        source = taken.source if taken.source != table.name else None
        entry = {'name': table.name, 'source': source, 'storage': storage, 'format': table.format,
                 'dim': table.dim}
        tables.append({key: value for key, value in entry.items() if value is not None})
    config = {
        'tables': tables,
        'features': [{'name': f.name, 'table': f.table, 'reduction': f.reduction}
                     for f in plan.features],
        'groups': [{'name': name, 'features': members} for name, members in plan.groups.items()]}
    return model_yaml.write(config, {t.table.name: 'from ' + printable(t.table.tensor.name)
                                     for t in plan.taken
                                     if t.table.tensor.name not in (t.source, t.table.name)})


def _find_source(source: str, every: list[Table], path: str) -> Table:
    """Returns the table or tensor that a `source` of model.yaml names, in full or by its end.

    Raises CheckpointError.
    """
    ends = ('.' + source, '/' + source)
    for fits in ([t for t in every if source in (t.tensor.name, t.name)],
                 [t for t in every if t.tensor.name.endswith(ends)],
                 [t for t in every if module_names(t.tensor.name)[0] == source or
                  module_names(t.tensor.name)[0].endswith(ends)]):
        if len(fits) == 1:
            return fits[0]
        if fits:
            raise CheckpointError('%s: the source %s is the end of %d names, expected one: %s' % (
                path, source, len(fits), ', '.join(t.tensor.name for t in fits[:_NAMED_MAX])))
    raise CheckpointError('%s: the checkpoint has no tensor %s; its tensors include: %s' % (
        path, source, _largest([table.tensor for table in every])))


def _check_scales(table: Table, scales: dict[str, Tensor]) -> None:
    """Raises CheckpointError unless each tensor has a value for each row of the table."""
    rows = table.tensor.shape[:1]
    for name, tensor in scales.items():
        if tensor.dtype not in ('F32', 'F16') or tensor.shape not in (rows, (*rows, 1)):
            raise CheckpointError('table %s: %s is %s %s, expected F32 or F16 %s' % (
                table.name, name, tensor.dtype, list(tensor.shape), list(rows)))


def _check_described(path: str, names: list[str]) -> None:
    """Raises CheckpointError if the tables of a model.yaml have a name that is not valid, or two
    have the same."""
    seen: set[str] = set()
    for number, name in enumerate(names):
        error = 'is that of another table too' if name in seen else name_error(name)
        if error:
            raise CheckpointError('%s: tables[%d]: the name "%.80s" %s' % (
                path, number, name, error))
        seen.add(name)


def _plan_by_file(checkpoint: Checkpoint, choices: Choices) -> Plan:
    """Plans what a given model.yaml describes."""
    path = choices.model_yaml
    assert path is not None
    for option, value in (('--tables', choices.tables), ('--exclude', choices.exclude),
                          ('--name', choices.names), ('--reduction', choices.reduction)):
        if value:
            raise CheckpointError('%s does not go with --model-yaml: write it into %s' % (
                option, path))
    text, config = model_yaml.read(path)
    every = [*checkpoint.tables, *(Table(t, t.name) for t in checkpoint.tensors)]
    taken = []
    for number, entry in enumerate(config.get('tables') or []):
        source = entry.get('source', entry['name'])
        found = _find_source(source, every, path)
        dim = entry.get('dim')
        if dim is not None and not re.fullmatch('[0-9]{1,10}', dim):
            raise CheckpointError('%s: tables[%d].dim: "%.40s" is not a number of at most 10 '
                                  'digits' % (path, number, dim))
        table = replace(found, name=entry['name'], format=entry.get('format'),
                        dim=None if dim is None else int(dim))
        if choices.storage is not None:
            _check_storage(table, choices.storage)
            entry['storage'] = choices.storage
        scales = {entry[key]: _find_source(entry[key], every, path).tensor
                  for key in ('scales', 'biases') if key in entry}
        _check_scales(table, scales)
        taken.append(Taken(table, source, 'described in ' + path, scales))
    _check_described(path, [each.table.name for each in taken])
    if not taken:
        raise CheckpointError('%s: describes no tables, expected at least one' % path)
    used = {id(tensor) for t in taken for tensor in (t.table.tensor, *t.scales.values())}
    left = [(t.tensor.name, 'not described in ' + path) for t in every
            if id(t.tensor) not in used]
    features = [Feature(f['name'], f['table'], f.get('reduction', 'sum'))
                for f in config.get('features') or []]
    groups = {group['name']: group['features'] for group in config.get('groups') or []}
    if choices.storage is not None:
        text = model_yaml.write(config, {})
    return Plan(checkpoint.kind, taken, features, groups, text, left)


def _source_of(table: Table) -> str:
    """Returns the name of a table in the files: that of its tensor, so that model.yaml fits later
    checkpoints of the same model too. Keys stand in a file that is named after the table."""
    name = table.tensor.name
    return table.name if table.keys is not None or name_error(name) is not None else name


def _plan_by_rule(checkpoint: Checkpoint, choices: Choices) -> Plan:
    """Plans what the checkpoint's configuration, the rule or patterns select."""
    chosen, left = _select(checkpoint, choices)
    if not chosen:
        every = [*checkpoint.tensors, *(t.tensor for t in checkpoint.tables)]
        raise CheckpointError('no embedding table found in %s with %d tensors; choose some with '
                              '--tables PATTERN; its largest matrices are: %s' % (
                                  checkpoint.kind, len(every), _largest(every)))
    old = [table for table, _ in chosen]
    tables = _rename(old, choices.names)
    _check_names(tables)
    features, groups = _fit_features(checkpoint, old, tables, left)
    if choices.reduction is not None and features:
        raise CheckpointError('--reduction %s: the checkpoint says how its features are reduced; '
                              'change model.yaml instead' % choices.reduction)
    if choices.reduction is not None:
        features = [Feature(table.name, table.name, choices.reduction) for table in tables]
    _check_features(features)
    tables, features = _part_names(tables, features)
    _check_names(tables)
    taken = [Taken(table, _source_of(table), reason)
             for table, (_, reason) in zip(tables, chosen)]
    plan = Plan(checkpoint.kind, taken, features, groups, '', left)
    plan.groups = _possible_groups(plan)
    plan.config = _describe(plan, choices.storage)
    return plan


def make_plan(checkpoint: Checkpoint, choices: Choices) -> Plan:
    """Returns what to import. Raises CheckpointError if that is not possible."""
    make = _plan_by_rule if choices.model_yaml is None else _plan_by_file
    plan = make(checkpoint, choices)
    for taken in plan.taken:
        check_fit(taken.table)
    sources: dict[str, str] = {}
    for taken in plan.taken:
        if taken.source in sources:
            raise CheckpointError('the tables %s and %s have the same source %s, expected one' % (
                sources[taken.source], taken.table.name, taken.source))
        sources[taken.source] = taken.table.name
    for taken in plan.taken:
        for name in taken.scales:
            if name in sources:
                raise CheckpointError('%s is the source of the table %s and has scales of %s, '
                                      'expected one use' % (name, sources[name], taken.table.name))
    plan.left = [*checkpoint.left, *plan.left]
    return plan
