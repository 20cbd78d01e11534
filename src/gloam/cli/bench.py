"""`gloam bench`: times of gloam, pyribs and QDax on the same problems."""

import dataclasses
from pathlib import Path

import pandas as pd

from gloam.cli.outputs import check_bench
from gloam.experiments.comparison import (
    ALGORITHMS,
    Comparison,
    Neighbours,
    Problem,
    measure,
    surroundings,
)
from gloam.experiments.report import as_markdown
from gloam.files import write_bytes


@dataclasses.dataclass(frozen=True)
class Bench:
    """Compare the speed of gloam, pyribs and QDax on the same problems, in one process.

    After a warm-up, which also checks that all libraries do the same work, the libraries are timed
    in turns. Use a machine without other work. Libraries that are not installed are skipped: pip
    install 'gloam[bench]' installs pyribs.

    Example: gloam bench --measures 2 --algorithms dms --repeats 3
    """

    out: Path = Path("runs/bench")
    """Folder for bench.md, bench.csv and bench.png."""
    algorithms: tuple[str, ...] = ALGORITHMS
    """Algorithms to compare: dms, cma-mae, map-elites-line."""
    measures: tuple[int, ...] = (2, 10, 50)
    """Numbers of measures of LP (Sphere). 2 uses a grid, others 10,000 centroids."""
    centroids_dir: Path | None = None
    """Folder with lp_10d.npy, lp_50d.npy. Default: centroids are computed once and cached."""
    repeats: int = 5
    """Number of timed periods of each contender; the medians are compared."""
    seconds: float = 2.0
    """Length of a timed period in seconds."""
    warm_up: int = 200
    """Number of iterations of the warm-up, after which QD scores are compared."""
    seed: int = 0
    """Seed of every contender."""

    def __call__(self) -> None:
        """Run the comparison, print it and write it."""
        check_bench(self.out)
        problems = [
            Problem(name, k, self.centroids_dir) for name in self.algorithms for k in self.measures
        ]
        for problem in problems:
            _ = problem.ours  # reports wrong arguments before anything is timed
        neighbours = Neighbours()
        comparison = measure(
            problems,
            repeats=self.repeats,
            seconds=self.seconds,
            warm_up=self.warm_up,
            seed=self.seed,
            tell=lambda text: print(text, flush=True),
        )
        text = _report(comparison, str(neighbours))
        print(f"\n{text}")
        write_bytes(self.out / "bench.md", text.encode())
        frame = comparison.frame().assign(**surroundings(), others_cpu_share=neighbours.share)
        write_bytes(self.out / "bench.csv", frame.to_csv(index=False).encode())
        from gloam.plots.run_figures import speed  # matplotlib takes a second to import
        from gloam.plots.style import save

        picture = save(speed(comparison.frame()), self.out / "bench.png")
        for path in (self.out / "bench.md", self.out / "bench.csv", picture):
            print(path)


def _report(comparison: Comparison, neighbours: str) -> str:
    """The table and its notes."""
    frame = comparison.frame()
    table = pd.DataFrame(frame[["algorithm", "measure_dim", "contender"]])
    table = table.rename(columns={"measure_dim": "measures"})
    table["ms/iteration"] = frame["median_ms"].map("{:.2f}".format)
    spread = zip(frame["min_ms"], frame["max_ms"], strict=True)
    table["min - max"] = [f"{low:.2f} - {high:.2f}" for low, high in spread]
    for peer in ("pyribs", "QDax"):
        ratios = [
            f"{x:.1f}" if x == x else "" for x in frame[f"times_{peer.lower()}"].astype(float)
        ]
        if any(ratios):
            table[f"x {peer}"] = ratios
    table["QD score"] = frame["qd_score"].map("{:.1f}".format)
    around = ", ".join(f"{name} {value}" for name, value in surroundings().items())
    same = "All did the same work."
    if comparison.differences:
        same = "\n".join(["Not the same work:", *(f"- {line}" for line in comparison.differences)])
    notes = [around, *comparison.missing, same, neighbours]
    return as_markdown(table) + "\n" + "\n".join(notes) + "\n"
