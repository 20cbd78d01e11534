"""Names of measures: which may be given, and how tables and figures show them."""

from collections.abc import Iterable, Sequence

from gloam import checks
from gloam.archives.fields import RESERVED

_LONGEST = 100


def measure_names(
    names: Sequence[str] | None, measure_dim: int, fields: Iterable[str]
) -> tuple[str, ...]:
    """Checked names of the measures; empty for ``None``.

    They are columns of tables, so they differ from one another and from the other columns.
    """
    if names is None or len(names) == 0:
        return ()
    fix = "Give one name for each measure: measure_names=('speed', 'height')."
    is_text = not isinstance(names, str) and all(isinstance(name, str) for name in names)
    checks.expect(is_text, "measure_names", "a list of texts", checks.short(names), fix)
    found = f"{len(names)} names"
    checks.expect(len(names) == measure_dim, "measure_names", f"{measure_dim} names", found, fix)
    for name in names:
        sound = len(name.strip()) > 0 and len(name) <= _LONGEST and name.isprintable()
        one_line = f"texts of 1 to {_LONGEST} printable characters"
        checks.expect(sound, "measure_names", one_line, checks.short(name))
        taken = name in RESERVED or name in fields or _is_numbered(name)
        other = "names that are no other columns of the table of elites"
        checks.expect(not taken, "measure_names", other, repr(name), "Choose another name.")
    checks.expect(
        len(set(names)) == len(names), "measure_names", "different names", checks.short(names)
    )
    return tuple(names)


def labels(names: tuple[str, ...], measure_dim: int) -> tuple[str, ...]:
    """What figures write at their axes: the names, or ``measure 1``, ``measure 2``, ...

    >>> labels((), 2), labels(("speed", "height"), 2)
    (('measure 1', 'measure 2'), ('speed', 'height'))
    """
    return names or tuple(f"measure {number + 1}" for number in range(measure_dim))


def _is_numbered(name: str) -> bool:
    """Whether a name is that of a number of a solution, as a table names them."""
    stem, _, number = name.rpartition("_")
    return number.isdigit() and stem in ("solution", "measures")
