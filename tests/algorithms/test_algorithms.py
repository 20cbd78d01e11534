"""Algorithms are pieces: built directly or by a preset, with arguments declared once."""

import inspect
import re

import equinox as eqx
import numpy as np
import pytest

import gloam
import gloam_lab
from gloam.discounts import DiscountModel, NoDiscount, Thresholds
from gloam.emitters import (
    AdaptiveMixture,
    AimedCmaEmitters,
    AimedMoves,
    BasicRestart,
    CmaEmitters,
    ElitesWanted,
    Recombination,
    RestartWithoutImprovement,
    Swaps,
    Variation,
)
from gloam.formats import objects
from gloam_lab import Arborescences, KernelDensity
from tests.helpers import paper_model

ARCHIVE = gloam.GridArchive((4, 4), -1, 1, f_min=-3)
X0 = np.zeros(3)
# Pieces of the presets, and the defaults that differ from those of the pieces.
PIECES = {
    gloam.DMS: (CmaEmitters, DiscountModel),
    gloam.CMAMAE: (CmaEmitters, Thresholds),
    gloam_lab.CMAMEGA: (Arborescences,),
    gloam_lab.CMAMAEGA: (Arborescences, Thresholds),
    gloam_lab.DDS: (CmaEmitters, KernelDensity),
    gloam.MAPElites: (Variation,),
    gloam.MAPElitesLine: (Variation,),
}
OTHER_DEFAULTS = {
    gloam.DMS: {"num_emitters": 15},
    gloam.CMAMAE: {"num_emitters": 15},
    gloam_lab.DDS: {"num_emitters": 15},
    gloam.MAPElitesLine: {"line_sigma": 0.2},
}


def parameters(cls) -> dict[str, inspect.Parameter]:
    return dict(inspect.signature(cls).parameters)


@pytest.mark.parametrize("preset", PIECES)
def test_a_preset_has_the_defaults_of_its_pieces(preset):
    shown, other = parameters(preset), OTHER_DEFAULTS.get(preset, {})
    of_pieces = {name: arg for piece in PIECES[preset] for name, arg in parameters(piece).items()}
    own = {"archive"} | ({"mixture", "gradients", "name"} if preset is gloam.DMS else set())
    assert set(shown) - set(of_pieces) == own
    for name in set(shown) - own:
        assert shown[name].default == other.get(name, of_pieces[name].default)


@pytest.mark.parametrize("preset", [*PIECES, gloam.Algorithm])
def test_help_describes_each_argument_once(preset):
    _, _, text = inspect.getdoc(preset).partition("Args:\n")
    text, _, _ = text.partition("\n\n")
    groups = re.findall(r"^    (\w[\w, ]*): ", text, re.MULTILINE)
    assert sorted(", ".join(groups).split(", ")) == sorted(parameters(preset))


@pytest.mark.parametrize("preset", PIECES)
@pytest.mark.parametrize("name", ["f_min", "shape", "num_cells", "space"])
def test_an_unknown_argument_is_refused(preset, name):
    needed = {"bandwidth": 0.1} if preset is gloam_lab.DDS else {}
    message = rf"{preset.__name__}\(\) got an unexpected keyword argument '{name}'"
    with pytest.raises(TypeError, match=message):
        preset(ARCHIVE, X0, 0.1, **needed, **{name: 1})


def test_a_misspelt_argument_is_suggested():
    with pytest.raises(TypeError, match=r"'num_emiters'\. Did you mean 'num_emitters'\?"):
        gloam.DMS(ARCHIVE, X0, 0.1, num_emiters=3)


def test_a_missing_argument_is_named():
    with pytest.raises(TypeError, match="'bandwidth'"):
        gloam_lab.DDS(ARCHIVE, X0, 0.1)


def direct_and_preset():
    sizes = {"num_emitters": 2, "batch_size": 4}
    emitter = CmaEmitters(X0, 0.2, restart=BasicRestart(), **sizes)
    paper = gloam.DMS.paper(ARCHIVE, X0, 0.2, ceiling=0, num_init_points=4, **sizes)
    options = {"floor": -3, "ceiling": 0, "num_init_points": 4}
    yield paper_model(ARCHIVE.lower, ARCHIVE.upper, **options), emitter, paper
    cma, aimed = CmaEmitters(X0, 0.2, num_emitters=15), AimedCmaEmitters(X0, 0.2)
    varied = [kind(X0, 0.2, batch_size=540) for kind in (AimedMoves, Recombination, Swaps)]
    mixture = AdaptiveMixture([cma, aimed, *varied], least=[0.2, 0.2, 0.02, 0.02, 0.02])
    yield DiscountModel(), mixture, gloam.DMS(ARCHIVE, X0, 0.2)
    yield Thresholds(alpha=0.2), emitter, gloam.CMAMAE(ARCHIVE, X0, 0.2, alpha=0.2, **sizes)
    points = Arborescences(X0, 0.2, 2, two_stage=True, restart=RestartWithoutImprovement(), **sizes)
    yield NoDiscount(), points, gloam_lab.CMAMEGA(ARCHIVE, X0, 0.2, **sizes)
    points = Arborescences(X0, 0.2, 2, **sizes)
    yield (
        Thresholds(alpha=0.2),
        points,
        gloam_lab.CMAMAEGA(ARCHIVE, X0, 0.2, alpha=0.2, **sizes),
    )
    density = KernelDensity(bandwidth=0.1, buffer_size=9)
    yield density, emitter, gloam_lab.DDS(ARCHIVE, X0, 0.2, bandwidth=0.1, buffer_size=9, **sizes)
    line = Variation(X0, 0.2, line_sigma=0.3, batch_size=8)
    yield NoDiscount(), line, gloam.MAPElitesLine(ARCHIVE, X0, 0.2, 0.3, batch_size=8)


@pytest.mark.parametrize(("discount", "emitter", "preset"), [*direct_and_preset()])
def test_pieces_put_together_are_the_preset(discount, emitter, preset):
    pieces = gloam.Algorithm(emitter, ARCHIVE, discount)
    for part in ("emitter", "archive", "discount"):
        assert eqx.tree_equal(getattr(pieces, part), getattr(preset, part))


def test_presets_have_names_of_their_own():
    presets = [preset for _, _, preset in direct_and_preset()]
    names = [preset.name for preset in presets]
    gradients = ["CMA-MEGA", "CMA-MAEGA"]
    assert names == ["DMS (paper)", "DMS", "CMA-MAE", *gradients, "DDS", "MAP-Elites (line)"]
    assert gloam.DMS(ARCHIVE, X0, 0.2, name="mine").name == "mine"


def test_files_keep_an_algorithm_of_pieces():
    algorithm = gloam.Algorithm(Variation(X0, 0.2), ARCHIVE, Thresholds(alpha=0.2))
    arrays: dict[str, np.ndarray] = {}
    again = objects.decode(objects.encode(algorithm, arrays), arrays)
    assert type(again) is gloam.Algorithm
    assert again.discount.alpha == 0.2
    written = objects.encode(algorithm, {})
    assert objects.differences(written, objects.encode(again, {}), "algorithm") == []


def test_pieces_of_a_file_must_fit_together():
    from gloam._tools import registry

    parts = {
        "emitter": Variation(X0, 0.2),
        "archive": ARCHIVE,
        "discount": Thresholds(num_cells=15),
        "name": "CMA-MAE",
    }
    with pytest.raises(ValueError, match=r"^num_cells of Thresholds:.*16.*15"):
        registry.build("CMAMAE", parts)


ODD = [
    ({"emitter": Variation}, "emitter: expected Emitter"),
    ({"archive": (4, 4)}, "archive: expected Archive"),
    ({"discount": 0.1}, "discount: expected Discount"),
    (
        {"discount": Thresholds(num_cells=15)},
        "num_cells of Thresholds: expected 16",
    ),
    ({"discount": paper_model([0.0] * 3, [1.0] * 3)}, "measures of DiscountModel: expected 2"),
    ({"archive": gloam.GridArchive((30_000, 60_000), -1, 1)}, "archive: expected at most the"),
]


@pytest.mark.parametrize(("piece", "message"), ODD)
def test_pieces_that_do_not_fit_are_refused(piece, message):
    pieces = {"emitter": Variation(np.zeros(10_000), 0.2), "archive": ARCHIVE}
    pieces |= {"discount": NoDiscount()} | piece
    with pytest.raises(ValueError, match=message):
        gloam.Algorithm(**pieces)


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (24, "elites_to_ask of Asking"),
        (ElitesWanted(24), "elites_to_ask of Asking"),  # and not a tuple of it
        ((24,), "elites_to_ask of Asking"),
        ((ElitesWanted(0),), "number in elites_to_ask of Asking"),
        ((ElitesWanted(4, best_of=1.5),), "best_of in elites_to_ask of Asking"),
    ],
)
def test_wrong_elites_to_ask_are_named(wanted, name):
    class Asking(Variation):
        elites_to_ask = wanted

    emitter = Asking(X0, 0.2)
    with pytest.raises((ValueError, TypeError), match=f"^{name}"):
        gloam.Algorithm(emitter, ARCHIVE, NoDiscount())
    with pytest.raises((ValueError, TypeError), match=f"^{name}"):
        gloam.emitters.Mixture([Variation(X0, 0.2), emitter])
