"""Draw aimed CMA-ES instances on their way to empty cells: docs/images/targets.png."""

from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float
from matplotlib import pyplot as plt

import gloam
from gloam import step
from gloam._tools.draws import root_key
from gloam.records import SearchState

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "targets.png"
SEED, ITERATIONS, RECENT = 1, 60, 30
# Colors that differ from those of objectives.
PATH, TARGET = "black", "#d4002a"


class Aim(NamedTuple):
    """The target of an instance, and the measures of its means since the elite where it began."""

    cell: int
    means: list[Float[np.ndarray, "2"]]


def main() -> None:
    """Search 2D LP (Sphere), and draw the archive with the targets of aimed instances."""
    domain = gloam.domains.LinearProjection(measure_dim=2)
    # Aimed instances have half of the batch, so that there are several to see.
    kinds = gloam.emitters.CmaEmitters, gloam.emitters.AimedCmaEmitters
    emitters = [kind(domain.x0, sigma0=0.5, num_emitters=15) for kind in kinds]
    mixture = gloam.emitters.AdaptiveMixture(emitters, least=[0.4, 0.5])
    algorithm = gloam.Algorithm(mixture, domain.archive(), gloam.discounts.DiscountModel())
    state, aims = search(domain, algorithm)
    objectives = np.asarray(state.store.objectives)
    side, edge = int(np.sqrt(len(objectives))), domain.edge
    raster = np.ma.masked_invalid(objectives).reshape(side, side).T  # the first measure is x

    figure, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
    extent = (-edge, edge, -edge, edge)
    drawn = axes.imshow(raster, origin="lower", extent=extent, cmap="viridis", vmin=0, vmax=1)
    targets = np.asarray(algorithm.archive.centers_of(np.asarray([aim.cell for aim in aims])))
    for aim, target in zip(aims, targets, strict=True):
        path = np.stack(aim.means)
        axes.plot(*np.stack([path[-1], target]).T, ":", color=TARGET, linewidth=1)
        axes.plot(*path.T, "-", color=PATH, linewidth=1.4)
        axes.plot(*path[0], "o", color="white", markeredgecolor=PATH, markersize=6)
        axes.plot(*path[-1], "o", color=PATH, markersize=5)
    axes.plot(*targets.T, "x", color=TARGET, markersize=8, markeredgewidth=2)
    axes.set(xlabel="measure 1", ylabel="measure 2")
    axes.set_title(f"Iteration {ITERATIONS}: elites, targets and means", fontsize=11)
    figure.colorbar(drawn, label="objective")
    figure.savefig(IMAGE, dpi=110)
    print(IMAGE, len(aims), "targets")


def search(
    domain: gloam.domains.LinearProjection, algorithm: gloam.Algorithm
) -> tuple[SearchState, list[Aim]]:
    """Return the last state, and what instances aim at that had a slot recently."""
    advance = jax.jit(lambda state: step.step(algorithm, domain, state)[0])
    mixture: Any = algorithm.emitter
    index = mixture.labels.index("aimed")
    state = step.init(algorithm, root_key(SEED))
    aims: dict[int, Aim] = {}
    worked: dict[int, int] = {}
    for iteration in range(ITERATIONS):
        before = state
        state = advance(before)
        old, new = (each.emitter.emitters[index] for each in (before, state))
        moved = new.instances.gaussians.mean != old.instances.gaussians.mean
        has_worked = np.asarray(moved).any(axis=1)
        means = np.asarray(domain(new.instances.gaussians.mean)[1])
        for instance in np.flatnonzero(has_worked):
            cell = int(new.cells[instance])
            if old.is_waiting[instance]:
                aims[instance] = Aim(cell, [start_of(algorithm, domain, before, cell)])
            aims[instance].means.append(means[instance])
            worked[instance] = iteration
    shown = {i for i, last in worked.items() if last >= ITERATIONS - RECENT}
    aimed = np.asarray(new.is_aimed & ~new.is_waiting)
    return state, [aim for instance, aim in aims.items() if instance in shown and aimed[instance]]


def start_of(
    algorithm: gloam.Algorithm,
    domain: gloam.domains.LinearProjection,
    state: SearchState,
    cell: int,
) -> Float[np.ndarray, "2"]:
    """Return the measures of the elite that is nearest to a cell, or of ``x0`` without elites."""
    elites = np.asarray(state.store.measures)[np.asarray(state.store.occupied)]
    if not len(elites):
        return np.asarray(domain(domain.x0[None])[1][0])
    center = np.asarray(algorithm.archive.centers_of(np.asarray([cell])))
    return elites[np.argmin(np.square(elites - center).sum(axis=1))]


if __name__ == "__main__":
    main()
