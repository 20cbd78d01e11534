import math

import jax.numpy as jnp
import numpy as np
import pytest

from gloam.archives import Elites, GridArchive
from gloam.archives.store import Store, empty_store

FIELDS = {"score": (), "image": (3, 2)}
ARCHIVE = GridArchive((2, 4), 0, 1, f_min=-2.0, fields=FIELDS)


@pytest.fixture
def elites() -> Elites:
    """Elites in cells 1, 4 and 7 of 8, each array told apart by its first digit."""
    objectives = np.full(8, -np.inf, np.float32)
    objectives[[1, 4, 7]] = [0.5, -1.25, 3.0]
    number = jnp.arange(8.0)
    store = Store(
        100 + number[:, None] + jnp.array([0.0, 0.25, 0.5]),
        jnp.asarray(objectives),
        200 + number[:, None] + jnp.array([0.0, 0.25]),
        {"score": 300 + number, "image": 400 + number[:, None, None] + jnp.ones((3, 2)) / 8},
    )
    return Elites(ARCHIVE, store)


def test_figures_worked_by_hand(elites):
    # (0.5 + 2) + (-1.25 + 2) + (3 + 2), all exact in float32.
    assert elites.qd_score == 8.25
    assert elites.coverage == 0.375
    assert elites.best_objective == 3.0
    assert len(elites) == 3
    assert repr(elites) == "Elites(3 of 8 cells, QD score 8.25, best 3)"
    assert type(elites.qd_score) is type(elites.coverage) is type(elites.best_objective) is float


def test_arrays_hold_the_occupied_cells_in_order(elites):
    assert elites.occupied.tolist() == [False, True, False, False, True, False, False, True]
    assert elites.cells.tolist() == [1, 4, 7]
    assert elites.objectives.tolist() == [0.5, -1.25, 3.0]
    assert elites.solutions.tolist() == [
        [101, 101.25, 101.5],
        [104, 104.25, 104.5],
        [107, 107.25, 107.5],
    ]
    assert elites.measures.tolist() == [[201, 201.25], [204, 204.25], [207, 207.25]]
    assert elites.field("score").tolist() == [301, 304, 307]
    assert elites.field("image").shape == (3, 3, 2)
    assert elites.field("image")[:, 0, 0].tolist() == [401.125, 404.125, 407.125]
    assert isinstance(elites.solutions, np.ndarray)


def test_table_has_a_column_for_every_number(elites):
    table = elites.to_pandas()
    assert list(table.columns)[:7] == [
        "cell",
        "objective",
        "measures_0",
        "measures_1",
        "solution_0",
        "solution_1",
        "solution_2",
    ]
    assert sorted(table.columns[7:]) == [f"image_{i}" for i in range(6)] + ["score"]
    assert table["cell"].tolist() == [1, 4, 7]
    assert table["objective"].tolist() == [0.5, -1.25, 3.0]
    assert table["score"].tolist() == [301, 304, 307]
    assert table["measures_1"].tolist() == [201.25, 204.25, 207.25]
    assert table["solution_2"].tolist() == [101.5, 104.5, 107.5]


def test_array_fields_are_flattened_in_c_order():
    archive = GridArchive((1,), 0, 1, fields={"image": (3, 2)})
    image = jnp.arange(6.0).reshape(1, 3, 2)
    store = Store(jnp.zeros((1, 1)), jnp.zeros(1), jnp.zeros((1, 1)), {"image": image})
    table = Elites(archive, store).to_pandas()
    assert [table[f"image_{i}"].item() for i in range(6)] == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    "fields", [{"measures_0": ()}, {"solution_12": (2,)}, {"image_0": (), "image": (2,)}]
)
def test_a_field_that_would_hide_another_column_is_refused(fields):
    with pytest.raises(ValueError, match=r"fields: expected names .* got"):
        GridArchive((1,), 0, 1, fields=fields)


def test_a_field_may_end_in_a_number():
    assert set(GridArchive((1,), 0, 1, fields={"layer_3": (), "w_0": (2,)}).fields) == {
        "layer_3",
        "w_0",
    }


def test_an_empty_archive_has_no_elites():
    elites = Elites(ARCHIVE, empty_store(8, 3, 2, ARCHIVE.fields))
    assert (elites.qd_score, elites.coverage, elites.best_objective) == (0.0, 0.0, -math.inf)
    assert len(elites) == 0
    table = elites.to_pandas()
    assert table.shape == (0, 2 + 2 + 3 + 1 + 6)
