"""The table that commands print about the matches of a run with its dataset."""

from typing import Any

import numpy as np

from gloam.datasets import Matches


def print_matches(matches: Matches) -> None:
    """Print how many items have an elite and how close the elites are, also by label."""
    elites, data = matches.elites, matches.dataset
    print(
        f"{len(elites):,} of {len(data):,} items have an elite ({matches.coverage():.1%}), "
        f"QD score {elites.qd_score:,.2f}, best {elites.best_objective:.4f}"
    )
    if len(elites):
        middle = float(np.median(matches.distances))
        print(f"Median distance between elite and item: {middle:.3g}")
    if data.labels is not None and 1 < len(set(data.labels)) <= 30:
        rows: Any = matches.coverage_by_label().itertuples()
        for row in rows:
            print(f"{row.label:>12} {row.filled:>6} of {row.items:<6} {row.coverage:>7.1%}")
