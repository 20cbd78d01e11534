"""Pools: elites that are texts or JSON values, told from outside."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gloam
from gloam.errors import DamagedFileError
from gloam.interop import elites_to_parquet
from gloam.searches.pool import _ROWS
from gloam.spaces.payloads import MAX_PAYLOAD_BYTES, packed, payload_json, unpacked
from tests.helpers import assert_same_bits, refused
from tests.problems import evaluate

GRID = gloam.GridArchive((8, 8), -2.0, 2.0)


def rows(number: int, seed: int = 0):
    """Objectives, which are distinct, measures, and payloads that name their row."""
    rng = np.random.default_rng(seed)
    objectives = rng.permutation(number) / number
    return objectives, rng.uniform(-2.5, 2.5, (number, 2)), [f"row {i}" for i in range(number)]


def filled(number: int = 100, seed: int = 1) -> gloam.Pool:
    pool = gloam.Pool(GRID, seed)
    pool.tell(*rows(number))
    return pool


def assert_same_elites(one: gloam.Elites, other: gloam.Elites):
    np.testing.assert_array_equal(one.cells, other.cells)
    np.testing.assert_array_equal(one.objectives, other.objectives)
    np.testing.assert_array_equal(one.measures, other.measures)


def test_a_pool_keeps_the_elites_of_a_search():
    algorithm = gloam.MAPElites(GRID, np.zeros(5), 0.3, batch_size=30)
    search, pool = gloam.Search(algorithm, 3), gloam.Pool(GRID, 3)
    for _ in range(4):
        solutions = search.ask()
        results = evaluate(solutions)
        search.tell(*results)
        pool.tell(*results, solutions.tolist())
    assert_same_elites(pool.elites(), search.elites())
    np.testing.assert_array_equal(pool.elites().values(), search.elites().solutions)
    metrics = pool.metrics()
    assert metrics.items() <= search.metrics().items()


def test_every_elite_has_the_payload_of_its_row():
    objectives, measures, payloads = rows(300)
    pool = gloam.Pool(GRID)
    became_elite = pool.tell(objectives, measures, payloads)
    cells = np.asarray(GRID.index_of(measures.astype(np.float32)))
    best = {cell: max(np.flatnonzero(cells == cell), key=objectives.item) for cell in {*cells}}
    assert sorted(best.values()) == np.flatnonzero(became_elite).tolist()
    elites = pool.elites()
    assert {elite.cell: elite.values for elite in elites} == {
        cell: payloads[row] for cell, row in best.items()
    }


@settings(max_examples=10, deadline=None)
@given(st.permutations(range(40)), st.lists(st.integers(0, 40), max_size=3))
def test_the_order_of_tells_does_not_matter(order, cuts):
    objectives, measures, payloads = rows(40)
    pool = gloam.Pool(GRID)
    for part in np.split(np.array(order), sorted(cuts)):
        pool.tell(objectives[part], measures[part], [payloads[row] for row in part])
    whole = gloam.Pool(GRID)
    whole.tell(objectives, measures, payloads)
    assert_same_elites(pool.elites(), whole.elites())
    assert pool.elites().values() == whole.elites().values()


def test_of_equal_solutions_the_first_stays():
    pool = gloam.Pool(GRID)
    assert pool.tell([1.0, 1.0], [[0, 0], [0, 0]], ["first", "second"]).tolist() == [True, False]
    assert not pool.tell([1.0], [[0, 0]], ["third"]).any()
    assert pool.elites().values() == ["first"]


def test_bad_rows_are_masked_and_counted():
    pool = gloam.Pool(GRID)
    objectives = [None, np.nan, np.inf, 1.0, 1.0, 0.5]
    measures = [[0, 0], [0, 0], [0, 0], None, [np.nan, 0], [0, 0]]
    payloads = [None, "\udc80", object(), "a", "b", "good"]
    became_elite = pool.tell(objectives, measures, payloads)
    assert became_elite.tolist() == [False] * 5 + [True]
    assert pool.metrics()["failed_total"] == 5
    assert pool.metrics()["evaluations"] == 6
    assert pool.elites().values() == ["good"]


def test_infeasible_rows_never_become_elites():
    pool = gloam.Pool(GRID)
    became_elite = pool.tell([1.0, 0.5], [[0, 0], [0, 0]], ["a", "b"], violation=[True, False])
    assert became_elite.tolist() == [False, True]
    metrics = pool.metrics()
    assert (metrics["failed_total"], metrics["infeasible_total"]) == (0, 1)


def test_fields_and_closeness():
    archive = gloam.CVTArchive([[0.0, 0.0], [1.0, 1.0]], fields={"size": ()})
    pool = gloam.Pool(archive)
    pool.tell(None, [[0.0, 0.0], [1.0, 0.9]], ["a", {"b": [1, None]}], size=[3, 4])
    table = pool.elites().to_pandas()
    assert table["payload"].tolist() == ["a", '{"b": [1, null]}']
    assert table["size"].tolist() == [3, 4]
    assert table["objective"][0] == 1.0


def test_no_rows_change_nothing():
    pool = filled()
    before = pool.state
    assert pool.tell([], np.zeros((0, 2)), []).shape == (0,)
    assert pool.state is before


MALFORMED = {
    "a lone surrogate": "x\udc80",
    "a surrogate in a list": [{"a": "\ud800"}],
    "a long text": "a" * (MAX_PAYLOAD_BYTES + 1),
    "a text of many bytes": "é" * (MAX_PAYLOAD_BYTES // 2),
    "NUL": "a\0b",
    "nothing": None,
    "bytes": b"a",
    "NaN": [float("nan")],
    "a number as a key": {1: 2},
    "a tuple": (1, 2),
    "an object": object(),
    "an integer that JSON cannot read": 10**5000,
}


@pytest.mark.parametrize("payload", MALFORMED.values(), ids=MALFORMED)
def test_malformed_payloads_are_refused_and_change_nothing(payload):
    pool = filled()
    before = pool.elites()
    with refused("payloads[1]: expected") as caught:
        pool.tell([2.0, 2.0], [[0, 0], [1, 1]], ["good", payload])
    assert len(str(caught.value)) < 500
    str(caught.value).encode()
    assert_same_elites(pool.elites(), before)
    assert pool.metrics()["evaluations"] == 100


def test_a_list_that_contains_itself_is_refused():
    payload: list = []
    payload.append(payload)
    with refused("payload: expected a text or a JSON value"):
        payload_json("payload", payload)


@pytest.mark.parametrize("payloads", ["text", b"text", {"a": 1}, 3, None])
def test_payloads_are_a_list(payloads):
    with refused("payloads: expected a list of payloads"):
        gloam.Pool(GRID).tell([1.0], [[0, 0]], payloads)


def test_results_of_another_shape_are_refused():
    with refused("objectives: expected shape (2,)"):
        gloam.Pool(GRID).tell([1.0], [[0, 0]], ["a", "b"])


texts = st.text(max_size=20).map(lambda text: text.replace("\0", ""))
values = st.recursive(
    texts | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=5,
)


@given(st.lists(values, max_size=4))
def test_payloads_come_back_from_files(payloads):
    encoded = [payload_json("payload", payload) for payload in payloads]
    assert unpacked(packed(encoded), len(payloads)) == encoded
    assert [json.loads(text) for text in encoded] == payloads


def test_control_characters_are_kept_and_escaped_where_they_are_shown():
    text = "a\x1b[31m\u202e<script>"
    pool = gloam.Pool(GRID)
    pool.tell([1.0], [[0, 0]], [text])
    assert pool.elites().best.values == text
    assert "\x1b" not in repr(pool) + pool._repr_html_() + repr(pool.elites())
    with refused("solutions: expected vectors, got payloads") as caught:
        pool.elites().form.vector(text)
    assert "\x1b" not in str(caught.value)


def test_a_payload_that_is_changed_outside_does_not_change_the_pool():
    payload = {"ops": [1]}
    pool = gloam.Pool(GRID)
    pool.tell([1.0], [[0, 0]], [payload])
    payload["ops"].append(2)
    pool.propose(1)[0][0].payload["ops"].append(3)
    pool.elites().best.values["ops"].append(4)
    assert pool.elites().values() == [{"ops": [1]}]


def test_an_empty_pool_says_what_to_do():
    with refused("pool: expected at least one elite, got none. Tell it"):
        gloam.Pool(GRID).propose()


@pytest.mark.parametrize("near", [0, 0.5, 1])
def test_proposals_are_elites_and_empty_cells(near):
    pool = filled(40)
    elites = pool.elites()
    pairs = pool.propose(2 * _ROWS + 3, near=near)
    assert len(pairs) == 2 * _ROWS + 3
    for parent, target in pairs:
        elite = elites.elite(parent.cell)
        assert elite is not None
        assert (parent.payload, parent.objective) == (elite.values, elite.objective)
        np.testing.assert_array_equal(parent.measures, elite.measures)
        assert target.is_empty
        assert elites.elite(target.cell) is None
        assert int(GRID.index_of(target.center[None])[0]) == target.cell
        if near == 1:
            apart = np.square(elites.measures - target.center).sum(axis=1)
            distance = np.square(parent.measures - target.center).sum()
            assert distance == pytest.approx(apart.min(), abs=1e-5)


def test_screening_prefers_candidates_near_to_empty_cells():
    pool = filled(40)
    empty = np.setdiff1d(np.arange(GRID.num_cells), pool.elites().cells)
    centers = np.asarray(GRID.centers_of(empty))
    measures = np.random.default_rng(3).uniform(-2, 2, (_ROWS + 9, 2)).astype(np.float32)
    measures[0], measures[1] = centers[0], np.nan
    apart = (measures[:, None] - centers) / np.asarray(GRID.units)
    expected = np.sqrt(np.square(apart).mean(axis=2).min(axis=1))
    distances = pool.screen(measures)
    assert distances[1] == np.inf
    expected[1] = np.inf
    np.testing.assert_allclose(distances, expected, atol=1e-3)
    with refused("measures: expected shape (3, 2)"):
        pool.screen(np.zeros((3, 5)))
    assert pool.screen(np.zeros((0, 2))).shape == (0,)


def test_screening_for_a_full_archive_counts_all_cells():
    pool = gloam.Pool(gloam.GridArchive((2,), 0.0, 1.0))
    pool.tell([1.0, 1.0], [[0.2], [0.8]], ["a", "b"])
    np.testing.assert_allclose(pool.screen([[0.25], [0.5], [0.7]]), [0, 0.5, 0.1], atol=1e-6)


def test_half_of_the_parents_are_near_to_their_targets():
    pool = filled(40)
    elites = pool.elites()
    nearest = 0
    for parent, target in pool.propose(400):
        apart = np.square(elites.measures - target.center).sum(axis=1)
        nearest += np.square(parent.measures - target.center).sum() <= apart.min() + 1e-5
    assert 170 <= nearest <= 260  # a random elite may be the nearest as well


@pytest.mark.parametrize("near", [-0.1, 1.1, np.nan, "yes"])
def test_the_share_of_near_parents_is_checked(near):
    with refused("near: expected a finite number >= 0 and <= 1"):
        filled().propose(near=near)


def test_parents_are_uniform_among_the_elites():
    pool = filled(12)
    number = len(pool)
    parents = [parent.cell for parent, _ in pool.propose(100 * number, near=0)]
    counts = np.unique(parents, return_counts=True)[1]
    assert len(counts) == number
    assert np.square(counts - 100).sum() / 100 < 3 * number  # chi-squared


def test_targets_of_a_full_archive_are_any_cells():
    pool = gloam.Pool(gloam.GridArchive((2,), 0.0, 1.0))
    pool.tell([1.0, 1.0], [[0.2], [0.8]], ["a", "b"])
    targets = [target for _, target in pool.propose(20)]
    assert {target.cell for target in targets} == {0, 1}
    assert not any(target.is_empty for target in targets)


def test_seeds_give_their_own_proposals():
    first, again, other = (filled(seed=seed).propose(20) for seed in (1, 1, 2))
    assert str(first) == str(again) != str(other)


def test_a_loaded_pool_continues_with_the_same_bits(tmp_path):
    pool = gloam.Pool(GRID, 5)
    objectives, measures, payloads = rows(100)
    pool.tell(objectives[:50], measures[:50], [{"row": name} for name in payloads[:50]])
    pool.propose(3)
    pool.save(tmp_path / "pool.npz")
    loaded = gloam.Pool.load(tmp_path / "pool.npz")
    for each in (pool, loaded):
        each.tell([None], [[0, 0]], [None])
        each.tell(objectives[50:], measures[50:], payloads[50:])
    assert_same_bits(loaded.state, pool.state)
    assert loaded.elites().values() == pool.elites().values()
    assert str(loaded.propose(30, near=1)) == str(pool.propose(30, near=1))
    assert loaded.metrics() == pool.metrics()


def test_an_empty_pool_can_be_saved(tmp_path):
    gloam.Pool(GRID, 5).save(tmp_path / "pool.npz")
    assert len(gloam.Pool.load(tmp_path / "pool.npz")) == 0


def test_files_of_other_kinds_are_refused(tmp_path, dms):
    filled().save(tmp_path / "pool.npz")
    gloam.Search(dms).save(tmp_path / "search.npz")
    with pytest.raises(DamagedFileError, match="kind 'search'"):
        gloam.Pool.load(tmp_path / "search.npz")
    with pytest.raises(DamagedFileError, match="kind 'pool'"):
        gloam.Search.load(tmp_path / "pool.npz")
    content = (tmp_path / "pool.npz").read_bytes()
    (tmp_path / "pool.npz").write_bytes(content.replace(b"row 1", b"row 2"))
    with pytest.raises(DamagedFileError):
        gloam.Pool.load(tmp_path / "pool.npz")


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        packed(['"a"']),
        packed(['"a"', "null"]),
        packed(['"a"', '"b']),
        packed(['"a"', '"\\ud800"']),
        {"bytes": np.zeros(2, np.uint8), "ends": np.array([2, 1])},
        {"bytes": np.zeros(2, np.uint8), "ends": np.array([1, 3])},
    ],
)
def test_payloads_of_a_file_are_validated(arrays):
    with pytest.raises(ValueError, match=r"payload|JSON|Unterminated|Expecting"):
        unpacked(arrays, 2)


def test_merged_pools_have_the_better_payload_of_every_cell():
    one, other = gloam.Pool(GRID), gloam.Pool(GRID)
    one.tell([1.0, 1.0], [[0, 0], [1, 1]], ["a", "b"])
    other.tell([2.0, 3.0], [[1, 1], [-1, -1]], ["c", "d"])
    merged = one.elites().merged(other.elites())
    assert sorted(merged.values()) == ["a", "c", "d"]
    assert sorted(other.elites().merged(one.elites()).values()) == ["a", "c", "d"]
    archive = gloam.GridArchive((1,) * 2, -2.0, 2.0)
    assert merged.into(archive).values() == ["d"]


def test_elites_of_pools_and_searches_are_not_merged(dms):
    vectors = gloam.Search(gloam.MAPElites(GRID, np.zeros(1), 0.3)).elites()
    for one, other in ((filled().elites(), vectors), (vectors, filled().elites())):
        with refused("others: expected elites of the same kind"):
            one.merged(other)


def test_a_search_does_not_start_from_a_pool():
    algorithm = gloam.MAPElites(GRID, np.zeros(1), 0.3)
    with refused("start_from: expected elites of a search, got elites of a pool"):
        gloam.Search(algorithm, start_from=filled().elites())


def test_tables_have_texts(tmp_path):
    pd = pytest.importorskip("pandas")
    pool = filled()
    pool.tell([2.0], [[0, 0]], [["a", 1]])
    elites_to_parquet(pool.elites(), tmp_path / "elites.parquet")
    table = pd.read_parquet(tmp_path / "elites.parquet")
    assert table["payload"].tolist() == pool.elites().to_pandas()["payload"].tolist()
    assert '["a", 1]' in table["payload"].tolist()
    again = gloam.Pool(GRID)
    measures = table[["measures_0", "measures_1"]].to_numpy()
    assert again.tell(table["objective"], measures, table["payload"]).all()
    assert_same_elites(again.elites(), pool.elites())


def test_pools_are_compared():
    sizes = {"small": 20, "large": 100}
    pools = {name: [filled(number, seed) for seed in (1, 2)] for name, number in sizes.items()}
    table = gloam.compare(pools).table()
    assert table["algorithm"].tolist() == ["large", "small"]
    assert table["evaluations"].tolist() == [100, 20]


def test_archives_of_too_many_cells_are_refused():
    with refused("archive: expected at most 16,777,216 cells"):
        gloam.Pool(gloam.GridArchive((5000, 5000), 0.0, 1.0))
