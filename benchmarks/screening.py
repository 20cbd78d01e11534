"""Compare variants of a search that differ in numbers only, all of them and all seeds at once.

    python benchmarks/screening.py --domains 10d-lp-sphere arm --iterations 4000 --seeds 5

Variants of one program (step sizes, alpha, constants of a restart rule) are one batch on the
device: they cost little more than one of them. `docs/research` says what was compared and why.
"""

import argparse
import time
from pathlib import Path

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

import gloam
from gloam import step
from gloam.discounts import DiscountModel
from gloam.drivers.splitting import for_programs, split
from gloam.emitters import CmaEmitters, Mixture, RestartRule, Variation

LADDER = (50, 75, 100, 150, 200, 300, 500, 800, 1500, 10**9)


class Screened(RestartRule):
    """All restart rules that are compared, chosen by a number."""

    kind: float  # 0: ladder of periods, 1: yield
    by_gain: float  # 0: count improvements, 1: sum of gains
    horizon: float
    patience: float
    factor: float
    memory: float
    scale: float  # of the ladder

    def init(self, num_emitters):
        zeros = jnp.zeros(num_emitters)
        return zeros, zeros, jnp.zeros(()), jnp.zeros(())

    def due(self, state, progress):
        age, recent, mean, weight = state
        gain = jnp.where(self.by_gain > 0.5, progress.gains, progress.improved.astype(jnp.float32))
        age = age + 1
        # Mean of all iterations since the restart at first, then exponential.
        rate = jnp.maximum(1 / age, 1 / self.horizon)
        recent = recent + rate * (gain - recent)
        slow = 1 / jnp.minimum(self.memory, weight + 1)
        mean = mean + slow * (jnp.mean(gain) - mean)
        unproductive = (age >= self.patience) & (recent < self.factor * mean)
        num = len(age)
        periods = self.scale * jnp.asarray((LADDER * 2)[:num], jnp.float32)
        ladder = progress.iteration % jnp.maximum(1, jnp.round(periods)) == 0
        due = jnp.where(self.kind > 0.5, unproductive, ladder)
        return due, (age, recent, mean, weight + 1)

    def restarted(self, state, which):
        age, recent, mean, weight = state
        return jnp.where(which, 0.0, age), jnp.where(which, 0.0, recent), mean, weight


def domain_of(name: str, centroids: Path):
    """A domain of the study, its sigma0, and its batch by kind."""
    if name == "arm":
        return gloam.domains.Arm(100), 0.2, (10, 36, 180)
    if name.startswith("ta-"):
        kind = name.removeprefix("ta-").replace("-", "_")
        images = np.load(centroids / f"{kind}_1000.npy").reshape(-1, 28, 28)
        return gloam.domains.Triangles(images, name=name), 0.1, (3, 36, 70)
    size, objective = int(name.split("d-")[0]), name.rsplit("-", 1)[1]
    file = None if size == 2 else centroids / f"lp_{size}d.npy"
    return gloam.domains.LinearProjection(size, objective, centroids=file), 0.5, (10, 36, 180)


BASE = {
    "kind": 0.0,
    "by_gain": 0.0,
    "horizon": 30.0,
    "patience": 40.0,
    "factor": 1.0,
    "memory": 500.0,
    "scale": 1.0,
    "alpha": 0.01,
    "iso": 0.04,
    "line": 0.5,
    "sigma": 1.0,
    "lr": 1e-3,
}


def algorithm_of(domain, sigma0, batch, variant, empty):
    num, each, rest = batch
    rule_names = ("kind", "by_gain", "horizon", "patience", "factor", "memory", "scale")
    rule = Screened(*(jnp.float32(variant[name]) for name in rule_names))
    archive = domain.archive()
    parts = [CmaEmitters(domain.x0, sigma0 * variant["sigma"], num_emitters=num, batch_size=each, restart=rule)]
    if rest:
        parts.append(Variation(domain.x0, sigma0 * variant["iso"], line_sigma=variant["line"], batch_size=rest))
    discount = DiscountModel(
        archive.lower, archive.upper, f_min=archive.f_min, shape=archive.measure_shape,
        alpha=variant["alpha"], num_empty_points=empty, learning_rate=variant["lr"],
    )
    return gloam.Algorithm(Mixture(parts), archive, discount)


def screen(name, variants, options, empty=10, batch=None):
    domain, sigma0, default = domain_of(name, options.centroids_dir)
    batch = default if batch is None else batch
    algorithms = [
        for_programs(algorithm_of(domain, sigma0, batch, BASE | v, empty)) for v in variants.values()
    ]
    pieces = [split(algorithm) for algorithm in algorithms]
    rest = pieces[0][1]
    assert all(other == rest for _, other in pieces)
    first = pieces[0][0]
    axes = [
        None if all(arrays[i] is first[i] or np.array_equal(arrays[i], first[i]) for arrays, _ in pieces) else 0
        for i in range(len(first))
    ]
    stacked = [
        a if axis is None else jnp.stack([arrays[i] for arrays, _ in pieces])
        for i, (a, axis) in enumerate(zip(first, axes))
    ]
    seeds = jnp.arange(options.first_seed, options.first_seed + options.seeds)

    def one(arrays, seed, x0, count):
        algorithm = rest.with_arrays(arrays)
        state = step.init(algorithm, jax.random.key(seed), x0)
        def body(_, state):
            return step.step(algorithm, lambda x: (*domain(x), {}), state)[0]
        scores = []
        for part in range(2):
            state = jax.lax.fori_loop(0, count, body, state)
            found = step.metrics(algorithm, state).archive
            scores.append((found.qd_score, found.coverage))
        restarts = algorithm.emitter.num_restarts(state.emitter)
        return scores, restarts, state.emitter.improved, state.emitter.filled

    starts = jnp.stack([
        jnp.asarray(domain.x0_of(int(s)) if hasattr(domain, "x0_of") else domain.x0, jnp.float32) for s in seeds
    ])
    over_seeds = jax.vmap(one, in_axes=(None, 0, 0, None))
    over_variants = jax.jit(jax.vmap(over_seeds, in_axes=(axes, None, None, None)))
    begin = time.perf_counter()
    half = options.iterations // 2
    scores, restarts, improved, filled = jax.block_until_ready(
        over_variants(stacked, seeds, starts, half)
    )
    spent = time.perf_counter() - begin
    rows = []
    for i, label in enumerate(variants):
        values = np.asarray(scores[1][0])[i]
        early = float(np.asarray(scores[0][0])[i].mean())
        se = values.std(ddof=1) / np.sqrt(len(values))
        cover = float(np.asarray(scores[1][1])[i].mean())
        shares = (np.asarray(filled)[i].mean(axis=0)).round().astype(int).tolist()
        row = dict(domain=name, variant=label, batch=str(batch), empty=empty, early=early, qd=values.mean(), se=se,
                   coverage=cover, restarts=float(np.asarray(restarts)[i].mean()), filled=shares)
        rows.append(row)
        print(f"{name} {batch} e{empty} | {label} | {early:.0f} | {values.mean():.1f} +- {se:.1f} | "
              f"{cover:.3f} | restarts {row['restarts']:.0f} | filled {shares}", flush=True)
    print(f"# {name}: {spent:.1f} s for {len(variants)} x {options.seeds}", flush=True)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domains", nargs="+", default=["10d-lp-sphere"])
    parser.add_argument("--iterations", type=int, default=4000)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first-seed", type=int, default=100)
    parser.add_argument("--centroids-dir", type=Path, default=Path("../shared/data/centroids"))
    options = parser.parse_args()
    by_yield = {"kind": 1.0}
    variants = {
        "ladder": {},
        "ladder x0.5": {"scale": 0.5},
        "count f1.0": by_yield,
        "count f0.7": by_yield | {"factor": 0.7},
        "count f0.4": by_yield | {"factor": 0.4},
        "count f1.0 p100 h60": by_yield | {"patience": 100.0, "horizon": 60.0},
        "gain f1.0": by_yield | {"by_gain": 1.0},
        "gain f0.7": by_yield | {"by_gain": 1.0, "factor": 0.7},
        "gain f0.4": by_yield | {"by_gain": 1.0, "factor": 0.4},
        "gain f0.7 p100 h60": by_yield | {"by_gain": 1.0, "factor": 0.7, "patience": 100.0, "horizon": 60.0},
        "ladder alpha0.1": {"alpha": 0.1},
        "ladder line0.3": {"line": 0.3},
        "ladder line0.8": {"line": 0.8},
        "ladder iso0.1": {"iso": 0.1},
        "ladder iso0.01": {"iso": 0.01},
        "ladder lr3e-4": {"lr": 3e-4},
    }
    for name in options.domains:
        screen(name, variants, options)


if __name__ == "__main__":
    main()
