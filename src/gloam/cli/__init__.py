"""The command line `gloam`: `main` parses the arguments, runs a command and reports errors."""

import atexit
import gc
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Annotated, Any

import tyro

from gloam._version import __version__
from gloam.cli.experiments import Bench, Paper
from gloam.cli.fill import Datasets, Fill, New
from gloam.cli.look import Compare, Explore, Gallery, Plot, Report
from gloam.cli.lsi import Lsi
from gloam.cli.run import Demo, Resume, Run

_Command = (
    Annotated[Demo, tyro.conf.subcommand("demo")]
    | Annotated[New, tyro.conf.subcommand("new")]
    | Annotated[Fill, tyro.conf.subcommand("fill")]
    | Annotated[Gallery, tyro.conf.subcommand("gallery")]
    | Annotated[Datasets, tyro.conf.subcommand("datasets")]
    | Annotated[Run, tyro.conf.subcommand("run")]
    | Annotated[Resume, tyro.conf.subcommand("resume")]
    | Annotated[Plot, tyro.conf.subcommand("plot")]
    | Annotated[Compare, tyro.conf.subcommand("compare")]
    | Annotated[Explore, tyro.conf.subcommand("explore")]
    | Annotated[Lsi, tyro.conf.subcommand("lsi")]
    | Annotated[Paper, tyro.conf.subcommand("paper")]
    | Annotated[Report, tyro.conf.subcommand("report")]
    | Annotated[Bench, tyro.conf.subcommand("bench")]
)


def main(args: list[str] | None = None) -> None:
    """Quality-diversity optimization in high-dimensional measure spaces.

    To start, run `gloam demo`. `gloam --version` prints the version.
    """
    is_program = args is None  # and not a call in a program of someone else
    args = sys.argv[1:] if args is None else args
    if args == ["--version"]:
        print(f"gloam {__version__}")
        return
    if args[:2] == ["paper", "report"]:
        args = args[1:]
    command = _parsed(args)
    with _frozen_modules() if is_program else nullcontext():
        # After parsing: help and mistakes in the arguments need neither JAX nor pandas.
        from gloam.cli import errors
        from gloam.compiler import keep_compiled_programs
        from gloam.runs.signals import remembered_interrupt
    try:
        keep_compiled_programs()
        with errors.warnings_as_lines(), remembered_interrupt():
            command()
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(errors.report(error, command))


@contextmanager
def _frozen_modules() -> Iterator[None]:
    """Import modules without looking for garbage among their objects, now or at exit.

    They stay, and a short run would spend a fifth of its time on the search.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.freeze)


def _parsed(args: list[str]) -> Any:
    """Return the command with its options. Prints the help if it is asked for, and exits."""
    try:
        try:
            return tyro.cli(
                _Command,  # pyright: ignore[reportArgumentType]
                prog="gloam",
                description=inspect.getdoc(main),
                args=args,
                config=(
                    tyro.conf.CascadeSubcommandArgs,
                    tyro.conf.OmitArgPrefixes,
                    tyro.conf.OmitSubcommandPrefixes,
                ),
            )
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # as by `gloam run --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
