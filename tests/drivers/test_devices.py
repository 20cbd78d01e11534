"""Several devices: seeds are dealt out to them, and the results are those of one device."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

from gloam.drivers import fused

# A process of its own: the number of (virtual) devices is fixed before JAX starts.
PROGRAM = """
import json, sys
import numpy as np, jax, gloam
from gloam.domains import LinearProjection
from gloam.drivers.fused import Fused
domain = LinearProjection(measures=2, solution=6)
archive = gloam.GridArchive(shape=(10, 10), lower=-15, upper=15)
algorithm = gloam.DMS(archive, domain.x0, 0.5, emitters=2, batch_size=4, init_points=20)
driver = Fused(domain, algorithm, list(range(int(sys.argv[1]))))
driver.start()
driver.advance(3)
objectives = driver.state.store.objectives
before = [float(row["qd_score"]) for row in driver.rows()]
driver.advance(2)
print(json.dumps({
    "devices": jax.device_count(), "used": len(objectives.sharding.device_set), "qd": before,
    "iteration": driver.iteration, "seeds": [row["seed"] for row in driver.rows()],
}))
"""


def run(devices: int, seeds: int) -> dict:
    flags = f"--xla_force_host_platform_device_count={devices} --xla_backend_optimization_level=0"
    environment = os.environ | {"XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run([sys.executable, "-c", PROGRAM, str(seeds)], env=environment,
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_seeds_are_dealt_out_and_give_what_they_give_on_one_device():
    one = run(1, 4)
    assert (one["devices"], one["used"]) == (1, 1)
    for devices, used in ((2, 2), (4, 4)):
        several = run(devices, 4)
        assert (several["devices"], several["used"]) == (devices, used)
        assert several["seeds"] == [0, 1, 2, 3]
        assert several["iteration"] == 5
        # Compilers round differently, also between one seed alone and several in a batch.
        np.testing.assert_allclose(several["qd"], one["qd"], rtol=1e-4)


@pytest.mark.parametrize(
    ("seeds", "devices", "used"), [(20, 8, 5), (20, 4, 4), (1, 8, 1), (7, 3, 1), (6, 8, 6)]
)
def test_devices_get_equal_shares(monkeypatch, seeds, devices, used):
    monkeypatch.setattr(fused.jax, "local_devices", lambda: list(range(devices)))
    assert fused._devices_for(seeds) == list(range(used))
