"""A few attacks of each kind; `benchmarks/attack.py` tries them for an hour.

Kills at fixed moments are in `tests/runs/test_kills.py`.
"""

import logging
import os

import numpy as np
import pytest

from gloam.plots import style

from .attack import MARK, failure_of, prepare
from .kinds import KINDS

NUMBERS = {
    "corruptions": 15,
    "configurations": 10,
    "calls": 200,
    "commands": 15,
    "pickles": 80,
    "requests": 200,
}


@pytest.fixture
def work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (MARK, "XDG_CACHE_HOME"):  # which the attacks set
        monkeypatch.setenv(name, os.environ.get(name, ""))
    # Figures are made, but no picture of them is drawn.
    monkeypatch.setattr(style, "save", lambda figure, path, pdf=False: path)
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
