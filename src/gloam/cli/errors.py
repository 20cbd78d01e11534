"""Messages and exit codes of commands that fail or are stopped."""

import signal
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from rich.text import Text

from gloam.checks import EvaluationError
from gloam.cli import user_code
from gloam.datasets import FetchError
from gloam.evaluators import EvaluatorError
from gloam.formats import RunExistsError, RunFolder
from gloam.progress import error_console
from gloam.runs import Interrupted

_EXPECTED = (ValueError, OSError, EvaluationError, EvaluatorError, FetchError)
_USER_CODE_FAILED, _FAILED, _BY_SIGNAL = 1, 2, 128


def report(error: BaseException, command: Any) -> int:
    """Print ``error`` and return the exit code; raise unexpected errors again.

    Args:
        error: What ended the command.
        command: The command, which words the advice that depends on it.
    """
    if isinstance(error, Interrupted):
        _tell(str(error))
        return _BY_SIGNAL + (error.signal or signal.SIGINT)
    if isinstance(error, KeyboardInterrupt):  # while something is compiled, read or drawn
        _tell("stopped; all files written so far are complete")
        return _BY_SIGNAL + signal.SIGINT
    trace = user_code.traceback_of(error)
    if trace is not None:
        print(trace, file=sys.stderr, end="")
        _tell(_saved(command))
        return _USER_CODE_FAILED
    if not isinstance(error, _EXPECTED):
        raise error
    _tell(_worded(error, command), label="error:", style="red")
    return _FAILED


def _worded(error: BaseException, command: Any) -> str:
    """The message of an error, with the remedy of the command line."""
    if isinstance(error, RunExistsError):  # it advises an argument of Python
        folder = error.run_dir
        continuation = getattr(command, "continuation", f"`gloam resume {folder}`")
        return (
            f"'{folder}' already holds a run. Continue it with {continuation}, or choose another "
            "folder by --out."
        )
    return " ".join([str(error), *getattr(error, "__notes__", [])])


def _saved(command: Any) -> str:
    """Where the work of a run is that ended by an error in the user's code."""
    out, continuation = getattr(command, "out", None), getattr(command, "continuation", None)
    folder = None if out is None else RunFolder(out)
    if folder is None or continuation is None or not folder.holds_checkpoint:
        return "error: your code raised the exception above; no run was saved"
    return (
        f"error: your code raised the exception above; the run was saved in '{out}' after "
        f"iteration {folder.read_checkpoint_iteration()}, continue it with {continuation}"
    )


def _tell(text: str, *, label: str = "", style: str = "") -> None:
    line = Text.assemble((label, style), " ", text) if label else Text(text)
    error_console().print(line, highlight=False, soft_wrap=True)


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Print warnings of gloam as one line each, without the place in the source."""
    ours = Path(__file__).parents[1]
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
            if ours in Path(filename).parents:
                text = " ".join(str(message).split())
                _tell(text, label="warning:", style="yellow")
            else:  # a place in the user's own code helps
                usual(message, category, filename, lineno, file, line)

        warnings.showwarning = show
        yield
