"""An algorithm as an emitter, an archive and a discount, and how presets expose their options."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import equinox as eqx

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.archives import Archive
from gloam.discounts import Discount
from gloam.emitters import Emitter

_Class = TypeVar("_Class", bound=type)


def _complete(algorithm: "Algorithm") -> None:
    """Fit the discount to the archive, and check that the pieces fit together."""
    discount = algorithm.discount.for_archive(algorithm.archive)
    object.__setattr__(algorithm, "discount", discount)
    algorithm.__check_init__()


register_algorithm = register(assembled=True, complete=_complete)


@register_algorithm
class Algorithm(eqx.Module):
    """Any emitter, archive and discount. `gloam.step` runs them; subclasses only choose them.

    Args:
        emitter: Proposes solutions, for instance `gloam.emitters.CmaEmitters`.
        archive: The cells to fill.
        discount: Scores solutions, for instance `gloam.discounts.Thresholds`. It takes its sizes
            from the archive.
        name: Name in tables and figures.

    Example:
        >>> import gloam, numpy as np
        >>> archive = gloam.GridArchive(shape=(20, 20), lower=-1, upper=1)
        >>> emitter = gloam.emitters.Variation(np.zeros(4), 0.2)
        >>> algorithm = gloam.Algorithm(emitter, archive, gloam.discounts.Thresholds(alpha=0.1))
        >>> gloam.Search(algorithm, seed=1).ask().shape
        (540, 4)
    """

    emitter: Emitter
    archive: Archive
    discount: Discount
    name: str = eqx.field(static=True)

    def __init__(
        self, emitter: Emitter, archive: Archive, discount: Discount, name: str = "custom"
    ):
        checks.instance("emitter", emitter, Emitter, "Build one of gloam.emitters.")
        checks.instance("discount", discount, Discount, "Build one of gloam.discounts.")
        checks.instance("name", name, str)
        self.emitter, self.archive = emitter, checked_archive(archive)
        self.discount, self.name = discount.for_archive(archive), name

    def __check_init__(self) -> None:
        self.discount.for_archive(self.archive)  # raises if the sizes differ
        cells = f"the {self.archive.num_cells:,} cells"
        checks.fits_memory("archive", self.size_of_elites, cells)
        emitter = self.emitter
        num_rows = emitter.num_solutions + emitter.num_elites_to_adapt
        num_rows += sum(draw.number * draw.best_of for draw in emitter.elites_to_ask)
        numbers, most = num_rows * self._row_size, checks.LARGEST_INTEGER
        fix = "Use smaller batches."
        expected = f"at most {most:,} numbers in a batch"
        checks.expect(numbers <= most, "emitter", expected, f"{numbers:,}", fix)

    def for_programs(self, *, cells_given: bool = False) -> "Algorithm":
        """Return the algorithm with an archive that has the arrays that compiled programs need."""
        archive = self.archive.for_programs(cells_given=cells_given)
        return eqx.tree_at(lambda a: a.archive, self, archive)

    @property
    def size_of_elites(self) -> int:
        """Memory of the elites of all cells, in bytes."""
        return 4 * self.archive.num_cells * self._row_size

    @property
    def _row_size(self) -> int:
        """Number of numbers that belong to a solution."""
        fields = sum(math.prod(field.shape) for field in self.archive.fields.values())
        return self.emitter.x0.size + 1 + self.archive.measure_dim + fields


def checked_archive(archive: Archive) -> Archive:
    """Return ``archive``, or raise an error if it is something else."""
    checks.instance("archive", archive, Archive, "Build a GridArchive or a CVTArchive.")
    return archive


class Piece(NamedTuple):
    """A class whose arguments a preset passes on."""

    cls: type
    without: tuple[str, ...] = ()
    """Arguments that the preset chooses itself."""

    @property
    def parameters(self) -> dict[str, inspect.Parameter]:
        """Arguments that are passed on."""
        found = inspect.signature(self.cls).parameters
        return {name: found[name] for name in found if name not in self.without}


def composed_of(*pieces: Piece) -> Callable[[_Class], _Class]:
    """Return a class decorator that shows the arguments of pieces in the place of ``**options``.

    They are added to the signature, as keywords, and to the ``Args:`` of the docstring. Arguments
    that the constructor names itself keep their own defaults and descriptions.
    """

    def complete(cls: _Class) -> _Class:
        constructor: Any = cls.__init__
        named = inspect.signature(constructor).parameters
        own = {name: one for name, one in named.items() if one.kind is not one.VAR_KEYWORD}
        options = {name: one for piece in pieces for name, one in piece.parameters.items()}
        added = [
            one.replace(kind=one.KEYWORD_ONLY) for name, one in options.items() if name not in own
        ]
        # Equinox derives the signature of a class from that of its constructor.
        constructor.__signature__ = inspect.Signature([*own.values(), *added])
        names = [*own, *(one.name for one in added)]
        cls.__doc__ = _with_arguments(cls, names, pieces)
        return cls

    return complete


def split_options(cls: type, options: dict[str, Any], *pieces: Piece) -> list[dict[str, Any]]:
    """Split keyword arguments of a preset into those of its pieces.

    Raises:
        TypeError: No piece has an argument of that name.
    """
    checks.unexpected_names(cls.__name__, options, inspect.signature(cls).parameters)
    return [
        {option: value for option, value in options.items() if option in piece.parameters}
        for piece in pieces
    ]


def _with_arguments(cls: type, names: list[str], pieces: tuple[Piece, ...]) -> str:
    """Return the docstring of a class with the ``Args:`` of its pieces added."""
    before, described, after = _sections(cls)
    for piece in pieces:
        for group, text in _sections(piece.cls)[1].items():
            wanted = set(group) <= set(names) - set(piece.without)
            if wanted and not any(set(group) & set(known) for known in described):
                described[group] = text
    ordered = sorted(described, key=lambda group: names.index(group[0]))
    return "\n".join([*before, *(described[group] for group in ordered), *after])


def _sections(cls: type) -> tuple[list[str], dict[tuple[str, ...], str], list[str]]:
    """Split a docstring into lines up to ``Args:``, text by group of arguments, and other lines.

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
    if "Args:" not in lines:  # python -OO drops docstrings
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
