"""The classes that a file may name, and the arguments that build their objects.

Files name gloam's own classes by the keys of `REGISTRY`. Nothing else is ever looked up, imported
or called because a file says so. Objects of the user's classes are passed by the user's program.
"""

import dataclasses
import inspect
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, Union, get_args, get_origin

from gloam import algorithms, archives, discounts, domains, emitters, spaces
from gloam._tools import trees
from gloam.discounts.from_torch import (
    Convolution,
    Flatten,
    Gelu,
    Linear,
    Rectifier,
    Stack,
    Tanh,
    Unflatten,
)
from gloam.emitters.emitter import Bounds
from gloam.records import MeasureSpace


@dataclasses.dataclass(frozen=True)
class Entry:
    """How a file keeps the objects of one class.

    Args:
        cls: The class.
        names: Names of the values that a file keeps of an object.
        build: Builds the object from these values.
        value_of: Functions for values that are not the attribute of the same name.
    """

    cls: type
    names: tuple[str, ...]
    build: Callable[..., Any]
    value_of: Mapping[str, Callable[[Any], Any]] = dataclasses.field(default_factory=dict)

    def arguments(self, value: Any) -> dict[str, Any]:
        """Return the values that a file keeps of an object."""
        return {
            name: self.value_of[name](value) if name in self.value_of else getattr(value, name)
            for name in self.names
        }


def _constructed(
    cls: type, value_of: Mapping[str, Callable[[Any], Any]] = {}, without: tuple[str, ...] = ()
) -> Entry:
    """A class whose constructor takes the values of its attributes, and checks them."""
    known = {field.name for field in dataclasses.fields(cls)} | set(dir(cls)) | set(value_of)
    parameters = inspect.signature(cls).parameters
    names = [name for name in parameters if name in known - set(without)]
    return Entry(cls, tuple(names), cls, value_of)


def _assembled(cls: type) -> Entry:
    """A class whose constructor takes other arguments than its fields, such as a random key."""
    names = tuple(field.name for field in dataclasses.fields(cls))

    def build(**values: Any) -> Any:
        module = object.__new__(cls)
        for name, value in values.items():
            object.__setattr__(module, name, value)
        return module

    return Entry(cls, names, build)


def _images_of(archive: archives.CVTArchive) -> Any:
    return archive.centroids.reshape(archive.num_cells, *archive.measure_shape)


_ALGORITHMS = (
    algorithms.Algorithm,
    algorithms.DMS,
    algorithms.CMAMAE,
    algorithms.CMAMEGA,
    algorithms.CMAMAEGA,
    algorithms.DDS,
    algorithms.MAPElites,
    algorithms.MAPElitesLine,
)
_CONSTRUCTED = (
    archives.Faiss,
    archives.GridArchive,
    emitters.CmaEmitters,
    emitters.Arborescences,
    emitters.Variation,
    emitters.Recombination,
    emitters.Swaps,
    emitters.GradientAscent,
    emitters.Mixture,
    emitters.AdaptiveMixture,
    emitters.MuSelection,
    emitters.FilterSelection,
    emitters.BasicRestart,
    emitters.RestartEvery,
    emitters.RestartWithoutImprovement,
    emitters.RestartWhenIdle,
    emitters.CMAES,
    emitters.SepCMAES,
    emitters.LMMAES,
    Bounds,
    MeasureSpace,
    spaces.Real,
    spaces.Integer,
    spaces.Categorical,
    discounts.DiscountModel,
    discounts.Thresholds,
    discounts.KernelDensity,
    discounts.NoDiscount,
    discounts.Reservoir,
    discounts.KeepLast,
    Linear,
    Convolution,
    Rectifier,
    Tanh,
    Gelu,
    Flatten,
    Unflatten,
    Stack,
    domains.Arm,
    domains.Decoder,
)
_ASSEMBLED = (discounts.MLP, discounts.CNN, discounts.Frozen, *_ALGORITHMS)

_SPECIAL = (
    _constructed(
        archives.CVTArchive,
        {
            "centroids": _images_of,
            "index": lambda archive: archive.index_settings or "exact",
        },
    ),
    # Without the path of a file of centroids, which are in the archive; an evaluation needs none.
    _constructed(domains.LinearProjection, without=("centroids",)),
    _constructed(
        domains.Triangles,
        {
            "centroids": lambda domain: _images_of(domain.images),
            "x0": lambda domain: domain.start if domain.start_seed is None else None,
            "seed": lambda domain: domain.start_seed or 0,
        },
    ),
    # With the weights of its generator, so that a run does not depend on those in the package.
    _constructed(
        domains.LatentDigits,
        {
            "centroids": lambda domain: _images_of(domain.images),
            "x0": lambda domain: domain.start,
        },
    ),
    # Pairs instead of a dict, whose order JSON need not keep.
    Entry(spaces.Space, ("variables",), spaces.Space.of),
    Entry(
        trees.Tree,
        ("leaves", "skeleton"),
        trees.Tree.from_json,
        {
            "leaves": lambda tree: tree.to_json()["leaves"],
            "skeleton": lambda tree: tree.to_json()["skeleton"],
        },
    ),
)

REGISTRY: Mapping[str, Entry] = {
    entry.cls.__name__: entry
    for entry in (*map(_constructed, _CONSTRUCTED), *map(_assembled, _ASSEMBLED), *_SPECIAL)
}
_NAMES = {entry.cls: name for name, entry in REGISTRY.items()}


def name_of(value: Any) -> str | None:
    """Return the registered name of an object's class, or ``None`` if it is not registered."""
    return _NAMES.get(type(value))


def build(name: str, arguments: dict[str, Any]) -> Any:
    """Build an object from a registered name and its arguments.

    Raises:
        ValueError: The name is not registered, or the arguments do not fit.
    """
    if name not in REGISTRY:
        raise ValueError(f"it names {name!r}, which gloam does not build from files")
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
    if isinstance(value, algorithms.Algorithm):
        object.__setattr__(value, "discount", value.discount.for_archive(value.archive))
        value.__check_init__()  # that its pieces fit together
    return value


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
