"""Pictures of things that are no images: by a function of the user's, or vectors as lines.

A function of the user's may return anything, and fail. A sign with a short message takes the place
of a picture that cannot be shown.
"""

import base64
import dataclasses
import inspect
import re
import textwrap
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any
from xml.etree import ElementTree

import numpy as np
from jaxtyping import Float, Shaped, UInt8
from PIL import Image, ImageDraw, ImageFont

from gloam._tools import checks
from gloam._tools.drawing import PALETTE
from gloam.archives import Elites
from gloam.datasets.dataset import is_image

_SIDE = 256
"""Longest side of a drawing, in pixels; larger ones are shrunk."""
_SOURCE_SIDE = 4096  # pixels of a side that are looked at
_MAX_SVG = 100_000  # characters
_MAX_CACHED = 300  # drawings, of at most 200 kB each
_SIGN, _LETTERS, _LINES = 128, 21, 8  # side of a sign, letters of a line, and lines
_INCHES = 2.56  # side of the axes that a function draws on; text has a readable size
_ASKED = ("measures", "ax")
_SVG = "http://www.w3.org/2000/svg"


@dataclasses.dataclass(frozen=True)
class Svg:
    """A drawing as the text of an SVG image.

    It comes from a function of the user's and may contain texts from files: pages show it as an
    image only, where browsers neither run scripts nor load anything.
    """

    text: str

    @property
    def address(self) -> str:
        """A data address for an ``img`` element."""
        return f"data:image/svg+xml;base64,{base64.b64encode(self.text.encode()).decode()}"


Picture = UInt8[np.ndarray, "height width *channels"] | Svg
Pictures = Callable[[np.ndarray], np.ndarray | Sequence[Picture]]
"""Maps indices of elites in ``elites.solutions`` to pictures: uint8 images ``(height, width[, 3])``
or SVG."""


class Drawer:
    """A user's function that makes a picture of a solution, and the pictures it made last.

    Args:
        draw: ``draw(solution)`` gets the values of a space by name, a tree, or a vector. It returns
            an array (gray or RGB, uint8 or floats from 0 to 1), an image of PIL, or the text of an
            SVG. If it has a parameter ``measures``, it gets the measures. If it has a parameter
            ``ax``, it gets axes of Matplotlib to draw on, and what it returns is not used.
    """

    def __init__(self, draw: Callable[..., Any]):
        expected, got = "a function of a solution", type(draw).__name__
        checks.expect(callable(draw), "draw", expected, got)
        self._draw, self._asked = draw, _asked(draw)
        self._cache: OrderedDict[Any, Picture] = OrderedDict()
        # The explorer answers several requests at a time, and Matplotlib is for one thread.
        self._lock = threading.Lock()

    def pictures(self, elites: Elites) -> Pictures:
        """Return a function that draws elites, for `gallery` and `page`."""
        return lambda rows: [self._drawn(elites, row) for row in np.asarray(rows).tolist()]

    def _drawn(self, elites: Elites, row: int) -> Picture:
        solution, measures = elites.solutions[row], elites.flat_measures[row]
        key = elites.form, elites.archive.measure_shape, solution.tobytes(), measures.tobytes()
        with self._lock:
            drawn = self._cache.pop(key, None)
            if drawn is None:
                drawn = self._made(elites, solution, measures)
            self._cache[key] = drawn
            if len(self._cache) > _MAX_CACHED:
                self._cache.popitem(last=False)
            return drawn

    def _made(
        self, elites: Elites, solution: Float[np.ndarray, " sol"], measures: np.ndarray
    ) -> Picture:
        try:
            vector = np.array(solution)
            values = vector if elites.form is None else elites.form.value(vector)
            given: dict[str, Any] = {}
            if "measures" in self._asked:
                given["measures"] = np.array(measures).reshape(elites.archive.measure_shape)
            if "ax" in self._asked:
                return _drawn_on_axes(lambda axes: self._draw(values, ax=axes, **given))
            return picture_of(self._draw(values, **given))
        except (Exception, SystemExit) as error:
            is_refusal = isinstance(error, ValueError) and str(error).startswith("draw: ")
            name = "" if is_refusal else f"draw: {type(error).__name__}: "
            return sign(name + checks.plain_text(error, 400))


def _asked(draw: Callable[..., Any]) -> set[str]:
    """Return which of the parameters that a user's function may have it has."""
    try:
        parameters = list(inspect.signature(draw).parameters.values())
    except (ValueError, TypeError):  # some functions of extension modules
        return set()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    asked = {p.name for p in parameters[1:] if p.name in _ASKED and p.kind in named}
    first = parameters[0] if parameters else None
    fits = first is not None and first.kind in (
        inspect.Parameter.POSITIONAL_ONLY,
        inspect.Parameter.POSITIONAL_OR_KEYWORD,
        inspect.Parameter.VAR_POSITIONAL,
    )
    fits = fits and all(
        p.name in asked or p.default is not p.empty or p.kind in optional for p in parameters[1:]
    )
    expected = "(solution), and optionally the parameters measures and ax"
    fix = "Rename its parameters, or give the others defaults."
    checks.expect(fits, "draw", expected, f"({', '.join(map(str, parameters))})", fix)
    return asked


def picture_of(drawing: Any) -> Picture:
    """Return what a user's function returned as a picture of at most 256 pixels a side.

    Raises:
        ValueError: It is no picture.
    """
    if isinstance(drawing, str):
        return _svg(drawing)
    image = drawing if isinstance(drawing, Image.Image) else Image.fromarray(_pixels(drawing))
    if max(image.size) > _SOURCE_SIDE:
        width, height = (min(side, _SOURCE_SIDE) for side in image.size)
        image = image.resize((width, height), Image.Resampling.NEAREST)
    if image.mode == "1":
        image = image.convert("L")
    if image.mode != "L":
        layered = image.convert("RGBA")
        image = Image.new("RGBA", layered.size, "white")
        image.alpha_composite(layered)
        image = image.convert("RGB")
    if max(image.size) > _SIDE:
        scale = _SIDE / max(image.size)
        size = (max(1, round(scale * image.width)), max(1, round(scale * image.height)))
        image = image.resize(size, Image.Resampling.LANCZOS)
    return np.array(image)


def _pixels(drawing: Any) -> UInt8[np.ndarray, "height width *channels"]:
    """Return an array of a user's as bytes; large ones by some of their pixels."""
    expected = "an array (height, width) or (height, width, 3), an image of PIL, or an SVG text"
    array = None if drawing is None else np.asarray(drawing)
    known = array is not None and array.dtype.kind in "biuf"
    got = type(drawing).__name__ if array is None or not known else f"shape {array.shape}"
    fix = "To draw with Matplotlib, add a parameter ax."
    fits = array is not None and known and is_image(array.shape) and array.size > 0
    checks.expect(fits, "draw", expected, got, fix)
    assert array is not None
    rows, columns = (slice(None, None, -(-side // _SOURCE_SIDE)) for side in array.shape[:2])
    array = array[rows, columns]
    array = array[..., 0] if array.shape[2:] == (1,) else array
    array = array.astype(np.float32) if array.dtype.kind == "b" else array
    is_finite = bool(np.isfinite(array).all())
    checks.expect(is_finite, "draw", "finite numbers", "NaN or infinity")
    return np.ascontiguousarray(image_bytes("draw", array[None])[0])


def is_picture(value: Any) -> bool:
    """Whether this is a picture that pages and figures can show."""
    if not isinstance(value, np.ndarray):
        return isinstance(value, Svg)
    has_colors = value.ndim == 2 or value.shape[2:] == (3,)
    return value.dtype == np.uint8 and has_colors and value.size > 0


def image_bytes(name: str, values: Shaped[np.ndarray, "n *image"]) -> np.ndarray:
    """Return images as uint8; floats range from 0 to 1."""
    expected = "images (height, width) or (height, width, 3)"
    checks.expect(is_image(values.shape[1:]), name, expected, f"shape {values.shape[1:]}")
    if values.dtype == np.uint8:
        return values
    if values.dtype.kind == "f":
        # Slightly too bright is clipped; bytes stored as floats would be all white.
        values = np.nan_to_num(values)
        highest = float(values.max(initial=0.0))
        fix = "Divide by 255, or use uint8."
        checks.expect(highest <= 2, name, "floats from 0 to 1", f"up to {highest:g}", fix)
        values = 255 * values
    return np.rint(np.clip(values, 0, 255)).astype(np.uint8)


def _svg(text: str) -> Svg:
    """Check the text of an SVG. Browsers show images only in its namespace and if it is XML."""
    expected = f"an SVG text of up to {_MAX_SVG:,} characters"
    got = f"{len(text):,} characters"
    fix = "Draw fewer elements, or return an array."
    checks.expect(len(text) <= _MAX_SVG, "draw", expected, got, fix)
    content = re.sub(r"^\s*(<\?xml[^>]*>)?\s*", "", text)
    # Entities could expand without end.
    is_plain = not re.search("<!(DOCTYPE|ENTITY)", content)
    checks.expect(is_plain, "draw", "an SVG text without DOCTYPE", checks.short(text))
    try:
        root = ElementTree.fromstring(content)
    except ElementTree.ParseError as error:
        got = f"{checks.short(text)} ({error})"
        raise ValueError(f"draw: expected an SVG text, got {got}.") from None
    is_svg = root.tag in ("svg", f"{{{_SVG}}}svg")
    checks.expect(is_svg, "draw", "an SVG text", f"the element <{root.tag}>")
    if root.tag == "svg":
        content = content.replace("<svg", f'<svg xmlns="{_SVG}"', 1)
    content.encode()  # lone surrogates cannot be written to a page
    return Svg(content)


def _drawn_on_axes(draw: Callable[[Any], Any]) -> UInt8[np.ndarray, "256 256 3"]:
    """Return what a function draws on axes of Matplotlib, which fill the picture."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # lazily: it takes a second
    from matplotlib.figure import Figure

    figure = Figure((_INCHES, _INCHES), dpi=_SIDE / _INCHES, facecolor="white")
    canvas = FigureCanvasAgg(figure)
    axes = figure.add_axes((0.03, 0.03, 0.94, 0.94))
    axes.set_axis_off()
    draw(axes)
    figure.set_dpi(_SIDE / _INCHES)  # also if the function has changed it
    figure.set_size_inches(_INCHES, _INCHES)
    canvas.draw()
    return np.array(np.asarray(canvas.buffer_rgba())[..., :3])


def sign(message: str) -> UInt8[np.ndarray, "128 128 3"]:
    """Return a picture that says why there is none."""
    image = Image.new("RGB", (_SIGN, _SIGN), "#fff3ec")
    pen, color, font = ImageDraw.Draw(image), PALETTE[1], ImageFont.load_default(10)
    pen.rectangle((0, 0, _SIGN - 1, _SIGN - 1), outline=color, width=3)
    pen.text((8, 6), "no picture", fill=color, font=ImageFont.load_default(13))
    text = checks.printable(message).encode("ascii", "replace").decode()
    lines = textwrap.wrap(text, _LETTERS, max_lines=_LINES, placeholder=" ...")
    pen.multiline_text((8, 26), "\n".join(lines), fill="#22242b", font=font, spacing=2)
    return np.array(image)


def lines(
    vectors: Float[np.ndarray, "n dim"], limits: tuple[float, float]
) -> list[UInt8[np.ndarray, "256 256"]]:
    """Draw each vector as a line over its indices.

    Args:
        vectors: The vectors.
        limits: Values at the lower and the upper edge; what lies beyond is drawn at the edge.
    """
    low, high = limits
    scale = 2 * _SIDE  # drawn twice as large, and then shrunk
    margin, span = 0.04 * scale, (high - low) or 1.0

    def level(values: np.ndarray) -> np.ndarray:
        share = np.clip((values - low) / span, 0, 1)
        return scale - margin - share * (scale - 2 * margin)

    pictures = []
    for vector in np.asarray(vectors, np.float64):
        values = _outline(vector) if len(vector) > scale else vector
        values = np.repeat(values, 2) if len(values) == 1 else values
        image = Image.new("L", (scale, scale), 255)
        pen = ImageDraw.Draw(image)
        if low < 0 < high:
            zero = float(level(np.zeros(1))[0])
            pen.line((0, zero, scale, zero), fill=215, width=4)
        across = np.linspace(margin, scale - margin, len(values))
        places = np.stack([across, level(values)], axis=1)
        pen.line(list(map(tuple, places.tolist())), fill=40, width=8)
        pictures.append(np.array(image.reduce(2)))
    return pictures


def _outline(vector: Float[np.ndarray, " dim"]) -> Float[np.ndarray, " fewer"]:
    """Return the lowest and the highest value of each of some blocks of a long vector."""
    blocks = np.array_split(vector, _SIDE)
    return np.array([edge for block in blocks for edge in (block.min(), block.max())])
