"""Problems that others wrote, each evaluated by its authors' own package.

`PROBLEMS` lists them by name. A problem is built when it is run, so that the list needs no package
but gloam. The archives, budgets and first populations are those of the authors' examples and tests
where they have some; otherwise an archive has 1,024 centroids, and a run 1 million evaluations.
research/foreign.md gives the reasons for the halves.
"""

import dataclasses
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import gloam
import gloam_lab
from gloam.archives import Archive

LOOKING, HELD_OUT = "looking", "held out"


@dataclasses.dataclass(frozen=True)
class Setup:
    """A problem that is ready to run: what contenders are built from."""

    evaluate: Callable
    """Maps solutions ``(batch, sol)`` to objectives and measures. With noise it takes a ``key``."""
    archive: Archive
    x0: np.ndarray
    """Centre of the box; zeros without one."""
    bounds: tuple[Any, Any] | None = None
    """Lower and upper bounds of the solutions."""
    sigma0: float = 0.2
    """Initial step size: a share of the width of the box, or a number without one."""
    f_max: float | None = None
    """Largest objective, if it is known."""
    is_traced: bool = True
    """Whether JAX can trace ``evaluate``."""
    per_solution: bool = False
    """Whether ``evaluate`` takes one solution."""
    batch: int = 540
    """Number of evaluations per iteration."""
    population: Callable | None = None
    """Maps a key and a number to the first population of the authors; uniform in the box if none
    is given."""
    variation: tuple[float, float] = (0.05, 0.1)
    """Noise and line noise of the authors' MAP-Elites; the first is a share of the box."""
    ribs_sigma0: float | None = None
    """Step size of pyribs' example, which has no bounds; by default as for the others."""


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem of the suite."""

    name: str
    group: str
    half: str
    """``"looking"`` for problems by which the default may be changed, or ``"held out"``."""
    build: Callable[[], Setup]
    evaluations: int = 1_000_000
    is_noisy: bool = False
    needs_gpu: bool = False
    """Whether a run of this budget takes hours on a CPU."""
    outside: tuple[str, ...] = ()
    """Contenders of other libraries that run on it."""


def box(lower: float, upper: float, solution_dim: int, **options: Any) -> dict[str, Any]:
    """Return bounds and centre of a box, as arguments of `Setup`."""
    middle = np.full(solution_dim, (float(lower) + float(upper)) / 2)
    return {"x0": middle, "bounds": (float(lower), float(upper)), **options}


def cvt(lower: Any, upper: Any, measure_dim: int, f_min: float) -> Archive:
    """Return an archive of 1,024 centroids."""
    points = gloam.archives.kmeans_centroids(1024, lower, upper, measure_dim)
    return gloam.CVTArchive(points, lower, upper, index="exact", f_min=f_min)


def grid(shape: tuple[int, ...], lower: Any, upper: Any, f_min: float) -> Archive:
    """Return a grid."""
    return gloam.GridArchive(shape, lower=lower, upper=upper, f_min=f_min)


def first_two(score: Callable, solutions: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Evaluate a scoring function of QDax whose key has no effect."""
    return score(solutions, jax.random.key(0))[:2]


# QDax: standard functions, hypervolume functions and QD-Suite. Grids and boxes are those of its
# tests, which have no budgets.


def arm() -> Setup:
    from qdax.tasks.arm import arm_scoring_function as score

    archive = grid((100, 100), 0, 1, f_min=-0.5)  # the largest deviation of angles from 0 to 1
    return Setup(partial(first_two, score), archive, **box(0, 1, 100), f_max=0.0)


def noisy_arm() -> Setup:
    from qdax.tasks.arm import noisy_arm_scoring_function as score

    def evaluate(solutions: jax.Array, *, key: jax.Array) -> tuple[jax.Array, jax.Array]:
        noise = {"fit_variance": 0.1, "desc_variance": 0.1, "params_variance": 0.05}
        return score(solutions, key, **noise)[:2]

    return dataclasses.replace(arm(), evaluate=evaluate)


def standard_function(name: str, worst: float) -> Setup:
    from qdax.tasks import standard_functions

    score = getattr(standard_functions, f"{name}_scoring_function")
    archive = grid((100, 100), 0, 1, f_min=-100 * worst)
    return Setup(partial(first_two, score), archive, **box(0, 1, 100), f_max=0.0)


def hypervolume(name: str, dim: int) -> Setup:
    from qdax.tasks import hypervolume_functions

    score = getattr(hypervolume_functions, f"{name}_scoring_function")
    archive = cvt(0, 1, dim, f_min=-1.0 if name == "checkered" else 0.0)
    return Setup(partial(first_two, score), archive, **box(0, 1, dim), f_max=1.0)


def qd_suite(name: str) -> Setup:
    from qdax.tasks import qd_suite as tasks

    task = getattr(tasks, f"{name}_task")
    low, high = (float(edge) for edge in task.get_bounded_min_max_descriptor())
    archive = grid((100,) * task.get_descriptor_size(), low, high, f_min=0.0)
    first = np.asarray(task.get_initial_parameters(1))[0]
    lower, upper = (float(edge) for edge in task.get_min_max_params())
    # The self-similar functions have no box: their authors start at zero.
    region = {"x0": np.zeros(first.size), "sigma0": 1.0}
    return Setup(
        partial(first_two, task.scoring_function),
        archive,
        **box(lower, upper, first.size) if np.isfinite(upper) else region,
        f_max=1.0,
        population=lambda key, number: task.get_initial_parameters(number),
    )


def policies(network: Any, observations: int) -> tuple[int, Callable, Callable]:
    """Return number of weights, their unraveling, and the authors' first population."""
    zeros = jnp.zeros(observations)
    flat, unravel = ravel_pytree(network.init(jax.random.key(0), zeros))

    def population(key: jax.Array, number: int) -> jax.Array:
        keys = jax.random.split(key, number)
        return jax.vmap(lambda one: ravel_pytree(network.init(one, zeros))[0])(keys)

    return flat.size, jax.vmap(unravel), population


def kheperax(maze: str) -> Setup:
    """A robot in a maze, 250 steps, with the settings of the package's example."""
    jax.tree_leaves = jax.tree_util.tree_leaves  # pyright: ignore
    from kheperax.tasks.config import KheperaxConfig
    from kheperax.tasks.main import KheperaxTask

    config = KheperaxConfig.get_default_for_map(maze)
    config.episode_length = 250
    config.robot = config.robot.replace(lasers_return_minus_one_if_out_of_range=True)
    env, network, score = KheperaxTask.create_default_task(config, jax.random.key(0))
    size, unravel, population = policies(network, env.observation_size)

    def evaluate(solutions: jax.Array) -> tuple[jax.Array, jax.Array]:
        return score(unravel(solutions), jax.random.key(0))[:2]

    return Setup(
        evaluate,
        grid((50, 50), 0, 1, f_min=-0.5),
        np.zeros(size),
        sigma0=0.5,
        f_max=0.0,
        population=population,
        variation=(0.2, 0.0),
    )


def brax(name: str) -> Setup:
    """A walking robot, 100 steps, with the settings of QDax's notebook."""
    from qdax.tasks.brax.v2 import reward_offset
    from qdax.tasks.brax.v2.env_creators import create_default_brax_task_components
    from qdax.tasks.brax.v2.wrappers.locomotion_wrappers import FEET_NAMES

    # MuJoCo gave the ant's feet names when QDax was written. Today they have none, and no other
    # body is without a name.
    FEET_NAMES["ant"] = [""]
    env, network, score = create_default_brax_task_components(name, jax.random.key(42))
    size, unravel, population = policies(network, env.observation_size)

    def evaluate(solutions: jax.Array) -> tuple[jax.Array, jax.Array]:
        return score(unravel(solutions), jax.random.key(0))[:2]

    return Setup(
        evaluate,
        cvt(0, 1, env.descriptor_length, f_min=-100 * reward_offset[name]),
        np.zeros(size),
        sigma0=0.2,
        batch=180,
        population=population,
        variation=(0.005, 0.05),
    )


# pyribs: no package has its examples, so both follow their text.


def ribs_sphere() -> Setup:
    """The example ``sphere.py``: objectives from 0 to 100."""
    domain = gloam.domains.LinearProjection(2)

    def evaluate(solutions: jax.Array) -> tuple[jax.Array, jax.Array]:
        objectives, measures = domain(solutions)[:2]
        return 100 * objectives, measures

    archive = grid((100, 100), -256, 256, f_min=0.0)
    return Setup(evaluate, archive, **box(-5.12, 5.12, 100), f_max=100.0, ribs_sigma0=0.5)


_LANDER: list[Any] = []


def land(policy: np.ndarray) -> tuple[float, list[float]]:
    """Fly one episode of gymnasium's lunar lander with a linear policy, always with seed 52."""
    if not _LANDER:
        import gymnasium

        _LANDER.append(gymnasium.make("LunarLander-v3"))
    (env,) = _LANDER
    weights = np.asarray(policy, np.float64).reshape(4, 8)
    seen, _ = env.reset(seed=52)
    total, speeds, impact, done = 0.0, [], None, False
    while not done:
        seen, reward, terminated, truncated, _ = env.step(int(np.argmax(weights @ seen)))
        done = terminated or truncated
        total += float(reward)
        speeds.append(float(seen[3]))
        if impact is None and (seen[6] or seen[7]):
            impact = [float(seen[0]), float(seen[3])]
    # Without a landing, the last position and the largest speed downwards count.
    return total, [float(seen[0]), min(speeds)] if impact is None else impact


def lunar_lander() -> Setup:
    """The example ``lunar_lander.py``: position and speed of the first contact."""
    archive = grid((50, 50), [-1, -3], [1, 0], f_min=-600.0)
    return Setup(
        land, archive, np.zeros(32), sigma0=1.0, is_traced=False, per_solution=True, batch=180
    )


def bbob(function: int) -> Setup:
    """A function of COCO's BBOB suite in 20 dimensions; the measures are the first two numbers."""
    import cocoex

    problem = cocoex.BareProblem("bbob", function, 20, 1)
    points = np.random.default_rng(0).uniform(-5, 5, (10_000, 20))
    worst = max(problem(point) for point in points) - problem.best_value()

    def evaluate(solutions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        rows = np.asarray(solutions, np.float64)
        return problem.best_value() - np.array([problem(row) for row in rows]), rows[:, :2]

    archive = cvt(-5, 5, 2, f_min=-float(worst))
    return Setup(evaluate, archive, **box(-5, 5, 20), f_max=0.0, is_traced=False)


# Problems of this project that were not used for tuning.


def untuned(name: str) -> Setup:
    from untuned import Noisy, Pendulum, Vectors

    problem = {"pendulum": Pendulum, "vectors": Vectors, "noisy": Noisy}[name]()
    return Setup(problem, problem.archive(), np.asarray(problem.x0), sigma0=0.5, batch=180)


def latent_digits() -> Setup:
    domain = gloam_lab.LatentDigits()
    return Setup(domain, domain.archive(), np.asarray(domain.x0), sigma0=0.5, f_max=1.0, batch=180)


_QDAX = ("QDax MAP-Elites",)
_RIBS = ("pyribs CMA-MAE",)
_RASTRIGIN_WORST = 40.3533  # the largest x^2 - 10 cos(2 pi x) + 10 for x from -5 to 5
_HYPERVOLUME = {
    "square": LOOKING,
    "continous_islands": LOOKING,
    "checkered": HELD_OUT,
    "empty_circle": HELD_OUT,
    "non_continous_islands": HELD_OUT,
}
_QD_SUITE = {
    "archimedean_spiral_v0_angle_euclidean": LOOKING,
    "archimedean_spiral_v0_arc_length_geodesic": LOOKING,
    "ssf_v0_param_size_1": LOOKING,
    "archimedean_spiral_v0_angle_geodesic": HELD_OUT,
    "archimedean_spiral_v0_arc_length_euclidean": HELD_OUT,
    "deceptive_evolvability_v0": HELD_OUT,
    "ssf_v0_param_size_2": HELD_OUT,
}


def _all() -> list[Problem]:
    sphere, rastrigin = (
        partial(standard_function, "sphere", 25.0),
        partial(standard_function, "rastrigin", _RASTRIGIN_WORST),
    )
    hopper, ant = partial(brax, "hopper_uni"), partial(brax, "ant_uni")
    return [
        Problem("qdax-arm", "standard", LOOKING, arm, outside=_QDAX),
        Problem("qdax-noisy-arm", "standard", HELD_OUT, noisy_arm, is_noisy=True, outside=_QDAX),
        Problem("qdax-sphere", "standard", LOOKING, sphere, outside=_QDAX),
        Problem("qdax-rastrigin", "standard", HELD_OUT, rastrigin, outside=_QDAX),
        *(
            Problem(
                f"{name.replace('_', '-')}-{dim}",
                "hypervolume",
                half,
                partial(hypervolume, name, dim),
                outside=_QDAX,
            )
            for name, half in _HYPERVOLUME.items()
            for dim in (6, 10, 30)
        ),
        *(
            Problem(
                name.replace("_", "-"), "qd-suite", half, partial(qd_suite, name), outside=_QDAX
            )
            for name, half in _QD_SUITE.items()
        ),
        Problem(
            "kheperax-standard", "kheperax", LOOKING, partial(kheperax, "standard"), outside=_QDAX
        ),
        Problem("kheperax-snake", "kheperax", HELD_OUT, partial(kheperax, "snake"), outside=_QDAX),
        Problem("hopper-uni", "brax", LOOKING, hopper, 100_000, needs_gpu=True, outside=_QDAX),
        Problem("ant-uni", "brax", HELD_OUT, ant, 100_000, needs_gpu=True, outside=_QDAX),
        Problem("pyribs-sphere", "pyribs", LOOKING, ribs_sphere, 5_400_000, outside=_RIBS),
        Problem("lunar-lander", "pyribs", HELD_OUT, lunar_lander, 75_000, outside=_RIBS),
        Problem("bbob-15-rastrigin", "bbob", LOOKING, partial(bbob, 15), outside=_RIBS),
        Problem("bbob-21-gallagher", "bbob", HELD_OUT, partial(bbob, 21), outside=_RIBS),
        Problem("latent-digits", "own", LOOKING, latent_digits, 540_000),
        Problem("pendulum", "own", LOOKING, partial(untuned, "pendulum"), 360_000),
        Problem("vectors", "own", LOOKING, partial(untuned, "vectors"), 360_000),
        Problem("noisy", "own", LOOKING, partial(untuned, "noisy"), 360_000, is_noisy=True),
    ]


PROBLEMS = {problem.name: problem for problem in _all()}
