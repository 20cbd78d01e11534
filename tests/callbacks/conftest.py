import numpy as np
import pytest

import gloam


def evaluate(solutions):
    """Works on NumPy and JAX arrays alike."""
    return 1.0 - (solutions**2).sum(axis=1) / 20.0, solutions[:, :2] * 1.5


def search(driver="fused", iterations=10, seeds=(3,), **options):
    """A small search that logs each second iteration; compiled once for all tests."""
    archive = gloam.GridArchive((4, 4), -2.0, 2.0)
    algorithm = gloam.MAPElites(archive, np.zeros(2), 0.3, batch_size=4)
    settings = {"seeds": list(seeds), "log_every": 2, "progress": False} | options
    if driver == "fused":
        return gloam.run(evaluate, algorithm, iterations, **settings)
    return gloam.optimize(evaluate, algorithm, iterations, **settings)


class Recorder(gloam.callbacks.Callback):
    """Keeps what it is told, and stops the run at an iteration."""

    def __init__(self, stop_at=None):
        self.calls, self.stop_at = [], stop_at

    def start(self, run):
        self.calls.append(("start", run))

    def log(self, rows):
        self.calls.append(("log", rows))
        return "enough" if rows[0]["iteration"] == self.stop_at else None

    def checkpoint(self, iteration):
        self.calls.append(("checkpoint", iteration))

    def end(self, end):
        self.calls.append(("end", end))

    def told(self, name):
        return [what for kind, what in self.calls if kind == name]


@pytest.fixture(params=["fused", "ask-tell", "asynchronous"])
def run(request):
    """`search` with one of the drivers."""
    if request.param == "asynchronous":
        return lambda **options: search("python", asynchronous=True, **options)
    return lambda **options: search(request.param, **options)
