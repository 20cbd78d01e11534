"""The device of programs is that of `jax.default_device`; both ways of an operation agree."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from gloam._tools import devices, kernels
from gloam._tools.compiler import compiler_options
from gloam._tools.programs import partition
from gloam.archives.faiss_index import chosen_index
from gloam.archives.nearest_centroids import _height

CPU = jax.devices("cpu")[0]
GPU = SimpleNamespace(
    platform="gpu",
    client=SimpleNamespace(platform_version="cuda 12.8"),
    compute_capability="9.0",
    memory_stats=lambda: {"bytes_limit": 1234},
)


@pytest.fixture
def gpu_first(monkeypatch):
    """A machine whose first device is a GPU of NVIDIA, and which has a CPU."""
    monkeypatch.setattr(jax, "devices", lambda name="gpu": [GPU if name == "gpu" else CPU])
    monkeypatch.delenv("GLOAM_KERNELS", raising=False)
    monkeypatch.setattr(kernels, "_switched_off", False)


def facts():
    return {
        "platform": devices.platform(),
        "runs_on_cpu": devices.runs_on_cpu(),
        "on_cuda": devices.on_cuda(),
        "memory": devices.memory_bytes(99),
        "kernels": kernels.usable(),
        "options": bool(compiler_options()),
        "lanes": _height(9000, 10) == 1,
        "exact": chosen_index("auto", 1_000_000, 784) is None,
    }


ON_GPU = {
    "platform": "gpu",
    "runs_on_cpu": False,
    "on_cuda": True,
    "memory": 1234,
    "kernels": True,
    "options": True,
    "lanes": True,
    "exact": True,
}
ON_CPU = {
    "platform": "cpu",
    "runs_on_cpu": True,
    "on_cuda": False,
    "memory": 99,
    "kernels": False,
    "options": False,
    "lanes": False,
    "exact": False,
}


def test_the_first_device_is_the_default(gpu_first):
    assert facts() == ON_GPU


@pytest.mark.parametrize("chosen", [CPU, "cpu"], ids=["device", "platform"])
def test_every_branch_respects_the_default_device(gpu_first, chosen):
    _, on_gpu = partition((1,))
    with jax.default_device(chosen):
        assert facts() == ON_CPU
        assert partition((1,))[1] != on_gpu
    assert facts() == ON_GPU


def test_seeds_go_to_the_default_device_where_one_is_set(monkeypatch):
    every = {None: ["gpu 0", "gpu 1"], "cpu": ["cpu 0"]}
    monkeypatch.setattr(jax, "local_devices", lambda *, backend=None: every[backend])
    assert devices.usable_devices() == ["gpu 0", "gpu 1"]
    with jax.default_device("cpu"):
        assert devices.usable_devices() == ["cpu 0"]
    with jax.default_device(CPU):
        assert devices.usable_devices() == [CPU]


@pytest.fixture(params=["cpu", "gpu"])
def platform(request, monkeypatch):
    monkeypatch.setattr(devices, "platform", lambda: request.param)


def test_places_of_ranks_are_those_of_numpy(platform):
    occupied = np.random.default_rng(0).random(200) < 0.3
    counts = np.cumsum(occupied, dtype=np.int32)
    ranks = jnp.arange(counts[-1], dtype=jnp.int32)
    places = devices.place_of_ranks(jnp.asarray(counts), ranks)
    np.testing.assert_array_equal(places, np.flatnonzero(occupied))


@pytest.mark.parametrize("shape", [(), (3,)])
def test_sums_by_group_are_those_of_numpy(platform, shape):
    rng = np.random.default_rng(0)
    values = rng.integers(-9, 9, (90, *shape)).astype(np.float32)  # whose sums are not rounded
    groups = rng.integers(0, 60, 90)
    want = np.zeros((60, *shape), np.float32)
    np.add.at(want, groups, values)
    found = jax.jit(lambda *arrays: devices.sums_by_group(*arrays, 50))(values, groups)
    np.testing.assert_array_equal(found, want[:50])


@pytest.mark.parametrize("needed", [0, 1, 3, 5])
def test_a_loop_takes_the_steps_that_are_needed(platform, needed):
    def step(i, carry):
        total, _ = carry
        return total * 3 + i, {"last": i}

    first = jnp.int32(1), {"last": jnp.int32(-1)}
    total, last = jax.jit(lambda n: devices.loop(n, 5, step, first))(jnp.int32(needed))
    want = 1
    for i in range(needed):
        want = want * 3 + i
    assert (total, last["last"]) == (want, needed - 1)
