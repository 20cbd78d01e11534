"""Odd command lines: an exit code, a short message, and no file lost or written elsewhere."""

import contextlib
import io

from gloam.cli import main


def called(arguments: list[str]) -> tuple[int, str, str]:
    """Run a command in this process.

    Returns:
        Exit code, standard output and standard error. What a terminal would show as a traceback of
        gloam is raised.
    """
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
            code = 0
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int), f"exit code {code!r}"
    return code, out.getvalue(), err.getvalue()
