"""The classes that a file may name, and the values that build their objects.

Classes register themselves by the decorator `register`. A file names them by their class names;
nothing else is ever looked up, imported or called because a file says so. For a name that is not
registered, the modules of the entry-point group ``gloam.pieces`` are imported, which installed
packages declare: those of the laboratory, and of other packages.
"""

import dataclasses
import functools
import inspect
import types
from collections.abc import Callable, Mapping
from importlib import metadata
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, overload

from gloam._tools.warn import warn

_Class = TypeVar("_Class", bound=type)


@dataclasses.dataclass(frozen=True)
class Entry:
    """How a file keeps the objects of one class.

    Args:
        cls: The class.
        names: Names of the values that a file keeps of an object.
        build: Builds the object from these values.
        values: Functions for values that are not the attribute of the same name.
        complete: Completes and checks an object that was built.
    """

    cls: type
    names: tuple[str, ...]
    build: Callable[..., Any]
    values: Mapping[str, Callable[[Any], Any]]
    complete: Callable[[Any], None] | None

    def arguments(self, value: Any) -> dict[str, Any]:
        """Return the values that a file keeps of an object."""
        return {
            name: self.values[name](value) if name in self.values else getattr(value, name)
            for name in self.names
        }


REGISTRY: dict[str, Entry] = {}
"""The registered classes by name."""


@overload
def register(cls: _Class, /) -> _Class: ...


@overload
def register(
    *,
    build: str | None = None,
    values: Mapping[str, Callable[[Any], Any]] = {},
    without: tuple[str, ...] = (),
    assembled: bool = False,
    complete: Callable[[Any], None] | None = None,
) -> Callable[[_Class], _Class]: ...


def register(
    cls: type | None = None,
    /,
    *,
    build: str | None = None,
    values: Mapping[str, Callable[[Any], Any]] = {},
    without: tuple[str, ...] = (),
    assembled: bool = False,
    complete: Callable[[Any], None] | None = None,
) -> Any:
    """Class decorator: run folders can name the class, and keep the values that build its objects.

    By default these are the arguments of the constructor that are attributes of the object, so that
    the constructor checks what a file contains. Afterwards every field is compared with its type.
    Names of classes have to be unique.

    Args:
        cls: An Equinox module or a dataclass.
        build: Name of the class method that builds an object, in place of the constructor.
        values: Functions of an object for arguments that are not its attributes.
        without: Arguments that files do not keep.
        assembled: Whether files keep the fields in place of the arguments, for a constructor that
            computes its fields from other arguments, such as a random key.
        complete: Function that completes and checks an object that was built.

    Example:
        >>> import gloam.formats
        >>> @gloam.formats.register
        ... class Never(gloam.emitters.RestartRule):
        ...     def due(self, state, progress):
        ...         return progress.accepted < 0, state
    """

    def add(cls: type) -> type:
        fields = dataclasses.fields(cls)
        if any(isinstance(field.type, str) for field in fields):
            raise TypeError(
                f"register: the annotations of {cls.__name__} are texts, which cannot be checked. "
                "Remove 'from __future__ import annotations'."
            )
        registered = REGISTRY.get(cls.__name__)
        if registered is not None and not _is_same_class(registered.cls, cls):
            raise ValueError(f"register: another class has the name {cls.__name__!r}. Rename one.")
        if assembled:
            builder, names = _assembler(cls), [field.name for field in fields]
        else:
            builder = cls if build is None else getattr(cls, build)
            attributes = {field.name for field in fields} | set(dir(cls))
            names = [
                name
                for name in inspect.signature(builder).parameters
                if name in values or (name in attributes and name not in without)
            ]
        REGISTRY[cls.__name__] = Entry(cls, tuple(names), builder, values, complete)
        return cls

    return add if cls is None else add(cls)


def _assembler(cls: type) -> Callable[..., Any]:
    def build(**values: Any) -> Any:
        module = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(module, name, value)
        return module

    return build


def _is_same_class(known: type, cls: type) -> bool:
    """Whether a class was defined again, for instance by a cell of a notebook."""
    return (known.__module__, known.__qualname__) == (cls.__module__, cls.__qualname__)


def name_of(value: Any) -> str | None:
    """Return the registered name of an object's class, or ``None`` if it is not registered."""
    entry = REGISTRY.get(type(value).__name__)
    return type(value).__name__ if entry is not None and entry.cls is type(value) else None


def build(name: str, arguments: dict[str, Any]) -> Any:
    """Build an object from a registered name and its arguments.

    Raises:
        ValueError: The name is not registered, or the arguments do not fit.
    """
    if name not in REGISTRY:
        _import_installed_pieces()
    if name not in REGISTRY:
        raise ValueError(f"it names {name!r}, which is not a registered class")
    entry = REGISTRY[name]
    if set(arguments) != set(entry.names):
        raise ValueError(f"{name} has the parts {sorted(arguments)}, not {sorted(entry.names)}")
    if isinstance(arguments.get("centroids"), str):
        raise ValueError(f"{name} names a file, and files do not name other files")
    try:
        value = entry.build(**arguments)
    except (AttributeError, TypeError) as error:
        raise ValueError(f"the arguments of {name} do not fit: {error}") from None
    for field in dataclasses.fields(entry.cls):
        if not conforms(getattr(value, field.name), field.type):
            raise ValueError(f"'{field.name}' of {name} has the wrong type")
    if entry.complete is not None:
        entry.complete(value)
    return value


@functools.cache
def _import_installed_pieces() -> None:
    """Import the modules that installed packages declare in the group ``gloam.pieces``, once."""
    for entry in metadata.entry_points(group="gloam.pieces"):
        try:
            entry.load()
        except Exception as error:  # the other packages work without a broken one
            problem = f"{type(error).__name__}: {error}"
            warn(f"The entry point '{entry.name}' of gloam.pieces cannot be loaded ({problem}).")


def conforms(value: Any, annotation: Any) -> bool:
    """Whether ``value`` is of the type of an annotated field; a bool is not a number.

    >>> conforms((1, 2), tuple[int, ...]), conforms([1, "a"], list[int]), conforms(True, int)
    (True, False, False)
    """
    origin, inner = get_origin(annotation), get_args(annotation)
    if annotation is Any:
        return True
    if annotation in (int, float):
        number = (int,) if annotation is int else (int, float)
        return isinstance(value, number) and not isinstance(value, bool)
    if origin in (Union, types.UnionType):
        return any(conforms(value, part) for part in inner)
    if origin is Literal:
        return any(value == part and type(value) is type(part) for part in inner)
    if origin is dict:
        return type(value) is dict and all(
            conforms(name, inner[0]) and conforms(item, inner[1]) for name, item in value.items()
        )
    if origin is tuple and inner[-1] is not Ellipsis:
        fits = type(value) is tuple and len(value) == len(inner)
        return fits and all(map(conforms, value, inner))
    if origin in (list, tuple):
        return type(value) is origin and all(conforms(item, inner[0]) for item in value)
    if origin is Callable:
        return callable(value)
    return isinstance(value, annotation)
