"""Laws of the store, for every kind of archive."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gloam._tools import devices
from gloam.archives import CVTArchive, GridArchive
from gloam.archives.store import Store, add, empty_store, random_elites, random_empty_cells
from gloam.records import Batch

SIZE = 8
FIELDS = {"rank": (), "picture": (3, 2)}
CENTROIDS = [[0.1, 0.2], [0.9, 0.1], [0.5, 0.5], [0.2, 0.8], [0.8, 0.9], [0.5, 0.1]]
ARCHIVES = [
    pytest.param(GridArchive((2, 3), 0, 1, fields=FIELDS), id="grid"),
    pytest.param(CVTArchive(CENTROIDS, 0, 1, fields=FIELDS), id="cvt"),
]
for_every_archive = pytest.mark.parametrize("archive", ARCHIVES)

# Few values, so that ties are common; the two zeros are equal and must tie. Subnormal numbers are
# left out: XLA may flush them to zero.
objectives = st.sampled_from([-1.5, -0.0, 0.0, 1.0, 2.0]) | st.floats(
    width=32, allow_nan=False, allow_infinity=False, allow_subnormal=False
)
coordinates = st.floats(-0.25, 1.25, width=32, allow_subnormal=False)
rows = st.tuples(objectives, coordinates, coordinates, st.sampled_from([True, True, True, False]))
batches = st.lists(rows, min_size=SIZE, max_size=SIZE)
batches_without_ties = st.lists(rows, min_size=SIZE, max_size=SIZE, unique_by=lambda row: row[0])

compiled_add = jax.jit(add)
index_of = eqx.filter_jit(lambda archive, measures: archive.index_of(measures))


def add_to(store: Store, batch: Batch):
    """`add`, compiled once for all archives here, its results as NumPy arrays."""
    return jax.tree.map(np.asarray, compiled_add(store, batch))


def store_for(archive) -> Store:
    return empty_store(archive.num_cells, 2, archive.measure_dim, archive.fields)


def batch_of(archive, rows, first: int = 0) -> Batch:
    """Rows as a batch; solution and fields are made from a number of its own for each row."""
    objective, x, y, valid = (np.asarray(column) for column in zip(*rows, strict=True))
    number = np.arange(first, first + len(rows), dtype=np.float32)
    measures = np.stack([x, y], axis=1).astype(np.float32)
    picture = number[:, None, None] + np.arange(6, dtype=np.float32).reshape(3, 2) / 8
    return Batch(
        solutions=jnp.asarray(np.stack([number, -number], axis=1)),
        objectives=jnp.asarray(objective.astype(np.float32)),
        measures=jnp.asarray(measures),
        cells=index_of(archive, jnp.asarray(measures)),
        valid=jnp.asarray(valid),
        fields={"rank": jnp.asarray(number + 0.5), "picture": jnp.asarray(picture)},
    )


def take(batch: Batch, order: list[int]) -> Batch:
    return jax.tree.map(lambda array: np.asarray(array)[order], batch)


def filled(store: Store) -> np.ndarray:
    return store.objectives > -np.inf


def assert_same(one: Store, other: Store):
    jax.tree.map(np.testing.assert_array_equal, one, other)


def slow_add(elites: dict[int, dict], batch: Batch):
    """The same law as a plain loop over plain numbers. Returns elites, accepted, unique cells."""
    batch = jax.tree.map(np.asarray, batch)
    before, after = elites, dict(elites)
    accepted, landed = [], set()
    for i in range(len(batch.objectives)):
        cell, objective = int(batch.cells[i]), float(batch.objectives[i])
        valid = bool(batch.valid[i])
        accepted.append(valid and (cell not in before or objective > before[cell]["objective"]))
        if valid:
            landed.add(cell)
            if cell not in after or objective > after[cell]["objective"]:
                after[cell] = {
                    "objective": objective,
                    "solution": batch.solutions[i],
                    "measures": batch.measures[i],
                } | {name: value[i] for name, value in batch.fields.items()}
    return after, accepted, len(landed)


def assert_holds(store: Store, elites: dict[int, dict]):
    assert set(np.flatnonzero(filled(store))) == set(elites)
    for cell, elite in elites.items():
        assert float(store.objectives[cell]) == elite["objective"]
        np.testing.assert_array_equal(store.solutions[cell], elite["solution"])
        np.testing.assert_array_equal(store.measures[cell], elite["measures"])
        for name in FIELDS:
            np.testing.assert_array_equal(store.fields[name][cell], elite[name])


@for_every_archive
@given(data=st.lists(batches, min_size=1, max_size=3))
def test_add_agrees_with_a_plain_loop(archive, data):
    store, elites = store_for(archive), {}
    for number, rows in enumerate(data):
        batch = batch_of(archive, rows, first=100 * number)
        store, added = add_to(store, batch)
        elites, accepted, unique = slow_add(elites, batch)
        assert_holds(store, elites)
        assert added.accepted.tolist() == accepted
        assert int(added.unique_cells) == unique


@for_every_archive
@given(first=batches, rows=batches_without_ties, order=st.permutations(range(SIZE)))
def test_order_of_the_batch_does_not_matter(archive, first, rows, order):
    store, _ = add_to(store_for(archive), batch_of(archive, first))
    batch = batch_of(archive, rows, first=100)
    straight, added = add_to(store, batch)
    permuted, added_permuted = add_to(store, take(batch, order))
    assert_same(straight, permuted)
    np.testing.assert_array_equal(added.accepted[order], added_permuted.accepted)
    assert added.unique_cells == added_permuted.unique_cells


@for_every_archive
@given(rows=batches)
def test_adding_a_batch_again_changes_nothing(archive, rows):
    batch = batch_of(archive, rows)
    once, _ = add_to(store_for(archive), batch)
    # Other solutions with the same objectives: an equal objective must not replace.
    twice, added = add_to(once, batch_of(archive, rows, first=100))
    assert_same(once, twice)
    assert not added.accepted.any()


@for_every_archive
@pytest.mark.parametrize("objective", [100.0, np.inf, np.nan])
def test_invalid_rows_never_enter(archive, objective):
    rows = [(1.0, 0.1, 0.2, True)] * SIZE
    store, _ = add_to(store_for(archive), batch_of(archive, rows))
    tempting = [(objective, 0.1 * i, 0.9, False) for i in range(SIZE)]
    after, added = add_to(store, batch_of(archive, tempting, first=100))
    assert_same(store, after)
    assert not added.accepted.any()
    assert added.unique_cells == 0


@for_every_archive
def test_an_invalid_row_does_not_hide_a_valid_one(archive):
    rows = [(5.0, 0.1, 0.2, False), (1.0, 0.1, 0.2, True)] + [(0.0, 0.9, 0.9, False)] * 6
    store, added = add_to(store_for(archive), batch_of(archive, rows))
    np.testing.assert_array_equal(store.solutions[filled(store)], [[1.0, -1.0]])
    assert added.accepted.tolist() == [False, True] + [False] * 6
    assert added.unique_cells == 1


@for_every_archive
def test_accepted_is_judged_against_the_store_before_the_batch(archive):
    here, there = (0.1, 0.2), (0.9, 0.9)
    first = [(1.0, *here, True)] + [(0.0, *here, False)] * 7
    store, _ = add_to(store_for(archive), batch_of(archive, first))
    values = [(3.0, here), (2.0, here), (1.0, here), (0.5, here), (-9.0, there), (-8.0, there)]
    rows = [(value, *place, True) for value, place in values] + [(9.0, *here, False)] * 2
    after, added = add_to(store, batch_of(archive, rows, first=100))
    # The second beats the old elite although the first of its batch beats both; an equal one does
    # not; an empty cell is beaten by anything.
    assert added.accepted.tolist() == [True, True, False, False, True, True, False, False]
    assert sorted(after.objectives[filled(after)].tolist()) == [-8.0, 3.0]
    assert added.unique_cells == 2


@for_every_archive
def test_ties_in_the_batch_go_to_the_lowest_index(archive):
    # The zeros differ in sign but are equal, so neither sign may win by itself.
    for zeros in ([0.0, -0.0], [-0.0, 0.0]):
        rows = [(-1.0, 0.1, 0.2, True)] + [(zero, 0.1, 0.2, True) for zero in zeros * 3]
        store, _ = add_to(store_for(archive), batch_of(archive, rows + rows[:1]))
        np.testing.assert_array_equal(store.solutions[filled(store)], [[1.0, -1.0]])


@for_every_archive
def test_a_batch_of_one_is_added(archive):
    store, added = add_to(store_for(archive), batch_of(archive, [(2.0, 0.1, 0.2, True)], first=7))
    np.testing.assert_array_equal(store.solutions[filled(store)], [[7.0, -7.0]])
    assert added.accepted.tolist() == [True]
    assert added.unique_cells == 1


def test_a_field_keeps_its_dtype():
    archive = GridArchive((2,), 0, 1, fields={"pixel": jax.ShapeDtypeStruct((2,), jnp.uint8)})
    one, number = jnp.asarray(np.ones((1, 1), np.float32)), jnp.asarray(np.ones(1, np.float32))
    batch = Batch(
        one, number, one, jnp.asarray([0]), jnp.asarray([True]), {"pixel": jnp.asarray([[250, 3]])}
    )
    store, _ = add_to(empty_store(2, 1, 1, archive.fields), batch)
    assert store.fields["pixel"].dtype == jnp.uint8
    assert store.fields["pixel"].tolist() == [[250, 3], [0, 0]]


# Random draws


def store_with(occupied, cells: int = 20) -> Store:
    """A store whose occupied cells hold their own index as the solution, the others -1."""
    filled = np.isin(np.arange(cells), occupied)
    index = np.where(filled, np.arange(cells), -1).astype(np.float32)
    values = np.where(filled, 0.0, -np.inf).astype(np.float32)
    index, values = jnp.asarray(index[:, None]), jnp.asarray(values)
    return Store(index, values, index, {})


compiled_elites = jax.jit(random_elites, static_argnums=1)
compiled_empty = jax.jit(random_empty_cells, static_argnums=1)


def draw_elites(store: Store, count: int, seed: int) -> list[float]:
    """The cells whose elites were drawn."""
    drawn = compiled_elites(store, count, NOWHERE, key=jax.random.key(seed))
    assert drawn.shape == (count, 1)
    return np.asarray(drawn)[:, 0].tolist()


def draw_empty(store: Store, count: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    cells, real = compiled_empty(store, count, key=jax.random.key(seed))
    return np.asarray(cells), np.asarray(real)


NOWHERE = jnp.array([-7.0])

occupations = pytest.mark.parametrize(
    "occupied",
    [[0], [19], [3, 4, 9], [0, 19], list(range(20))],
    ids=["first", "last", "some", "ends", "all"],
)


def chi_square(counts: np.ndarray) -> float:
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


@occupations
def test_random_elites_are_elites_and_every_elite_is_drawn(occupied):
    # 7000 draws miss one of 20 with probability 20 * 0.95^7000.
    assert sorted(set(draw_elites(store_with(occupied), 7000, seed=1))) == occupied


def test_random_elites_are_uniform():
    occupied = [0, 2, 3, 11, 12, 18, 19]
    drawn = draw_elites(store_with(occupied), 7000, seed=2)
    counts = np.bincount(np.asarray(drawn, int), minlength=20)[occupied]
    # 22.5 is the 0.999 quantile for 6 degrees of freedom.
    assert chi_square(counts) < 22.5


@occupations
def test_random_elites_are_the_same_on_every_device(occupied, monkeypatch):
    # Not the compiled function, which would not look at the device again.
    def draw():
        return random_elites(store_with(occupied), 50, NOWHERE, key=jax.random.key(3))

    drawn = draw()
    monkeypatch.setattr(devices, "platform", lambda: "gpu")
    np.testing.assert_array_equal(draw(), drawn)


def test_random_elites_fall_back_when_there_are_none():
    assert set(draw_elites(store_with([]), 7000, seed=3)) == {float(NOWHERE[0])}


@pytest.mark.parametrize("occupied", [[], [3]])
def test_no_random_elites_on_request(occupied):
    assert draw_elites(store_with(occupied), 0, seed=4) == []


@pytest.mark.parametrize("count", [5, 50])
def test_random_empty_cells_are_distinct_and_empty(count):
    occupied = [0, 1, 7, 8, 9, 15, 18, 19]
    for seed in range(5):
        cells, real = draw_empty(store_with(occupied), count, seed)
        assert cells.shape == real.shape == (min(count, 20),)
        drawn = cells[real].tolist()
        # Twelve of the twenty are empty.
        assert len(set(drawn)) == len(drawn) == min(count, 12)
        assert not set(drawn) & set(occupied)


def test_random_empty_cells_are_uniform():
    empty = [1, 4, 5, 10, 16, 19]
    store = store_with(sorted(set(range(20)) - set(empty)))
    draws = np.stack([draw_empty(store, 5, seed)[0] for seed in range(600)])
    for place in (0, 4):
        counts = np.bincount(draws[:, place], minlength=20)[empty]
        # 20.5 is the 0.999 quantile for 5 degrees of freedom.
        assert chi_square(counts) < 20.5


def test_no_empty_cells_are_drawn_from_a_full_store():
    cells, real = draw_empty(store_with(range(20)), 5, seed=6)
    assert not real.any()
    # The places stand for no cell, but must still be safe to look up.
    assert ((cells >= 0) & (cells < 20)).all()


def test_all_cells_are_drawn_when_more_are_asked_than_exist():
    cells, real = draw_empty(store_with([]), 50, seed=7)
    assert real.all()
    assert sorted(cells.tolist()) == list(range(20))


def test_no_empty_cells_on_request():
    cells, real = draw_empty(store_with([]), 0, seed=8)
    assert cells.shape == real.shape == (0,)


def test_draws_depend_on_the_key_alone():
    store = store_with(range(0, 20, 2))
    assert draw_elites(store, 7000, seed=9) == draw_elites(store, 7000, seed=9)
    assert draw_elites(store, 7000, seed=9) != draw_elites(store, 7000, seed=10)
    same, again, other = (draw_empty(store, 5, seed)[0].tolist() for seed in (9, 9, 10))
    assert same == again != other
