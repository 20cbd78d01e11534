"""Programs of one variable: expressions in Python's syntax, with numbers and conditions.

    number    = x | 0.5 | number + number | number - number | number * number
              | sin(number) | abs(number) | min(number, number) | max(number, number)
              | number if condition else number
    condition = number < number

A program is a text. Inside of this file it is a tree: ``("+", ("x",), ("number", 0.5))``.
"""

import ast
from typing import Any

import numpy as np

LARGEST = 40
"""Largest number of nodes in a program."""
OPERATORS = {"+": ast.Add, "-": ast.Sub, "*": ast.Mult}
FUNCTIONS = {"sin": (1, np.sin), "abs": (1, np.abs), "min": (2, np.minimum), "max": (2, np.maximum)}
KINDS = [*OPERATORS, *FUNCTIONS, "if"]


def text_of(tree: tuple) -> str:
    """Return a tree as text."""
    kind, *parts = tree
    if kind == "x":
        return "x"
    if kind == "number":
        return f"{parts[0]:.3g}" if parts[0] >= 0 else f"({parts[0]:.3g})"
    inner = [text_of(part) for part in parts]
    if kind in OPERATORS or kind == "<":
        return f"({inner[0]} {kind} {inner[1]})"
    if kind == "if":
        return f"({inner[1]} if {inner[0]} else {inner[2]})"
    return f"{kind}({', '.join(inner)})"


def shown(text: str) -> str:
    """Return a program without parentheses that Python does not need."""
    return ast.unparse(ast.parse(text, mode="eval"))


def tree_of(text: str) -> tuple:
    """Return the tree of a text. It is parsed and never run.

    Raises:
        ValueError: It is no program, or larger than `LARGEST`.
    """
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError("no program: Python cannot parse it") from None
    tree = _tree(node)
    if size_of(tree) > LARGEST:
        raise ValueError(f"a program of {size_of(tree)} nodes, more than {LARGEST}")
    return tree


def _tree(node: ast.AST) -> tuple:
    match node:
        case ast.Name(id="x"):
            return ("x",)
        case ast.Constant(value=float() | int() as number) if abs(number) <= 1e6:
            if number is not True and number is not False:
                return ("number", float(number))
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant() as operand):
            return ("number", -_tree(operand)[1])
        case ast.BinOp(left=left, op=operator, right=right):
            for sign, kind in OPERATORS.items():
                if isinstance(operator, kind):
                    return (sign, _tree(left), _tree(right))
        case ast.Call(func=ast.Name(id=name), args=given, keywords=[]) if name in FUNCTIONS:
            if len(given) == FUNCTIONS[name][0]:
                return (name, *map(_tree, given))
        case ast.IfExp(test=ast.Compare(left=low, ops=[ast.Lt()], comparators=[high])):
            condition = ("<", _tree(low), _tree(high))
            return ("if", condition, _tree(node.body), _tree(node.orelse))
    raise ValueError(f"no program: it has {type(node).__name__}")


def values_of(tree: tuple, x: np.ndarray) -> np.ndarray:
    """Return the values of a program at points."""
    kind, *parts = tree
    if kind == "x":
        return x
    if kind == "number":
        return np.full_like(x, parts[0])
    inner = [values_of(part, x) for part in parts]
    if kind == "if":
        return np.where(*inner)
    if kind == "<":
        return inner[0] < inner[1]
    if kind in FUNCTIONS:
        return FUNCTIONS[kind][1](*inner)
    return {"+": np.add, "-": np.subtract, "*": np.multiply}[kind](*inner)


def size_of(tree: tuple) -> int:
    """Return the number of nodes."""
    return 1 + sum(size_of(part) for part in tree[1:] if isinstance(part, tuple))


def random_tree(random: np.random.Generator, depth: int = 3) -> tuple:
    """Return a random number-valued tree."""
    if depth == 0 or random.random() < 0.2:
        return ("x",) if random.random() < 0.6 else ("number", round(random.normal(), 2))
    kind = KINDS[random.integers(len(KINDS))]
    if kind == "if":
        condition = ("<", random_tree(random, depth - 1), random_tree(random, depth - 1))
        return ("if", condition, random_tree(random, depth - 1), random_tree(random, depth - 1))
    count = FUNCTIONS[kind][0] if kind in FUNCTIONS else 2
    return (kind, *(random_tree(random, depth - 1) for _ in range(count)))


def mutated(text: str, random: np.random.Generator) -> str:
    """Return a variation of a program: another number, a part that is new, wrapped or removed."""
    tree = tree_of(text)
    while True:
        changed = _changed(tree, random)
        if size_of(changed) <= LARGEST:
            return text_of(changed)


def _changed(tree: tuple, random: np.random.Generator) -> tuple:
    places = [place for place, part in _places(tree) if part[0] != "<"]
    numbers = [place for place, part in _places(tree) if part[0] == "number"]
    choice = random.random()
    if numbers and choice < 0.4:
        place = numbers[random.integers(len(numbers))]
        value = round(_part(tree, place)[1] + random.normal() * random.choice([0.05, 0.5]), 3)
        return _replaced(tree, place, ("number", value))
    place = places[random.integers(len(places))]
    part = _part(tree, place)
    if choice < 0.6:
        new = random_tree(random, 2)
    elif choice < 0.85:
        kind = KINDS[random.integers(len(KINDS) - 1)]
        other = [random_tree(random, 1)] if kind in OPERATORS or kind in ("min", "max") else []
        new = (kind, part, *other)
    else:
        inner = [p for p in part[1:] if isinstance(p, tuple) and p[0] != "<"]
        new = inner[random.integers(len(inner))] if inner else random_tree(random, 1)
    return _replaced(tree, place, new)


def _places(tree: tuple, place: tuple = ()) -> list[tuple[tuple, tuple]]:
    inner = [(place, tree)]
    for index, part in enumerate(tree[1:], 1):
        if isinstance(part, tuple):
            inner += _places(part, (*place, index))
    return inner


def _part(tree: Any, place: tuple) -> tuple:
    for index in place:
        tree = tree[index]
    return tree


def _replaced(tree: tuple, place: tuple, new: tuple) -> tuple:
    if not place:
        return new
    inner = _replaced(tree[place[0]], place[1:], new)
    return (*tree[: place[0]], inner, *tree[place[0] + 1 :])
