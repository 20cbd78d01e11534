"""Algorithms are pieces: built directly or by a preset, with arguments declared once."""

import inspect
import re

import jax
import numpy as np
import pytest

import gloam
from gloam.discounts import DiscountModel, KernelDensity, NoDiscount, Thresholds
from gloam.emitters import CmaEmitters, Variation
from gloam.formats import objects

ARCHIVE = gloam.GridArchive((4, 4), -1, 1, f_min=-3)
X0 = np.zeros(3)
BOUNDS = {"lower", "upper"}
# Arguments for which a preset has a default of its own.
OWN_DEFAULTS = {"line_sigma"}
DMS_DEFAULTS = {
    "num_emitters": 9,
    "alpha": 0.01,
    "first_visit": 0.3,
    "f_min": None,
    "f_max": None,
    "num_empty_points": 10,
    "learning_rate": 3e-4,
}
# What each preset takes of its pieces, by name.
PRESETS = {
    gloam.DMS: {CmaEmitters: set(), DiscountModel: BOUNDS | {"shape"}},
    gloam.CMAMAE: {CmaEmitters: set(), Thresholds: {"num_cells", "f_min"}},
    gloam.DDS: {CmaEmitters: set(), KernelDensity: {"measure_dim"}},
    gloam.MAPElites: {Variation: {"line_sigma"}},
    gloam.MAPElitesLine: {Variation: set()},
}


def parameters(cls) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls).parameters)


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_takes_the_arguments_of_its_pieces(preset):
    shown = parameters(preset)
    expected = {"archive"}
    for piece, chosen in PRESETS[preset].items():
        passed_on = {n: one for n, one in parameters(piece).items() if n not in chosen}
        expected |= set(passed_on)
        own = OWN_DEFAULTS | (set(DMS_DEFAULTS) if preset is gloam.DMS else set())
        for name in passed_on:
            assert shown[name].annotation == passed_on[name].annotation or name in OWN_DEFAULTS
            assert name in own or shown[name].default == passed_on[name].default
    if preset is gloam.DMS:
        expected |= {"num_moves"}
        assert {name: shown[name].default for name in DMS_DEFAULTS} == DMS_DEFAULTS
    assert set(shown) == expected
    kinds = {one.kind for one in shown.values()}
    assert kinds == {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}


@pytest.mark.parametrize("preset", [*PRESETS, gloam.Algorithm])
def test_help_describes_each_argument_once(preset):
    _, _, text = inspect.getdoc(preset).partition("Args:\n")
    text, _, _ = text.partition("\n\n")
    groups = re.findall(r"^    (\w[\w, ]*): ", text, re.MULTILINE)
    assert sorted(", ".join(groups).split(", ")) == sorted(parameters(preset))


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("name", ["f_min", "shape", "num_cells", "sigma_zero"])
def test_an_unknown_argument_is_refused(preset, name):
    if preset is gloam.DMS and name == "f_min":
        name = "num_init_cells"
    needed = {"bandwidth": 0.1} if preset is gloam.DDS else {}
    message = rf"{preset.__name__}.*unexpected keyword argument '{name}'"
    with pytest.raises(TypeError, match=message):
        preset(ARCHIVE, X0, 0.1, **needed, **{name: 1})


def test_a_missing_argument_is_named():
    with pytest.raises(TypeError, match="bandwidth"):
        gloam.DDS(ARCHIVE, X0, 0.1)


def direct_and_preset():
    emitter = CmaEmitters(X0, 0.2, num_emitters=2, batch_size=4)
    sizes = {"num_emitters": 2, "batch_size": 4}
    few = {"num_empty_points": 3, "num_init_points": 4}
    model = DiscountModel(ARCHIVE.lower, ARCHIVE.upper, f_min=-3, f_max=0, shape=(2,), **few)
    yield model, emitter, gloam.DMS.paper(ARCHIVE, X0, 0.2, f_max=0, **few, **sizes)
    thresholds = Thresholds(16, alpha=0.2, f_min=-3)
    yield thresholds, emitter, gloam.CMAMAE(ARCHIVE, X0, 0.2, alpha=0.2, **sizes)
    density = KernelDensity(2, bandwidth=0.1, buffer_size=9)
    yield density, emitter, gloam.DDS(ARCHIVE, X0, 0.2, bandwidth=0.1, buffer_size=9, **sizes)
    line = Variation(X0, 0.2, line_sigma=0.3, batch_size=8)
    yield NoDiscount(), line, gloam.MAPElitesLine(ARCHIVE, X0, 0.2, 0.3, batch_size=8)


@pytest.mark.parametrize(("discount", "emitter", "preset"), [*direct_and_preset()])
def test_pieces_put_together_are_the_preset(discount, emitter, preset):
    searches = []
    for algorithm in (gloam.Algorithm(emitter, ARCHIVE, discount), preset):
        search = gloam.Search(algorithm, seed=3)
        for _ in range(3):
            x = search.ask()
            search.tell(-np.square(x).sum(axis=1), x[:, :2])
        searches.append(search)
    one, other = (jax.tree.leaves(search.state.store) for search in searches)
    for a, b in zip(one, other, strict=True):
        np.testing.assert_array_equal(a, b)


def test_files_keep_an_algorithm_of_pieces():
    algorithm = gloam.Algorithm(Variation(X0, 0.2), ARCHIVE, Thresholds(16, alpha=0.2))
    arrays: dict[str, np.ndarray] = {}
    again = objects.decode(objects.encode(algorithm, arrays), arrays)
    assert type(again) is gloam.Algorithm
    assert again.discount.alpha == 0.2
    written = objects.encode(algorithm, {})
    assert objects.differences(written, objects.encode(again, {}), "algorithm") == []


def test_pieces_of_a_file_must_fit_together():
    from gloam.formats import registry

    parts = {"emitter": Variation(X0, 0.2), "archive": ARCHIVE, "discount": Thresholds(15)}
    with pytest.raises(ValueError, match=r"num_cells of Thresholds: expected 16.* got 15"):
        registry.build("CMAMAE", parts)


ODD = [
    ({"emitter": Variation}, "emitter: expected Emitter"),
    ({"archive": (4, 4)}, "archive: expected Archive"),
    ({"discount": 0.1}, "discount: expected Discount"),
    ({"discount": Thresholds(15)}, "num_cells of Thresholds: expected 16, as the archive has"),
    ({"discount": KernelDensity(3, bandwidth=0.1)}, "measure_dim of KernelDensity: expected 2"),
    (
        {"discount": DiscountModel(np.zeros(3, np.float32), np.ones(3, np.float32))},
        "bounds of DiscountModel: expected 2",
    ),
    ({"archive": gloam.GridArchive((30_000, 60_000), -1, 1)}, "archive: expected at most the"),
]


@pytest.mark.parametrize(("piece", "message"), ODD)
def test_pieces_that_do_not_fit_are_refused(piece, message):
    pieces = {"emitter": Variation(np.zeros(10_000), 0.2), "archive": ARCHIVE}
    pieces |= {"discount": NoDiscount()} | piece
    with pytest.raises(ValueError, match=message):
        gloam.Algorithm(**pieces)
