"""Whether a value is of an annotated type: a check of what files put into fields."""

import types
from collections.abc import Callable
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

import jax


def conforms(value: Any, annotation: Any) -> bool:
    """Whether ``value`` is of the type that ``annotation`` says.

    Knows what fields of gloam are annotated with: classes, jaxtyping's arrays, ``list``, ``tuple``,
    ``dict``, ``Literal``, unions, callables and ``Any``.

    >>> conforms((1, 2), tuple[int, ...]), conforms([1, "a"], list[int]), conforms(True, int)
    (True, False, False)
    """
    if annotation is Any or isinstance(annotation, TypeVar):
        return True
    if annotation is None or annotation is type(None):
        return value is None
    origin, inner = get_origin(annotation), get_args(annotation)
    if origin in (Union, types.UnionType):
        return any(conforms(value, part) for part in inner)
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in inner)
    if origin is list:
        return type(value) is list and all(conforms(item, inner[0]) for item in value)
    if origin is tuple:
        return type(value) is tuple and _tuple_conforms(value, inner)
    if origin is dict:
        return type(value) is dict and all(
            conforms(name, inner[0]) and conforms(item, inner[1]) for name, item in value.items()
        )
    if origin is Callable or annotation is Callable:
        return callable(value)
    return _is_instance(value, annotation)


def _tuple_conforms(value: tuple, inner: tuple) -> bool:
    if len(inner) == 2 and inner[1] is Ellipsis:
        return all(conforms(item, inner[0]) for item in value)
    return len(value) == len(inner) and all(map(conforms, value, inner))


def _is_instance(value: Any, annotation: Any) -> bool:
    """As `isinstance`, but a bool is no number, and an int is a float."""
    if annotation in (int, float):
        number = (int,) if annotation is int else (int, float)
        return isinstance(value, number) and not isinstance(value, bool)
    if isinstance(annotation, type):
        return isinstance(value, annotation)  # jaxtyping's annotations are types, too
    return isinstance(value, jax.Array)
