"""Every registered class is written and built again; what does not fit is refused."""

import json
import sys
import tomllib
from importlib import metadata
from importlib.metadata import EntryPoint

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
import gloam_lab
from gloam import discounts, emitters
from gloam._tools import registry
from gloam._tools.registry import REGISTRY, _import_installed_pieces, conforms
from gloam.discounts.from_torch import (
    Convolution,
    Flatten,
    Gelu,
    Linear,
    Rectifier,
    Stack,
    Tanh,
    Unflatten,
)
from gloam.formats import objects
from tests.helpers import small_decoder
from tests.test_docs import ROOT

GRID = gloam.GridArchive(
    (3, 4), (-1, 0), (1, 5), f_min=-2.0, fields={"n": jax.ShapeDtypeStruct((2,), jnp.int32)}
)
IMAGES = np.random.default_rng(0).random((6, 4, 4), dtype=np.float32)
STACK = Stack(
    [
        Unflatten(0, (1, 4, 4)),
        Convolution(jnp.ones((2, 1, 3, 3)), jnp.zeros(2), (1, 1), ((1, 1), (1, 1)), (1, 1), 1),
        Rectifier(0.1),
        Flatten(0, 2),
        Linear(jnp.ones((3, 32)), None),
        Tanh(),
        Gelu(True),
        Linear(jnp.ones((1, 3)), jnp.zeros(1)),
    ]
)
CMA = {"num_emitters": 2, "batch_size": 4}
EXAMPLES = [
    GRID,
    gloam.GridArchive((2, 3), 0, 1, measure_names=("speed", "height (m)")),
    gloam.CVTArchive(IMAGES[:, 0], measure_names=("a", "b", "c", "d")),
    gloam.DMS(GRID, np.zeros(3), 0.5, **CMA),
    gloam.DMS(GRID, np.zeros(3), 0.5, gradients=True, **CMA),
    gloam.Algorithm(
        emitters.Mixture([emitters.Variation(np.zeros(3), 0.1, batch_size=4)]),
        GRID,
        discounts.NoDiscount(),
    ),
    gloam.CVTArchive(IMAGES, metric="cosine"),
    gloam.CVTArchive(IMAGES, index="flat"),
    gloam.DMS.paper(
        GRID, np.zeros(3), 0.5, bounds=(-1, None), restart=emitters.RestartEvery(5), **CMA
    ),
    gloam.Algorithm(
        emitters.CmaEmitters(
            np.zeros(3),
            0.5,
            selection=emitters.FilterSelection(),
            strategy=emitters.SepCMAES(),
            **CMA,
        ),
        gloam.CVTArchive(IMAGES),
        discounts.DiscountModel(network=discounts.CNN((4, 4))),
    ),
    gloam.DMS.paper(
        gloam.CVTArchive(IMAGES),
        np.zeros(40),
        0.5,
        network=discounts.Frozen(STACK, discounts.MLP(1, (4,)), measure_shape=16),
        restart=emitters.RestartWithoutImprovement(),
        strategy=emitters.LMMAES(3),
        **CMA,
    ),
    gloam.CMAMAE(GRID, np.zeros(3), 0.5, strategy=emitters.CMAES(pyribs_covariance=True), **CMA),
    gloam_lab.CMAMEGA(GRID, np.zeros(3), 0.5, adam=True, **CMA),
    gloam_lab.CMAMAEGA(GRID, np.zeros(3), 0.5, alpha=0.2, **CMA),
    gloam.Algorithm(
        emitters.CmaEmitters(np.zeros(3), 0.5, **CMA),
        GRID,
        gloam_lab.KernelDensity(bandwidth=0.3, policy=gloam_lab.KeepLast()),
    ),
    gloam_lab.DDS(GRID, np.zeros(3), 0.5, bandwidth=0.3, **CMA),
    gloam.MAPElites(GRID, np.zeros(3), 0.5, bounds=(-1.0, 1.0)),
    gloam.MAPElitesLine(GRID, np.zeros(3), 0.5),
    gloam.DMS(
        GRID,
        gloam.Space(
            angle=gloam.Real(-1, 1, start=0.5),
            rate=gloam.Real(1e-5, 0.1, log=True, shape=(2,)),
            layers=gloam.Integer(1, 9),
            kind=gloam.Categorical(["x", 2, None, True], ordered=True),
        ),
        outside="reflect",
        **CMA,
    ),
    gloam.MAPElites(GRID, {"w": np.zeros((2, 3)), "b": [np.ones(2), (np.zeros(1), None)]}, 0.1),
    gloam.domains.Arm(7),
    gloam.domains.LinearProjection(10, "rastrigin", solution_dim=20),
    gloam_lab.LatentDigits(np.tile(IMAGES, (1, 2, 2)), small_decoder(), x0=np.ones(3), name="mine"),
    gloam.domains.Triangles(IMAGES, num_triangles=3, canvas=(4, 4), name="mine", seed=3),
]


def classes_in(content):
    if isinstance(content, dict):
        own = {content["class"]} if "class" in content else set()
        return own.union(*map(classes_in, content.values()))
    return set().union(*map(classes_in, content)) if isinstance(content, list) else set()


@pytest.mark.parametrize("value", EXAMPLES, ids=lambda value: type(value).__name__)
def test_an_object_is_built_again_to_the_same_bits(value):
    arrays = {}
    content = json.loads(json.dumps(objects.encode(value, arrays)))
    again = objects.decode(content, arrays)
    assert type(again) is type(value)
    assert jax.tree.structure(again) == jax.tree.structure(value)
    for one, other in zip(jax.tree.leaves(again), jax.tree.leaves(value), strict=True):
        np.testing.assert_array_equal(one, other)
    assert objects.encode(again, {}) == content
    assert objects.differences(content, objects.encode(again, {}), "value") == []


def test_the_examples_cover_the_registry():
    found = set().union(*(classes_in(objects.encode(value, {})) for value in EXAMPLES))
    classes = {name: entry.cls for name, entry in REGISTRY.items()}
    # Not those of programs, and of examples in docstrings.
    own = {n for n, cls in classes.items() if getattr(sys.modules[cls.__module__], n, None) is cls}
    assert found == {
        name for name in own if classes[name].__module__.startswith(("gloam.", "gloam_lab."))
    }


def test_registered_classes_of_a_program_are_built_from_files():
    @gloam.formats.register
    class EverySecond(gloam.emitters.RestartRule):
        offset: int

        def due(self, state, progress):
            return progress.accepted == progress.iteration % 2 + self.offset, None

    try:
        content = json.loads(json.dumps(objects.encode(EverySecond(1), {})))
        assert objects.decode(content, {}) == EverySecond(1)
        content["arguments"]["offset"] = "1"
        with pytest.raises(ValueError, match=r"offset.*EverySecond"):
            objects.decode(content, {})
        with pytest.raises(ValueError, match="EverySecond"):
            gloam.formats.register(type("EverySecond", (EverySecond,), {"__module__": "other"}))
    finally:
        del REGISTRY["EverySecond"]
    with pytest.raises(ValueError, match="EverySecond"):
        objects.decode(content, {})


def test_a_name_that_is_not_known_imports_the_pieces_of_installed_packages(monkeypatch, tmp_path):
    text = (
        "import gloam\n\n@gloam.formats.register\nclass Installed(gloam.emitters.SelectionRule):\n"
    )
    (tmp_path / "installed_pieces.py").write_text(text + "    parents = None\n")
    entries = [
        EntryPoint("broken", "no_such_module", "gloam.pieces"),
        EntryPoint("mine", "installed_pieces", "gloam.pieces"),
    ]
    by_group = {"gloam.pieces": entries}
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: by_group.get(group, []))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(registry, "_import_installed_pieces", _import_installed_pieces.__wrapped__)
    content = {"class": "Installed", "arguments": {}}
    try:
        with pytest.warns(UserWarning, match="broken"):
            assert type(objects.decode(content, {})).__name__ == "Installed"
    finally:
        REGISTRY.pop("Installed", None)
        sys.modules.pop("installed_pieces", None)


def test_registered_classes_of_the_laboratory_are_declared_in_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    modules = {entry.cls.__module__ for entry in REGISTRY.values()}
    of_laboratory = {name for name in modules if name.startswith("gloam_lab.")}
    assert of_laboratory == set(project["entry-points"]["gloam.pieces"].values())


def test_a_class_with_textual_annotations_is_not_registered():
    cls = type("Textual", (eqx.Module,), {"__annotations__": {"x": "int"}, "__module__": __name__})
    with pytest.raises(TypeError, match="Textual"):
        gloam.formats.register(cls)


def test_equal_arrays_are_stored_once():
    domain = EXAMPLES[-1]
    arrays = {}
    objects.encode([domain, gloam.CVTArchive(IMAGES)], arrays)
    assert len([array for array in arrays.values() if array.shape == (6, 4, 4)]) == 1


class Own(eqx.Module):
    weight: jax.Array


class Inner(eqx.Module):
    precision: str | None = eqx.field(static=True)
    path: str = eqx.field(static=True, default="", metadata={"compared": False})


class Outer(eqx.Module):
    parts: list[Inner]
    size: int = eqx.field(static=True, default=3)


def test_plain_static_values_of_own_objects_are_compared_except_paths():
    def content(*arguments, size=3, **options):
        return objects.encode(Outer([Inner(None), Inner(*arguments, **options)], size), {})

    one = content("float16")
    assert objects.differences(one, content("float16", path="elsewhere"), "domain") == []
    for other in (content("bfloat16"), content(None), content("float16", size=4)):
        found = objects.differences(one, other, "domain")
        assert found == ["the data in domain is not the data in the file"]


def test_the_users_own_objects_are_foreign_and_compared_by_their_data():
    one, same, other = (objects.encode(Own(jnp.full(2, x)), {}) for x in (1.0, 1.0, 2.0))
    with pytest.raises(gloam.errors.ForeignError, match="Own"):
        objects.decode(one, {})
    assert objects.differences(one, same, "domain") == []
    assert len(objects.differences(one, other, "domain")) == 1
    renamed = same | {"foreign": "another_module:Own"}
    assert objects.differences(one, renamed, "domain") == []
    for function in (np.tanh, jnp.tanh, jax.nn.relu, lambda x: x, print):
        with pytest.raises(gloam.errors.ForeignError):
            objects.decode(objects.encode(function, {}), {})


def test_differences_are_told_by_their_place():
    def content(alpha, x0):
        return objects.encode(gloam.DMS.paper(GRID, x0, 0.5, alpha=alpha, **CMA), {})

    far = np.zeros(30)
    told = objects.differences(content(0.1, far), content(0.2, far + 1), "algorithm")
    assert len(told) == 2
    assert told[0].startswith("algorithm.emitter.x0 is an array of shape (30,)")
    assert told[1] == "algorithm.discount.alpha is 0.1 in the file and 0.2 now"


@pytest.mark.parametrize(
    ("value", "annotation", "fits"),
    [
        (1, int, True),
        (True, int, False),
        (1, float, True),
        ("1", float, False),
        (None, int | None, True),
        ((1, 2), tuple[int, int], True),
        ((1, 2, 3), tuple[int, int], False),
        ([1], tuple[int, ...], False),
        ({"a": 1}, dict[str, int], True),
        ({1: 1}, dict[str, int], False),
        (jnp.zeros((2, 2)), Own.__annotations__["weight"], True),
        (np.zeros((2, 2)), Own.__annotations__["weight"], False),
    ],
)
def test_conformity(value, annotation, fits):
    assert conforms(value, annotation) is fits


def test_a_function_whose_file_was_edited_has_no_digest(tmp_path):
    file = tmp_path / "edited.py"
    file.write_text("x = [\n")
    names: dict = {"__name__": "edited"}
    exec(compile("def evaluate(x):\n    return x\n", str(file), "exec"), names)
    assert objects._source_digest(names["evaluate"]) is None
