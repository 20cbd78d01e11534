"""The commands around datasets: fill one, begin a file for that, look at galleries, fetch data."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import tyro

from gloam import checks, datasets
from gloam.algorithms import DMS
from gloam.archives import IndexName
from gloam.cli import user_code
from gloam.cli.outputs import write_new
from gloam.datasets import Dataset, Matches
from gloam.drivers import Interrupted, optimize
from gloam.emitters import BasicRestart, RestartEvery
from gloam.files import read_array
from gloam.formats import RunFolder


@dataclasses.dataclass(frozen=True)
class Fill:
    """Fill every item of a dataset with what your function can make, by Discount Model Search.

    Your function maps a batch of solutions (rows of numbers) to measures: what it made, in the
    form of the dataset's items. `gloam new` writes an example to begin with.

    Example: gloam fill my_problem.py --dataset pictures/ --iterations 2000 --out runs/pictures
    """

    function: Annotated[str, tyro.conf.Positional]
    """my_file.py, my_file.py:function or my.module:function; `evaluate` when none is named."""
    dataset: str
    """A folder of pictures; an .npy, .npz, .parquet or IDX file; or digits (scikit-learn's)."""
    x0: str | None = None
    """Where to start: an .npy file, zeros:N, uniform:N, or as your file's `x0` says."""
    sigma0: float | None = None
    """How far from x0 the first solutions are; or as your file's `sigma0` says."""
    out: Path = Path("runs/fill")
    """The run folder."""
    iterations: int = 1000
    """How many."""
    size: tuple[int, int] = (28, 28)
    """Rows and columns that pictures of a folder are brought to."""
    mode: Literal["L", "RGB"] = "L"
    """Grey or colour, for pictures of a folder."""
    items: int | None = None
    """Use so many items only, chosen by the seed."""
    metric: Literal["euclidean", "cosine"] = "euclidean"
    """Which item is nearest: by distance, or by angle (embeddings)."""
    index: IndexName = "auto"
    """How the nearest item is found: exactly, or by FAISS; auto takes it for millions on a CPU."""
    alpha: float = 0.1
    """Archive learning rate: 1 explores only, 0 optimises only."""
    emitters: int = 5
    """CMA-ES instances."""
    batch_size: int = 36
    """Solutions per instance and iteration."""
    restart: int = 50
    """Iterations between restarts; 0 for none but CMA-ES's own."""
    seed: int = 0
    """The same seed gives the same result."""
    log_every: int = 50
    """Iterations between two rows of metrics."""
    checkpoint_seconds: float = 60.0
    """Longest time between two checkpoints."""
    checkpoint_every: int | None = None
    """Iterations between two checkpoints, besides those by time."""
    resume: bool = False
    """Continue the run in the folder."""
    quiet: bool = False
    """No progress bar."""

    continuation: ClassVar[str] = "the same command and --resume"
    """How a run is continued; `gloam resume` cannot know the function."""

    def __call__(self) -> None:
        """Search, then show."""
        if not self.resume:
            RunFolder(self.out).check_new()
        module, evaluate = user_code.load(self.function, "evaluate")
        evaluate = user_code.guarded(evaluate)
        data = read_dataset(self.dataset, self.size, self.mode)
        if self.items is not None:
            data = data.subsample(self.items, self.seed)
        print(data)
        start = _start(self.x0 or getattr(module, "x0", None), self.seed)
        sigma0 = self.sigma0 or getattr(module, "sigma0", None)
        checks.expect(
            sigma0 is not None,
            "sigma0",
            "a number",
            "none",
            f"Give --sigma0, or set it in {self.function}.",
        )
        assert sigma0 is not None
        _check_measures(evaluate, start, data)
        archive = data.archive(self.metric, index=self.index)
        if archive.index is not None:
            print(archive.index)
        algorithm = DMS(
            archive,
            start,
            sigma0,
            num_emitters=self.emitters,
            batch_size=self.batch_size,
            alpha=self.alpha,
            restart=RestartEvery(self.restart) if self.restart else BasicRestart(),
        )
        try:
            optimize(
                evaluate,
                algorithm,
                self.iterations,
                seeds=[self.seed],
                run_dir=self.out,
                dataset=data,
                resume=self.resume,
                progress=not self.quiet,
                log_every=self.log_every,
                checkpoint_every=self.checkpoint_every,
                checkpoint_seconds=self.checkpoint_seconds,
            )
        except Interrupted as stopped:
            advice = f"continue with {self.continuation}"
            raise Interrupted(
                stopped.run_dir, stopped.iteration, advice, signal=stopped.signal
            ) from None
        tell_matches(Matches(RunFolder(self.out).read_archive(), data))
        Gallery(self.out)()


@dataclasses.dataclass(frozen=True)
class New:
    """Write a Python file to begin with: a function, a starting point, and how to run them."""

    file: Annotated[Path, tyro.conf.Positional] = Path("my_problem.py")
    """Where to write it."""

    def __call__(self) -> None:
        """Write it."""
        checks.expect(self.file.suffix == ".py", "file", "a name that ends in .py", str(self.file))
        template = Path(__file__).with_name("template.py").read_text()
        write_new(self.file, template.replace("FILE", str(self.file)))
        print(f"{self.file}\nrun it:  gloam fill {self.file} --dataset digits")


@dataclasses.dataclass(frozen=True)
class Gallery:
    """Show what a run made of a dataset: pairs of solution and item, as a page and a table.

    Where there are pictures, they are on the page, and on a sheet of their own.
    """

    run: Annotated[Path, tyro.conf.Positional]
    """The run folder; the run was given a dataset."""
    by: Literal["objective", "distance", "label", "item"] = "objective"
    """Order of the pairs in the picture; the page can be sorted."""
    count: int = 60
    """Pairs in the picture."""

    def __call__(self) -> None:
        """Draw and write it."""
        from gloam.gallery import gallery_run  # matplotlib takes a second to import

        for path in gallery_run(self.run, by=self.by, count=self.count):
            print(path)


@dataclasses.dataclass(frozen=True)
class Datasets:
    """Fetch a public dataset: `gloam datasets fetch mnist`."""

    verb: Annotated[Literal["fetch"], tyro.conf.Positional]
    """What to do."""
    name: Annotated[Literal["mnist", "fashion-mnist"], tyro.conf.Positional]
    """Which one."""
    folder: Path | None = None
    """Where to; gloam's cache by default."""

    def __call__(self) -> None:
        """Fetch it and say where it is."""
        for path in datasets.fetch(self.name, self.folder).values():
            print(path)


def read_dataset(where: str, size: tuple[int, int], mode: Literal["L", "RGB"]) -> Dataset:
    """A dataset by what the command line says."""
    if where == "digits":
        return digits()
    path = Path(where)
    if path.is_dir():
        return datasets.from_folder(path, size, mode)
    # MNIST's files have no suffix of their own: train-images-idx3-ubyte, or with .gz.
    if path.name.removesuffix(".gz").endswith("-ubyte"):
        return datasets.from_idx(path)
    return datasets.from_file(path)


def digits() -> Dataset:
    """Scikit-learn's 1,797 handwritten digits of 8 x 8 pixels."""
    try:
        from sklearn.datasets import load_digits  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise ValueError(
            "dataset: expected scikit-learn, which has the digits, got none. "
            "Run: pip install 'gloam[demo]'"
        ) from error
    found: Any = load_digits()
    return datasets.from_array(
        found.images / np.float32(16), labels=[str(label) for label in found.target]
    )


def tell_matches(matches: Matches) -> None:
    """Print how well the dataset is served."""
    elites, data = matches.elites, matches.dataset
    print(
        f"{len(elites):,} of {len(data):,} items have an elite ({matches.coverage():.1%}), "
        f"QD score {elites.qd_score:,.2f}, best {elites.best_objective:.4f}"
    )
    if len(elites):
        middle = float(np.median(matches.distances))
        print(f"half of the elites are within {middle:.3g} of their item")
    if data.labels is not None and 1 < len(set(data.labels)) <= 30:
        rows: Any = matches.coverage_by_label().itertuples()
        for row in rows:
            print(f"{row.label:>12} {row.filled:>6} of {row.items:<6} {row.coverage:>7.1%}")


def _start(x0: Any, seed: int) -> np.ndarray:
    """The starting point, from an array or from text."""
    fix = "Give --x0 FILE.npy, zeros:N or uniform:N, or set x0 in your file."
    if isinstance(x0, str):
        kind, _, number = x0.partition(":")
        if kind in ("zeros", "uniform"):
            checks.expect(number.isdigit() and int(number) > 0, "x0", f"{kind}:N", repr(x0), fix)
            size = int(number)
            random = np.random.default_rng(seed)
            return np.zeros(size) if kind == "zeros" else random.uniform(0, 1, size)
        return read_array(checks.existing_file("x0", x0, fix), "x0")
    checks.expect(x0 is not None, "x0", "a starting solution", "none", fix)
    return np.asarray(x0)


def _check_measures(evaluate: Any, start: np.ndarray, data: Dataset) -> None:
    """Call the function once, so that wrong sizes are told before the search."""
    from gloam.drivers.evaluation import evaluation_parts

    checks.expect(
        callable(evaluate), "function", "something that can be called", type(evaluate).__name__
    )
    _, measures, _ = evaluation_parts(evaluate(np.stack([start, start]).astype(np.float32)))
    found, shapes = np.shape(measures), checks.measure_shapes(2, data.shape)
    told = checks.one_of([f"(batch, {str(shape[1:]).strip('(,)')})" for shape in shapes])
    checks.expect(
        found in shapes,
        "measures",
        f"shape {told}, as the items have",
        f"shape {found} for a batch of 2",
        "Return what each solution makes, in the form of the items.",
    )
