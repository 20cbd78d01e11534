"""Ceilings: the best possible QD scores of the study's domains, from `scripts/ceilings.py`."""

import hashlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from gloam.archives import Archive, CVTArchive, GridArchive

FILE = Path(__file__).with_name("ceilings.csv")
"""The table that `scripts/ceilings.py` writes."""


class Ceiling(NamedTuple):
    """Best possible QD score of a domain with one archive."""

    qd_score: float
    """QD score that no search exceeds: the sum over the cells of their best objectives."""
    attained: float
    """QD score of solutions that were found; equal to ``qd_score`` if the ceiling is exact."""
    cells: str
    """``"grid"``, or whose centroids were used: ``"paper"`` or ``"gloam"``."""

    @property
    def is_exact(self) -> bool:
        """Whether the ceiling is attained; otherwise it is an upper bound."""
        return self.attained == self.qd_score

    @property
    def is_papers(self) -> bool:
        """Whether the paper used the same cells, so that its scores can be compared."""
        return self.cells in ("grid", "paper")


def ceiling(domain: str, archive: Archive) -> Ceiling | None:
    """Return the ceiling of a domain, or ``None`` if it was not computed for this archive."""
    return _ceilings().get((domain, archive_digest(archive)))


def archive_digest(archive: Archive) -> str:
    """Return the first digits of the SHA-256 of the numbers that define the cells."""
    if isinstance(archive, GridArchive):
        arrays = [np.asarray(archive.shape, np.int64), archive.lower, archive.upper]
    elif isinstance(archive, CVTArchive):
        arrays = [archive.centroids]
    else:
        return ""
    content = b"".join(np.asarray(array).tobytes() for array in arrays)
    return hashlib.sha256(content).hexdigest()[:16]


@cache
def _ceilings() -> dict[tuple[str, str], Ceiling]:
    """Return all ceilings, by domain and digest of the archive."""
    rows = pd.read_csv(FILE).to_dict("records")
    return {
        (row["domain"], row["archive"]): Ceiling(row["ceiling"], row["attained"], row["cells"])
        for row in rows
    }
