"""The page of the command line: the help text of every command, as the parser prints it."""

import contextlib
import functools
import io
import re
import textwrap

from gloam.cli import main


def command_line_page() -> str:
    """Return the page as Markdown."""
    parts = ["# Command line\n", "The help texts that `gloam COMMAND --help` prints.\n"]
    for command in _commands(()):
        parts.append(f"## {' '.join(('gloam', *command))}\n\n```text\n{_help(command)}\n```\n")
    return "\n".join(parts)


def _commands(command: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return a command and those below it; choices inside a choice are listed for the first."""
    names = re.findall(r"^ *• (\S+)", _help(command), re.MULTILINE)
    commands = [command]
    for number, name in enumerate(names):
        below = _commands((*command, name))
        commands += below if number == 0 or not command else below[:2]
    return commands


@functools.cache
def _help(command: tuple[str, ...]) -> str:
    """Return the help text of a command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        main([*command, "--help"])
    lines = printed.getvalue().strip().splitlines()
    return "\n".join(textwrap.fill(line, 80) if len(line) > 80 else line for line in lines)
