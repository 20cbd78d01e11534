"""Attack gloam with random inputs for an hour, and print one table.

Kinds: corrupted run folders, crafted configurations, odd calls, odd command lines, crafted pickles,
requests to the explorer (all from `tests/fuzz`), and runs that are killed (`benchmarks/kills.py`).
Each kind works in a child process, which is killed if an attack does not end. To repeat a failure:

    python benchmarks/attack.py --only KIND --seed SEED --number NUMBER

The exit code is 1 if gloam did not hold.
"""

import argparse
import collections
import multiprocessing
import os
import random
import sys
import tempfile
import time
import traceback
from multiprocessing.connection import Connection
from pathlib import Path
from typing import NamedTuple

sys.path[:0] = [str(Path(__file__).parents[1]), str(Path(__file__).parent)]

import kills  # noqa: E402

# Child processes import the attacks: they take seconds.
KINDS = ("corruptions", "configurations", "calls", "commands", "pickles", "requests", "kills")
_SECONDS = 120  # for an attack; it ends itself after half of it, unless it is stuck
_START_SECONDS = 300
_TURN_SECONDS = 30
_KILLS_AT_ONCE = 5
_SHOWN = 40


class Failure(NamedTuple):
    """What gloam did not hold against."""

    kind: str
    number: int
    description: str
    problem: str


class Child:
    """A process that tries attacks of one kind.

    Args:
        kind: Name of the kind.
        seed: Seed of all attacks.
    """

    def __init__(self, kind: str, seed: int):
        self.kind = kind
        self._folder = tempfile.TemporaryDirectory(prefix="gloam-attack-")
        ours, theirs = multiprocessing.Pipe()
        context = multiprocessing.get_context("spawn")
        arguments = (kind, seed, self._folder.name, theirs)
        self._process = context.Process(target=_serve, args=arguments)
        self._process.start()
        theirs.close()
        self._connection = ours
        if self._answer(_START_SECONDS) is None:
            raise RuntimeError(f"the attacks of the kind '{kind}' could not be prepared")

    def attack(self, number: int) -> tuple[str, str | None, bool]:
        """Try one attack; return its description, what failed, and whether the child goes on."""
        self._connection.send(number)
        description = self._answer(_START_SECONDS)
        if description is None:
            return "?", "the process ended or hung before the attack", False
        answer = self._answer(_SECONDS)
        if answer is not None:
            return description, answer or None, True
        ended = self._process.exitcode
        problem = f"no end within {_SECONDS} s" if ended is None else f"the process ended: {ended}"
        return description, problem, False

    def _answer(self, seconds: float) -> str | None:
        try:
            return self._connection.recv() if self._connection.poll(seconds) else None
        except (EOFError, ConnectionError):
            self._process.join(10)
            return None

    def end(self) -> None:
        """End the process and remove its folder."""
        self._process.kill()
        self._process.join()
        self._connection.close()
        self._folder.cleanup()


def _serve(kind: str, seed: int, folder: str, connection: Connection) -> None:
    """Try attacks in a child process: for each number, send a description and what failed."""
    import logging
    import warnings

    import numpy as np
    from tests.fuzz.attack import failure_of, prepare
    from tests.fuzz.kinds import KINDS as FUZZED

    # What libraries print would bury the table.
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    logging.disable()
    warnings.simplefilter("ignore")
    work = prepare(Path(folder))
    attacks = FUZZED[kind](work)
    connection.send("ready")
    while True:
        attack = attacks.draw(np.random.default_rng([seed, connection.recv()]))
        connection.send(attack.description)
        connection.send(failure_of(attack, work, seconds=_SECONDS // 2) or "")


def kill_runs(seed: int, number: int) -> Failure | None:
    """Kill the runs of one driver a few times, and compare them with an uninterrupted run."""
    draw = random.Random(f"{seed} {number}")
    driver = kills.DRIVERS[number % len(kills.DRIVERS)]
    told = f"{_KILLS_AT_ONCE} kills, driver {driver}"
    with tempfile.TemporaryDirectory() as work:
        try:
            subject = kills.Subject(driver, Path(work), iterations=100, every=5)
            different = kills.kill_runs(subject, _KILLS_AT_ONCE, draw.randrange(2**31))[1]
        except Exception as error:
            text = "".join(traceback.format_exception_only(error)).strip()
            return Failure("kills", number, told, text[-1000:])
    return Failure("kills", number, told, f"{different} runs differ") if different else None


def attack_all(kinds: list[str], minutes: float, seed: int) -> tuple[dict[str, int], list[Failure]]:
    """Attack by each kind in turn; return the numbers of attacks, and all failures."""
    tried = dict.fromkeys(kinds, 0)
    children: dict[str, Child] = {}
    failures: list[Failure] = []
    end = time.monotonic() + 60 * minutes
    while time.monotonic() < end:
        for kind in kinds:
            if kind != "kills" and kind not in children:
                children[kind] = Child(kind, seed)
            turn = min(end, time.monotonic() + _TURN_SECONDS)
            while time.monotonic() < turn:
                number = tried[kind]
                tried[kind] += 1
                failure = _tried(kind, number, seed, children)
                if failure:
                    failures.append(failure)
                    print(f"failed: {kind} {number}: {failure.problem[:200]}", flush=True)
            print(", ".join(f"{name} {count}" for name, count in tried.items()), flush=True)
    for child in children.values():
        child.end()
    return tried, failures


def _tried(kind: str, number: int, seed: int, children: dict[str, Child]) -> Failure | None:
    """Try one attack, in the child of its kind; a child that hangs or has ended is replaced."""
    if kind == "kills":
        return kill_runs(seed, number)
    if kind not in children:
        children[kind] = Child(kind, seed)
    description, problem, goes_on = children[kind].attack(number)
    if not goes_on:
        children.pop(kind).end()
    return Failure(kind, number, description, problem) if problem else None


def report(tried: dict[str, int], failures: list[Failure], seed: int) -> str:
    """Return the table, and what is needed to repeat each failure."""
    failed = collections.Counter(failure.kind for failure in failures)
    lines = ["| kind | tried | held | failed |", "|---|---|---|---|"]
    for kind, count in tried.items():
        # A number of the last kind stands for several kills.
        times = _KILLS_AT_ONCE if kind == "kills" else 1
        lost = failed[kind] * times
        lines.append(f"| {kind} | {count * times:,} | {count * times - lost:,} | {lost:,} |")
    for failure in failures[:_SHOWN]:
        where = f"--only {failure.kind} --seed {seed} --number {failure.number}"
        lines += ["", where, f"    {failure.description}", f"    {failure.problem}"]
    if len(failures) > _SHOWN:
        lines += ["", f"and {len(failures) - _SHOWN:,} more"]
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    """Attack gloam."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=KINDS, nargs="*", default=KINDS, metavar="KIND")
    parser.add_argument("--number", type=int, help="repeat this attack of the kind of --only")
    options = parser.parse_args(arguments)
    kinds = list(options.only)
    if options.number is None:
        tried, failures = attack_all(kinds, options.minutes, options.seed)
    else:
        tried, children = dict.fromkeys(kinds, 1), {}
        repeated = [_tried(kind, options.number, options.seed, children) for kind in kinds]
        failures = [failure for failure in repeated if failure]
        for child in children.values():
            child.end()
    print(report(tried, failures, options.seed))
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
