"""Find, for every known molecule, the most drug-like molecule that is similar to it.

    pip install 'gloam[molecules]'
    python find.py --iterations 60 --out molecules.png

Prints the figures of the search, writes the molecules to a table, and draws some of them.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import tyro
from chemistry import BITS, Molecules, drug_likeness, padded, smiles_of, unit_vectors
from drawing import pairs_figure

import gloam


@dataclass(frozen=True)
class Found:
    """The best molecules that a search found, for some of the known ones."""

    cells: np.ndarray
    """Rows of the known molecules."""
    objectives: np.ndarray
    smiles: list[str]

    def figures(self) -> dict[str, float]:
        """Return the numbers by which searches are compared."""
        bits = np.sign(unit_vectors(self.smiles))
        common, number = bits @ bits.T, bits.sum(axis=1)
        tanimoto = common / (number[:, None] + number - common)
        return {
            "cells": len(self.cells),
            "QD score": self.objectives.sum(),
            "mean QED": self.objectives.mean(),
            "molecules": len(set(self.smiles)),
            "Tanimoto distance": 1 - tanimoto[~np.eye(len(bits), dtype=bool)].mean(),
        }


def starting_rows(molecules: Molecules, start: int, seed: int) -> list[int]:
    """Return the rows of the known molecules from which a search starts."""
    random = np.random.default_rng(seed)
    return random.choice(len(molecules.smiles), start, replace=False).tolist()


def by_gloam(
    molecules: Molecules, iterations: int, *, start: int, seed: int, emitters: int = 5
) -> Found:
    """Search with `gloam.DMS`, which evaluates 36 molecules per emitter and iteration."""
    space = molecules.space
    tokens = [molecules.tokens[row] for row in starting_rows(molecules, start, seed)]
    archive = molecules.dataset.archive(metric="cosine")
    result = gloam.optimize(
        molecules.evaluate,
        gloam.DMS(archive, space, num_emitters=emitters),
        iterations,
        seeds=[seed],
        dataset=molecules.dataset,
        start_from=space.columns(space.vectors({"tokens": padded(tokens)})),
        reevaluate_start=True,
    )
    elites = result.elites
    smiles = [smiles_of("".join(row)) for row in elites.values()["tokens"].tolist()]
    return Found(elites.cells, elites.objectives, smiles)


def table(molecules: Molecules, found: Found) -> pd.DataFrame:
    """Return known and new molecules with their drug-likeness and similarity."""
    known = [molecules.smiles[cell] for cell in found.cells]
    similarity = (unit_vectors(known) * unit_vectors(found.smiles)).sum(axis=1)
    columns = {"known": known, "known QED": list(map(drug_likeness, known))}
    columns |= {"new": found.smiles, "new QED": found.objectives, "similarity": similarity}
    return pd.DataFrame(columns)


def main(
    iterations: int = 60,
    out: Path = Path("molecules.png"),
    seed: int = 0,
    known: int = 1000,
    start: int = 100,
    emitters: int = 5,
) -> None:
    molecules = Molecules(known)
    print(f"{known} known molecules, {len(molecules.alphabet)} tokens, {BITS} measures")
    found = by_gloam(molecules, iterations, start=start, seed=seed, emitters=emitters)
    print(", ".join(f"{name} {number:.6g}" for name, number in found.figures().items()))
    rows = table(molecules, found)
    better = rows["new QED"] > rows["known QED"] + 1e-6
    print(f"more drug-like than the known molecule: {better.sum()} of {len(rows)}")
    print(f"mean QED {rows['known QED'].mean():.3f} of these, {rows['new QED'].mean():.3f} found")
    rows.to_csv(out.with_suffix(".csv"), index=False)
    gloam.plots.save(pairs_figure(rows), out)


if __name__ == "__main__":
    tyro.cli(main)
