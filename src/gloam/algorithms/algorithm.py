"""Constructors that take the arguments of their pieces, which declare and document them.

What an algorithm is: an emitter, an archive and a discount.
"""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx

from gloam import checks
from gloam.archives import Archive
from gloam.discounts import Discount
from gloam.emitters import Emitter

_Class = TypeVar("_Class", bound=type)


class Piece(NamedTuple):
    """A class whose arguments an algorithm passes on."""

    cls: type
    without: tuple[str, ...] = ()
    """Arguments that the algorithm chooses itself."""

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """The arguments that are passed on."""
        found = inspect.signature(self.cls).parameters
        return {name: found[name] for name in found if name not in self.without}


def composed_of(*pieces: Piece) -> Callable[[_Class], _Class]:
    """Class decorator: a constructor with ``**options`` shows the arguments of the pieces.

    They are added to the signature, as keywords, and to the ``Args:`` of the docstring. Arguments
    that the constructor names itself stay as they are, and are described where they are described.
    """

    def complete(cls: _Class) -> _Class:
        constructor: Any = cls.__init__
        named = inspect.signature(constructor).parameters
        own = {name: one for name, one in named.items() if one.kind is not one.VAR_KEYWORD}
        options = {name: one for piece in pieces for name, one in piece.parameters.items()}
        added = [
            one.replace(kind=one.KEYWORD_ONLY) for name, one in options.items() if name not in own
        ]
        # Equinox makes the signature of a class from that of its constructor.
        constructor.__signature__ = inspect.Signature([*own.values(), *added])
        names = [*own, *(one.name for one in added)]
        cls.__doc__ = _with_arguments(cls, names, pieces)
        return cls

    return complete


def split_options(name: str, options: dict[str, Any], *pieces: Piece) -> list[dict[str, Any]]:
    """The options of each piece.

    Args:
        name: Name of the algorithm, for the error message.
        options: Keyword arguments of the algorithm's constructor.
        pieces: What they are passed on to.

    Raises:
        TypeError: No piece has an argument of that name.
    """
    known = [piece.parameters for piece in pieces]
    for option in options:
        if not any(option in parameters for parameters in known):
            raise TypeError(f"{name}.__init__() got an unexpected keyword argument '{option}'")
    return [
        {option: value for option, value in options.items() if option in parameters}
        for parameters in known
    ]


def _with_arguments(cls: type, names: list[str], pieces: tuple[Piece, ...]) -> str:
    """The docstring of a class, its ``Args:`` completed from those of its pieces."""
    before, described, after = _sections(cls)
    for piece in pieces:
        for group, text in _sections(piece.cls)[1].items():
            wanted = set(group) <= set(names) - set(piece.without)
            if wanted and not any(set(group) & set(known) for known in described):
                described[group] = text
    ordered = sorted(described, key=lambda group: names.index(group[0]))
    return "\n".join([*before, *(described[group] for group in ordered), *after])


def _sections(cls: type) -> tuple[list[str], dict[tuple[str, ...], str], list[str]]:
    """Lines of a docstring to ``Args:``, the text for each group of arguments, and later lines.

    >>> class Point:
    ...     '''A point.
    ...
    ...     Args:
    ...         x, y: Where
    ...             it is.
    ...     '''
    >>> print(_sections(Point)[1]["x", "y"])
        x, y: Where
            it is.
    """
    lines = (inspect.getdoc(cls) or "").splitlines()
    if "Args:" not in lines:  # Python started with -OO drops docstrings
        return lines, {}, []
    start = lines.index("Args:") + 1
    end = next((i for i in range(start, len(lines)) if lines[i][:1].strip() or not lines[i]), None)
    entries: list[str] = []
    for line in lines[start:end]:
        if line.startswith(" " * 5):
            entries[-1] += f"\n{line}"
        else:
            entries.append(line)
    groups = {tuple(entry.partition(":")[0].strip().split(", ")): entry for entry in entries}
    return lines[:start], groups, [] if end is None else lines[end:]


class Algorithm(eqx.Module):
    """Any emitter, archive and discount. `gloam.step` runs them; subclasses only choose them.

    Args:
        emitter: Proposes solutions, for instance `gloam.emitters.CmaEmitters`.
        archive: The cells to fill.
        discount: Scores solutions, for instance `gloam.discounts.Thresholds`. It must be made for
            the archive's number of cells and of measures.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> emitter = gloam.emitters.Variation(np.zeros(4), 0.2)
        >>> discount = gloam.discounts.Thresholds(archive.num_cells, alpha=0.1)
        >>> algorithm = gloam.Algorithm(emitter, archive, discount)
        >>> gloam.Search(algorithm, seed=1).ask().shape
        (540, 4)
    """

    emitter: Emitter
    archive: Archive
    discount: Discount

    def __check_init__(self) -> None:
        checks.instance("emitter", self.emitter, Emitter, "Build one of gloam.emitters.")
        check_archive(self.archive)
        checks.instance("discount", self.discount, Discount, "Build one of gloam.discounts.")
        archive = self.archive
        self.discount.check(archive.num_cells, archive.measure_dim)
        checks.fits_memory("archive", self.size_of_elites, f"the {archive.num_cells:,} cells")

    @property
    def size_of_elites(self) -> int:
        """Memory that the elites of all cells take, in bytes."""
        archive = self.archive
        # What the store keeps of a cell: a solution, an objective, measures and fields.
        fields = sum(math.prod(field.shape) for field in archive.fields.values())
        row = self.emitter.x0.size + 1 + archive.measure_dim + fields
        return 4 * archive.num_cells * row


def check_archive(archive: Archive) -> None:
    """Raise an error for what is no archive, before it is asked for its sizes."""
    checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
