"""Each example runs with few iterations and draws its picture; the index lists all of them."""

import importlib
import json
import re
import runpy
import sys

import jax
import numpy as np
import pytest
from PIL import Image
from scipy.special import iv

import gloam

from .conftest import EXAMPLES

SMALL = {
    "black_box": {},
    "control": {"workers": 1},
    "custom_network": {"seeds": 1},
    "mixed": {},
    "objectives": {},
    "pictures": {"items": 30},
    "pipeline": {},
    "texts": {},
    "torch_gradients": {"items": 30},
    "torch_model": {},
    "truss": {},
}
PACKAGES = {"control": "gymnasium", "pipeline": "sklearn", "texts": "sklearn"}
PACKAGES |= {"torch_gradients": "torch", "torch_model": "torch"}
NOTEBOOK = EXAMPLES / "first_steps.ipynb"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("*.py"))


def example(name: str):
    """An example as a module; skipped if the package that it needs is not installed."""
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    return importlib.import_module(name)


@pytest.mark.release  # each compiles a search of its own
@pytest.mark.parametrize("name", SCRIPTS)
def test_it_runs_and_draws(name, tmp_path):
    example(name).main(iterations=2, out=tmp_path / "picture.png", **SMALL[name])
    with Image.open(tmp_path / "picture.png") as picture:
        assert picture.width > 500
        assert len(set(picture.convert("L").tobytes())) > 20  # shades: it is not empty


@pytest.mark.parametrize("name", sorted(PACKAGES))
def test_it_says_which_package_is_missing(name, monkeypatch):
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    for loaded in [module for module in sys.modules if module.startswith(f"{PACKAGES[name]}.")]:
        monkeypatch.delitem(sys.modules, loaded)
    with pytest.raises(SystemExit, match=r"^This example needs .*: pip install "):
        runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_a_circle_is_round_and_an_ellipse_is_not():
    black_box = example("black_box")
    solutions = np.zeros((2, 2 * black_box.HARMONICS))
    solutions[1, 1] = 0.3  # the second harmonic of the radius stretches a circle along x
    smoothness, measures = black_box.evaluate(solutions)
    np.testing.assert_allclose(smoothness[0], 1, atol=1e-9)
    np.testing.assert_allclose(measures[0], 1, atol=2e-3)
    assert smoothness[1] < 1
    # Second moments of exp(0.3 cos(2 t)) are sums and differences of Bessel functions.
    even, odd = iv([0, 1], 0.6)
    np.testing.assert_allclose(measures[1, 0], np.sqrt((even + odd) / (even - odd)), rtol=1e-6)
    assert measures[1, 1] < 0.95


def test_no_machine_is_better_than_the_optimum_and_some_reach_it():
    mixed = example("mixed")
    best, rng = mixed.optimum().ravel(), np.random.default_rng(0)
    lower, upper = mixed.SPACE.bounds
    vectors = np.float32(rng.uniform(lower, upper, (20_000, mixed.SPACE.size)))
    objectives, measures = mixed.evaluate(mixed.SPACE.values(vectors))
    cells = np.asarray(mixed.ARCHIVE.index_of(jax.numpy.asarray(measures, jax.numpy.float32)))
    assert (objectives <= best[cells] + 1e-5).all()
    machine = {"length": 0.2, "width": 0.8, "bend": 0.0, "gain": 1e-3, "friction": 1e-4}
    machine |= {"teeth": mixed.TEETH[0], "material": "wood", "coating": "none", "drive": "belt"}
    rows = {name: np.array([value]) for name, value in machine.items()}
    assert mixed.evaluate(rows)[0][0] == pytest.approx(best.max(), abs=1e-6) == 1


def test_a_truss_carries_its_load():
    """Against statics: a section through the deck, and the sum of moments about a node."""
    truss = example("truss")
    areas, heights = np.full((1, 20), 1e-3), np.full((1, 4), 2.0)
    deflection, measures = truss.evaluate(np.concatenate([areas, heights], axis=1))
    bars = truss.nodes(heights)[0][truss.BARS]
    lengths = np.linalg.norm(bars[:, 1] - bars[:, 0], axis=1)
    np.testing.assert_allclose(measures[0, 0], 7850 * 1e-3 * lengths.sum())
    # The end diagonal alone takes the support's 200 kN: 200 kN x length / height / area.
    np.testing.assert_allclose(measures[0, 2], 200e3 * np.sqrt(5) / 2 / 1e-3 / 1e6, rtol=1e-6)
    twice = truss.evaluate(np.concatenate([2 * areas, heights], axis=1))
    np.testing.assert_allclose(twice[0], deflection / 2)
    np.testing.assert_allclose(twice[1][0], measures[0] * [2, 1, 0.5])


def test_a_pendulum_without_torque_swings_freely():
    """Against the equation of motion, in steps of 0.05 s."""
    control = example("control")
    weights = np.zeros((1, control.NETWORK.solution_dim))
    height, side, speed = control.evaluate.play(weights[0], seed=0).observations[0]
    angle, path = np.arctan2(side, height), []
    for _ in range(200):
        speed = np.clip(speed + 0.05 * 15 * np.sin(angle), -8, 8)
        angle += 0.05 * speed
        path.append((np.cos(angle), speed))
    (total,), (measures,) = control.evaluate(weights)
    np.testing.assert_allclose(measures, np.mean(path, axis=0), atol=1e-3)
    assert -2000 < total < -500


def test_the_network_knows_that_both_ends_of_the_circle_are_one():
    network = example("custom_network").Periodic(key=jax.random.key(0))
    ends = [float(network(np.array([end, 0.3], np.float32))) for end in (-1, 1)]
    np.testing.assert_allclose(*ends, atol=1e-5)
    assert abs(float(network(np.array([0, 0.3], np.float32))) - ends[0]) > 1e-3


@pytest.mark.slow  # importing scikit-learn takes most of the time
def test_words_are_those_of_the_solution():
    texts = example("texts").Texts()
    word = list(texts.words).index("clusters")
    assert word in texts.chosen(texts.directions[[word]])[0]
    np.testing.assert_allclose(
        np.linalg.norm(texts.evaluate(texts.directions[:7]), axis=1), 1, rtol=1e-6
    )


@pytest.mark.slow
def test_a_pipeline_has_the_size_and_sensitivity_that_scikit_learn_computes():
    pipeline = example("pipeline")
    from sklearn.linear_model import LogisticRegression
    from sklearn.metrics import recall_score
    from sklearn.model_selection import cross_val_predict

    values = {"model": "logistic", "features": 30, "weight": 3.0, "C": 0.5}
    vector = pipeline.SPACE.vector(values)
    assert pipeline.SPACE.value(vector).keys() == values.keys()
    accuracy, measures = pipeline.evaluate(values)
    steps = pipeline.StandardScaler(), LogisticRegression(C=0.5, class_weight={0: 3.0, 1: 1})
    whole = pipeline.make_pipeline(*steps)
    predicted = cross_val_predict(whole, pipeline.X, pipeline.LABELS, cv=pipeline.FOLDS)
    assert accuracy == np.mean(predicted == pipeline.LABELS)
    sensitivity = recall_score(pipeline.LABELS, predicted, pos_label=0)
    np.testing.assert_allclose(measures, [np.log10(30), sensitivity])
    stump = {"model": "forest", "features": 3, "weight": 1.0, "n_estimators": 4, "max_depth": 1}
    _, (size, _) = pipeline.evaluate(stump)
    np.testing.assert_allclose(size, np.log10(2 * 4 * 3))  # a root and two leaves


def test_drawings_and_images_have_the_measures_of_the_archive():
    drawings = example("pictures").evaluate(np.zeros((2, 21)))
    assert drawings.shape == (2, 8, 8)
    objectives, hand, fields = example("objectives").evaluate(np.zeros((2, 12)), "bends evenly")
    np.testing.assert_allclose(hand, [[1, 0], [1, 0]])
    np.testing.assert_allclose(objectives, fields["all"][:, 0])
    model = example("torch_model")
    symmetry, measures = model.Evaluation("cpu")(np.zeros((2, model.LATENT), np.float32))
    assert (symmetry <= 1).all()
    assert measures.shape == (2, 2)


def test_the_gradients_of_the_decoder_are_those_of_small_steps():
    gradients, torch = example("torch_gradients"), pytest.importorskip("torch")
    torch.manual_seed(1)
    decoder = gradients.Decoder().double()
    evaluate, vjp = gloam.interop.torch_evaluation(decoder)
    solution, direction = np.random.default_rng(0).normal(0, 1, (2, 1, gradients.LATENT))
    weights = np.random.default_rng(1).normal(0, 1, (1, 8, 8))
    sums = [(weights * evaluate(solution + h * direction)[0]).sum() for h in (-1e-6, 1e-6)]
    found = vjp(solution, np.zeros(1), weights)
    np.testing.assert_allclose((sums[1] - sums[0]) / 2e-6, (found * direction).sum(), rtol=1e-5)


@pytest.mark.slow
def test_the_notebook_runs_from_top_to_bottom():
    notebook = json.loads(NOTEBOOK.read_text())
    cells = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in cells)
    names: dict = {}
    for number, cell in enumerate(cells):
        # Lines with a percent sign are commands of the notebook's shell.
        source = re.sub(r"^%.*$", "", "".join(cell["source"]), flags=re.MULTILINE)
        source = source.replace("ITERATIONS = 200", "ITERATIONS = 2")
        exec(compile(source, f"{NOTEBOOK.name}, cell {number}", "exec"), names)
    assert names["search"].iteration == names["ITERATIONS"] == 2
    assert len(names["matches"].elites) > 0


@pytest.mark.parametrize("path", sorted([*EXAMPLES.glob("*.py"), NOTEBOOK]), ids=lambda p: p.name)
def test_the_index_has_it_with_a_picture(path):
    index = (EXAMPLES / "README.md").read_text()
    picture = f"docs/images/examples/{path.stem}.png"
    assert f"]({path.name})" in index
    assert f"](../{picture})" in index
    assert (EXAMPLES.parent / picture).is_file()


@pytest.mark.parametrize("name", SCRIPTS)
def test_it_is_short_and_says_how_to_run_it(name):
    text = (EXAMPLES / f"{name}.py").read_text()
    assert text.count("\n") < 90
    assert f"python examples/{name}.py" in text
