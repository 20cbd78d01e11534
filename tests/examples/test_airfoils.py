"""The airfoils: the network in JAX against NeuralFoil, and small searches to pictures."""

import itertools

import equinox as eqx
import numpy as np
import pytest
from PIL import Image

import gloam

airfoils = pytest.importorskip("airfoils")
foil_network = pytest.importorskip("foil_network")
search_airfoils = pytest.importorskip("search_airfoils")

RANDOM = np.random.default_rng(0)


def random_airfoils(number: int) -> np.ndarray:
    """Airfoils that are cambered a little."""
    camber = RANDOM.uniform(0.0, 0.1, (number, 1))
    half = RANDOM.uniform(0.1, 0.18, (number, 1)) + RANDOM.uniform(-0.02, 0.02, (number, 8))
    edges = RANDOM.uniform(-0.02, 0.02, (number, 1)), RANDOM.uniform(0, 2e-3, (number, 1))
    return np.float32(np.hstack([camber + half, camber - half, *edges]))


def made_network():
    """A network with weights that the test makes, for machines without NeuralFoil."""
    sizes = [25, 16, 16, 198]
    weights = {}
    for layer, (inputs, outputs) in enumerate(itertools.pairwise(sizes)):
        weights[f"net.{2 * layer}.weight"] = RANDOM.normal(0, inputs**-0.5, (outputs, inputs))
        weights[f"net.{2 * layer}.bias"] = np.zeros(outputs)
    distribution = {"mean_inputs_scaled": np.zeros(25), "inv_cov_inputs_scaled": np.eye(25) / 9}
    return foil_network.network_of(weights, distribution)


def test_the_network_in_jax_is_that_of_neuralfoil():
    pytest.importorskip("neuralfoil", reason="NeuralFoil is not installed: gloam[airfoils]")
    kulfan, angles = random_airfoils(200), np.float32(RANDOM.uniform(-4, 10, 200))
    theirs = airfoils.neuralfoil_analysis(kulfan, angles)
    network = eqx.filter_jit(foil_network.read_network(airfoils.SIZE))
    aero = network(kulfan, angles, airfoils.REYNOLDS)
    ours = aero["CL"], aero["CD"], aero["analysis_confidence"]
    for mine, their in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, their, rtol=1e-4, atol=1e-5)


def test_an_airfoil_upside_down_has_the_opposite_lift():
    network, kulfan = made_network(), random_airfoils(50)
    angles = np.float32(RANDOM.uniform(-4, 10, 50))
    flipped = -kulfan[:, [*range(8, 16), *range(8), 16, 17]]
    flipped[:, 17] *= -1
    one = network(kulfan, angles, airfoils.REYNOLDS)
    other = network(flipped, -angles, airfoils.REYNOLDS)
    for name, sign in (("CL", -1), ("CD", 1), ("CM", -1), ("analysis_confidence", 1)):
        np.testing.assert_allclose(one[name], sign * other[name], rtol=1e-4, atol=1e-5)


def test_distances_of_outlines_are_in_percent_of_the_chord():
    one, other = random_airfoils(2)
    heights = airfoils.outline_matrix(airfoils.POSITIONS) @ np.stack([one, other], axis=1)
    rms = 100 * np.sqrt(np.mean((heights[:, 0] - heights[:, 1]) ** 2))
    distance = np.linalg.norm(airfoils.OUTLINE @ one - airfoils.OUTLINE @ other)
    assert distance == pytest.approx(rms, rel=1e-4)
    # A symmetric airfoil is as thick as both sides together, in percent.
    symmetric = np.float32([*[0.2] * 8, *[-0.2] * 8, 0, 0])
    thickness = airfoils.thicknesses((airfoils.OUTLINE @ symmetric)[None])[0]
    upper = 100 * heights_of(symmetric)
    np.testing.assert_allclose(thickness, 2 * upper, rtol=1e-4)


def heights_of(kulfan) -> np.ndarray:
    x = airfoils.POSITIONS
    return kulfan[0] * np.sqrt(x) * (1 - x)  # Bernstein polynomials of equal weights sum to one


def test_what_violates_a_constraint_and_by_how_much():
    """Airfoils with a straight lift of several slopes, one of which cannot reach it."""
    kulfan = np.repeat(random_airfoils(1), 4, axis=0)
    kulfan[3, :16] = kulfan[3, [*range(8, 16), *range(8)]]  # the sides are swapped
    slopes, confidence = np.array([0.1, 0.12, 0.0, 0.11]), np.array([0.95, 0.8, 0.9, 0.9])

    def analysis(kulfan, angles):
        return airfoils.Aero(0.3 + slopes * angles, np.full(4, 0.01), confidence)

    angles, aero = airfoils.at_lift(analysis, kulfan)
    np.testing.assert_allclose(aero.lift[[0, 1, 3]], airfoils.LIFT, atol=0.003)
    np.testing.assert_allclose(angles[1], 0.4 / 0.12, atol=0.02)
    objectives, _, fields = airfoils.evaluate_by(analysis, kulfan)
    np.testing.assert_allclose(objectives, aero.lift / 0.01)
    expected = [0, 0.1, 0.4 - airfoils.TOLERANCE]
    np.testing.assert_allclose(fields["violation"][:3], expected, atol=1e-6)
    assert fields["violation"][3] > 5


@pytest.fixture(scope="module")
def known():
    """Twelve airfoils with equal objectives."""
    solutions = random_airfoils(12)
    return airfoils.Known(np.array([f"foil{row}" for row in range(12)]), solutions, np.ones(12))


def test_the_best_near_an_airfoil_may_be_the_elite_of_another_cell(known):
    archive = known.dataset.archive(within=airfoils.NEAR)
    moved = known.solutions[:3].copy()
    moved[:, 0] += 0.01
    measures = moved @ airfoils.OUTLINE.T
    elites = gloam.interop.elites_from_arrays(archive, moved, [0.5, 2.0, 3.0], measures)
    assert len(elites) > 0
    solutions, objectives = search_airfoils.best_near(known, elites)
    for item, solution, objective in zip(known.solutions, solutions, objectives, strict=True):
        candidates = {1.0: item}
        for elite in elites:
            distance = np.linalg.norm(airfoils.OUTLINE @ (elite.solution - item))
            if distance <= airfoils.NEAR:
                candidates[elite.objective] = elite.solution
        assert objective == max(candidates)
        np.testing.assert_array_equal(solution, candidates[objective])


@pytest.mark.slow  # reads airfoils, and compiles searches of its own
def test_a_small_search_ends_in_pictures_and_a_comparison(tmp_path, capsys):
    pytest.importorskip("neuralfoil", reason="NeuralFoil is not installed: gloam[airfoils]")
    import descend_airfoils
    import draw_airfoils

    few = airfoils.read_database(step=40)
    data = tmp_path / "few.npz"
    np.savez(data, **few._asdict())
    assert airfoils.load(data).names.tolist() == few.names.tolist()
    assert (airfoils.evaluate(few.solutions)[2]["violation"] == 0).all()
    for name, options in {"a": {}, "b": {"black_box": True}}.items():
        out = tmp_path / name
        search_airfoils.main(iterations=6, data=data, out=out, **options)
        elites = gloam.RunFolder(out).read_archive()
        items = few.dataset.items[elites.cells]
        distances = np.linalg.norm(elites.flat_measures - items, axis=1)
        assert distances.max() <= airfoils.NEAR + 1e-5
        _, objectives = search_airfoils.best_near(few, elites)
        assert np.median(objectives / few.objectives) > 1.01
    draw_airfoils.main(tmp_path / "a", data, tmp_path / "pictures")
    for picture in ("airfoils.png", "airfoils-polars.png"):
        with Image.open(tmp_path / "pictures" / picture) as image:
            assert len(set(image.convert("L").tobytes())) > 20
    capsys.readouterr()
    descend_airfoils.main(2, tmp_path / "a", data=data)
    assert "descent: mean L/D" in capsys.readouterr().out
