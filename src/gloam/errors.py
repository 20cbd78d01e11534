"""The errors that gloam raises beside ``ValueError`` and ``TypeError``."""

import os
from pathlib import Path

from gloam._tools.checks import printable
from gloam._tools.warn import GloamWarning as GloamWarning


class EvaluationError(RuntimeError):
    """Too many evaluations failed for the search to go on."""


class WorkerError(RuntimeError):
    """The evaluator itself does not work: workers do not start, or a cluster is lost."""


class DamagedFileError(ValueError):
    """A file is damaged, or gloam did not write it for this place.

    Args:
        path: The file.
        problem: What is wrong with it, as a part of a sentence.
        fix: What the user can do.
    """

    def __init__(self, path: str | os.PathLike, problem: str, fix: str):
        self.path = Path(path)
        self.problem = problem
        super().__init__(printable(f"'{path}' cannot be used: {problem}. {fix}"))


class ForeignError(ValueError):
    """A file refers to an object that only the user's own program can build.

    Args:
        name: Module and name of the user's object, as the file has it.
    """

    def __init__(self, name: str):
        self.name = name
        super().__init__(
            f"The file refers to {printable(name)}, which is not part of gloam and is never loaded "
            "from a file. Pass the object itself: call gloam.run or gloam.optimize again with the "
            "same settings and resume=True, or Search.load(path, algorithm)."
        )


class RunExistsError(ValueError):
    """A new run was started in a folder that already holds one."""

    def __init__(self, run_dir: Path):
        self.run_dir = run_dir
        super().__init__(
            f"'{printable(run_dir)}' already holds a run. Pass resume=True to continue it, or "
            "choose another folder."
        )


class LockedError(ValueError):
    """Another process is writing to a run folder."""

    def __init__(self, run_dir: Path, holder: str):
        self.run_dir = run_dir
        super().__init__(
            f"'{printable(run_dir)}' is in use by {printable(holder)}. Wait until it has finished, "
            "stop it, or choose another folder."
        )


class Interrupted(KeyboardInterrupt):
    """The run was stopped by Ctrl-C or a termination signal, after its state was saved.

    Attributes:
        run_dir: The run folder, or ``None``.
        iteration: Number of finished iterations.
        signal: Number of the signal that stopped it, or ``None``.
    """

    def __init__(
        self,
        run_dir: Path | None,
        iteration: int,
        *,
        signal: int | None = None,
    ):
        self.run_dir = run_dir
        self.iteration = iteration
        self.signal = signal
        advice = f"; continue with the same call and resume=True (run_dir='{run_dir}')"
        super().__init__(f"stopped after iteration {iteration}{advice if run_dir else ''}")
