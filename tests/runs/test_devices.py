"""Several devices: seeds are dealt out to them, and the results are those of one device."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from gloam.runs import fused_driver as fused

# A process of its own: the number of (virtual) devices is fixed before JAX starts.
PROGRAM = """
import json, sys
import numpy as np, jax, gloam
from gloam.domains import LinearProjection
from gloam.runs.fused_driver import FusedDriver
domain = LinearProjection(measure_dim=2, solution_dim=6)
archive = gloam.GridArchive(shape=(10, 10), lower=-15, upper=15)
few = dict(num_emitters=2, batch_size=4, num_init_points=20)
algorithm = gloam.DMS.paper(archive, domain.x0, 0.5, **few)
driver = FusedDriver(domain, algorithm, list(range(int(sys.argv[1]))))
driver.start()
driver.advance(3)
objectives = driver.checkpoint().store.objectives
before = [float(row["qd_score"]) for row in driver.metrics()[-1]]
driver.advance(2)
print(json.dumps({
    "devices": jax.device_count(), "used": len(objectives.sharding.device_set), "qd": before,
    "iteration": driver.iteration, "seeds": [row["seed"] for row in driver.metrics()[-1]],
}))
"""


# The first two seeds, all of one device, start where everything fails; then all seeds do.
FAILING = """
import json, tempfile, warnings
import numpy as np, jax, jax.numpy as jnp, gloam
from gloam.runs.fused_driver import FusedDriver
warnings.simplefilter("ignore")
class Cliff:
    x0 = np.zeros(3)
    bad = []
    def x0_of(self, seed): return np.full(3, 1e4 if seed in self.bad else 0.0)
    def __call__(self, x): return jnp.where(x[:, 0] > 5e3, jnp.nan, -x[:, 2] ** 2), x[:, :2]
archive = gloam.GridArchive(shape=(10, 10), lower=-1, upper=1)
algorithm = gloam.MAPElites(archive, np.zeros(3), 0.2, batch_size=8)
cliff = Cliff()  # one object and so one program; the starts are arguments of it
cliff.bad = [0, 1]
some = FusedDriver(cliff, algorithm, [0, 1, 2, 3])
some.start()
some.advance(5)
cliff.bad = [0, 1, 2, 3]
every = FusedDriver(cliff, algorithm, [0, 1, 2, 3])
every.start()
try:
    every.advance(5)
except gloam.errors.EvaluationError as error:
    message = str(error)
cliff.bad, settings = [], {"seeds": 4, "progress": False}
folder = tempfile.mkdtemp()
whole = gloam.run(cliff, algorithm, iterations=6, **settings)
gloam.run(cliff, algorithm, iterations=2, run_dir=folder, **settings)
halves = gloam.run(cliff, algorithm, iterations=6, run_dir=folder, resume=True, **settings)
pairs = zip(list(whole.elites_by_seed.values()), list(halves.elites_by_seed.values()))
print(json.dumps({
    "iteration": some.iteration, "failed": some.checkpoint().failed.tolist(), "message": message,
    "stopped": every.iteration,
    "same": all(np.array_equal(a.store.objectives, b.store.objectives) for a, b in pairs),
}))
"""


@pytest.mark.release
def test_devices_end_together_and_resume():
    found = run(2, 4, FAILING)
    assert found["iteration"] == 5
    assert found["failed"] == [40, 40, 0, 0]
    assert found["stopped"] == 1
    assert "in iteration 1, got none among 8 solutions of each of 4 seeds" in found["message"]
    assert found["same"]


def run(devices: int, seeds: int, program: str = PROGRAM, *arguments: str) -> dict:
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", program, str(seeds), *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.release
def test_seeds_are_dealt_out_and_give_what_they_give_on_one_device():
    one = run(1, 4)
    assert (one["devices"], one["used"]) == (1, 1)
    several = run(2, 4)
    assert (several["devices"], several["used"]) == (2, 2)
    assert several["seeds"] == [0, 1, 2, 3]
    assert several["iteration"] == 5
    # Compilers round differently, also between one seed alone and several in a batch.
    np.testing.assert_allclose(several["qd"], one["qd"], rtol=1e-4)


@pytest.mark.parametrize(
    ("seeds", "devices", "used"), [(20, 8, 5), (20, 4, 4), (1, 8, 1), (7, 3, 1), (6, 8, 6)]
)
def test_devices_get_equal_shares(monkeypatch, seeds, devices, used):
    monkeypatch.setattr(fused, "usable_devices", lambda: list(range(devices)))
    assert fused._devices_for(seeds) == tuple(range(used))
