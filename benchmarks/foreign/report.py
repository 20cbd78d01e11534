"""Tables and the figure of the foreign problems, from the runs in a folder.

    python benchmarks/foreign/report.py runs/foreign

Writes report.md, table.csv (a row for each problem and contender), tests.csv (Games-Howell tests of
all pairs) and profile.png. Ranks and shares compare the contenders of gloam; those of other
libraries have a share, too, but no rank.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from contenders import OUTSIDE
from gloam.runs.comparison import as_markdown, games_howell
from problems import PROBLEMS


def scored(runs: pd.DataFrame) -> pd.DataFrame:
    """Add QD scores, with one reference for all runs of a problem."""
    lowest = runs.groupby("problem")["lowest"].transform("min").clip(upper=0.0)
    reference = runs["f_min"].fillna(lowest)
    return runs.assign(
        qd_score=runs["sum"] - runs["num_elites"] * reference,
        coverage=runs["num_elites"] / runs["num_cells"],
    )


def tests(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the Games-Howell tests of all pairs of gloam's contenders on each problem.

    Those of other libraries have fewer seeds, and each further group makes every test weaker.
    """
    rows = []
    ours = runs[~runs["contender"].isin(list(OUTSIDE))]
    for problem, part in ours.groupby("problem", sort=False):
        groups = {
            str(name): values.to_numpy() for name, values in part.groupby("contender")["qd_score"]
        }
        groups = {name: values for name, values in groups.items() if len(values) > 1}
        if len(groups) > 1:
            rows += [
                {"problem": problem, "contender": one, "other": other, "p": test.p}
                for (one, other), test in games_howell(groups).items()
            ]
    return pd.DataFrame(rows, columns=["problem", "contender", "other", "p"])


def table(runs: pd.DataFrame, tested: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each problem and contender.

    ``share`` is the mean QD score as a share of the best contender of gloam, and ``is_best`` holds
    for the best and for those that are not significantly worse than it (p >= 0.05).
    """
    keys = ["problem", "group", "half", "contender"]
    groups = runs.groupby(keys, sort=False)
    found = groups.agg(
        seeds=("seed", "size"),
        qd_score=("qd_score", "mean"),
        error=("qd_score", "sem"),
        coverage=("coverage", "mean"),
        seconds=("seconds", "mean"),
    ).reset_index()
    ours = found[~found["contender"].isin(list(OUTSIDE))]
    best = ours.loc[ours.groupby("problem")["qd_score"].idxmax()].set_index("problem")
    found["share"] = found["qd_score"] / found["problem"].map(best["qd_score"])
    found["rank"] = ours.groupby("problem")["qd_score"].rank(ascending=False)
    found["first"] = found["problem"].map(best["contender"])
    named = tested.rename(columns={"other": "first"})
    found = found.merge(named, on=["problem", "contender", "first"], how="left")
    found["is_best"] = (found["contender"] == found["first"]) | (found["p"] >= 0.05)
    return found


def summary(found: pd.DataFrame) -> pd.DataFrame:
    """Return a row for each half and contender of gloam."""
    ours = found[found["rank"].notna()]
    halves = {"all": ours, **{str(name): part for name, part in ours.groupby("half")}}
    rows = []
    for half, part in halves.items():
        # Where all contenders have the same score, all are the best.
        spread = part.groupby("problem")["share"].transform("min")
        is_open = spread < 1 - 1e-6
        for contender, own in part.groupby("contender", sort=False):
            rows.append(
                {
                    "half": half,
                    "contender": contender,
                    "problems": len(own),
                    "mean rank": round(own["rank"].mean(), 2),
                    "first or not significantly worse": f"{own['is_best'].mean():.0%}",
                    "the same where scores differ": f"{own['is_best'][is_open].mean():.0%}",
                    "mean share": round(own["share"].mean(), 4),
                    "lowest share": round(own["share"].min(), 4),
                    "on": own.loc[own["share"].idxmin(), "problem"],
                }
            )
    return pd.DataFrame(rows)


def draw_profile(found: pd.DataFrame, file: Path) -> None:
    """Draw the share of problems on which a contender is within some share of the best."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    behind = np.concatenate([[0.0], np.geomspace(1e-3, 1, 200)])
    for contender, own in found[found["rank"].notna()].groupby("contender", sort=False):
        gaps = 1 - own["share"].to_numpy()
        axes.step(
            behind, [(gaps <= gap + 1e-9).mean() for gap in behind], where="post", label=contender
        )
    axes.set_xscale("symlog", linthresh=1e-3)
    ticks = [0, 1e-3, 1e-2, 5e-2, 0.2, 1]
    axes.set_xticks(ticks, [f"{100 * tick:g}%" for tick in ticks], minor=False)
    axes.set(xlabel="QD score behind the best", ylabel="share of problems", ylim=(0, 1.02))
    axes.grid(alpha=0.3)
    axes.legend(fontsize=8, loc="lower right")
    figure.savefig(file, dpi=150)


def write_report(out: Path) -> str:
    """Write all files of a folder with runs and return the report.

    Of a problem that was run with several numbers of evaluations, the runs with most count.
    """
    runs = pd.read_csv(out / "runs.csv")
    scales = runs.groupby("problem")["scale"].max()
    known = scored(runs[runs["scale"] == runs["problem"].map(scales)])
    tested = tests(known)
    found = table(known, tested)
    found.to_csv(out / "table.csv", index=False)
    tested.to_csv(out / "tests.csv", index=False)
    draw_profile(found, out / "profile.png")
    text = [
        f"{row.share:.4f}{'*' if row.is_best else ''} ({row.coverage:.1%})"
        for row in found.itertuples()
    ]
    wide = found.assign(text=text).pivot(
        index=["half", "group", "problem"], columns="contender", values="text"
    )
    wide = wide[list(dict.fromkeys(found["contender"]))].fillna("").reset_index()
    wide["problem"] = [_title(name, scales[name]) for name in wide["problem"]]
    is_outside = found["contender"].isin(list(OUTSIDE))
    ours, others = (
        " or ".join(map(str, sorted(set(part["seeds"])))) or "no"
        for part in (found[~is_outside], found[is_outside])
    )
    report = (
        f"## {len(scales)} problems, {ours} seeds ({others} with other libraries)\n\n"
        "QD score as a share of the best contender of gloam, and coverage; * the best, or not "
        "significantly worse (Games-Howell, p >= 0.05). Problems with noise have corrected scores: "
        f"each elite was evaluated again 100 times.\n\n{as_markdown(wide)}\n"
        f"{as_markdown(summary(found))}\n"
    )
    (out / "report.md").write_text(report)
    return report


def _title(name: str, scale: float) -> str:
    remarks = ["corrected"] if name in PROBLEMS and PROBLEMS[name].is_noisy else []
    remarks += [f"{scale:.0%} of the evaluations"] if scale != 1 else []
    return f"{name} ({', '.join(remarks)})" if remarks else name


if __name__ == "__main__":
    print(write_report(Path(sys.argv[1])))
