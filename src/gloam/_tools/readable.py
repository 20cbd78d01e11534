"""Numbers and tables as people write them: errors, p values, Markdown and LaTeX."""

import math
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

# Exponents of numbers that are written without one.
_LEAST, _MOST = -4, 15
# Largest number of decimals of a mean and its error.
_DECIMALS = 7
_LATEX = str.maketrans(
    {symbol: f"\\{symbol}" for symbol in "{}$&#%_"}
    | {
        "\\": r"\textbackslash{}",
        "|": r"\textbar{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
    }
    | {"±": r"$\pm$", "<": "$<$", ">": "$>$", "≤": r"$\le$", "≥": r"$\ge$"}
)


class Bold(str):
    """A cell of a table that is written in bold."""


def significant(value: float, digits: int) -> str:
    """Return a number with a number of significant digits.

    >>> significant(383.2, 2), significant(0.0996, 2), significant(75415.0, 2), significant(7e-6, 2)
    ('380', '0.10', '75,000', '7.0e-6')
    """
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    mantissa, power = f"{value:.{digits - 1}e}".split("e")
    if not _LEAST <= int(power) < _MOST:
        return f"{mantissa}e{int(power)}"
    return f"{float(f'{mantissa}e{power}'):,.{max(0, digits - 1 - int(power))}f}"


def with_error(mean: float, error: float, unit: str = "") -> str:
    """Return a mean and its standard error, which has two significant digits.

    The mean is rounded to the place of the last digit of the error, or to a whole number. Without
    an error (NaN or 0), it has up to five digits.

    >>> with_error(75415.2, 383.0), with_error(0.81642, 0.0123), with_error(45.306, 0.1249, "%")
    ('75,415 ± 380', '0.816 ± 0.012', '45.31 ± 0.12%')
    >>> with_error(1.25, float("nan")), with_error(99.5, 0.0, "%")
    ('1.25', '99.5 ± 0%')
    """
    if not math.isfinite(error) or error <= 0 or not math.isfinite(mean):
        short = significant(mean, 5)
        short = short.rstrip("0").rstrip(".") if "." in short and "e" not in short else short
        return f"{short} ± 0{unit}" if error == 0 else f"{short}{unit}"
    decimals = max(0, 1 - _power(error))
    if decimals > _DECIMALS:
        # To the same place: as many digits more as the mean is larger than the error.
        digits = 2 + _power(mean) - _power(error)
        return f"{significant(mean, max(1, digits))} ± {significant(error, 2)}{unit}"
    return f"{mean:,.{decimals}f} ± {float(f'{error:.1e}'):,.{decimals}f}{unit}"


def p_value(p: float) -> str:
    """Return a p value: two significant digits.

    >>> p_value(1.234e-5), p_value(0.0312), p_value(0.999), p_value(0.0)
    ('1.2e-5', '0.031', '1.0', '0')
    """
    return significant(p, 2)


def as_markdown(table: "pd.DataFrame") -> str:
    """Return a table as Markdown."""
    lines = [list(table.columns), *table.to_numpy().tolist()]
    head, *body = (" | ".join(map(_in_markdown, line)) for line in lines)
    rule = " | ".join("---" for _ in table.columns)
    return "".join(f"| {line} |\n" for line in (head, rule, *body))


def as_latex(table: "pd.DataFrame") -> str:
    """Return a table as LaTeX, with the rules of the package booktabs."""
    lines = [list(table.columns), *table.to_numpy().tolist()]
    head, *body = (" & ".join(map(_in_latex, line)) + r" \\" for line in lines)
    begin = rf"\begin{{tabular}}{{{'l' * len(table.columns)}}}"
    lines = [begin, r"\toprule", head, r"\midrule", *body, r"\bottomrule", r"\end{tabular}"]
    return "\n".join(lines) + "\n"


def _power(value: float) -> int:
    """Return the exponent of the first digit, after rounding to two digits."""
    return int(f"{value:.1e}".partition("e")[2])


def _in_markdown(cell: object) -> str:
    # An underscore between letters stays as it is, and so does a sign with a space behind it.
    text = re.sub(r"([\\|`*\[\]]|<(?=[\w/!?])|(?<!\w)_|_(?!\w))", r"\\\1", _one_line(cell))
    return f"**{text}**" if isinstance(cell, Bold) else text


def _in_latex(cell: object) -> str:
    text = _one_line(cell).translate(_LATEX)
    return rf"\textbf{{{text}}}" if isinstance(cell, Bold) else text


def _one_line(cell: object) -> str:
    return " ".join(str(cell).split())
