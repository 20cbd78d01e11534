"""QDax as a contender: its MAP-Elites with the line operator, in one compiled scan."""

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from qdax.core.containers.mapelites_repertoire import MapElitesRepertoire
from qdax.core.emitters.mutation_operators import isoline_variation
from qdax.core.emitters.standard_emitters import MixingEmitter
from qdax.core.map_elites import MAPElites

from gloam import emitters
from gloam.experiments.comparison import Contender, Problem


class Qdax(Contender):
    """QDax on the same domain function; a grid is given to it as the centres of its cells."""

    name = "QDax"

    def __init__(self, problem: Problem, seed: int):
        emitter, archive = problem.ours.emitter, problem.ours.archive
        assert isinstance(emitter, emitters.Variation)
        domain, self.batch = problem.domain, emitter.batch_size
        vary = partial(isoline_variation, iso_sigma=emitter.sigma, line_sigma=emitter.line_sigma)
        search = MAPElites(
            lambda solutions, key: (*domain(solutions), {}),
            MixingEmitter(None, vary, 1.0, emitter.batch_size),
            lambda repertoire: {},
        )
        cells = jnp.arange(archive.num_cells, dtype=jnp.int32)
        key, start = jax.random.split(jax.random.key(seed))
        repertoire, state, _ = search.init(domain.x0[None], archive.centers_of(cells), start)
        self.num_cells = archive.num_cells
        self._carry = (repertoire, state, key)

        def stretch(carry: Any, iterations: Any) -> Any:
            return jax.lax.fori_loop(
                0, iterations, lambda _, carry: search.scan_update(carry, None)[0], carry
            )

        self._stretch = jax.jit(stretch, donate_argnums=0)

    def advance(self, iterations: int) -> None:
        """Run some iterations."""
        self._carry = jax.block_until_ready(self._stretch(self._carry, iterations))
        self.evaluations += iterations * self.batch

    @property
    def qd_score(self) -> float:
        """QD score now."""
        repertoire: MapElitesRepertoire = self._carry[0]
        fitnesses = jnp.reshape(repertoire.fitnesses, -1)
        return float(jnp.sum(jnp.where(jnp.isfinite(fitnesses), fitnesses, 0.0)))
