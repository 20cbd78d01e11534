"""Checks of arguments and results, and the wording of all errors: expected, got, what to do."""

import difflib
import functools
import inspect
import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np

_Function = TypeVar("_Function", bound=Callable)
Bounds = float | Sequence[float] | np.ndarray
SolutionBounds = tuple[Bounds | None, Bounds | None]

LARGEST = 1e30
"""Largest objective or coordinate of a solution, so that sums of them stay within float32."""
LARGEST_INTEGER = 2**31 - 1
"""Largest size or count; they are int32 on the device."""
LARGEST_COUNT = 1_000_000
"""Largest number of things that take memory, such as solutions of a batch."""
_SMALLEST = float(np.finfo(np.float32).tiny)  # processors treat smaller numbers as zero


def expect(condition: bool, name: str, expected: str, got: object, fix: str = "") -> None:
    """Raise ``ValueError`` unless ``condition`` holds, in the common wording.

    >>> expect(False, "sigma0", "a number > 0", -1.0, "Try 0.5.")
    Traceback (most recent call last):
    ...
    ValueError: sigma0: expected a number > 0, got -1.0. Try 0.5.
    """
    if not condition:
        raise ValueError(_wording(name, expected, got, fix))


def printable(text: object, keep: str = "") -> str:
    r"""Return a text that no terminal takes for a command.

    Control characters, escape sequences, marks that change the direction of text and lone
    surrogates are written as `repr` writes them. Everything that comes from a file or a path goes
    through this function before it is printed.

    Args:
        text: The text; other objects by `str`.
        keep: Characters that are left as they are, such as line breaks.

    >>> print(printable("a\x1b]0;b\x07 \u202ec\udc80 d\n"))
    a\x1b]0;b\x07 \u202ec\udc80 d\n
    """
    return "".join(
        sign if sign.isprintable() or sign in keep else repr(sign)[1:-1] for sign in str(text)
    )


def short(value: Any) -> str:
    """Return ``repr(value)`` in one line of at most 80 characters.

    >>> short("a" * 100)[-10:]
    'aaaaaaa...'
    """
    try:
        text = printable(" ".join(repr(value).split()))
    except Exception:  # a repr of a user's class, or an integer too long to print
        text = f"an object of type {type(value).__name__}"
    return text if len(text) <= 80 else text[:77] + "..."


def plain_text(value: object, most: int = 8_000, *, keep_end: bool = False) -> str:
    r"""Return ``str(value)`` with at most ``most`` characters, in a form that every file can hold.

    What UTF-8 cannot hold, such as a byte of a file name in another encoding, is escaped.

    >>> plain_text(ValueError("caf\udce9.wav"))
    'caf\\udce9.wav'

    Args:
        value: Anything, also an exception of the user's that has no text.
        most: Largest number of characters.
        keep_end: Cut the beginning of a longer text, instead of the end.
    """
    try:
        text = str(value)
    except Exception as error:
        text = f"({type(value).__name__} without a text: str() raised {type(error).__name__})"
    part = slice(-most, None) if keep_end else slice(most)
    # Methods of str itself, because the text may be of a class of the user's.
    text = str.encode(str.__getitem__(text, part), errors="backslashreplace").decode()
    return text[part]


def one_of(values: Sequence[Any]) -> str:
    """Return several accepted values in words.

    >>> one_of([(2, 28, 28), (2, 784)])
    '(2, 28, 28) or (2, 784)'
    """
    return " or ".join(str(value) for value in values)


def instance(name: str, value: Any, kind: type | tuple[type, ...], fix: str = "") -> None:
    """Check that ``value`` is an instance of ``kind``."""
    if isinstance(value, kind):  # the text of a large object would take milliseconds
        return
    kinds = kind if isinstance(kind, tuple) else (kind,)
    expected = " or ".join(k.__name__ for k in kinds)
    got = f"{type(value).__name__} {short(value)}"
    if isinstance(value, type):
        got = f"the class {value.__name__} itself"
    expect(False, name, expected, got, fix)


def choice(name: str, value: Any, options: Sequence[str], fix: str = "") -> None:
    """Check that ``value`` is one of the names in ``options``.

    >>> choice("metric", "cosine", ("euclidean", "cosine"))
    """
    names = [repr(option) for option in options]
    expected = " or ".join([", ".join(names[:-1]), names[-1]])
    expect(isinstance(value, str) and value in options, name, expected, short(value), fix)


def same_names(name: str, declared: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Check that the fields given are exactly the fields declared."""
    expect(
        set(declared) == set(given),
        name,
        f"the fields {sorted(declared)}",
        sorted(given),
        "Declare fields when building the archive: fields={'name': shape}.",
    )


def unexpected_names(function: str, given: Iterable[str], known: Iterable[str]) -> None:
    """Raise ``TypeError`` for keyword arguments that a function does not have.

    >>> unexpected_names("optimize", ["seed"], ["seeds", "iterations"])
    Traceback (most recent call last):
    ...
    TypeError: optimize() got an unexpected keyword argument 'seed'. Did you mean 'seeds'?
    """
    names = [name for name in known if name != "self"]
    for name in given:
        if name not in names:
            close = difflib.get_close_matches(name, names, n=1)
            hint = f"Did you mean '{close[0]}'?" if close else f"It has: {', '.join(names)}."
            raise TypeError(f"{function}() got an unexpected keyword argument '{name}'. {hint}")


def names_arguments(function: _Function) -> _Function:
    """Let a function, ``__init__`` or a dataclass answer unknown names by `unexpected_names`.

    >>> @names_arguments
    ... def area(width, height): ...
    >>> area(dims=3)
    Traceback (most recent call last):
    ...
    TypeError: area() got an unexpected keyword argument 'dims'. It has: width, height.
    """
    if isinstance(function, type):
        setattr(function, "__init__", names_arguments(function.__init__))  # noqa: B010
        return cast(_Function, function)
    known = inspect.signature(function).parameters
    name = function.__qualname__.removesuffix(".__init__")

    @functools.wraps(function)
    def checked(*args: Any, **given: Any) -> Any:
        unexpected_names(name, given, known)
        return function(*args, **given)

    return cast(_Function, checked)


def integer(
    name: str, value: Any, *, minimum: int, maximum: int = LARGEST_INTEGER, fix: str = ""
) -> int:
    """Return ``value`` as an ``int`` from ``minimum`` to ``maximum``."""
    whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool)
    expected = f"a whole number >= {minimum}"
    expect(whole and bool(value >= minimum), name, expected, short(value), fix)
    expect(int(value) <= maximum, name, f"{expected} and <= {maximum}", short(value), fix)
    return int(value)


def count(
    name: str, value: Any, *, minimum: int = 1, maximum: int = LARGEST_COUNT, fix: str = ""
) -> int:
    """Return ``value`` as a number of things that take memory, such as solutions."""
    return integer(name, value, minimum=minimum, maximum=maximum, fix=fix)


def integers(name: str, value: Any, *, minimum: int, fix: str = "") -> tuple[int, ...]:
    """Return a list of whole numbers as a tuple."""
    several = isinstance(value, (list, tuple, range)) or (
        isinstance(value, np.ndarray) and value.ndim == 1
    )
    expect(several, name, "a list of whole numbers", short(value), fix)
    return tuple(integer(name, item, minimum=minimum, fix=fix) for item in value)


def seed(name: str, value: Any) -> int:
    """Return ``value`` as a seed, an ``int`` of 64 bits."""
    return integer(name, value, minimum=0, maximum=2**64 - 1, fix="Seeds have 64 bits.")


def number(
    name: str,
    value: Any,
    *,
    above: float = -math.inf,
    at_least: float = -math.inf,
    at_most: float = math.inf,
    fix: str = "",
) -> float:
    """Return ``value`` as a finite ``float`` within limits."""
    limits = [f"> {above:g}"] * (above > -math.inf) + [f">= {at_least:g}"] * (at_least > -math.inf)
    limits += [f"<= {at_most:g}"] * (at_most < math.inf)
    expected = " ".join(["a finite number", " and ".join(limits)]).strip()
    real = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    try:
        wide = float(value) if real else math.nan
    except OverflowError:  # an integer beyond every float
        wide = math.inf
    good = above < wide and at_least <= wide <= at_most and math.isfinite(wide)
    expect(good, name, expected, short(value), fix)
    # In float32 the value must differ from zero, infinity and its lower limit.
    with np.errstate(all="ignore"):
        narrow, limit = np.array([wide, above]).astype(np.float32)
    told = np.isfinite(narrow) and narrow > limit and (wide == 0 or abs(narrow) >= _SMALLEST)
    expect(bool(told), name, f"{expected} in float32", short(value), fix)
    return wide


def objective(name: str, value: Any, *, above: float = -math.inf, fix: str = "") -> float:
    """Return ``value`` as a ``float`` that an objective can have."""
    wide = number(name, value, above=above, fix=fix)
    expect(abs(wide) <= LARGEST, name, f"a number between -{LARGEST:g} and {LARGEST:g}", value, fix)
    return wide


def finite_array(
    name: str,
    value: Any,
    *,
    ndim: int,
    or_more: bool = False,
    fix: str = "",
) -> np.ndarray:
    """Return ``value`` as a finite, non-empty float32 array of ``ndim`` axes (``or_more``)."""
    array = _float32(name, value, "an array of numbers", fix)
    fits = array.ndim == ndim or (or_more and array.ndim > ndim)
    axes = f"{ndim} or more axes" if or_more else f"{ndim} axes"
    expect(fits, name, f"an array of {axes}", f"shape {array.shape}", fix)
    expect(array.size > 0, name, "at least one number", f"shape {array.shape}", fix)
    bad = int(np.count_nonzero(~np.isfinite(array)))
    expect(bad == 0, name, "finite numbers", f"{bad} that are NaN or infinite", fix)
    size = float(np.max(np.abs(array)))
    expect(
        bool(size <= np.float32(LARGEST)),
        name,
        f"numbers up to {LARGEST:g}",
        f"{size:g}",
        "Scale them.",
    )
    return array


def as_numpy(value: Any) -> np.ndarray:
    """Return ``value`` as an array, also a tensor of PyTorch with gradients or on a GPU."""
    if hasattr(value, "detach") and hasattr(value, "cpu"):
        value = value.detach().cpu()
    return np.asarray(value)


def real_array(name: str, value: Any, expected: str, fix: str = "") -> np.ndarray:
    """Return ``value`` as an array of floats or integers; everything else is refused.

    Masked arrays are refused as well: NumPy would drop the mask, and masked values would count.
    """
    masked = "Fill masked values, for instance by .filled(numpy.nan)."
    expect(not np.ma.isMaskedArray(value), name, expected, "a masked array", masked)
    try:
        array = as_numpy(value)
    except Exception as error:  # by the user's object, or by rows of different lengths
        got = f"{type(value).__name__} ({error})"
        raise ValueError(_wording(name, expected, got, fix)) from None
    if not (array.dtype.kind in "fiu" or array.dtype.name == "bfloat16"):
        kind = type(value).__name__ if array.ndim == 0 else f"an array of {array.dtype}"
        raise ValueError(_wording(name, expected, f"{kind} ({short(value)})", fix))
    return array


def bounds(
    lower: Bounds, upper: Bounds, dimensions: int, shape: tuple[int, ...] = ()
) -> tuple[np.ndarray, np.ndarray]:
    """Return measure bounds as two float32 vectors; a scalar applies to every dimension.

    If measures have a ``shape``, bounds may have it as well.
    """
    both = []
    for name, value in (("lower", lower), ("upper", upper)):
        if shape:
            given = real_array(name, value, "numbers", "Give one bound for each measure.")
            value = np.ravel(given) if given.shape == shape else given
        array = _scalar_or_vector(name, value, dimensions, "Give one bound for each measure.")
        expect(bool(np.isfinite(array).all()), name, "finite bounds", array.tolist())
        both.append(np.broadcast_to(array, (dimensions,)).copy())
    got = f"{short(both[0].tolist())} and {short(both[1].tolist())}"
    expect(bool((both[0] < both[1]).all()), "lower, upper", "lower < upper in every dimension", got)
    with np.errstate(over="ignore"):
        extent = both[1] - both[0]
    sound = np.isfinite(extent) & (extent >= _SMALLEST)
    expect(bool(sound.all()), "lower, upper", "a difference that float32 can hold", got)
    return both[0], both[1]


def solution_bounds(
    bounds: SolutionBounds | None, x0: np.ndarray
) -> tuple[np.ndarray, np.ndarray] | None:
    """Return the bounds of solutions as two float32 vectors, infinite where a side is open."""
    if bounds is None:
        return None
    fix = "Give bounds=(lower, upper), each a number, one number per variable, or None."
    is_list = isinstance(bounds, (tuple, list)) or (isinstance(bounds, np.ndarray) and bounds.ndim)
    is_pair = bool(is_list) and len(bounds) == 2
    expect(is_pair, "bounds", "a lower and an upper bound", short(bounds), fix)
    lower, upper = bounds
    low = _scalar_or_vector("bounds[0]", -np.inf if lower is None else lower, x0.size, fix)
    high = _scalar_or_vector("bounds[1]", np.inf if upper is None else upper, x0.size, fix)
    low, high = np.broadcast_to(low, x0.shape), np.broadcast_to(high, x0.shape)
    got = f"{short(lower)} and {short(upper)}"
    expect(bool((low < high).all()), "bounds", "lower < upper in every dimension", got)
    expect(
        bool(((low <= x0) & (x0 <= high)).all()),
        "x0",
        "a point within the bounds of the solutions",
        f"{x0.min():g} to {x0.max():g}",
        "Move x0 or widen the bounds.",
    )
    return low.copy(), high.copy()


def rows(name: str, value: Any, *shapes: tuple[int, ...]) -> np.ndarray:
    """Return evaluation results as an array of one of ``shapes``; NaN and infinity are allowed."""
    array = real_array(name, value, "numbers", "Return floats or integers.")
    expected = f"shape {one_of(shapes)} (one row for each solution asked)"
    expect(
        array.shape in shapes,
        name,
        expected,
        f"shape {array.shape}",
        "Return one row for each row of ask().",
    )
    return array


def path(name: str, value: str | os.PathLike, fix: str = "") -> Path:
    """Return ``value`` as a ``Path``; an empty text, which Python takes for ``.``, is refused."""
    fix = fix or "Give the name of a file or folder; the current folder is '.'."
    text = os.fspath(value) if isinstance(value, (str, os.PathLike)) else None
    sound = isinstance(text, str) and text != "" and "\0" not in text
    expect(sound, name, "a path", short(value), fix)
    return Path(value)


def existing_file(name: str, value: str | os.PathLike, fix: str = "") -> Path:
    """Return ``value`` as a ``Path`` to an existing file."""
    fix = fix or "Check the path."
    file = path(name, value, fix)
    try:
        exists = file.is_file()
    except (OSError, ValueError):  # a name that no file can have
        exists = False
    expect(exists, name, "an existing file", f"'{file}'", fix)
    return file


def fits_memory(
    name: str,
    size_in_bytes: int,
    of: str = "",
    fix: str = "Use fewer cells, or smaller solutions and fields.",
) -> None:
    """Raise if something, described by ``of``, needs more memory than the machine has."""
    if not hasattr(os, "sysconf"):  # unknown on Windows
        return
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    expect(
        size_in_bytes <= memory,
        name,
        f"at most the {memory / 1e9:.0f} GB of memory of this machine",
        f"{size_in_bytes / 1e9:,.0f} GB" + (f" for {of}" if of else ""),
        fix,
    )


def _wording(name: str, expected: str, got: object, fix: str) -> str:
    return printable(f"{name}: expected {expected}, got {got}.{' ' + fix if fix else ''}")


def _float32(name: str, value: Any, expected: str, fix: str) -> np.ndarray:
    with np.errstate(all="ignore"):  # large numbers become infinite, and are refused later
        return real_array(name, value, expected, fix).astype(np.float32)


def _scalar_or_vector(name: str, value: Any, dimensions: int, fix: str) -> np.ndarray:
    expected = f"a scalar or {dimensions} numbers"
    array = _float32(name, value, expected, fix)
    fits = array.ndim == 0 or array.shape == (dimensions,)
    expect(fits, name, expected, f"shape {array.shape}", fix)
    return array
