"""Answers for digits that were held out of a search, compared with a whole new search for them.

    python benchmarks/answers.py [--seeds 3]

Each seed holds out 100 of the 1,000 digits of `gloam_lab.LatentDigits`. The measures are the pixels
alone. A search for the other 900 (270,000 evaluations) is asked for them (`gloam.answer`); a whole
new search for them has 180,000 evaluations. The table has means and standard errors over the seeds.
"""

import argparse

import numpy as np
import pandas as pd

import gloam
from gloam._tools.readable import as_markdown, with_error
from gloam_lab import LatentDigits


def searched(images, data, iterations, seed):
    """Return the elites of a search for the items of a dataset."""
    algorithm = gloam.DMS(data.archive(), np.zeros(16), sigma0=1.0, num_emitters=5)
    return gloam.run(images, algorithm, iterations, seeds=[seed], progress=False).elites


def quality(elites, data):
    """Return figures of the nearest elite of each item."""
    matches = gloam.datasets.Matches(elites, data)
    return {
        "explained variance": matches.explained,
        "mean distance": matches.distances.mean(),
        "QD score": elites.qd_score,
    }


def show(rows):
    """Print means and standard errors over the seeds for each number of evaluations."""
    by_row = pd.DataFrame(rows).groupby("evaluations", sort=False)
    means, errors = by_row.mean(), by_row.sem()
    table = {name: map(with_error, means[name], errors[name]) for name in means}
    print(as_markdown(pd.DataFrame({"evaluations": means.index} | table)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    images = LatentDigits().render
    rows = []
    for seed in range(parser.parse_args().seeds):
        known, new = gloam.datasets.handwritten_digits().split(0.1, seed)
        elites = searched(images, known, 1500, seed)
        whole = quality(searched(images, new, 1000, seed), new)
        rows.append({"evaluations": "180,000 (a new search)", "share": 1.0} | whole)
        for evaluations in (0, 100, 300, 1000, 1800):
            answers = gloam.answer(images, elites, new, evaluations, seed=seed).elites
            row = quality(answers, new)
            share = row["explained variance"] / whole["explained variance"]
            rows.append({"evaluations": f"{evaluations:,}", "share": share} | row)
        print(f"seed {seed} is done", flush=True)
    show(rows)


if __name__ == "__main__":
    main()
