"""The command line `gloam`: `main` parses the arguments, runs a command and reports errors."""

import atexit
import dataclasses
import functools
import gc
import inspect
import operator
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from gloam._tools import checks
from gloam._version import __version__
from gloam.cli.answer import Answer
from gloam.cli.demo import Demo, Resume
from gloam.cli.fill import Fill, New
from gloam.cli.look import Compare, Explore, Gallery, Plot, Report

_COMMANDS: dict[str, Any] = {
    "demo": Demo,
    "new": New,
    "fill": Fill,
    "answer": Answer,
    "gallery": Gallery,
    "resume": Resume,
    "plot": Plot,
    "compare": Compare,
    "explore": Explore,
    "report": Report,
}

# Options that count from 0; the others count from 1.
_FROM_ZERO = {"seed", "evaluations", "workers", "port", "moves", "empty_points"}
_paths = ConstructorRegistry()


def main(args: list[str] | None = None) -> None:
    """Quality-diversity optimization in high-dimensional measure spaces.

    To start, run `gloam demo`. `gloam --version` prints the version.
    """
    is_program = args is None  # not a call by another program
    args = sys.argv[1:] if args is None else args
    if args == ["--version"]:
        print(f"gloam {__version__}")
        return
    command = _parsed(args)
    with _frozen_modules() if is_program else nullcontext():
        # After parsing: help and mistakes in the arguments need neither JAX nor pandas.
        from gloam._tools.compiler import keep_compiled_programs
        from gloam.cli import errors
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
    """Exclude the objects of imported modules from garbage collection, now and at exit.

    They live as long as the process, and a short run would spend a fifth of its time on them.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        atexit.register(gc.freeze)


def _command_type() -> Any:
    """Return the union of gloam's commands and of the entry points in ``gloam.commands``.

    An entry point names a dataclass: its fields are the options, and a call runs the command. The
    laboratory defines some, and any installed package can add its own.
    """
    commands = dict(_COMMANDS)
    for entry in sorted(metadata.entry_points(group="gloam.commands"), key=lambda e: e.name):
        try:
            commands.setdefault(entry.name, entry.load())
        except Exception as error:  # the other commands work without a broken package
            problem = f"{type(error).__name__}: {error}"
            text = f"The command '{entry.name}' cannot be loaded ({problem})."
            print(checks.printable(text), file=sys.stderr)
    named = [Annotated[cls, tyro.conf.subcommand(name)] for name, cls in commands.items()]
    return functools.reduce(operator.or_, named)


def _parsed(args: list[str]) -> Any:
    """Return the command with its options. Prints the help if it is asked for, and exits."""
    parse = functools.partial(
        tyro.cli,
        _command_type(),
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
