"""Tables of elites in the format of `gloam.archives.Elites.to_pandas`, read column by column."""

import math
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from gloam._tools import checks
from gloam._tools.trees import flat_columns
from gloam.archives.archive import Archive
from gloam.spaces import Form, Space


class EliteColumns:
    """The columns of a table of elites.

    Args:
        table: A DataFrame, or another mapping of names to columns.
        argument: Name of the argument that missing results are reported under.
        fix: What to do about missing results.
    """

    def __init__(self, table: Any, *, argument: str = "table", fix: str = ""):
        self._columns: Mapping[str, np.ndarray] = {
            str(name): np.asarray(table[name]) for name in table
        }
        self._argument, self._fix = argument, fix

    def solutions(self, form: Form | None, size: int | None = None) -> np.ndarray:
        """Return the solutions as vectors.

        Args:
            form: The space or tree of the solutions, ``None`` for plain vectors.
            size: Numbers in a plain vector. Default: the number of columns ``solution_0``, ...
        """
        columns = self._columns
        if form is None:
            numbered = sum(bool(re.fullmatch(r"solution_\d+", name)) for name in columns)
            return flat_columns(columns, size or max(1, numbered))
        if isinstance(form, Space):
            # A variable with the name of a measure or field has the column solution_NAME.
            prefixed = {f"solution_{name}": name for name, _ in form.places}
            columns = dict(columns) | {
                prefixed[name]: rows for name, rows in columns.items() if name in prefixed
            }
        return form.from_columns(columns)

    def results(self, archive: Archive) -> tuple[np.ndarray, np.ndarray, dict[str, np.ndarray]]:
        """Return objectives, flat measures and the fields of an archive."""
        names = list(archive.measure_names)
        has_names = bool(names) and set(names) <= set(self._columns)
        fields = {}
        for name, spec in archive.fields.items():
            columns = [name] if name in self._columns else _numbered(name, math.prod(spec.shape))
            fields[name] = self._block(columns).reshape(-1, *spec.shape)
        measures = names if has_names else _numbered("measures", archive.measure_dim)
        return self._block(["objective"])[:, 0], self._block(measures), fields

    def cells(self) -> np.ndarray | None:
        """Return the cells, if the table has them."""
        return self._columns.get("cell")

    def _block(self, names: list[str]) -> np.ndarray:
        missing = [name for name in names if name not in self._columns]
        expected, got = f"columns {', '.join(names[:4])}", f"no column '{(missing or [''])[0]}'"
        checks.expect(not missing, self._argument, expected, got, self._fix)
        return np.stack([self._columns[name] for name in names], axis=1)


def _numbered(name: str, size: int) -> list[str]:
    return [f"{name}_{i}" for i in range(size)]
