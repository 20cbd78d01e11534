"""Tickets: which solutions of an asynchronous search are handed out and have no result yet."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from gloam import checks
from gloam.drivers.part_table import Place


class Ticket(NamedTuple):
    """A solution to evaluate, and the number that its result is told under."""

    number: int
    solution: np.ndarray


class HandedOut(NamedTuple):
    """A solution that was handed out."""

    place: Place
    solution: np.ndarray
    has_failed: bool
    """True when it was counted as failed before its result came."""


class TicketBook:
    """The tickets that are out. A number is never given twice."""

    def __init__(self) -> None:
        self._out: dict[int, HandedOut] = {}
        self._next = 0

    def issue(self, place: Place, solution: np.ndarray) -> Ticket:
        """A new ticket."""
        ticket = Ticket(self._next, solution)
        self._next += 1
        # A copy, because the user may write into the solution.
        self._out[ticket.number] = HandedOut(place, solution.copy(), False)
        return ticket

    def numbers(self, tickets: Sequence[Ticket], *, may_have_failed: bool) -> list[int]:
        """The numbers of tickets, checked.

        Raises:
            ValueError: A ticket is not out, or is named twice.
        """
        numbers = [ticket.number for ticket in tickets]
        wrong = [
            number
            for number in numbers
            if number not in self._out or (self._out[number].has_failed and not may_have_failed)
        ]
        checks.expect(
            not wrong and len(set(numbers)) == len(numbers),
            "tickets",
            "tickets of ask() without a result, each once",
            f"number {wrong[0]}" if wrong else "a ticket twice",
            "Tell the result of each ticket once, to the search that it came from.",
        )
        return numbers

    def take(self, number: int, *, as_failed: bool = False) -> HandedOut:
        """Take a ticket back. One that failed stays out, so that a late result is accepted."""
        found = self._out.pop(number)
        if as_failed:
            self._out[number] = found._replace(has_failed=True)
        return found

    def void(self) -> None:
        """Refuse all tickets that are out."""
        self._out.clear()
