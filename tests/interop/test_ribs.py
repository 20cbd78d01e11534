"""pyribs archives round-trip."""

import warnings

import numpy as np
import pytest

import gloam
from tests.helpers import assert_same_bits, refused

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    archives = pytest.importorskip("ribs.archives", reason="needs gloam[ribs]")

from gloam.interop.ribs import from_ribs, to_ribs

RANDOM = np.random.default_rng(0)
FIELDS = {"weight": ((), np.float64), "pair": ((2,), np.int64), "is_odd": ((), bool)}


def their_archive(kind, **settings):
    ranges = [(-1, 2), (0, 5)]
    if kind == "grid":
        theirs = archives.GridArchive(solution_dim=3, dims=(4, 7), ranges=ranges, **settings)
    else:
        points = RANDOM.uniform((-1, 0), (2, 5), (12, 2))
        theirs = archives.CVTArchive(solution_dim=3, centroids=points, ranges=ranges, **settings)
    number = 40
    theirs.add(
        RANDOM.normal(size=(number, 3)),
        RANDOM.uniform(-3, 5, number),
        RANDOM.uniform((-2, -1), (3, 6), (number, 2)),
        **(
            {
                "weight": RANDOM.normal(size=number),
                "pair": RANDOM.integers(-9, 9, (number, 2)),
                "is_odd": RANDOM.integers(0, 2, number).astype(bool),
            }
            if "extra_fields" in settings
            else {}
        ),
    )
    return theirs


@pytest.mark.parametrize("kind", ["grid", "cvt"])
def test_elites_of_pyribs_keep_their_cells_and_numbers(kind):
    theirs = their_archive(kind, extra_fields=FIELDS, qd_score_offset=-3.0)
    ours = from_ribs(theirs)
    data = theirs.data()
    order = np.argsort(data["index"])
    np.testing.assert_array_equal(ours.cells, data["index"][order])
    for name, found in (
        ("solution", ours.solutions),
        ("objective", ours.objectives),
        ("measures", ours.measures),
        *((name, ours.field(name)) for name in FIELDS),
    ):
        np.testing.assert_array_equal(found, data[name][order].astype(found.dtype))
    assert ours.qd_score == pytest.approx(theirs.stats.qd_score, rel=1e-5)
    assert ours.coverage == pytest.approx(theirs.stats.coverage)
    np.testing.assert_allclose(ours.archive.lower, theirs.lower_bounds)


@pytest.mark.parametrize("kind", ["grid", "cvt"])
def test_there_and_back_changes_no_bit(kind):
    ours = from_ribs(their_archive(kind, extra_fields=FIELDS))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of borders
        theirs = to_ribs(ours)
    back = from_ribs(theirs)
    assert_same_bits(back, ours)
    assert back.archive.fields == ours.archive.fields


def test_an_archive_of_a_search_goes_to_pyribs():
    archive = gloam.GridArchive((5, 5), -2, 2, f_min=-1.0)
    search = gloam.Search(gloam.MAPElites(archive, np.zeros(3), 0.8, batch_size=30))
    x = search.ask()
    search.tell(-np.square(x).mean(axis=1), x[:, :2])
    theirs = to_ribs(search.elites(), seed=3)
    assert theirs.stats.qd_score == pytest.approx(search.elites().qd_score, rel=1e-5)
    assert theirs.stats.num_elites == len(search.elites())
    assert len(to_ribs(gloam.Search(search.algorithm).elites())) == 0


def test_an_elite_on_a_border_is_told_of():
    archive = gloam.GridArchive((2,), 0, 2)
    just_below = np.float32(1.0) - np.finfo(np.float32).eps
    elites = gloam.interop.elites_from_arrays(archive, [[1.0]], [1.0], [[just_below]])
    assert elites.cells.tolist() == [0]
    with pytest.warns(UserWarning, match="1 of 1 elites lie on a border"):
        to_ribs(elites)


def test_what_cannot_be_converted_is_refused():
    with refused("archive: expected a GridArchive or a CVTArchive of pyribs"):
        from_ribs(gloam.GridArchive((2,), 0, 1))
    cosine = gloam.CVTArchive(np.eye(2), metric="cosine")
    elites = gloam.interop.elites_from_arrays(cosine, [[1.0]], [1.0], [[1.0, 0.0]], cells=[0])
    with refused("archive: expected a GridArchive or a CVTArchive with the Euclidean metric"):
        to_ribs(elites)
    theirs = archives.GridArchive(
        solution_dim=1, dims=(2,), ranges=[(0, 1)], extra_fields={"name": ((), object)}
    )
    with refused("field 'name': expected numbers"):
        from_ribs(theirs)
