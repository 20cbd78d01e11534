"""The command line `gloam`: `main` parses the arguments, runs a command and reports errors."""

import atexit
import dataclasses
import functools
import gc
import inspect
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from gloam import checks
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

# Options that count from 0; the others count from 1.
_FROM_ZERO = {"seed", "workers", "port", "moves", "empty_points"}
_paths = ConstructorRegistry()


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
            _check_integers(command)
            command()
    except (Exception, KeyboardInterrupt) as error:
        sys.exit(errors.report(error, command))


@_paths.primitive_rule
def _path_rule(kind: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Read paths; an empty text, as of an unset variable in a script, is not the current folder."""
    if kind.type is not Path:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="PATH",
        instance_from_str=lambda texts: checks.path("path", texts[0]),
        is_instance=lambda value: isinstance(value, Path),
        str_from_instance=lambda path: [str(path)],
    )


def _check_integers(options: Any) -> None:
    """Check all integers of a command before it begins, so that no loop or range is endless."""
    for field in dataclasses.fields(options):
        name, value = field.name, getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            _check_integers(value)
        for number in value if isinstance(value, tuple) else (value,):
            if name == "seed":
                checks.seed(name, number)
            elif isinstance(number, int) and not isinstance(number, bool):
                checks.integer(name, number, minimum=int(name not in _FROM_ZERO))


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
    parse = functools.partial(
        tyro.cli,
        _Command,  # pyright: ignore[reportArgumentType]
        prog="gloam",
        description=inspect.getdoc(main),
        registry=_paths,
        config=(
            tyro.conf.CascadeSubcommandArgs,
            tyro.conf.OmitArgPrefixes,
            tyro.conf.OmitSubcommandPrefixes,
        ),
    )
    shown = [checks.printable(arg) for arg in args]
    try:
        try:
            if shown == args:
                return parse(args=args)
            try:
                return parse(args=args, console_outputs=False)
            except SystemExit as error:  # tyro would print the arguments as they are
                parse(args=shown)
                sys.exit(error.code)
        finally:
            sys.stdout.flush()
    except BrokenPipeError:  # as by `gloam run --help | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)
