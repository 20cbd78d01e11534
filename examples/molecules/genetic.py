"""The genetic algorithm of the field: MAP-Elites with mutations and crossovers of tokens."""

import random

import numpy as np
from chemistry import LENGTH, Molecules, padded, smiles_of
from find import Found, starting_rows

Tokens = list[str]


class GeneticSearch:
    """The best molecule of each cell, found by mutations and crossovers.

    Args:
        molecules: The known molecules, whose cells are filled.
        batch_size: Number of evaluations in an iteration.
        seed: Seed of the random numbers.
    """

    def __init__(self, molecules: Molecules, batch_size: int, seed: int):
        self.molecules, self.batch_size = molecules, batch_size
        self.random = random.Random(seed)
        self.best: dict[int, tuple[float, Tokens]] = {}

    def add(self, sequences: list[Tokens]) -> None:
        """Evaluate molecules, and keep those that are better than the best ones of their cells."""
        known = self.molecules
        objectives, prints, fields = known.evaluate({"tokens": padded(sequences)})
        cells = (prints @ known.prints.T).argmax(axis=1)
        for tokens, objective, cell, lacking in zip(
            sequences, objectives, cells.tolist(), fields["violation"], strict=True
        ):
            if lacking == 0 and (cell not in self.best or objective > self.best[cell][0]):
                self.best[cell] = objective, tokens

    def run(self, iterations: int) -> None:
        """Evaluate ``iterations`` batches of children of random elites."""
        for _ in range(iterations):
            parents = [tokens for _, tokens in self.best.values()]
            self.add([self.child(parents) for _ in range(self.batch_size)])

    def child(self, parents: list[Tokens]) -> Tokens:
        """Return a crossover of two random parents, or a mutation of one."""
        first, second = self.random.choice(parents), self.random.choice(parents)
        is_crossover = self.random.random() < 0.5
        child = self.crossover(first, second) if is_crossover else self.mutation(first)
        return child[:LENGTH]

    def crossover(self, first: Tokens, second: Tokens) -> Tokens:
        """Return the beginning of one molecule and the end of another."""
        return first[: self.position(first)] + second[self.position(second) :]

    def mutation(self, tokens: Tokens) -> Tokens:
        """Replace, insert or delete a random token."""
        at, new = self.position(tokens), self.random.choice(self.molecules.alphabet)
        kind = self.random.choice(["replace", "insert", "delete"])
        kept = tokens[at:] if kind == "insert" else tokens[at + 1 :]
        return tokens[:at] + ([] if kind == "delete" else [new]) + kept

    def position(self, tokens: Tokens) -> int:
        return self.random.randint(0, len(tokens))


def by_genetic_algorithm(
    molecules: Molecules, iterations: int, *, start: int, seed: int, emitters: int = 5
) -> Found:
    """Search from the same molecules as `find.by_gloam`, with as many evaluations."""
    search = GeneticSearch(molecules, 36 * emitters, seed)
    search.add([molecules.tokens[row] for row in starting_rows(molecules, start, seed)])
    search.run(iterations)
    cells = sorted(search.best)
    objectives = np.array([search.best[cell][0] for cell in cells])
    return Found(
        np.array(cells), objectives, [smiles_of("".join(search.best[c][1])) for c in cells]
    )
