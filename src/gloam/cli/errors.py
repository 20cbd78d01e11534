"""Messages and exit codes of commands that fail or are interrupted."""

import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from rich.text import Text

from gloam._tools.checks import printable
from gloam._tools.progress import error_console
from gloam._tools.warn import GloamWarning
from gloam.cli import user_code
from gloam.errors import EvaluationError, Interrupted, RunExistsError, WorkerError
from gloam.formats import RunFolder

# An ImportError without a module's name is gloam's own, and says which extra to install.
_EXPECTED = (ValueError, OSError, ImportError, MemoryError, EvaluationError, WorkerError)
_USER_CODE_FAILED, _FAILED, _BY_SIGNAL = 1, 2, 128


def report(error: BaseException, command: object) -> int:
    """Print ``error`` and return the exit code; raise unexpected errors again.

    Args:
        error: Error that ended the command.
        command: The command. Its ``continuation``, if any, says how to continue its run.
    """
    continuation = getattr(command, "continuation", None)
    if isinstance(error, Interrupted):
        advice = f" in '{error.run_dir}'; continue with {continuation}"
        _tell(f"stopped after iteration {error.iteration}{advice}" if continuation else str(error))
        return _BY_SIGNAL + (error.signal or signal.SIGINT)
    if isinstance(error, KeyboardInterrupt):  # during compilation, reading or drawing
        notes = getattr(error, "__notes__", [])
        _tell(". ".join(["stopped; all files written so far are complete", *notes]))
        return _BY_SIGNAL + signal.SIGINT
    trace = user_code.traceback_of(error)
    if trace is not None:
        print(printable(trace, keep="\n\t"), file=sys.stderr, end="")
        _tell(f"error: your code raised the exception above; {_saved(command, continuation)}")
        return _USER_CODE_FAILED
    is_broken_import = isinstance(error, ImportError) and error.name is not None
    if is_broken_import or not isinstance(error, _EXPECTED):
        raise error
    text = str(error) or "not enough memory"  # Python's own MemoryError has no text
    message = " ".join([text, *getattr(error, "__notes__", [])])
    if isinstance(error, RunExistsError):  # its advice is for Python
        continuation = continuation or f"`gloam resume {error.run_dir}`"
        message = (
            f"'{error.run_dir}' already holds a run. Continue it with {continuation}, or choose "
            "another folder with --out."
        )
    _tell(message, label="error:", style="red")
    return _FAILED


def _saved(command: object, continuation: str | None) -> str:
    """Return what was saved of a run that ended by an error in the user's code."""
    out = getattr(command, "out", None)
    if out is None or continuation is None or not RunFolder(out).holds_checkpoint:
        return "no run was saved"
    return (
        f"the run was saved in '{out}' after iteration "
        f"{RunFolder(out).read_checkpoint_iteration()}, continue it with {continuation}"
    )


def _tell(text: str, *, label: str = "", style: str = "") -> None:
    shown = printable(text, keep="\n")
    line = Text.assemble((label, style), " ", shown) if label else Text(shown)
    error_console().print(line, highlight=False, soft_wrap=True)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings of gloam on one line each, without their source location."""
    library = Path(__file__).parents[1]
    sources = {library, library.with_name("gloam_lab")}
    with warnings.catch_warnings():
        usual = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if issubclass(category, GloamWarning) or sources & set(Path(filename).parents):
                text = " ".join(str(message).split())
                _tell(text, label="warning:", style="yellow")
            else:  # the location helps in the user's own code
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
