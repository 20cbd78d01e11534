"""Compare `gloam.DMS` with the genetic algorithm of the field, at equal evaluations.

    python compare.py --iterations 60 --seeds 5

Both searches of a seed start from the same known molecules. Prints the figures of every search, and
mean and standard deviation over the seeds.
"""

import time

import pandas as pd
import tyro
from chemistry import Molecules, drug_likeness, fingerprint, smiles_of
from find import by_gloam
from genetic import by_genetic_algorithm

SEARCHES = {"gloam.DMS": by_gloam, "genetic algorithm": by_genetic_algorithm}


def main(
    iterations: int = 60, seeds: int = 5, known: int = 1000, start: int = 100, emitters: int = 5
) -> None:
    molecules, rows = Molecules(known), []
    for seed in range(seeds):
        for name, search in SEARCHES.items():
            # Every search evaluates all of its molecules.
            for memory in (smiles_of, fingerprint, drug_likeness):
                memory.cache_clear()
            begin = time.process_time()
            found = search(molecules, iterations, start=start, seed=seed, emitters=emitters)
            seconds = time.process_time() - begin
            rows.append({"search": name, "seed": seed} | found.figures() | {"CPU s": seconds})
            shown = [f"{column} {value:.6g}" for column, value in list(rows[-1].items())[2:]]
            print(f"{name}, seed {seed}: {', '.join(shown)}", flush=True)
    grouped = pd.DataFrame(rows).drop(columns="seed").groupby("search")
    print(grouped.mean().T.to_string(float_format="{:.4g}".format))
    if seeds > 1:
        print("standard deviation")
        print(grouped.std().T.to_string(float_format="{:.2g}".format))


if __name__ == "__main__":
    tyro.cli(main)
