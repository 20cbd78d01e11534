"""A few attacks of each kind; `benchmarks/attack.py` tries them for an hour.

Kills at fixed moments are in `tests/runs/test_kills.py`.
"""

import logging
import os

import numpy as np
import pytest

from .attack import failure_of, prepare
from .kinds import KINDS

NUMBERS = {
    "corruptions": 30,
    "configurations": 40,
    "calls": 400,
    "commands": 30,
    "pickles": 100,
    "requests": 250,
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", os.environ.copy())
    usual = logging.getLogger().manager.disable
    logging.disable()  # the explorer logs what it refuses
    yield prepare(tmp_path)
    logging.disable(usual)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", NUMBERS)
def test_gloam_holds(work, kind):
    attacks = KINDS[kind](work)
    failures = []
    for number in range(NUMBERS[kind]):
        attack = attacks.draw(np.random.default_rng([0, number]))
        failure = failure_of(attack, work)
        if failure is not None:
            failures.append(f"{number}: {attack.description}\n    {failure}")
    assert not failures, "\n".join(["", *failures])
