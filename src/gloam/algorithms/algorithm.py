"""An algorithm is an emitter, an archive and a discount."""

import math

import equinox as eqx

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.archives import Archive
from gloam.discounts import Discount
from gloam.emitters import Emitter
from gloam.emitters.emitter import check_elites_wanted


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
        check_elites_wanted(emitter)
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
