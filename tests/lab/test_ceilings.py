"""Ceilings: answers by hand, no solution above them, and shares of them in reports."""

import importlib.util
from pathlib import Path

import equinox as eqx
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gloam import CVTArchive, GridArchive
from gloam.domains import Arm, LinearProjection
from gloam_lab import report
from gloam_lab.ceilings import FILE, Ceiling, archive_digest, ceiling
from gloam_lab.published import PUBLISHED
from gloam_lab.study import domain_named

ROOT = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("ceilings", ROOT / "scripts" / "ceilings.py")
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)

LINE = LinearProjection(1, solution_dim=4)
"""One measure between -20.48 and 20.48; the optimum has 8.192."""
SPACE = LinearProjection(3, solution_dim=6)
"""Three measures between -10.24 and 10.24."""
ARCHIVES = {
    "grid": GridArchive((4, 5, 3), -SPACE.edge, SPACE.edge),
    "narrow grid": GridArchive((3, 3, 3), -2.0, 6.0),
    "cvt": CVTArchive(np.random.default_rng(0).uniform(-SPACE.edge, SPACE.edge, (40, 3))),
}
evaluated = eqx.filter_jit(lambda domain, solutions: domain(solutions))
index_of = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))
BEST = {name: script.best_objectives(SPACE, archive) for name, archive in ARCHIVES.items()}


@pytest.mark.parametrize(
    "archive", [GridArchive((2,), -20.48, 20.48), CVTArchive(np.array([[-5.0], [5.0]]))]
)
def test_two_cells_with_one_measure(archive):
    # The optimum is in the upper cell. The best of the lower one has the measure 0, with all
    # variables 0: its cost is 2.048^2 for each, and the worst is 7.168^2.
    attained, bound = script.best_objectives(LINE, archive)
    assert np.allclose(bound, [1 - (2.048 / 7.168) ** 2, 1.0])
    assert np.allclose(attained, bound)
    assert np.isclose(LINE(np.zeros((1, 4), np.float32))[0][0], bound[0])


def test_a_flat_objective_counts_the_cells_in_reach():
    flat = LinearProjection(1, "flat", solution_dim=4)
    wide = GridArchive((4,), -4 * 20.48, 4 * 20.48)  # the two outer cells are out of reach
    assert script.best_objectives(flat, wide).bound.tolist() == [0, 1, 1, 0]
    cvt = CVTArchive(np.array([[-5.0], [0.0], [5.0]]))
    assert script.best_objectives(flat, cvt).bound.sum() == 3


@pytest.mark.parametrize("name", ARCHIVES)
@given(seed=st.integers(0, 1000), scale=st.sampled_from([0.5, 3.0, 20.0]))
def test_no_solution_is_above_the_ceiling_of_its_cell(name, seed, scale):
    rng = np.random.default_rng(seed)
    # Blocks of equal variables are the best ones; variables beyond the edge are clipped.
    blocks = np.repeat(rng.normal(1, scale, (200, 3)), 2, axis=1)
    solutions = blocks + rng.normal(0, scale, (200, 6)) * rng.integers(0, 2, (200, 1))
    objectives, measures = evaluated(SPACE, solutions.astype(np.float32))
    cells = np.asarray(index_of(ARCHIVES[name], measures))
    assert np.all(np.asarray(objectives) <= BEST[name].bound[cells] + 1e-5)


@pytest.mark.parametrize("name", ARCHIVES)
def test_the_ceiling_of_linear_projection_is_attained(name):
    assert np.abs(BEST[name].bound - BEST[name].attained).max() < 1e-6
    rng = np.random.default_rng(1)
    blocks = rng.uniform(-5.12, 5.12, (200_000, 3)).astype(np.float32)
    objectives, measures = evaluated(SPACE, np.repeat(blocks, 2, axis=1))
    found = np.full(ARCHIVES[name].num_cells, -np.inf)
    np.maximum.at(found, np.asarray(index_of(ARCHIVES[name], measures)), np.asarray(objectives))
    assert np.all(found <= BEST[name].bound + 1e-5)
    assert np.median(BEST[name].bound - found) < 0.01


def test_the_best_point_of_a_voronoi_cell_is_in_it():
    centroids = np.asarray(ARCHIVES["cvt"].centroids, np.float64)
    target = np.full(3, 4.096)
    for cell in range(len(centroids)):
        point, bound = script.nearest_in_cell(cell, centroids, target, SPACE.edge)
        assert np.argmin(np.linalg.norm(centroids - point, axis=1)) == cell
        assert np.abs(point).max() <= SPACE.edge
        assert np.isclose(np.sum((point - target) ** 2), bound, atol=1e-6)


@pytest.mark.parametrize("num_joints", [2, 3, 5])
def test_no_arm_found_at_random_is_better(num_joints):
    arm = Arm(num_joints)
    grid = GridArchive((6, 6), -num_joints, num_joints)
    attained, bound = script.best_objectives(arm, grid)
    assert np.all(attained <= bound)
    rng = np.random.default_rng(0)
    bends = rng.normal(0, rng.uniform(0, 1, (300_000, 1)), (300_000, num_joints))
    solutions = rng.uniform(-3.5, 3.5, (300_000, 1)) * rng.integers(0, 2, (300_000, 1)) + bends
    objectives, measures = evaluated(arm, solutions.astype(np.float32))
    found = np.full(grid.num_cells, -np.inf)
    np.maximum.at(found, np.asarray(index_of(grid, measures)), np.asarray(objectives))
    assert np.all(found <= attained + 1e-5)
    if num_joints == 2:  # the samples are dense, so they nearly meet the ceiling
        assert np.array_equal(np.isfinite(found), bound > 0)
        assert np.median((attained - found)[bound > 0]) < 0.01


def test_the_reach_of_the_arm():
    arm = Arm(5)
    # Boxes of length 1. The corner (3, 4) is on the circle of reach: it belongs to the box above
    # it, and (-3, -4) to a box inside. Otherwise a box is in reach if it meets the disc.
    grid = GridArchive((10, 10), -5, 5)
    bound = script.best_objectives(arm, grid).bound.reshape(10, 10)
    assert bound[8, 9] == bound[9, 8] == 1
    assert bound[1, 0] == bound[0, 1] == bound[8, 0] == bound[1, 9] == 0
    assert bound.sum() == 88 + 2


def test_the_table_is_above_all_known_scores():
    table = pd.read_csv(FILE)
    papers = table[table["cells"] != "gloam"].set_index("domain")["ceiling"]
    assert set(papers.index) == {*script.GRIDS, *script.CVTS}
    measured = pd.read_csv(ROOT / "research" / "results" / "results.csv")
    known = [(row["domain"], row["qd_score"]) for row in measured.to_dict("records")]
    known += [(domain, result.qd_score) for (domain, _), result in PUBLISHED.items()]
    assert all(score <= papers[domain] for domain, score in known if domain in papers)
    assert (table["attained"] <= table["ceiling"]).all()
    bounds = table[table["attained"] < table["ceiling"]]["domain"]
    assert bounds.tolist() == ["arm"]


def test_ceilings_belong_to_archives(shared_data):
    folder = shared_data / "centroids"
    arm, plane = Arm(), domain_named("2d-lp-sphere")
    assert not ceiling("arm", arm.archive()).is_exact
    assert ceiling("2d-lp-sphere", plane.archive()).is_exact
    assert ceiling("arm", GridArchive((50, 50), -100, 100)) is None
    for name in script.CVTS:
        known = ceiling(name, domain_named(name, folder).archive())
        assert known.cells == "paper"
        assert known.is_papers
    assert ceiling("10d-lp-rastrigin", domain_named("10d-lp-sphere", folder).archive()) is None


def test_the_digest_changes_with_the_cells():
    points = np.array([[0.0, 0.0], [1.0, 1.0]])
    archives = [
        GridArchive((4, 5), 0, 1),
        GridArchive((5, 4), 0, 1),
        GridArchive((4, 5), 0, 2),
        CVTArchive(points),
        CVTArchive(points + 1),
    ]
    assert len({archive_digest(archive) for archive in archives}) == 5


def test_shares_of_exact_ceilings_and_of_bounds():
    seeds = [
        {"domain": domain, "algorithm": algorithm, "qd_score": score, "coverage": 0.8}
        for domain, score in (("2d-lp-flat", 7500.0), ("arm", 7607.0), ("10d-lp-flat", 5000.0))
        for algorithm in ("dms", "dms-paper")
    ]
    metrics = pd.DataFrame(seeds).assign(seconds=1.0, part=0)
    known = {
        "2d-lp-flat": Ceiling(10_000.0, 10_000.0, "grid"),
        "arm": Ceiling(8000.0, 7900.0, "grid"),
        "10d-lp-flat": Ceiling(10_000.0, 10_000.0, "gloam"),
    }
    table = report.share_table(report.results(metrics, known))  # 7607 / 8000 is 95.09%
    flat, arm = ("2D LP (Flat)", "the paper"), ("Arm Repertoire", "the paper")
    assert table["domain"].tolist() == [*flat, *arm, "10D LP (Flat)"]
    assert table["ceiling"].tolist() == ["10,000.0", "", "≤ 8,000.0", "", "10,000.0"]
    assert table["DMS"].tolist() == ["75.0%", "", "≥ 95.0%", "", "50.0%"]
    assert table["DMS (paper)"].tolist() == ["75.0%", "79.0%", "≥ 95.0%", "≥ 99.5%", "50.0%"]
    assert r"$\le$ 8,000.0" in report.as_latex(table)
    assert len(report.share_table(report.results(metrics))) == 0
