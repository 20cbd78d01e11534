"""Compare ways to choose parents and to screen candidates, for solutions that are no vectors.

    python research/pool/experiment.py programs bits walks --seeds 20 --out results.csv

A problem has payloads, a mutation, measures that cost little, and an objective that costs much: the
number of objectives is equal for all. Contenders that screen make four candidates for each.
"""

import argparse
import functools
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import gloam
from gloam import step
from gloam._tools.programs import compiled
from gloam._tools.readable import p_value
from gloam.records import Batch
from gloam.runs.comparison import games_howell, hedges_g
from gloam.searches import pool as pools

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "programs"))
from expressions import mutated, random_tree, text_of
from search_programs import curve_of, curves, objectives_of

BATCH, CANDIDATES = 32, 4
SHARES = {"uniform": 0.0, "mixed": 0.5, "near": 1.0}
"""Shares of near parents."""


class Problem(NamedTuple):
    """Payloads, how they vary, and what they are worth."""

    archive: gloam.archives.Archive
    random: Callable[[np.random.Generator], Any]
    mutate: Callable[[Any, np.random.Generator], Any]
    measures: Callable[[Any], np.ndarray]
    objectives: Callable[[list[Any], np.ndarray], np.ndarray]


def programs() -> Problem:
    """Programs for 300 curves; the objective is closeness, less the size."""
    targets, curve = curves(), functools.lru_cache(10_000)(curve_of)

    def objectives(texts: list[str], measures: np.ndarray) -> np.ndarray:
        sizes = np.array([curve(text)[1] for text in texts])
        return objectives_of(measures, sizes, targets)

    return Problem(
        gloam.CVTArchive(targets, -2.0, 2.0, f_min=0.0),
        lambda random: text_of(random_tree(random)),
        mutated,
        lambda text: curve(text)[0],
        objectives,
    )


def bits(number: int = 64, neighbors: int = 4) -> Problem:
    """Bit strings; the objective is an NK landscape, the measures are the ones in each half."""
    random = np.random.default_rng(0)
    table = random.random((number, 2 ** (neighbors + 1)))
    places = (np.arange(number)[:, None] + np.arange(neighbors + 1)) % number
    powers = 2 ** np.arange(neighbors + 1)

    def objectives(texts: list[str], measures: np.ndarray) -> np.ndarray:
        rows = np.array([list(map(int, text)) for text in texts])
        return table[np.arange(number), rows[:, places] @ powers].mean(axis=1)

    def mutate(text: str, random: np.random.Generator) -> str:
        flips = random.random(number) < 2 / number
        return "".join(str(int(bit) ^ int(flip)) for bit, flip in zip(text, flips, strict=True))

    half = number // 2
    return Problem(
        gloam.GridArchive((half + 1, half + 1), -0.5, half + 0.5, f_min=0.0),
        lambda random: "".join(random.choice(["0", "1"], number)),
        mutate,
        lambda text: np.array([text[:half].count("1"), text[half:].count("1")]),
        objectives,
    )


def walks(side: int = 32, longest: int = 100) -> Problem:
    """Texts of moves through a room with walls; measures are the end, short texts are better."""
    is_wall = np.zeros((side, side), bool)
    for column, gap in ((8, 28), (16, 3), (24, 28)):
        is_wall[column, :] = True
        is_wall[column, gap : gap + 2] = False
    free = {(column, row) for column, row in zip(*np.nonzero(~is_wall), strict=True)}
    moves = {"N": (0, 1), "S": (0, -1), "E": (1, 0), "W": (-1, 0)}

    def measures(text: str) -> np.ndarray:
        column = row = 1
        for letter in text:
            to_column, to_row = column + moves[letter][0], row + moves[letter][1]
            if (to_column, to_row) in free:
                column, row = to_column, to_row
        return np.array([column, row], float)

    def mutate(text: str, random: np.random.Generator) -> str:
        letters = list(text)
        for _ in range(random.integers(1, 4)):
            place = random.integers(len(letters) + 1)
            kind = random.integers(3)
            part = [*random.choice(list("NSEW"), 1)] * random.integers(1, 4)
            end = place if kind == 0 else place + random.integers(1, 4)
            letters[place:end] = [] if kind == 1 else part
        return "".join(letters[:longest])

    return Problem(
        gloam.GridArchive((side, side), -0.5, side - 0.5, f_min=0.0),
        lambda random: "".join(random.choice(list("NSEW"), 8)),
        mutate,
        measures,
        lambda texts, measures: np.array([1 - len(text) / (longest + 1) for text in texts]),
    )


PROBLEMS = {"programs": programs, "bits": bits, "walks": walks}


def _improvements(algorithm: Any, state: Any, objectives: Any, measures: Any) -> Any:
    cells = algorithm.archive.index_of(measures)
    valid = cells >= 0
    batch = Batch(objectives[:, None], objectives, measures, cells, valid, {})
    return step.score(algorithm, state, batch)[1].improvements


_scored = compiled(_improvements)


def improvements(pool: gloam.Pool, objectives: np.ndarray, measures: np.ndarray) -> np.ndarray:
    """Return the improvements of rows over the discount of a pool."""
    rows = np.float32(objectives), np.float32(np.nan_to_num(measures))
    return np.asarray(_scored(pool._static, pool._arrays, pool.state, *rows))


class Contender(NamedTuple):
    """How parents are chosen, and candidates screened."""

    parents: str = "uniform"
    screen: str = "none"

    @property
    def uses_discount(self) -> bool:
        """Whether a discount model is trained."""
        return "discount" in self

    @property
    def name(self) -> str:
        """Name in tables."""
        return self.parents if self.screen == "none" else f"{self.parents}, {self.screen} screens"


CONTENDERS = [
    Contender(),
    Contender("near"),
    Contender("discount"),
    Contender(screen="discount"),
    Contender(screen="distance"),
    Contender("near", "distance"),
    Contender("near", "discount"),
    Contender("mixed"),
]


def search(problem: Problem, contender: Contender, evaluations: int, seed: int) -> gloam.Pool:
    """Fill a pool by one contender."""
    # The pool has no discount of its own: this one takes the place of the discount of nothing.
    model = functools.partial(gloam.discounts.DiscountModel, first_visit=0.5)
    pools.NoDiscount = model if contender.uses_discount else gloam.discounts.NoDiscount
    pool = gloam.Pool(problem.archive, seed)
    random = np.random.default_rng(seed)
    payloads = [problem.random(random) for _ in range(BATCH)]
    measures = np.array(list(map(problem.measures, payloads)))
    pool.tell(problem.objectives(payloads, measures), measures, payloads)
    many = BATCH * (1 if contender.screen == "none" else CANDIDATES)
    for _ in range(evaluations // BATCH - 1):
        if contender.parents == "discount":
            pairs = pool.propose(3 * many, near=0)
            parents = [parent for parent, _ in pairs]
            values = [parent.objective for parent in parents]
            points = np.array([parent.measures for parent in parents])
            best = improvements(pool, np.array(values), points).reshape(many, 3).argmax(axis=1)
            pairs = [pairs[3 * row + place] for row, place in enumerate(best)]
        else:
            pairs = pool.propose(many, near=SHARES[contender.parents])
        payloads = [problem.mutate(parent.payload, random) for parent, _ in pairs]
        measures = np.array(list(map(problem.measures, payloads)))
        if contender.screen != "none":
            is_good = np.isfinite(measures).all(axis=1)
            points = np.where(is_good[:, None], measures, 0)
            if contender.screen == "discount":
                values = improvements(pool, np.array([p.objective for p, _ in pairs]), points)
            else:
                values = -pool.screen(points)
            values = np.where(is_good, values, -np.inf).reshape(BATCH, CANDIDATES)
            chosen = values.argmax(axis=1) + CANDIDATES * np.arange(BATCH)
            payloads, measures = [payloads[row] for row in chosen], measures[chosen]
        objectives = problem.objectives(payloads, measures)
        pool.tell(objectives, measures, payloads)
    return pool


def report(table: pd.DataFrame) -> None:
    """Print mean, standard error, and Games-Howell tests against uniform and near parents."""
    others = ["uniform", "near"]
    for problem, rows in table.groupby("problem", sort=False):
        groups = {name: g["qd_score"].to_numpy() for name, g in rows.groupby("contender")}
        tests = games_howell(groups)
        print(f"\n### {problem}\n\n| contender | QD score | coverage | against uniform |", end="")
        print(" against near | CPU seconds |\n|---|---|---|---|---|---|")
        for name, mine in rows.groupby("contender", sort=False):
            score, cover = mine["qd_score"], 100 * mine["coverage"].mean()
            cells = [f"{name}", f"{score.mean():.1f} ± {score.sem():.1f}", f"{cover:.1f}%"]
            for other in others:
                is_other = name != other and other in groups
                effect = hedges_g(groups[name], groups[other]) if is_other else 0
                chance = p_value(tests[name, other].p) if is_other else ""
                cells.append(f"g = {effect:.1f}, p {chance}" if is_other else "")
            cells.append(f"{mine['seconds'].mean():.1f}")
            print(f"| {' | '.join(cells)} |")


def main() -> None:
    """Run all contenders on some problems."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("problems", nargs="+", choices=PROBLEMS)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--evaluations", type=int, default=1920)
    parser.add_argument("--out", type=Path, default=Path("results.csv"))
    names = [contender.name for contender in CONTENDERS]
    parser.add_argument("--only", nargs="+", choices=names, default=names)
    given = parser.parse_args()
    rows, problems = [], {name: PROBLEMS[name]() for name in given.problems}
    for seed in range(given.seeds):
        for name in given.problems:
            for contender in [each for each in CONTENDERS if each.name in given.only]:
                began = time.process_time()
                pool = search(problems[name], contender, given.evaluations, seed)
                metrics = pool.metrics()
                row = {"problem": name, "contender": contender.name, "seed": seed}
                row |= {key: metrics[key] for key in ("qd_score", "coverage", "evaluations")}
                rows.append(row | {"seconds": time.process_time() - began})
        table = pd.DataFrame(rows)
        table.to_csv(given.out, index=False)
    report(table)


if __name__ == "__main__":
    main()
