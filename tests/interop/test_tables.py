"""Elites round-trip through arrays, tables and files."""

import doctest

import jax
import numpy as np
import pandas as pd
import pytest

import gloam
from gloam.interop import (
    elites_from_arrays,
    elites_from_pandas,
    elites_from_parquet,
    elites_to_arrays,
    elites_to_parquet,
    gymnasium,
    tables,
)
from tests.helpers import assert_same_bits, refused

ARCHIVE = gloam.GridArchive(
    (3, 4), -1, 1, fields={"image": (2, 2), "count": jax.ShapeDtypeStruct((), "int32")}
)


@pytest.fixture(scope="module")
def elites():
    random = np.random.default_rng(0)
    return elites_from_arrays(
        ARCHIVE,
        random.normal(size=(30, 5)),
        random.normal(size=30),
        random.uniform(-1, 1, (30, 2)),
        fields={"image": random.random((30, 2, 2)), "count": np.arange(30)},
    )


def test_the_best_of_each_cell_stays():
    found = elites_from_arrays(
        gloam.GridArchive((2,), 0, 2),
        [[1.0], [2.0], [3.0], [4.0]],
        [5.0, 7.0, 6.0, -1.0],
        [[0.5], [0.6], [0.7], [1.5]],
    )
    assert found.cells.tolist() == [0, 1]
    assert found.solutions.tolist() == [[2.0], [4.0]]
    assert found.objectives.tolist() == [7.0, -1.0]


def test_every_form_holds_the_elites(elites, tmp_path):
    arrays = elites_to_arrays(elites)
    fields = {name: arrays.pop(name) for name in ARCHIVE.fields}
    path = tmp_path / "elites.parquet"
    elites_to_parquet(elites, path)
    for again in (
        elites_from_arrays(ARCHIVE, fields=fields, **arrays),
        elites_from_pandas(ARCHIVE, elites.to_pandas()),
        elites_from_pandas(ARCHIVE, elites.to_pandas().drop(columns="cell").sample(frac=1)),
        elites_from_parquet(ARCHIVE, path),
    ):
        assert_same_bits(again, elites)
    pd.testing.assert_frame_equal(pd.read_parquet(path), elites.to_pandas())


def test_measures_with_a_shape_come_back():
    archive = gloam.CVTArchive(np.random.default_rng(0).random((6, 2, 3)))
    found = elites_from_arrays(archive, np.zeros((6, 1)), np.ones(6), archive.centroids)
    assert found.measures.shape == (6, 2, 3)
    assert_same_bits(elites_from_pandas(archive, found.to_pandas()), found)


def test_measures_with_names_come_back():
    archive = gloam.GridArchive((3, 2), 0, 1, measure_names=("width", "height"))
    measures = [[0.1, 0.2], [0.9, 0.8]]
    found = elites_from_arrays(archive, np.zeros((2, 1)), np.ones(2), measures)
    table = found.to_pandas()
    assert {"width", "height"} <= set(table.columns)
    assert_same_bits(elites_from_pandas(archive, table), found)
    plain = table.rename(columns={"width": "measures_0", "height": "measures_1"})
    assert_same_bits(elites_from_pandas(archive, plain), found)


def test_the_variables_of_a_space_come_back(tmp_path):
    space = gloam.Space(
        width=gloam.Real(0, 1),
        rate=gloam.Real(1e-4, 1, log=True),
        layers=gloam.Integer(1, 5),
        kind=gloam.Categorical(["a", "1", "2"]),
        digits=gloam.Categorical(["1", "2"]),
        flag=gloam.Categorical([False, True], shape=(2,)),
        mixed=gloam.Categorical([None, 3, "x"]),
    )
    archive = gloam.GridArchive((4, 4), 0.0, 1.0, measure_names=("width", "height"))
    random, (lower, upper) = np.random.default_rng(0), space.bounds
    vectors = np.asarray(space.discrete.snapped(random.uniform(lower, upper, (30, len(lower)))))
    found = elites_from_arrays(archive, vectors, np.zeros(30), random.random((30, 2)))
    elites, path = gloam.Elites(archive, found.store, form=space), tmp_path / "elites.parquet"
    assert {*elites.to_pandas()["mixed"]} == {None, 3, "x"}
    elites_to_parquet(elites, path)
    elites.to_pandas().to_csv(tmp_path / "elites.csv", index=False)
    table = pd.read_csv(tmp_path / "elites.csv", keep_default_na=False)
    table.loc[table["mixed"] == "", "mixed"] = "None"
    for again in (
        elites_from_parquet(archive, path, space),
        elites_from_pandas(archive, table, space),
    ):
        assert again.form == space
        np.testing.assert_array_equal(again.cells, elites.cells)
        # Logarithms are computed again.
        np.testing.assert_allclose(again.solutions, elites.solutions, rtol=1e-5, atol=1e-6)
    with refused("layers: expected whole numbers from 1 to 3"):
        elites_from_parquet(archive, path, gloam.Space(layers=gloam.Integer(1, 3)))


def test_the_examples_hold():
    for module in (tables, gymnasium):
        found = doctest.testmod(module, extraglobs={"np": np})
        assert found.attempted > 0
        assert found.failed == 0


def test_wrong_data_are_refused(elites, tmp_path):
    plain = gloam.GridArchive((2,), 0, 1)
    with refused("objectives: expected 2 numbers"):
        elites_from_arrays(plain, np.zeros((2, 1)), [1.0], np.zeros((2, 1)))
    with refused("measures: expected shape (2, 1)"):
        elites_from_arrays(plain, np.zeros((2, 1)), [1.0, 2.0], np.zeros((2, 3)))
    for cells in ([0, 2], [-1, 0], [0], [0.0, 1.0]):
        with refused("cells: expected 2 whole numbers from 0 to 1"):
            elites_from_arrays(plain, np.zeros((2, 1)), [1, 2], np.zeros((2, 1)), cells=cells)
    with refused("cells: expected whole numbers"):
        elites_from_arrays(plain, np.zeros((2, 1)), [1, 2], np.zeros((2, 1)), cells=[[0], [0, 1]])
    with refused("table: expected columns solution_0"):
        elites_from_pandas(plain, pd.DataFrame({"objective": [1.0], "measures_0": [0.0]}))
    with refused("table: expected columns objective"):
        elites_from_pandas(plain, pd.DataFrame({"measures_0": [0.0]}))
    with pytest.raises(ValueError, match="fields"):
        elites_from_arrays(ARCHIVE, np.zeros((1, 1)), [1.0], np.zeros((1, 2)))
    (tmp_path / "mine").write_text("mine")
    with refused("path: expected a new file"):
        elites_to_parquet(elites, tmp_path / "mine")
