"""Draw docs/images/histograms.png: discounts as a histogram and as a model (paper, figure 1)."""

from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.axes import Axes

import gloam
from gloam.discounts import DiscountModel, Thresholds
from gloam.plots import line_colors, save, style
from gloam.records import Batch
from gloam_lab import paper_algorithm

IMAGE = Path(__file__).parents[1] / "docs" / "images" / "histograms.png"
CELLS, BATCHES, SIZE = 8, 80, 36
SOLUTIONS = np.array([0.51, 0.61])  # two measures in one cell
SEEDS, ITERATIONS = 3, 300


def main() -> None:
    """Draw the three panels."""
    figure = style.figure(11, 3.4)
    left, middle, right = figure.subplots(1, 3)
    histogram, model = learned_discounts()
    draw_discount(left, histogram, "Histogram (CMA-MAE)", "CMA-MAE")
    draw_discount(middle, model, "Model (DMS)", "DMS")
    draw_unique_cells(right)
    print(save(figure, IMAGE))


def learned_discounts():
    """Return two discounts over one measure, trained on the same batches with objective 1."""
    archive = gloam.GridArchive((CELLS,), 0, 1)
    model = DiscountModel(
        alpha=0.03,
        floor=0.0,
        ceiling=1.0,
        num_empty_points=2,
        learning_rate=1e-3,
    )
    discounts = Thresholds(alpha=0.005).for_archive(archive), model.for_archive(archive)
    random = np.random.default_rng(0)
    states = [discount_start(discount, archive) for discount in discounts]
    for number in range(BATCHES):
        drawn = np.clip(random.normal(0.25, 0.16, (SIZE, 1)), 0, 1)
        measures = jnp.asarray(drawn, jnp.float32)
        ones, valid = jnp.ones(SIZE), jnp.ones(SIZE, bool)
        batch = Batch(measures, ones, measures, archive.index_of(measures), valid, {})
        empty = archive.centers_of(jnp.arange(CELLS - 2, CELLS))
        for place, discount in enumerate(discounts):
            centers = empty[: discount.num_empty_centers]
            states[place] = after(discount, states[place], batch, centers, jax.random.key(number))
    thresholds, trained = states
    return (
        lambda points: np.asarray(thresholds[archive.index_of(points)]),
        lambda points: np.asarray(discounts[1].discount(trained, points)),
    )


@eqx.filter_jit
def after(discount, state, batch, centers, key):
    """Return the state of a discount after training on a batch."""
    scored, real = discount.score(state, batch), jnp.ones(len(centers), bool)
    return discount.train(state, batch, scored, centers, real, key=key)[0]


def discount_start(discount, archive):
    """Return the initial state of a discount."""
    cells = jnp.arange(discount.num_initial_centers) % archive.num_cells
    real = jnp.ones(len(cells), bool)
    return discount.init(archive.centers_of(cells), real, key=jax.random.key(0))


def draw_discount(axes: Axes, discount, title: str, algorithm: str) -> None:
    """Draw the discount over one measure, and the improvements of two solutions."""
    style.dress(axes)
    points = np.linspace(0, 1, 2001, dtype=np.float32)[:, None]
    (color,) = line_colors([algorithm]).values()
    axes.plot(points[:, 0], discount(points), color=color, linewidth=2)
    for edge in np.linspace(0, 1, CELLS + 1):
        axes.axvline(edge, color=style.FAINT, linewidth=0.8, zorder=0)
    axes.axhline(1.0, color=style.QUIET, linewidth=1, linestyle="--")
    axes.text(0.0, 1.03, "objective", color=style.QUIET, fontsize=style.SMALL)
    values = discount(SOLUTIONS[:, None].astype(np.float32))
    for number, (place, value) in enumerate(zip(SOLUTIONS, values, strict=True), start=1):
        arrow = {"arrowstyle": "<->", "color": style.INK, "linewidth": 1.2}
        axes.annotate("", (place, 1.0), (place, value), arrowprops=arrow)
        axes.plot(place, 1.0, "o", color=style.INK, markersize=5)
        axes.text(place, 1.05, str(number), ha="center", color=style.INK, fontsize=style.LABEL)
    first, second = 1 - values
    axes.set(xlabel="measure", ylabel="discount", ylim=(-0.05, 1.3), xlim=(0, 1))
    style.heading(axes, title, f"improvements {first:.2f} and {second:.2f}")


def draw_unique_cells(axes: Axes) -> None:
    """Draw the number of unique cells in the batches of CMA-MAE, with 2 and 10 measures."""
    style.dress(axes, grid=True)
    for measures, color in ((2, "#009e73"), (10, "#cc79a7")):
        domain = gloam.domains.LinearProjection(measure_dim=measures)
        algorithm = paper_algorithm("cma-mae", domain)
        result = gloam.run(domain, algorithm, ITERATIONS, seeds=SEEDS, log_every=10, progress=False)
        by_iteration = result.metrics.groupby("iteration")["unique_cells"]
        mean, low, high = by_iteration.mean(), by_iteration.min(), by_iteration.max()
        axes.plot(mean.index, mean, color=color, linewidth=2, label=f"{measures} measures")
        axes.fill_between(mean.index, low, high, color=color, alpha=0.2, linewidth=0)
    axes.set(xlabel="iteration", ylabel="unique cells in a batch", ylim=(0, None))
    axes.legend(frameon=False, fontsize=style.SMALL)
    style.heading(axes, "Cells in a batch of CMA-MAE", "540 solutions, 10,000 cells")


if __name__ == "__main__":
    main()
