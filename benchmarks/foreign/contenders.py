"""Contenders, with one setting each for all problems.

`CONTENDERS` maps names to functions from a `problems.Setup` to an algorithm of gloam. `--variants
FILE` of the runner adds those of another file that defines a dict ``CONTENDERS``, for instance

    CONTENDERS = {
        "alpha 0.1": lambda setup: gloam.DMS(
            setup.archive, setup.x0, setup.sigma0, bounds=setup.bounds,
            batch_size=setup.batch // 15, alpha=0.1,
        )
    }

`OUTSIDE` has searches of other libraries, which show that the problems are set up as their authors
meant. They return solutions, objectives and measures of their elites.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import gloam
from gloam.algorithms import Algorithm
from gloam.evaluation import asks_for
from problems import Setup

MUTATION = 0.25
"""Noise of MAP-Elites as a share of sigma0. In a box it is then 0.05 of the width, as in QDax's
tests: a fifth of the box is a start for CMA-ES, which adapts it, but too much for a mutation."""


def _arguments(setup: Setup, share: float = 1.0) -> dict[str, Any]:
    return {
        "archive": setup.archive,
        "x0": setup.x0,
        "sigma0": share * setup.sigma0,
        "bounds": setup.bounds,
    }


def default(setup: Setup, **options: Any) -> gloam.DMS:
    return gloam.DMS(**_arguments(setup), batch_size=setup.batch // 15, **options)


def paper(setup: Setup) -> Algorithm:
    number = setup.batch // 36
    return gloam.DMS.paper(**_arguments(setup), num_emitters=number, ceiling=setup.f_max)


def cma_mae(setup: Setup) -> Algorithm:
    return gloam.CMAMAE(**_arguments(setup), num_emitters=setup.batch // 36)


def map_elites(setup: Setup) -> Algorithm:
    return gloam.MAPElites(**_arguments(setup, MUTATION), batch_size=setup.batch)


def map_elites_line(setup: Setup) -> Algorithm:
    return gloam.MAPElitesLine(**_arguments(setup, MUTATION), batch_size=setup.batch)


CONTENDERS: dict[str, Callable[[Setup], Algorithm]] = {
    "DMS": default,
    "DMS (paper)": paper,
    "CMA-MAE": cma_mae,
    "MAP-Elites": map_elites,
    "MAP-Elites (line)": map_elites_line,
}


def _in_box(setup: Setup) -> tuple[Callable, np.ndarray, float, tuple[float, float] | None]:
    """Return a map from unit coordinates to solutions, the start, the step and the bounds."""
    if setup.bounds is None:
        return lambda points: points, setup.x0, setup.sigma0, None
    lower, upper = setup.bounds
    start = np.full(setup.x0.size, 0.5)
    return lambda points: lower + (upper - lower) * points, start, setup.sigma0, (0.0, 1.0)


Found = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Solutions, objectives and measures of elites."""


def qdax_map_elites(setup: Setup, evaluations: int, seed: int) -> Found:
    """Run QDax's MAP-Elites with the variation and the first population of the authors."""
    from qdax.core.emitters.mutation_operators import isoline_variation
    from qdax.core.emitters.standard_emitters import MixingEmitter
    from qdax.core.map_elites import MAPElites

    expand, _, _, bounds = _in_box(setup)
    low, high = (None, None) if bounds is None else bounds
    iso, line = setup.variation
    vary = partial(isoline_variation, iso_sigma=iso, line_sigma=line, minval=low, maxval=high)
    has_noise = asks_for(setup.evaluate, "key")

    def score(points: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array, dict]:
        return (*setup.evaluate(expand(points), **({"key": key} if has_noise else {})), {})

    search = MAPElites(
        score,
        MixingEmitter(None, vary, 1.0, setup.batch),  # pyright: ignore
        lambda repertoire: {},
    )
    key, key_population, key_start = jax.random.split(jax.random.key(seed), 3)
    if setup.population is None:
        first = jax.random.uniform(key_population, (100, setup.x0.size))
    else:
        first = jnp.asarray(setup.population(key_population, 100), jnp.float32)
        if setup.bounds is not None:
            first = (first - setup.bounds[0]) / (setup.bounds[1] - setup.bounds[0])
    cells = jnp.arange(setup.archive.num_cells, dtype=jnp.int32)
    repertoire, state, _ = search.init(first, setup.archive.centers_of(cells), key_start)
    iterations = max(1, (evaluations - 100) // setup.batch)
    loop = jax.jit(
        lambda carry: jax.lax.scan(search.scan_update, carry, None, length=iterations)[0]
    )
    filled = loop((repertoire, state, key))[0]
    fitnesses = np.asarray(filled.fitnesses).ravel()
    is_elite = np.isfinite(fitnesses)
    solutions, measures = np.asarray(expand(filled.genotypes)), np.asarray(filled.descriptors)
    return solutions[is_elite], fitnesses[is_elite], measures[is_elite]


def pyribs_cma_mae(setup: Setup, evaluations: int, seed: int) -> Found:
    """Run pyribs' CMA-MAE with the settings of its example."""
    from ribs.archives import CVTArchive, GridArchive
    from ribs.emitters import EvolutionStrategyEmitter
    from ribs.schedulers import Scheduler

    if setup.ribs_sigma0 is not None:
        setup = dataclasses.replace(setup, bounds=None, sigma0=setup.ribs_sigma0)
    expand, start, step, bounds = _in_box(setup)
    archive, size = setup.archive, setup.x0.size
    sides = np.stack([archive.lower, archive.upper], axis=1).tolist()
    common: dict[str, Any] = {"solution_dim": size, "ranges": sides}
    if isinstance(archive, gloam.GridArchive):
        make = partial(GridArchive, dims=archive.shape, **common)
    else:
        make = partial(CVTArchive, centroids=np.asarray(archive.centroids, float), **common)  # pyright: ignore
    result = make()
    ranking = make(learning_rate=0.01, threshold_min=archive.f_min)
    number = setup.batch // 36
    emitters = [
        EvolutionStrategyEmitter(
            ranking,
            x0=start,
            sigma0=step,
            ranker="imp",
            selection_rule="mu",
            restart_rule="basic",
            batch_size=36,
            bounds=None if bounds is None else [bounds] * size,
            seed=int(one),
        )
        for one in np.random.SeedSequence(seed).generate_state(number)
    ]
    scheduler = Scheduler(ranking, emitters, result_archive=result)
    evaluate = jax.jit(setup.evaluate) if setup.is_traced else setup.evaluate
    for _ in range(max(1, evaluations // setup.batch)):
        solutions = expand(scheduler.ask())
        if setup.per_solution:
            found = zip(*map(evaluate, solutions), strict=True)
        else:
            found = evaluate(solutions.astype(np.float32))
        scheduler.tell(*(np.asarray(part) for part in found))
    data = result.data(["solution", "objective", "measures"])
    return expand(data["solution"]), data["objective"], data["measures"]


OUTSIDE: dict[str, Callable[[Setup, int, int], Found]] = {
    "QDax MAP-Elites": qdax_map_elites,
    "pyribs CMA-MAE": pyribs_cma_mae,
}
