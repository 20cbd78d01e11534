"""The asynchronous search: tickets, any order of results, parts that adapt on their own."""

import jax
import numpy as np
import pytest

import gloam
from tests.helpers import assert_same_bits, refused
from tests.problems import BATCH, evaluate, small

pytestmark = pytest.mark.slow  # searches of its own are compiled

EACH = 10  # solutions of a part of the small algorithms; MAP-Elites has one part


def tell(search, tickets):
    for ticket in tickets:
        objectives, measures = evaluate(ticket.solution[None])
        search.tell(ticket, objectives[0], measures[0])


def in_flight(search, number, evaluations):
    """Drive a search with ``number`` tickets out, told first in, first out."""
    out = []
    while search.evaluations < evaluations:
        out += search.ask(number - len(out))
        tell(search, [out.pop(0)])
    return out


def emitter_state(search):
    """State of the emitter of a search, without the open parts."""
    return search.checkpoint().emitter.emitters


def kept(tree):
    """A copy: the next results are written into the arrays of a state."""
    return jax.tree.map(np.array, tree)


def test_any_order_gives_the_same_archive(algorithm):
    searches = [gloam.AsyncSearch(algorithm, 5) for _ in range(3)]
    for seed, search in enumerate(searches):
        tickets = search.ask(1000)
        assert len(tickets) == BATCH
        order = np.random.default_rng(seed).permutation(BATCH)
        tell(search, [tickets[place] for place in order])
        assert (search.evaluations, search.iteration) == (BATCH, 1)
    for search in searches[1:]:
        assert_same_bits(search.elites(), searches[0].elites())


def test_results_are_in_the_archive_at_once(algorithm):
    search = gloam.AsyncSearch(algorithm, 1)
    (ticket,) = search.ask(1)
    tell(search, [ticket])
    np.testing.assert_array_equal(search.elites().solutions, ticket.solution[None])
    assert search.metrics()["evaluations"] == 1


def test_the_archive_has_the_best_result_of_each_cell(algorithm):
    search = gloam.AsyncSearch(algorithm, 4)
    random, out, results, best = np.random.default_rng(0), [], [], {}
    while search.evaluations < 4 * BATCH + 3:
        out += search.ask(10 - len(out))
        ticket = out.pop(random.integers(len(out)))
        objective, measures = (rows[0] for rows in evaluate(ticket.solution[None]))
        search.tell(ticket, objective, measures)
        results.append((measures, np.float32(objective)))
    points = np.stack([measures for measures, _ in results]).astype(np.float32)
    cells = np.asarray(algorithm.archive.index_of(points)).tolist()
    for cell, (_, objective) in zip(cells, results, strict=True):
        best[cell] = max(best.get(cell, -np.inf), objective)
    assert (
        dict(zip(search.elites().cells.tolist(), search.elites().objectives, strict=True)) == best
    )


def test_an_emitter_adapts_when_its_part_is_complete():
    search = gloam.AsyncSearch(small("dms-paper"), 2)
    tickets = search.ask(BATCH)
    first, second = tickets[:EACH], tickets[EACH : 2 * EACH]
    tell(search, first[1:] + second[:-1])
    assert search.generations.tolist() == [0, 0, 0]
    before = kept(emitter_state(search))
    tell(search, second[-1:])
    assert search.generations.tolist() == [0, 1, 0]
    after = kept(emitter_state(search))
    changed = (np.asarray(before.gaussians.mean) != after.gaussians.mean).any(axis=1)
    assert changed.tolist() == [False, True, False]
    # It goes on although the others wait.
    assert len(search.ask(BATCH)) == EACH
    assert search.ask(1) == []
    tell(search, first[:1])
    assert search.generations.tolist() == [1, 1, 0]


def test_every_part_of_a_mixture_adapts_on_its_own(dms):
    search = gloam.AsyncSearch(dms, 2)
    tickets = search.ask(BATCH)
    before = kept(emitter_state(search))
    tell(search, tickets[EACH : 2 * EACH])
    after = kept(emitter_state(search))
    # The counts are those of all parts, and the instances of the other parts are untouched.
    assert (before.tried.sum(), after.tried.sum()) == (0, EACH)
    assert (after.begin, after.length) == (0, 1)
    for place in (0, 2):
        of_others = [
            [leaf[place] for leaf in jax.tree.leaves(state.emitters) if leaf.ndim]
            for state in (before, after)
        ]
        assert_same_bits(*of_others)


def test_the_discount_is_trained_once_in_a_batch_of_results(dms):
    search = gloam.AsyncSearch(dms, 2)
    untrained = kept(search.checkpoint().discount.params)
    out = in_flight(search, 5, BATCH - 1)
    assert_same_bits(search.checkpoint().discount.params, untrained)
    tell(search, out[:1])
    assert search.iteration == 1
    with pytest.raises(AssertionError):
        assert_same_bits(search.checkpoint().discount.params, untrained)
    assert search.metrics()["epochs"] >= 1


def test_every_ticket_is_told_once(dms):
    search = gloam.AsyncSearch(dms, 3)
    one, two = search.ask(2)
    tell(search, [one])
    unknown = gloam.searches.Ticket(77, two.solution)
    objectives, measures = evaluate(np.stack([two.solution, two.solution]))
    for wrong in ([one, two], [two, unknown], [two, two]):
        with refused("tickets: expected tickets of ask() that have no result yet, each once"):
            search.tell(wrong, objectives, measures)
    with refused("tickets"):
        search.fail(one)
    assert search.evaluations == 1
    tell(search, [two])
    assert search.evaluations == 2


def test_wrong_results_are_refused_and_change_nothing(dms):
    search = gloam.AsyncSearch(dms, 3)
    (ticket,) = search.ask(1)
    with refused("measures: expected shape (1, 2)"):
        search.tell(ticket, 0.5, np.zeros(3))
    with refused("objectives: expected shape (1,)"):
        search.tell([ticket], [0.5, 0.5], np.zeros((1, 2)))
    with refused("fields"):
        search.tell(ticket, 0.5, np.zeros(2), more=1.0)
    tell(search, [ticket])
    with refused("objectives: expected numbers for all solutions or for none"):
        search.tell(search.ask(1), None, np.zeros((1, 2)))


def test_the_same_order_gives_the_same_bits_and_reading_changes_nothing(algorithm):
    one, other = (gloam.AsyncSearch(algorithm, 9) for _ in range(2))
    in_flight(one, 3, 3 * BATCH)
    for evaluations in range(1, 3 * BATCH + 1, 7):
        in_flight(other, 3, evaluations) and other.metrics()
        other = _resumed(algorithm, other)
    in_flight(other, 3, 3 * BATCH)
    assert_same_bits(other.checkpoint(), one.checkpoint())


def _resumed(algorithm, search):
    """A search from the state of another. What was out is asked again, in the same order."""
    found = gloam.AsyncSearch(algorithm, 0)
    found.restore(search.checkpoint())
    return found


def test_tickets_from_before_a_restored_state_are_refused(dms):
    search = gloam.AsyncSearch(dms, 3)
    old = search.ask(2)
    search.restore(search.checkpoint())
    new = search.ask(2)
    np.testing.assert_array_equal(new[1].solution, old[1].solution)
    with refused("tickets"):
        tell(search, old[:1])


def test_late_results_enter_the_archive_but_not_the_emitter(dms):
    search = gloam.AsyncSearch(dms, 6, close_at=0.75)
    on_time = gloam.AsyncSearch(dms, 6, close_at=0.75)
    tickets = search.ask(EACH)
    tell(search, tickets[:7])
    assert search.generations[0] == 0
    tell(search, tickets[7:8])
    assert search.generations[0] == 1
    adapted = kept(emitter_state(search))
    late = tickets[8]
    search.tell(late, 100.0, np.array([1.9, 1.9]))
    assert search.elites().objectives.max() == 100.0
    assert search.evaluations == 9
    assert_same_bits(emitter_state(search), adapted)
    # Solutions of a closed part that were not handed out are not handed out any more.
    some = on_time.ask(8)
    tell(on_time, some)
    rest = on_time.ask(BATCH)
    assert not any((ticket.solution == late.solution).all() for ticket in rest)


def test_failed_evaluations_are_masked_and_counted_once(dms):
    search = gloam.AsyncSearch(dms, 8)
    tickets = search.ask(EACH)
    search.fail(tickets[:1], may_come_late=True)
    search.fail(tickets[1])
    search.tell(tickets[2], np.nan, np.zeros(2))
    search.tell(tickets[3], 1.0, np.array([np.inf, 0.0]))
    tell(search, tickets[4:])
    assert (search.evaluations, search.generations[0]) == (EACH, 1)
    assert int(search.checkpoint().failed) == 4
    assert len(search.elites()) <= EACH - 4
    with refused("tickets"):
        search.fail(tickets[0])
    search.tell(tickets[0], 100.0, np.array([1.9, 1.9]))  # it has come after all
    assert search.elites().objectives.max() == 100.0
    assert (search.evaluations, int(search.checkpoint().failed)) == (EACH, 4)
    with refused("tickets"):
        search.tell(tickets[0], 100.0, np.array([1.9, 1.9]))


def test_measures_alone_and_fields():
    centroids = np.random.default_rng(0).uniform(-2, 2, (20, 2))
    archive = gloam.CVTArchive(
        centroids, -2.0, 2.0, fields={"number": jax.ShapeDtypeStruct((), "int32")}
    )
    algorithm = gloam.MAPElites(archive, np.zeros(5), 0.5, batch_size=6)
    search = gloam.AsyncSearch(algorithm, 1)
    tickets = search.ask(6)
    search.fail(tickets[0])
    points = np.stack([ticket.solution[:2] for ticket in tickets[1:]])
    search.tell(tickets[1:], None, points, number=np.arange(1, 6))
    elites = search.elites()
    for row, number in enumerate(elites.field("number")):
        np.testing.assert_array_equal(elites.solutions[row], tickets[number].solution)
    synchronous = gloam.Search(algorithm, 1)
    synchronous.ask()
    synchronous.tell(None, np.concatenate([[[np.nan] * 2], points]), number=np.arange(6))
    np.testing.assert_array_equal(elites.objectives, synchronous.elites().objectives)


def test_settings_are_checked(dms):
    with refused("close_at: expected"):
        gloam.AsyncSearch(dms, close_at=0.0)
    with refused("number: expected"):
        gloam.AsyncSearch(dms).ask(0)


@pytest.mark.parametrize("odd", [None, 5, "x", [3], np.zeros(3)])
def test_what_is_no_ticket_is_refused(dms, odd):
    search = gloam.AsyncSearch(dms, 0)
    search.ask(1)
    with refused("tickets: expected one ticket or a list"):
        search.tell(odd, [0.0], np.zeros((1, 2)))
    with refused("tickets: expected one ticket or a list"):
        search.fail(odd)
