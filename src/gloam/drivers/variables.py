"""What a user's function reads besides its arguments: a program is compiled for these values."""

import types
from typing import Any


def variables_of(function: Any) -> tuple[Any, ...]:
    """Values of the global, enclosing and default variables that a Python function names.

    Also those of functions among them that are of the same module. Whoever runs a function again
    after such a variable was set to something else must compile it again.

    >>> variables_of(lambda x, offset=3.0: x + offset)
    (3.0,)
    """
    found: list[Any] = []
    waiting, seen = [getattr(function, "__func__", function)], set()
    while waiting:
        one = waiting.pop()
        if not isinstance(one, types.FunctionType) or one in seen:
            continue
        seen.add(one)
        values = _values(one)
        found += values
        waiting += [value for value in values if getattr(value, "__module__", 0) == one.__module__]
    return tuple(found)


def _values(function: types.FunctionType) -> list[Any]:
    named = (function.__kwdefaults__ or {}).values()
    values: list[Any] = [*(function.__defaults__ or ()), *named]
    for cell in function.__closure__ or ():
        try:
            values.append(cell.cell_contents)
        except ValueError:  # not set yet
            values.append(None)
    codes = [function.__code__]
    for code in codes:  # grows: functions inside of it have codes of their own
        codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
        names = [name for name in code.co_names if name in function.__globals__]
        values += [function.__globals__[name] for name in names]
    return values
