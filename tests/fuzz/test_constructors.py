"""Every public constructor with one or two odd arguments: a documented error, or a sound object.

What is accepted must work: after two iterations every number of the state is finite.
"""

import warnings

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import gloam
import gloam_lab
from gloam import discounts, domains, emitters
from gloam.runs.options import RunOptions
from gloam.runs.run import seed_list
from tests.helpers import small_decoder

from .odd import odd_values, outcome

ARCHIVE = gloam.GridArchive((3, 3), -1, 1)
X0 = np.zeros(5)
CMA = {
    "num_emitters": 2,
    "batch_size": 3,
    "bounds": None,
    "restart": None,
    "strategy": None,
}
DMS = {
    "alpha": 0.1,
    "first_visit": 0.3,
    "num_empty_points": 3,
    "num_init_points": 4,
    "floor": 0.0,
    "ceiling": 1.0,
    "network": None,
    "learning_rate": 1e-3,
}

ALGORITHMS = {
    "DMS": (gloam.DMS, {"archive": ARCHIVE, "x0": X0, "sigma0": 0.5, **CMA, **DMS}),
    "CMAMAE": (gloam.CMAMAE, {"archive": ARCHIVE, "x0": X0, "sigma0": 0.5, "alpha": 0.1, **CMA}),
    "CMAMEGA": (
        gloam_lab.CMAMEGA,
        {
            "archive": ARCHIVE,
            "x0": X0,
            "sigma0": 0.5,
            "num_emitters": 2,
            "batch_size": 4,
            "learning_rate": 1.0,
            "adam": True,
            "restart": None,
            "strategy": None,
        },
    ),
    "DDS": (
        gloam_lab.DDS,
        {
            "archive": ARCHIVE,
            "x0": X0,
            "sigma0": 0.5,
            "bandwidth": 0.5,
            "buffer_size": 8,
            **CMA,
        },
    ),
    "MAPElites": (
        gloam.MAPElites,
        {"archive": ARCHIVE, "x0": X0, "sigma0": 0.5, "batch_size": 4, "bounds": None},
    ),
    "MAPElitesLine": (
        gloam.MAPElitesLine,
        {"archive": ARCHIVE, "x0": X0, "sigma0": 0.5, "line_sigma": 0.2, "batch_size": 4},
    ),
}

ARCHIVES = {
    "GridArchive": (
        gloam.GridArchive,
        {"shape": (3, 3), "lower": -1, "upper": 1, "f_min": 0.0, "fields": {"a": ()}},
    ),
    "CVTArchive": (
        gloam.CVTArchive,
        {
            "centroids": np.eye(4)[:, :2] + 1.0,
            "lower": -1,
            "upper": 2,
            "metric": "euclidean",
            "f_min": 0.0,
            "fields": {"a": (2,)},
            "index": "auto",
        },
    ),
    "cosine": (
        gloam.CVTArchive,
        {"centroids": np.eye(4)[:, :2] + 1.0, "lower": None, "upper": None, "metric": "cosine"},
    ),
    "kmeans": (
        gloam.archives.kmeans_centroids,
        {
            "num_cells": 3,
            "lower": 0,
            "upper": 1,
            "measure_dim": 2,
            "seed": 1,
            "num_samples": None,
            "num_iterations": 1,
        },
    ),
}

OTHERS = {
    "CmaEmitters": (
        emitters.CmaEmitters,
        {"x0": X0, "sigma0": 0.5, "selection": None, **CMA},
    ),
    "Variation": (
        emitters.Variation,
        {"x0": X0, "sigma0": 0.5, "line_sigma": 0.0, "batch_size": 4, "bounds": (-1, 1)},
    ),
    "Recombination": (
        emitters.Recombination,
        {
            "x0": X0,
            "iso_sigma": 0.5,
            "line_sigma": 0.5,
            "batch_size": 4,
            "best_of": 2,
            "bounds": (-1, 1),
        },
    ),
    "Swaps": (
        emitters.Swaps,
        {
            "x0": X0,
            "iso_sigma": 0.5,
            "line_sigma": 0.5,
            "batch_size": 4,
            "bounds": (-1, 1),
        },
    ),
    "AimedCmaEmitters": (
        emitters.AimedCmaEmitters,
        {
            "x0": X0,
            "sigma0": 0.5,
            "num_emitters": 2,
            "batch_size": 4,
            "bounds": None,
            "strategy": None,
        },
    ),
    "AimedMoves": (
        emitters.AimedMoves,
        {"x0": X0, "sigma0": 0.5, "iso_sigma": 0.5, "batch_size": 4, "bounds": None},
    ),
    "GradientAscent": (
        emitters.GradientAscent,
        {
            "x0": X0,
            "sigma0": 0.5,
            "goal": "target",
            "batch_size": 4,
            "patience": 3,
            "best_of": 2,
            "bounds": (-1, 1),
        },
    ),
    "RestartEvery": (emitters.RestartEvery, {"iterations": 5}),
    "LMMAES": (emitters.LMMAES, {"vectors": 3}),
    "DiscountModel": (
        discounts.DiscountModel,
        {**DMS, "train_batch_size": 4, "max_epochs": 2, "cutoff": 0.05, "space": None},
    ),
    "Thresholds": (discounts.Thresholds, {"num_cells": 4, "alpha": 0.1, "floor": 0.0}),
    "KernelDensity": (
        gloam_lab.KernelDensity,
        {"bandwidth": 0.5, "buffer_size": 8, "policy": None},
    ),
    "MLP": (discounts.MLP, {"measure_dim": 2, "hidden": (4,)}),
    "CNN": (discounts.CNN, {"shape": (4, 4), "channels": (2,), "hidden": 3}),
    "Frozen": (discounts.Frozen, {"embed": jax.numpy.tanh, "head": None, "measure_shape": 2}),
    "LinearProjection": (
        domains.LinearProjection,
        {"measure_dim": 2, "objective": "sphere", "solution_dim": 4, "centroids": None},
    ),
    "Arm": (domains.Arm, {"num_joints": 3}),
    "Triangles": (
        domains.Triangles,
        {
            "centroids": np.random.default_rng(0).random((3, 4, 4)),
            "num_triangles": 2,
            "canvas": (4, 4),
            "color": False,
            "x0": None,
            "seed": 1,
            "name": "t",
        },
    ),
    "Decoder": (gloam_lab.Decoder, {"tensors": small_decoder().tensors}),
    "LatentDigits": (
        gloam_lab.LatentDigits,
        {
            "centroids": np.random.default_rng(0).random((3, 8, 8)),
            "generator": small_decoder(),
            "x0": None,
            "name": "d",
        },
    ),
    "Search": (gloam.Search, {"algorithm": None, "seed": 0}),
    "Faiss": (
        gloam.archives.Faiss,
        {"factory": "IVF2,Flat", "recall": 0.9, "nprobe": 2, "seed": 0},
    ),
    "RunOptions": (
        RunOptions,
        {
            "iterations": 3,
            "name": "a",
            "log_every": 2,
            "checkpoint_every": 2,
            "checkpoint_seconds": 60.0,
            "keep_checkpoints": 2,
            "snapshots": (1,),
        },
    ),
    "seeds": (seed_list, {"seeds": [1, 2]}),
}


# Sizes that are fine in principle, but would take long or much memory here.
def too_large(arguments):
    small = (
        "num_cells",
        "num_emitters",
        "batch_size",
        "buffer_size",
        "measure_dim",
        "shape",
        "hidden",
        "channels",
        "num_joints",
        "solution_dim",
        "measure_shape",
        "num_samples",
        "num_empty_points",
        "num_init_points",
        "vectors",
        "iterations",
        "num_iterations",
        "max_epochs",
        "seeds",
        "train_batch_size",
        "num_triangles",
        "canvas",
    )
    values = [arguments[name] for name in small if name in arguments]
    return any(isinstance(v, (int, np.integer)) and v > 2**20 for v in values)


def changed(data, arguments):
    number = data.draw(st.integers(1, min(2, len(arguments))))
    names = data.draw(st.permutations(sorted(arguments)))[:number]
    return arguments | {name: data.draw(odd_values) for name in names}


def build(kind, arguments):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return outcome(lambda: kind(**arguments))


def sound(value):
    """All numbers of a built object are finite, but for open bounds."""
    for leaf in jax.tree.leaves(value):
        if isinstance(leaf, (float, np.ndarray, jax.Array)):
            assert not np.isnan(np.asarray(leaf, np.float64)).any()


SETTINGS = settings(max_examples=40, suppress_health_check=list(HealthCheck))


@pytest.mark.parametrize("name", [*ARCHIVES, *OTHERS])
@SETTINGS
@given(data=st.data())
def test_parts(name, data):
    kind, arguments = (ARCHIVES | OTHERS)[name]
    arguments = changed(data, arguments)
    if too_large(arguments):
        return
    sound(build(kind, arguments))


@pytest.mark.parametrize("name", list(ALGORITHMS))
@SETTINGS
@given(data=st.data())
def test_algorithms(name, data):
    kind, arguments = ALGORITHMS[name]
    arguments = changed(data, arguments)
    if too_large(arguments):
        return
    sound(build(kind, arguments))


def finite_after_two_iterations(algorithm):
    archive, batch = algorithm.archive, algorithm.emitter.num_solutions
    search = gloam.Search(algorithm, 1)
    for _ in range(2):
        solutions = search.ask()
        assert np.isfinite(solutions).all()
        measures = np.resize(np.linspace(-1, 1, 7), (batch, archive.measure_dim))
        search.tell(archive.f_min_from(0.0) + np.linspace(0, 1, batch), measures)
    state = search.state
    for leaf in jax.tree.leaves((state.emitter, state.discount, state.store.solutions, state.low)):
        assert np.isfinite(leaf).all()
    stats = search.metrics()
    assert np.isfinite([stats["qd_score"], stats["coverage"], stats["best_objective"]]).all()


EXTREMES = [
    ("DMS", {"sigma0": 9e10}),
    ("DMS", {"sigma0": 2e-11}),
    ("DMS", {"learning_rate": 1.0}),
    ("DMS", {"ceiling": 1e30}),
    ("DMS", {"x0": np.full(5, 1e30)}),
    ("DMS", {"archive": gloam.GridArchive((3, 3), -1, 1, f_min=-1e30)}),
    ("DMS", {"archive": gloam.GridArchive((3, 3), -1e-37, 1e-37)}),
    ("DMS", {"archive": gloam.GridArchive((3, 3), -1e38, 1e38)}),
    ("CMAMAE", {"archive": gloam.GridArchive((3, 3), -1, 1, f_min=1e30)}),
    ("DDS", {"bandwidth": 1.2e-38}),
    ("DDS", {"bandwidth": 3e38}),
    ("MAPElites", {"sigma0": 9e10, "x0": np.full(5, -1e30)}),
    ("MAPElitesLine", {"line_sigma": 1e3, "x0": np.full(5, 1e30)}),
]


@pytest.mark.parametrize(
    ("name", "changes"),
    EXTREMES,
    ids=lambda part: str(part)[:40],
)
def test_the_largest_and_smallest_values_accepted_leave_every_number_finite(name, changes):
    kind, arguments = ALGORITHMS[name]
    finite_after_two_iterations(kind(**(arguments | changes)))
