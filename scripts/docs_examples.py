"""griffe extension that completes docstrings and signatures for the API reference.

* Docstrings of gloam use the headings ``Example:`` and ``Examples:``; griffe knows only the second.
* An entry ``lower, upper: Bounds.`` of ``Args:`` describes two arguments; griffe knows only one.
* Presets such as `gloam.DMS`, and `gloam.run`, pass keyword arguments on. Their signatures, and the
  docstrings of presets, are complete only when gloam is imported.
"""

import importlib
import inspect
import re
from typing import Any

import griffe

_KINDS = {
    inspect.Parameter.POSITIONAL_ONLY: griffe.ParameterKind.positional_only,
    inspect.Parameter.POSITIONAL_OR_KEYWORD: griffe.ParameterKind.positional_or_keyword,
    inspect.Parameter.KEYWORD_ONLY: griffe.ParameterKind.keyword_only,
    inspect.Parameter.VAR_POSITIONAL: griffe.ParameterKind.var_positional,
    inspect.Parameter.VAR_KEYWORD: griffe.ParameterKind.var_keyword,
}
# The name, or names, of an argument, and its description over one or more lines.
_ARGUMENTS = re.compile(r"^    (\w+(?:, \w+)+): (.*(?:\n     .*)*)$", re.MULTILINE)


def complete(text: str) -> str:
    """Return a docstring with headings that griffe knows and one entry for each argument."""
    text = re.sub(r"^Example:$", "Examples:", text, flags=re.MULTILINE)

    def entries(match: re.Match) -> str:
        return "\n".join(f"    {name}: {match[2]}" for name in match[1].split(", "))

    before, heading, rest = text.partition("Args:\n")
    arguments, gap, after = rest.partition("\n\n")
    return before + heading + _ARGUMENTS.sub(entries, arguments) + gap + after


class Examples(griffe.Extension):
    """Completes the docstrings and signatures of gloam."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Complete every object of the package."""
        if pkg.name in ("gloam", "gloam_lab"):
            self._complete(pkg)
        if pkg.name == "gloam":
            # griffe takes `gloam.runs.run` for the module, in which the function has the same name.
            pkg.set_member("run", griffe.Alias("run", pkg["runs.run.run"], parent=pkg))

    def _complete(self, obj: griffe.Object) -> None:
        for member in obj.members.values():
            if isinstance(member, griffe.Object):
                if isinstance(member, griffe.Function) and "options" in member.parameters:
                    _with_options(member)
                self._complete(member)
        if obj.docstring is not None:
            obj.docstring.value = complete(obj.docstring.value)


def _with_options(function: griffe.Function) -> None:
    """Replace ``**options`` by the keyword arguments that the imported function has."""
    module: Any = importlib.import_module(function.module.path)
    owner = function.parent
    if isinstance(owner, griffe.Class):
        owner_object = getattr(module, owner.name)
        imported = getattr(owner_object, function.name)
        if function.name == "__init__" and owner.docstring is not None:
            owner.docstring.value = inspect.getdoc(owner_object) or ""
    else:
        imported = getattr(module, function.name)
    for name, parameter in inspect.signature(imported).parameters.items():
        if name not in function.parameters:
            function.parameters.add(
                griffe.Parameter(
                    name,
                    annotation=_short(inspect.formatannotation(parameter.annotation)),
                    kind=_KINDS[parameter.kind],
                    default=None
                    if parameter.default is parameter.empty
                    else repr(parameter.default),
                )
            )
    if "options" not in inspect.signature(imported).parameters:
        del function.parameters["options"]


def _short(annotation: str) -> str:
    """Return an annotation without the modules of its types.

    >>> _short("collections.abc.Sequence[gloam.emitters.Emitter] | None")
    'Sequence[Emitter] | None'
    """
    return re.sub(r"(?:\w+\.)+(?=[A-Za-z])", "", annotation)
