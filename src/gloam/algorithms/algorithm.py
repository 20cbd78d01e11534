"""What an algorithm is: an emitter, an archive and a discount."""

import math

import equinox as eqx

from gloam import checks
from gloam.archives import Archive
from gloam.discounts import Discount
from gloam.emitters import Emitter


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
