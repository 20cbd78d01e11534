"""The default search: what it is made of, and the form of the paper."""

import numpy as np
import pytest

import gloam
from gloam.emitters import CmaEmitters, Mixture, Recombination, RestartWhenIdle
from tests.helpers import assert_same_bits, refused

ARCHIVE = gloam.GridArchive((8, 8), -1, 1)
FEW = {"num_emitters": 3, "batch_size": 6, "num_init_points": 16}


def evaluate(x):
    return 5 - np.square(x).sum(axis=1), np.tanh(x[:, :2])


def test_the_default_mixes_cma_es_and_moves_between_elites():
    emitter = gloam.DMS(ARCHIVE, np.zeros(4), 0.5).emitter
    cma, moves = emitter.emitters
    assert isinstance(cma, CmaEmitters)
    assert isinstance(moves, Recombination)
    assert (cma.num_solutions, moves.num_solutions, emitter.num_solutions) == (324, 216, 540)
    assert isinstance(cma.restart, RestartWhenIdle)
    assert moves.sigma == pytest.approx(0.04 * 0.5)
    assert moves.best_of == 4


def test_without_moves_the_emitters_are_alone():
    assert isinstance(gloam.DMS(ARCHIVE, np.zeros(4), 0.5, num_moves=0).emitter, CmaEmitters)
    mixed = gloam.DMS(ARCHIVE, np.zeros(4), 0.5, num_moves=7).emitter
    assert isinstance(mixed, Mixture)
    assert mixed.num_solutions == 331


@pytest.mark.parametrize("algorithm", [gloam.DMS, gloam.CMAMAE])
def test_a_box_gives_a_step_size(algorithm):
    built = algorithm(ARCHIVE, np.zeros(4), bounds=([-1, -2, -2, -9], [1, 2, 2, 9]))
    cma = built.emitter.emitters[0] if algorithm is gloam.DMS else built.emitter
    assert cma.sigma0 == pytest.approx(0.8)  # a fifth of the median width
    with refused("sigma0: expected a number for solutions without bounds, got None"):
        algorithm(ARCHIVE, np.zeros(4))


def test_moves_stay_in_the_box():
    algorithm = gloam.DMS(ARCHIVE, np.zeros(4), 2.0, bounds=(-0.5, 0.5), **FEW)
    search = gloam.Search(algorithm, seed=1)
    for _ in range(3):
        solutions = search.ask()
        assert np.abs(solutions).max() <= 0.5
        search.tell(*evaluate(solutions))


def test_runs_are_resumed_to_the_same_bits(tmp_path):
    domain = gloam.domains.LinearProjection(2, solution_dim=4)
    algorithm = gloam.DMS(domain.archive(), domain.x0, 0.5, **FEW)
    whole = gloam.run(domain, algorithm, 6, seeds=2, progress=False)
    gloam.run(domain, algorithm, 3, seeds=2, run_dir=tmp_path, progress=False)
    resumed = gloam.resume(tmp_path, iterations=6, progress=False)
    for seed in (0, 1):
        assert_same_bits(resumed.elites_by_seed[seed], whole.elites_by_seed[seed])
    rows = resumed.metrics[resumed.metrics["iteration"] == 6]
    filled = rows[["cma_es_filled", "moves_filled"]].sum(axis=1)
    np.testing.assert_allclose(filled, rows["coverage"] * domain.archive().num_cells, rtol=1e-5)


def test_objectives_below_zero_need_no_settings():
    result = gloam.optimize(
        lambda x: (evaluate(x)[0] - 1000, evaluate(x)[1]),
        gloam.DMS(ARCHIVE, np.zeros(4), 0.5, **FEW),
        20,
        progress=False,
    )  # without a warning, which would be an error
    plain = gloam.optimize(
        evaluate, gloam.DMS(ARCHIVE, np.zeros(4), 0.5, **FEW), 20, progress=False
    )
    assert result.elites.coverage > 0.7 * plain.elites.coverage


def test_asynchronous_searches_have_a_part_for_each_emitter():
    search = gloam.AsyncSearch(gloam.DMS(ARCHIVE, np.zeros(4), 0.5, **FEW), seed=1)
    assert len(search.generations) == 3
    for _ in range(5):
        tickets = search.ask(9)
        solutions = np.stack([ticket.solution for ticket in tickets])
        search.tell(tickets, *evaluate(solutions))
    assert search.generations.sum() > 0
    assert len(search.elites()) > 0
