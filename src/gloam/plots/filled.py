"""What figures of archives show: the cells, and a number for each that holds an elite."""

import numpy as np
from jaxtyping import Float, Shaped

from gloam import checks
from gloam.archives import Archive, Elites

Filled = Elites | tuple[Archive, Float[np.ndarray, " cells"]]
"""A filled archive, or an archive and the ``(cells,)`` objectives of its cells, minus infinity
where a cell is empty."""
Color = str | Shaped[np.ndarray, " cells"]
"""``"objective"``, the name of a field of one number, or a number for each cell."""


def contents(
    elites: Filled, color: Color = "objective"
) -> tuple[Archive, Float[np.ndarray, " cells"], str]:
    """The archive, the values of all its cells, not finite where there is none, and their name."""
    if isinstance(elites, Elites):
        archive, objectives = elites.archive, np.asarray(elites.store.objectives)
    else:
        archive, objectives = elites[0], np.asarray(elites[1])
        _check_cells("objectives", objectives, archive, "Empty cells have minus infinity.")
    if isinstance(color, str) and color == "objective":
        return archive, objectives, "objective"
    if not isinstance(color, str):
        values = np.asarray(color, np.float64)
        _check_cells("color", values, archive, "Cells with nothing to show have NaN.")
        return archive, values, ""
    fields = elites.store.fields if isinstance(elites, Elites) else {}
    known = [name for name, values in fields.items() if np.ndim(values) == 1]
    checks.choice("color", color, ("objective", *known), "Or give a number for each cell.")
    values = np.asarray(fields[color], np.float64)
    return archive, np.where(np.isfinite(objectives), values, np.nan), color


def value_limits(archive: Archive, values: Float[np.ndarray, " cells"]) -> tuple[float, float]:
    """Lowest and highest of the finite values, apart even when they are the same."""
    found = values[np.isfinite(values)]
    low, high = (found.min(), found.max()) if len(found) else (archive.f_min, archive.f_min)
    if low < high:
        return float(low), float(high)
    return (archive.f_min if archive.f_min < high else float(high) - 1.0), float(high)


def _check_cells(name: str, values: np.ndarray, archive: Archive, fix: str) -> None:
    checks.expect(
        values.shape == (archive.num_cells,),
        name,
        f"one for each of the {archive.num_cells} cells",
        f"shape {values.shape}",
        fix,
    )
