"""Commands for a problem and a dataset of your own: new and fill."""

import dataclasses
import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
import tyro

import gloam
from gloam._tools import checks
from gloam._tools.files import read_array
from gloam._tools.progress import print_line
from gloam.cli import user_code
from gloam.cli.options import FollowOptions, SavingOptions, restart_rule, show_matches

if TYPE_CHECKING:
    from gloam.datasets import Dataset


@dataclasses.dataclass(frozen=True)
class New:
    """Write an example Python file for `gloam fill`, with a function and a first solution.

    Example: gloam new my_problem.py --size 32 32 --mode RGB
    """

    file: Annotated[Path, tyro.conf.Positional] = Path("my_problem.py")
    """Name of the new file."""
    size: tuple[int, int] = (8, 8)
    """Height and width of the images that the function draws."""
    mode: Literal["L", "RGB"] = "L"
    """Grayscale (L) or color (RGB)."""

    def __call__(self) -> None:
        """Write the file."""
        checks.expect(self.file.suffix == ".py", "file", "a name that ends in .py", str(self.file))
        height, width = (checks.integer("size", side, minimum=1) for side in self.size)
        channels = 3 if self.mode == "RGB" else 1
        # scikit-learn's digits have 8 x 8 pixels.
        dataset = "digits" if (height, width, channels) == (8, 8, 1) else "pictures/"
        text = Path(__file__).with_name("template.py").read_text(encoding="utf-8")
        text = text.replace("FILE --dataset digits", f"{self.file} --dataset {dataset}")
        sizes = f"WIDTH, CHANNELS = {height}, {width}, {channels}"
        text = text.replace("WIDTH, CHANNELS = 8, 8, 1", sizes)
        self.file.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(self.file, "x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            checks.expect(False, "file", "a new name", f"'{self.file}', which exists")
        print_line(self.file)
        print_line(f"To run it: gloam fill {self.file} --dataset {dataset}")
        if dataset == "digits":
            print_line(f"With a folder of your images: gloam fill {self.file} --dataset FOLDER")


@dataclasses.dataclass(frozen=True)
class Fill:
    """Search for the best match to every item of a dataset, with Discount Model Search.

    Required: FUNCTION, which maps a batch of solutions (rows of numbers) to measures in the form of
    the dataset's items; --dataset; and x0 and sigma0, as variables in the file of the function or
    as options. `gloam new` writes an example file.

    Example: gloam fill my_problem.py --dataset pictures/ --iterations 2000 --out runs/pictures
    """

    function: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="FUNCTION")]
    """Your function: my_file.py:name or my.module:name. Default name: evaluate."""
    dataset: str
    """Folder of images; .npy, .npz, .parquet, .csv or IDX file; or `digits` (from scikit-learn)."""
    column: tuple[str, ...] | None = None
    """Arrays or columns of the items, if the file has others. Default: all columns."""
    labels: str | None = None
    """Array or column of the items' labels. Default: `labels` in an .npz or .csv file."""
    names: str | None = None
    """Array or column of the items' names. Default: `names` in an .npz or .csv file."""
    name: str | None = None
    """Name of the problem in figures, the explorer and reports. Default: your function's name."""
    x0: str | None = None
    """First solution: an .npy file, zeros:N or uniform:N. Default: `x0` in your file."""
    sigma0: float | None = None
    """Standard deviation of the first solutions around x0. Default: `sigma0` in your file; with
    --bounds, where it is a share of their width, 0.2 otherwise."""
    bounds: tuple[float, float] | None = None
    """Lower and upper bound of all numbers of a solution. Default: none."""
    out: Path = Path("runs/fill")
    """Run folder for metrics, archives, checkpoints and figures."""
    iterations: int = 1000
    """Number of iterations."""
    size: tuple[int, int] | None = None
    """Height and width of the images of a folder. Default: those of your function's images."""
    mode: Literal["L", "RGB"] | None = None
    """Grayscale (L) or color (RGB), for the images of a folder. Default: as your function's."""
    items: int | None = None
    """Number of items to use, drawn at random by the seed. Default: all."""
    metric: Literal["euclidean", "cosine"] = "euclidean"
    """Distance between measures and items; cosine is for embeddings."""
    within: float | None = None
    """Largest distance from its item at which a solution counts (cosine: 1 minus the cosine).
    Default: any."""
    index: Literal["auto", "exact", "flat", "ivf", "hnsw"] = "auto"
    """Search for the nearest item. auto is exact, or uses FAISS for large datasets on a CPU."""
    alpha: float = 0.01
    """Archive learning rate: 1 explores only, 0 optimizes only."""
    emitters: int = 4
    """Number of CMA-ES instances. Moves between elites add two thirds as many solutions."""
    batch_size: int = 30
    """Number of solutions per instance and iteration."""
    restart: str = "idle"
    """When instances restart: idle, basic, no-improvement, or a number of iterations."""
    seed: int = 0
    """Seed of the search."""
    workers: int = 0
    """Number of worker processes that evaluate. 0: evaluate in this process."""
    timeout: float | None = None
    """Maximum number of seconds for one solution, with --workers."""
    resume: bool = False
    """Continue the run in the run folder."""
    saving: SavingOptions = dataclasses.field(default_factory=SavingOptions)
    follow: FollowOptions = dataclasses.field(default_factory=FollowOptions)

    continuation: ClassVar[str] = "the same command and --resume"
    """How to continue a run, for messages; a run folder does not contain the function."""

    def __call__(self) -> None:
        """Run the search and write the gallery."""
        if not self.resume:
            gloam.RunFolder(self.out).check_new()
        module, evaluate = user_code.load(self.function, "evaluate")
        evaluator = processes(self.workers, self.timeout)
        if evaluator is not None:
            evaluator.check(evaluate)
        x0 = getattr(module, "x0", None) if self.x0 is None else self.x0
        start = _start(x0, self.seed)
        sigma0 = getattr(module, "sigma0", None) if self.sigma0 is None else self.sigma0
        fix = f"Give --sigma0, or set it in {self.function}."
        has_step = sigma0 is not None or self.bounds is not None
        checks.expect(has_step, "sigma0", "a number", "none", fix)
        shape = _measures_shape(evaluate, start)
        size, mode = picture_form(shape)
        texts = {"column": self.column, "label": self.labels, "names": self.names}
        form = self.size or size, self.mode or mode
        data = read_dataset(self.dataset, *form, **texts, progress=not self.follow.quiet)
        if self.items is not None:
            data = data.subsample(self.items, self.seed)
        print_line(data)
        _check_measures(shape, data, has_form=bool(self.size or self.mode))
        archive = data.archive(self.metric, index=self.index, within=self.within)
        if archive.index is not None:
            print_line(archive.index)
        algorithm = gloam.DMS(
            archive,
            start,
            sigma0,
            num_emitters=self.emitters,
            batch_size=self.batch_size,
            bounds=self.bounds,
            alpha=self.alpha,
            restart=restart_rule(self.restart),
        )
        result = gloam.optimize(
            evaluate,
            algorithm,
            self.iterations,
            name=self.name,
            seeds=[self.seed],
            evaluator=evaluator,
            run_dir=self.out,
            dataset=data,
            resume=self.resume,
            **dataclasses.asdict(self.saving),
            **self.follow.arguments(),
        )
        if result.stopped:
            print_line(f"Stopped early: {result.stopped}")
        show_matches(
            gloam.datasets.Matches(gloam.RunFolder(self.out).read_archive(), data), self.out
        )


def processes(workers: int, timeout: float | None) -> "gloam.evaluators.Processes | None":
    """Return the worker processes of --workers and --timeout; ``None`` for this process."""
    checks.integer("workers", workers, minimum=0)
    if workers > 0:
        return gloam.evaluators.Processes(workers, timeout=timeout)
    if timeout is not None:
        raise ValueError(
            f"timeout: --timeout {timeout:g} requires --workers, because only a worker process can "
            "be terminated."
        )
    return None


def read_dataset(
    where: str,
    size: tuple[int, int],
    mode: Literal["L", "RGB"],
    *,
    column: tuple[str, ...] | None = None,
    label: str | None = None,
    names: str | None = None,
    progress: bool = True,
) -> "Dataset":
    """Read the dataset that the option --dataset names."""
    path = checks.path("dataset", where)
    is_table = path.suffix.lower() in (".npz", ".parquet", ".csv") and not path.is_dir()
    expected = "an .npz, .parquet or .csv file with --column, --labels and --names"
    is_plain = column is None and label is None and names is None
    checks.expect(is_plain or is_table, "dataset", expected, f"'{where}'", "Leave them out.")
    if where == "digits":
        return gloam.datasets.digits()
    if path.is_dir():
        return gloam.datasets.from_folder(path, size, mode, progress=progress)
    expected = "an existing folder of images, an existing file, or digits"
    checks.expect(path.is_file(), "dataset", expected, f"'{where}'", "Check the path.")
    from gloam.datasets.images import SUFFIXES

    is_picture = path.suffix.lower() in SUFFIXES
    fix = "Give the folder that contains the images."
    checks.expect(not is_picture, "dataset", "a folder of images", f"the file '{where}'", fix)
    # MNIST's files have no suffix of their own: train-images-idx3-ubyte, or with .gz.
    if path.name.removesuffix(".gz").endswith("-ubyte"):
        return gloam.datasets.from_idx(path)
    is_single = column is not None and len(column) == 1 and path.suffix.lower() != ".csv"
    return gloam.datasets.from_file(
        path, column[0] if column and is_single else column, label, names=names
    )


def _start(x0: Any, seed: int) -> np.ndarray:
    """Return the first solution, from an array or from the text of --x0."""
    fix = "Give --x0 FILE.npy, zeros:N or uniform:N, or set x0 in your file."
    checks.expect(x0 is not None, "x0", "a starting solution", "none", fix)
    if not isinstance(x0, str):
        return np.asarray(x0)
    kind, _, number = x0.partition(":")
    if kind not in ("zeros", "uniform"):
        return read_array(checks.existing_file("x0", x0, fix), "x0")
    checks.expect(number.isdigit() and int(number) > 0, "x0", f"{kind}:N", repr(x0), fix)
    size = int(number)
    # The function gets a batch of two of them first, in float32.
    checks.fits_memory("x0", 24 * size, f"solutions of {size:,} numbers", "Use fewer numbers.")
    return np.zeros(size) if kind == "zeros" else np.random.default_rng(seed).uniform(0, 1, size)


def _measures_shape(evaluate: Any, start: np.ndarray) -> tuple[int, ...]:
    """Return the shape of the measures of a batch of two, from one call of the function."""
    from gloam.evaluation import evaluation_parts

    checks.expect(callable(evaluate), "function", "a function", type(evaluate).__name__)
    _, measures, _ = evaluation_parts(evaluate(np.stack([start, start]).astype(np.float32)))
    return np.shape(measures)


def picture_form(shape: tuple[int, ...]) -> tuple[tuple[int, int], Literal["L", "RGB"]]:
    """Return size and mode of the images in measures of a shape; 28 x 28 if there are none."""
    if len(shape) == 3 or (len(shape) == 4 and shape[3] == 3):
        return (shape[1], shape[2]), "RGB" if len(shape) == 4 else "L"
    return (28, 28), "L"


def _check_measures(shape: tuple[int, ...], data: "Dataset", *, has_form: bool) -> None:
    """Check the shape of the measures of a batch of two before the search.

    Args:
        shape: The shape.
        data: The dataset.
        has_form: Whether --size or --mode was given.
    """
    from gloam.evaluation import measure_shapes

    allowed = measure_shapes(2, data.shape)
    expected = checks.one_of([f"(batch, {str(sizes[1:]).strip('(,)')})" for sizes in allowed])
    fix = "Return measures in the form of the items"
    if has_form:
        fix += ", or leave out --size and --mode: the images are then read in your function's form"
    elif math.prod(shape) == math.prod(allowed[0]):
        fix += ": measures.reshape(len(measures), -1)"
    got = f"shape {shape} for a batch of 2"
    checks.expect(shape in allowed, "measures", f"shape {expected}, like the items", got, f"{fix}.")
