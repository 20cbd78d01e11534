"""What a run leaves behind: its result, or the news that it was stopped."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING
from gloam.archives import Elites
from gloam.callbacks import CallbackFailure
from gloam.searches.search import result_card
from gloam.searches.search import result_text

if TYPE_CHECKING:
    import pandas as pd


@dataclasses.dataclass(frozen=True, repr=False)
class Result:
    """What a run leaves behind."""

    elites_by_seed: dict[int, Elites]
    """The elites of every seed."""
    metrics: "pd.DataFrame"
    """Columns seed, iteration, evaluations, qd_score, coverage, best_objective, loss, epochs,
    restarts, unique_cells, failed (in this iteration), failed_total (in all so far), below_f_min,
    outside_bounds, empty_discount, rank_correlation (see `DiscountMetrics`), seconds."""
    seeds: list[int]
    run_dir: Path | None
    stopped: str | None = None
    """The reason that a callback gave to stop the run before its last iteration."""
    callback_failures: tuple[CallbackFailure, ...] = ()
    """Errors that callbacks raised."""

    @property
    def elites(self) -> Elites:
        """The elites of the first seed."""
        return self.elites_by_seed[self.seeds[0]]

    def __repr__(self) -> str:
        return result_text(self)

    def _repr_html_(self) -> str:
        return result_card(self)


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C or a termination signal after saving what it had.

    Attributes:
        run_dir: The run folder, or ``None``.
        iteration: Iterations finished.
        signal: Number of the signal that stopped it, or ``None``.
    """

    def __init__(
        self,
        run_dir: Path | None,
        iteration: int,
        advice: str | None = None,
        *,
        signal: int | None = None,
    ):
        self.run_dir = run_dir
        self.iteration = iteration
        self.signal = signal
        if advice is None and run_dir:
            advice = f"continue with: gloam resume {run_dir}"
        super().__init__(f"stopped after iteration {iteration}" + (f"; {advice}" if advice else ""))
