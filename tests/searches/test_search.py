"""The ask-tell driver as a user meets it: wrong order, wrong shapes, bad rows, files."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import gloam
from gloam.errors import EvaluationError
from tests.helpers import assert_same_bits
from tests.problems import BATCH, advanced, evaluate


def test_asking_twice_gives_the_same(dms):
    search = gloam.Search(dms, 0)
    np.testing.assert_array_equal(search.ask(), search.ask())


def test_tell_without_ask_says_what_to_do(dms):
    with pytest.raises(ValueError, match=r"^tell\(\) was called before ask\(\)\. Call ask"):
        gloam.Search(dms, 0).tell(np.zeros(BATCH), np.zeros((BATCH, 2)))


@pytest.mark.parametrize(
    ("objectives", "measures", "message"),
    [
        (
            np.zeros(29),
            np.zeros((BATCH, 2)),
            r"objectives: expected shape \(30,\).*got .*29",
        ),
        (np.zeros((BATCH, 1)), np.zeros((BATCH, 2)), r"objectives: expected shape \(30,\)"),
        (np.zeros(BATCH), np.zeros((BATCH, 3)), r"measures: expected shape \(30, 2\)"),
    ],
)
def test_wrong_shapes_are_refused(dms, objectives, measures, message):
    search = gloam.Search(dms, 0)
    search.ask()
    with pytest.raises(ValueError, match=message):
        search.tell(objectives, measures)


class _Printed(np.ndarray):
    """An array that counts how often it was written out."""

    times = 0

    def __repr__(self):
        type(self).times += 1
        return "printed"


def test_good_rows_are_told_without_being_written_out(dms):
    search = gloam.Search(dms)
    size = len(search.ask())
    objectives = np.linspace(0, 1, size).view(_Printed)
    search.tell(objectives, np.zeros((size, 2)).view(_Printed))
    assert _Printed.times == 0
    search.ask()
    with pytest.raises(ValueError, match="printed"):
        search.tell(np.array(["a"] * size).view(_Printed), np.zeros((size, 2)))


def test_failed_rows_are_counted_and_never_elites(dms):
    search = gloam.Search(dms, 0)
    solutions = search.ask()
    objectives, measures = evaluate(solutions)
    objectives[0], objectives[1], measures[2, 1] = np.nan, np.inf, -np.inf
    search.tell(objectives, measures)
    assert search.metrics()["failed"] == 3
    found = search.elites().solutions
    assert len(found) > 0
    for bad in solutions[:3]:
        assert not (found == bad).all(axis=1).any()


def test_a_batch_of_failures_is_an_error_and_loses_nothing(dms):
    search = gloam.Search(dms, 0)
    solutions = search.ask()
    with pytest.raises(EvaluationError, match="expected at least one finite result among 30"):
        search.tell(np.full(BATCH, np.nan), np.zeros((BATCH, 2)))
    np.testing.assert_array_equal(search.ask(), solutions)
    search.tell(*evaluate(solutions))
    assert search.iteration == 1


def test_fields_follow_their_elites():
    fields = {"picture": (2, 3), "mass": ()}
    archive = gloam.GridArchive((5, 5), -1, 1, f_min=-5, fields=fields)
    search = gloam.Search(gloam.MAPElites(archive, np.zeros(2), 0.5, batch_size=50), 0)
    for _ in range(3):
        x = search.ask()
        picture = np.broadcast_to(x[:, :1, None], (50, 2, 3))
        search.tell(x[:, 0], x, picture=picture, mass=x[:, 1])
    elites = search.elites()
    np.testing.assert_array_equal(elites.field("picture")[:, 1, 2], elites.solutions[:, 0])
    np.testing.assert_array_equal(elites.field("mass"), elites.solutions[:, 1])
    table = elites.to_pandas()
    assert {"picture_5", "mass", "measures_1", "solution_1", "objective", "cell"} <= set(table)


def test_undeclared_fields_are_refused(dms):
    search = gloam.Search(dms, 0)
    with pytest.raises(ValueError, match=r"fields:.*\[\].*\['extra'\]"):
        search.tell(*evaluate(search.ask()), extra=np.zeros(BATCH))


def test_cells_found_outside_are_used(dms):
    search = gloam.Search(dms, 0)
    objectives, measures = evaluate(search.ask())
    search.tell(objectives, measures, cells=np.full(BATCH, 7))
    assert search.elites().cells.tolist() == [7]
    search.ask()
    with pytest.raises(ValueError, match=r"^cells:.*0.*63"):
        search.tell(objectives, measures, cells=np.full(BATCH, 64))


def test_a_loaded_search_goes_on_to_the_same_bits(algorithm, tmp_path):
    path = tmp_path / "search.npz"
    whole = advanced(gloam.Search(algorithm, 4), 3)
    whole.ask()  # a proposal that is asked but not told is asked again
    whole.save(path)
    loaded = gloam.Search.load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["search.npz"]
    for _ in range(5):
        whole.tell(*evaluate(whole.ask()))
        loaded.tell(*evaluate(loaded.ask()))
    assert_same_bits(whole.state, loaded.state)


class OwnNetwork(eqx.Module):
    weight: jax.Array

    def __call__(self, measures):
        return jnp.tanh(measures @ self.weight)


@pytest.mark.slow
def test_a_network_of_the_users_own_with_bfloat16_weights_is_handed_over_again(tmp_path):
    network = OwnNetwork(jnp.ones(2, jnp.bfloat16))
    archive, sizes = gloam.GridArchive((5, 5), -1, 1), {"num_emitters": 2, "batch_size": 6}
    algorithm = gloam.DMS.paper(archive, np.zeros(3), 0.2, network=network, **sizes)
    search = advanced(gloam.Search(algorithm, 0), 1)
    search.save(tmp_path / "own.npz")
    with pytest.raises(ValueError, match=r"OwnNetwork.*Pass the object itself"):
        gloam.Search.load(tmp_path / "own.npz")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "own.npz").symlink_to(tmp_path / "own.npz")
    loaded = gloam.Search.load(tmp_path / "links" / "own.npz", algorithm)
    np.testing.assert_array_equal(loaded.ask(), search.ask())
    weights = [leaf for leaf in jax.tree.leaves(loaded.state) if leaf.dtype == jnp.bfloat16]
    assert len(weights) > 0
    assert_same_bits(advanced(search, 1).state, advanced(loaded, 1).state)


def test_loading_something_else_is_refused(tmp_path, dms):
    with pytest.raises(ValueError, match=r"^path:"):
        gloam.Search.load(tmp_path / "missing.npz")
    (tmp_path / "text.npz").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.npz.*Give a file that Search\.save wrote"):
        gloam.Search.load(tmp_path / "text.npz")
    gloam.Search(dms, 0).save(tmp_path / "grid.npz")
    other = gloam.MAPElites(dms.archive, np.zeros(5), 0.1)
    with pytest.raises(ValueError, match="saved with another algorithm"):
        gloam.Search.load(tmp_path / "grid.npz", other)


@pytest.mark.parametrize("path", ["", None, 5])
def test_a_search_is_saved_under_a_path(dms, path):
    with pytest.raises(ValueError, match=r"^path:"):
        gloam.Search(dms, 0).save(path)
