"""Run folders with random elites, written without a search: nothing has to be compiled."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

import gloam
from gloam import step
from gloam._tools.draws import root_key
from gloam.archives import Elites
from gloam.formats.checkpoints import state_arrays
from gloam.formats.config import describe
from gloam.formats.run_folder import dataset_arrays, dataset_digest
from gloam.formats.tables import MetricsFile

ITERATIONS = 6
SNAPSHOTS = [2, 6]
BATCH = 12


def snapshots_of(folder):
    """All snapshots of a run folder, by iteration."""
    return {at: folder.read_snapshot(at) for at in folder.snapshot_iterations}


def small_dms(archive, x0, **settings):
    """DMS with a small network and two emitters."""
    small = {"num_emitters": 2, "batch_size": BATCH // 2, "num_empty_points": 9}
    network = gloam.discounts.MLP(archive.measure_dim, (4,))
    settings = small | {"num_init_points": 16, "network": network} | settings
    return gloam.DMS.paper(archive, x0, 0.4, **settings)


GRID = gloam.GridArchive((8, 6), (-1, -1), (1, 0.5))


def write_grid_run(path, seeds=(3, 4)):
    """A run on a grid of two measures, with two seeds; other numbers of them give other elites."""
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=4)
    return write_run(path, small_dms(GRID, domain.x0), domain, seeds=list(seeds))


def write_pictures_run(path):
    """A run on a dataset of nine pictures."""
    pixels = np.random.default_rng(0).random((9, 4, 4), dtype=np.float32)
    data = gloam.datasets.from_array(pixels, labels=list("abcabcabc"))
    domain = gloam.domains.Triangles(pixels, num_triangles=2, canvas=(4, 4))
    algorithm = small_dms(domain.archive(), domain.x0)
    return write_run(path, algorithm, domain, seeds=[0], dataset=data)


SPACE = gloam.Space(
    rate=gloam.Real(1e-3, 1, log=True),
    layers=gloam.Integer(1, 5),
    kind=gloam.Categorical(["a", 2, None], shape=(2,)),
)


def write_space_run(path):
    """A run with six named measures, three fields, and the variables of a space."""
    fields = {"speed": (), "forces": (3,), "image": (5, 5)}
    centroids = np.random.default_rng(0).uniform(-1, 1, (30, 6))
    names = ("one", "two", "three", "four", "five", "six")
    archive = gloam.CVTArchive(centroids, -1, 1, fields=fields, measure_names=names)
    return write_run(path, small_dms(archive, SPACE), None, seeds=[0])


def write_curves_run(path):
    """A run on a dataset of nine vectors."""
    curves = np.random.default_rng(0).normal(size=(9, 12)).astype(np.float32)
    data = gloam.datasets.from_array(curves)
    return write_run(path, small_dms(data.archive(), np.zeros(3)), None, seeds=[0], dataset=data)


def write_run(path, algorithm, domain, *, seeds, dataset=None):
    """A finished run, as a driver would write it."""
    rng = np.random.default_rng(1)
    folder = gloam.RunFolder(path)
    digest = None if dataset is None else dataset_digest(dataset_arrays(dataset))
    plan = {"iterations": ITERATIONS}
    settings = {"driver": "fused", "seeds": seeds, "dataset": digest, "plan": plan}
    folder.write_config(*describe(algorithm, domain, **settings))
    if dataset is not None:
        folder.write_dataset(dataset)
    MetricsFile(folder.path).write(_metrics(seeds, rng))
    state = _random_state(algorithm, len(seeds), rng)
    folder.write_checkpoint(state, seconds=1.0)
    for place, seed in enumerate(seeds):
        store = jax.tree.map(lambda leaf, place=place: leaf[place], state.store)
        folder.write_archive(Elites(algorithm.archive, store), seed=seed)
    for at in SNAPSHOTS:
        folder.write_snapshot(at, _snapshot(algorithm, state, at, rng))
    return folder


def _metrics(seeds, rng):
    rows = [(seed, at, BATCH * at) for at in range(1, ITERATIONS + 1) for seed in seeds]
    table = pd.DataFrame(rows, columns=["seed", "iteration", "evaluations"])
    shares = ("qd_score", "coverage", "best_objective", "loss", "rank_correlation")
    for name in (*shares, "empty_discount"):
        table[name] = rng.uniform(0.1, 1.0, len(rows))
    for name in ("unique_cells", "restarts"):
        table[name] = rng.integers(1, BATCH, len(rows))
    return table.assign(
        seconds=0.1 * table["iteration"], f_min=0.0, num_elites=1, num_counted=1, mean_objective=0.5
    )


def _random_state(algorithm, num_seeds, rng):
    """A state with the seeds along the first axis of everything but the iteration."""

    def fill(leaf):
        shape = (num_seeds, *leaf.shape)
        if jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key):
            return jnp.broadcast_to(jax.random.key(0), shape)
        return rng.normal(0, 0.3, shape).astype(leaf.dtype)

    like = jax.eval_shape(lambda key: step.init(algorithm, key), root_key(0))
    objectives = rng.uniform(0.2, 1.1, (num_seeds, algorithm.archive.num_cells))
    objectives[rng.uniform(size=objectives.shape) < 0.4] = -np.inf
    return eqx.tree_at(
        lambda state: (state.iteration, state.store.objectives, state.reference),
        jax.tree.map(fill, like),
        (np.int32(ITERATIONS), objectives.astype(np.float32), np.zeros(num_seeds, np.float32)),
    )


def _snapshot(algorithm, state, at, rng):
    """The first seed at an earlier iteration: fewer elites, and a model with smaller weights."""
    objectives, discount = jax.tree.map(
        lambda leaf: leaf[0], (state.store.objectives, state.discount)
    )
    low, high = algorithm.archive.lower, algorithm.archive.upper
    size = BATCH + 9
    arrays = {
        "objectives": np.asarray(objectives),
        "points": rng.uniform(low, high, (size, len(low))).astype(np.float32),
        "targets": rng.uniform(0, 1, size).astype(np.float32),
        "real": rng.uniform(size=size) < 0.8,
    }
    if at < ITERATIONS:
        arrays["objectives"] = np.where(objectives < 0.6, -np.inf, objectives).astype(np.float32)
        discount = jax.tree.map(lambda leaf: (leaf / 2).astype(leaf.dtype), discount)
    return arrays | {f"discount {place}": leaf for place, leaf in state_arrays(discount).items()}
