"""The settings of a run as a flat table of names and values, from its configuration."""

from typing import Any

from gloam.formats import ForeignError, objects
from gloam.formats.config import RunConfig

_MAX_SETTINGS = 400
_MAX_TEXT = 120
# What networks begin with, which is no setting.
_LEARNED = ("weights", "biases")


def settings_of(config: RunConfig) -> dict[str, Any]:
    """Names and values, such as ``discount.alpha``: numbers, texts, booleans and ``None``.

    >>> flatten({"class": "CMAES", "arguments": {"a": {"tuple": [1, 2]}, "b": 0.5}}, "strategy")
    {'strategy': 'CMAES', 'strategy.a': '1, 2', 'strategy.b': 0.5}
    """
    found: dict[str, Any] = {}
    for name in ("algorithm", "domain"):
        found |= flatten(getattr(config, name), name)
    # The parts of an algorithm are known by their own names.
    found = {name.removeprefix("algorithm."): value for name, value in found.items()}
    plan = {name: config.plan[name] for name in ("iterations",) if name in config.plan}
    seeds = config.seeds
    listed = ", ".join(map(str, seeds[:8])) + (", …" if len(seeds) > 8 else "")
    more = {"driver": config.driver, "seeds": listed, "number of seeds": len(seeds)}
    whole = found | plan | more | {"gloam": config.version}
    return dict(list(whole.items())[:_MAX_SETTINGS])


def flatten(content: Any, name: str) -> dict[str, Any]:
    """An encoded object (see `gloam.formats.objects`) as names and values."""
    if content is None or isinstance(content, (bool, int, float)):
        return {name: content}
    if isinstance(content, str):
        return {name: content[:_MAX_TEXT]}
    if isinstance(content, list):
        return _flatten_list(content, name)
    if not isinstance(content, dict):
        return {}
    if isinstance(content.get("class"), str):
        found: dict[str, Any] = {name: content["class"][:_MAX_TEXT]}
        arguments = content.get("arguments")
        for key, part in (arguments if isinstance(arguments, dict) else {}).items():
            if key in _LEARNED:
                continue
            found |= flatten(part, f"{name}.{key}")
        return found
    if isinstance(content.get("foreign"), str):
        return {name: content["foreign"].rpartition(":")[2][:_MAX_TEXT]}
    if "values" in content:
        return {name: _short(content["values"])}
    if "array" in content or "shape" in content:
        return {name: f"{content.get('dtype')}{content.get('shape')}"[:_MAX_TEXT]}
    if isinstance(content.get("tuple"), list):
        return _flatten_list(content["tuple"], name)
    if isinstance(content.get("dict"), dict):
        parts = [flatten(part, f"{name}.{key}") for key, part in content["dict"].items()]
        return {key: value for part in parts for key, value in part.items()}
    return {}


def _flatten_list(items: list, name: str) -> dict[str, Any]:
    if all(isinstance(item, (bool, int, float, str)) for item in items):
        return {name: _short(items)}
    found: dict[str, Any] = {}
    for number, item in enumerate(items):
        found |= flatten(item, f"{name}.{number + 1}")
    return found


def _short(values: Any) -> str:
    text = ", ".join(map(str, values)) if isinstance(values, list) else str(values)
    return text if len(text) <= _MAX_TEXT else text[: _MAX_TEXT - 1] + "…"


def algorithm_name(config: RunConfig) -> str:
    """The class of the algorithm."""
    return str(flatten(config.algorithm, "a").get("a", "?"))


def domain_name(config: RunConfig) -> str:
    """What was searched, without building objects that hold arrays."""
    content = config.domain
    arguments = content.get("arguments") if isinstance(content, dict) else None
    if isinstance(arguments, dict) and isinstance(arguments.get("name"), str):
        return arguments["name"][:_MAX_TEXT]
    if isinstance(content, dict) and "class" in content and _is_small(content):
        try:
            name = getattr(objects.decode(content, {}), "name", None)
        except (ForeignError, ValueError, TypeError, OverflowError):
            name = None
        if isinstance(name, str):
            return name[:_MAX_TEXT]
    short = str(flatten(content, "d").get("d", "?"))
    return short.rpartition(".")[2] or short


def _is_small(content: Any) -> bool:
    """Whether an object is built in no time: without arrays, and with sizes that are not large."""
    if isinstance(content, dict):
        return "array" not in content and all(_is_small(part) for part in content.values())
    if isinstance(content, list):
        return all(_is_small(part) for part in content)
    return not isinstance(content, int) or abs(content) <= 100_000
