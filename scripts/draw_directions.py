"""Draw the directions in which improvement leads over a 2D discount: docs/images/directions.png."""

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib import pyplot as plt

import gloam
from gloam import step
from gloam._tools.draws import root_key

ITERATIONS, SIDE, ARROWS = 60, 200, 22


def main() -> None:
    """Search 2D LP (Sphere) for a while, and draw the discount with its gradient."""
    domain = gloam.domains.LinearProjection(measure_dim=2)
    algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0=0.5, gradients=True)
    state = step.init(algorithm, root_key(1))
    advance = jax.jit(lambda state: step.step(algorithm, domain, state)[0])
    for _ in range(ITERATIONS):
        state = advance(state)

    def discount(points: jax.Array) -> jax.Array:
        return algorithm.discount.discount(state.discount, points)

    edge = domain.edge
    fine = np.linspace(-edge, edge, SIDE)
    raster = np.stack(np.meshgrid(fine, fine), axis=2).reshape(-1, 2).astype(np.float32)
    coarse = np.linspace(-0.96 * edge, 0.96 * edge, ARROWS)
    places = np.stack(np.meshgrid(coarse, coarse), axis=2).reshape(-1, 2).astype(np.float32)
    slopes = -np.asarray(jax.grad(lambda p: jnp.sum(discount(p)))(jnp.asarray(places)))
    lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
    arrows = slopes / np.sqrt(lengths * lengths.max())

    figure, axes = plt.subplots(figsize=(6.4, 5.2), layout="constrained")
    heights = np.asarray(discount(jnp.asarray(raster))).reshape(SIDE, SIDE)
    drawn = axes.imshow(heights, origin="lower", extent=(-edge, edge, -edge, edge), cmap="viridis")
    axes.quiver(*places.T, *arrows.T, color="white", scale=28, width=0.003)
    occupied = np.asarray(state.store.occupied)
    measures = np.asarray(state.store.measures)[occupied]
    axes.plot(*measures.T, ".", color="black", markersize=1.2, alpha=0.5)
    axes.set(xlabel="measure 1", ylabel="measure 2")
    axes.set_title(f"Iteration {ITERATIONS}: discount, elites and directions", fontsize=11)
    figure.colorbar(drawn, label="discount")
    figure.savefig("docs/images/directions.png", dpi=110)


if __name__ == "__main__":
    main()
