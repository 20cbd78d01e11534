"""The command `answer`: solutions for new items, from the elites of a finished run."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any

import tyro

import gloam
from gloam._tools.progress import print_line
from gloam.cli import user_code
from gloam.cli.fill import picture_form, processes, read_dataset
from gloam.cli.options import print_matches, show_gallery


@dataclasses.dataclass(frozen=True)
class Answer:
    """Find solutions for new items, from the elites of a finished run and a few evaluations.

    Required: RUN, the folder of a run such as that of `gloam fill`; --dataset, the new items, in
    the form of those of the run; and --function, the function of the run, because a run folder
    contains no code. The answer of an item is the nearest solution among the elites and the
    combinations of elites that are evaluated. With --evaluations 0 it is the nearest elite.

    Example: gloam answer runs/fill --function my_problem.py --dataset new/ --out runs/answer
    """

    run: Annotated[Path, tyro.conf.Positional]
    """Run folder."""
    function: str
    """Your function: my_file.py:name or my.module:name. Default name: evaluate."""
    dataset: str
    """The new items: as for `gloam fill`, a folder of images or a file."""
    column: tuple[str, ...] | None = None
    """Arrays or columns of the items, if the file has others. Default: all columns."""
    labels: str | None = None
    """Array or column of the items' labels. Default: `labels` in an .npz or .csv file."""
    names: str | None = None
    """Array or column of the items' names. Default: `names` in an .npz or .csv file."""
    evaluations: int | None = None
    """Largest number of evaluations, for all items together. Default: 10 for each item."""
    out: Path = Path("runs/answer")
    """Folder for the answers: a table of solutions, a table of matches and a gallery."""
    seed: int = 0
    """Seed of the random numbers."""
    workers: int = 0
    """Number of worker processes that evaluate. 0: evaluate in this process."""
    timeout: float | None = None
    """Maximum number of seconds for one solution, with --workers."""
    quiet: bool = False
    """Show no progress bars."""

    def __call__(self) -> None:
        """Find the answers and write them."""
        from gloam._tools import files
        from gloam.gallery.run_gallery import write_gallery  # matplotlib takes a second to import

        gloam.RunFolder(self.out).check_new()
        folder = gloam.RunFolder(self.run).must_hold_run()
        _, evaluate = user_code.load(self.function, "evaluate")
        archive: Any = folder.read_part("archive")
        size, mode = picture_form((1, *archive.measure_shape))
        texts = {"column": self.column, "label": self.labels, "names": self.names}
        data = read_dataset(self.dataset, size, mode, **texts, progress=not self.quiet)
        print_line(data)
        result = gloam.runs.answer(
            evaluate,
            folder,
            data,
            self.evaluations,
            seed=self.seed,
            evaluator=processes(self.workers, self.timeout),
            progress=not self.quiet,
        )
        first, last = result.metrics.iloc[0], result.metrics.iloc[-1]
        failed = f", {last['failed_total']:,.0f} failed" if last["failed_total"] else ""
        print_line(
            f"{last['evaluations']:,.0f} evaluations{failed}. Mean distance to the items: "
            f"{last['mean_distance']:.4g}, of the nearest elites of the run: "
            f"{first['mean_distance']:.4g}"
        )
        matches = gloam.datasets.Matches(result.elites, data)
        print_matches(matches)
        title = f"Answers of {self.run.resolve().name}"
        files.write_table(self.out / "answers.parquet", result.elites.to_pandas())
        print_line(self.out / "answers.parquet")
        show_gallery(write_gallery(self.out, matches, domain=evaluate, title=title), self.out)
