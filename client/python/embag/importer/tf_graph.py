"""The object graph of a TensorFlow checkpoint: which object has which variable, by what name."""

from __future__ import annotations

from dataclasses import dataclass, field

from embag.importer.tf_bundle import fields_of

# Protects memory: objects, and references to others. Keras' models have some 30 for each layer.
OBJECTS_MAX = 1_000_000

# The names by which Keras' Embedding layers have their variable.
_EMBEDDINGS = ('embeddings', '_embeddings')
_STEPS = ('iter', 'iterations', '_iterations')
_RATES = ('learning_rate', '_learning_rate', '_hyper')
# An optimizer also refers to the model's own variables.
_MODEL_VARIABLES = '_trainable_variables'


@dataclass(slots=True)
class _Node:
    """An object: pairs of a name and a child's number, and of a variable's full name and key."""

    children: list[tuple[str, int]] = field(default_factory=list)
    values: list[tuple[str, str]] = field(default_factory=list)

    @property
    def is_optimizer(self) -> bool:
        """Whether the object has what all of Keras' optimizers have."""
        names = {name for name, _ in self.children}
        return not names.isdisjoint(_STEPS) and not names.isdisjoint(_RATES)


@dataclass
class ObjectGraph:
    """The facts about a checkpoint's variables, by their keys in the checkpoint.

    - full_names: the names that the variables had in the program
    - embeddings: variables of Embedding layers
    - state: variables that only an optimizer has
    """

    full_names: dict[str, str] = field(default_factory=dict)
    embeddings: set[str] = field(default_factory=set)
    state: set[str] = field(default_factory=set)


def read_graph(data: bytes) -> ObjectGraph:
    """Reads a serialised object graph. Raises ValueError."""
    nodes: list[_Node] = []
    count = 0
    for number, value in fields_of(data):
        if number == 1 and isinstance(value, bytes):
            nodes.append(_node(value))
            count += 1 + len(nodes[-1].children) + len(nodes[-1].values)
            if count > OBJECTS_MAX:
                raise ValueError('it has more than %d objects and references' % OBJECTS_MAX)
    graph = ObjectGraph()
    reached = _reached(nodes)
    embeddings = {child for node in nodes if not node.is_optimizer
                  for name, child in node.children if name in _EMBEDDINGS}
    for number, node in enumerate(nodes):
        for full_name, key in node.values:
            graph.full_names[key] = full_name
            if number not in reached:
                graph.state.add(key)
            elif number in embeddings or full_name.rpartition('/')[2] in _EMBEDDINGS:
                graph.embeddings.add(key)
    return graph


def _reached(nodes: list[_Node]) -> set[int]:
    """Returns the objects that do not belong to an optimizer alone."""
    reached: set[int] = set()
    waiting = [0] if nodes else []
    while waiting:
        number = waiting.pop()
        if number in reached:
            continue
        reached.add(number)
        node = nodes[number]
        for name, child in node.children:
            if not 0 <= child < len(nodes):
                raise ValueError('object %d has the child %d, there are %d objects' % (
                    number, child, len(nodes)))
            if child not in reached and (name == _MODEL_VARIABLES or not node.is_optimizer):
                waiting.append(child)
    return reached


def _node(data: bytes) -> _Node:
    node = _Node()
    for number, value in fields_of(data):
        if number == 1 and isinstance(value, bytes):
            child = dict(fields_of(value))
            node.children.append((_text(child.get(2)), _number(child.get(1))))
        elif number == 2 and isinstance(value, bytes):
            attribute = dict(fields_of(value))
            if _text(attribute.get(3)):
                node.values.append((_text(attribute.get(2)), _text(attribute.get(3))))
    return node


def _text(value: int | bytes | None) -> str:
    return value.decode('utf-8', 'backslashreplace') if isinstance(value, bytes) else ''


def _number(value: int | bytes | None) -> int:
    return value if isinstance(value, int) else 0
