"""Triangle arrangement: pictures worked by hand, a slow exact painter, and the objective.

The oracle paints one pixel at a time, with whole numbers and fractions, from the words of the
paper. The SVG is painted once more from its text alone.
"""

import math
from fractions import Fraction

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gloam.archives import CVTArchive
from gloam.domains import triangles as painting
from gloam.domains.triangles import Triangles
from gloam.formats import objects

# Canvas, triangles and colour: square and not, few points and many, and the smallest there is.
SETTINGS = {
    "gray": ((6, 6), 5, False),
    "wide": ((3, 8), 4, False),
    "rgb": ((7, 4), 4, True),
    "smallest": ((2, 2), 1, False),
    "paper": ((28, 28), 30, False),
}


def make(canvas, triangles, color=False, cells=3, **options):
    pixels = canvas[0] * canvas[1] * (3 if color else 1)
    images = np.random.default_rng(8).random((cells, pixels), dtype=np.float32)
    return Triangles(images, num_triangles=triangles, canvas=canvas, color=color, **options)


def scored(domain, solutions):
    """Objectives and measures as a search computes them."""
    measures, images = domain(solutions), domain.archive()
    return images.closeness(measures, images.index_of(measures)), measures


compiled = eqx.filter_jit(scored)


def values(domain, solutions):
    objectives, measures = compiled(domain, np.asarray(solutions, np.float32))
    return np.array(objectives), np.array(measures)


def pictures(domain, solutions):
    _, measures = values(domain, solutions)
    colors = (3,) if domain.color else ()
    return measures.reshape(len(measures), *domain.canvas, *colors)


# The oracle


def oracle_shares(solution, triangles):
    """Each triangle's features as fractions of their spread, exactly."""
    features = [[Fraction(float(t)) for t in row] for row in np.reshape(solution, (triangles, -1))]
    shares = []
    for column in zip(*features, strict=True):
        low, high = min(column), max(column)
        shares.append([(t - low) / (high - low) if high > low else Fraction(0) for t in column])
    return list(zip(*shares, strict=True))


def oracle_places(share, canvas):
    """The coordinates of three corners; whole numbers missed by a millionth count as reached."""
    sides = zip(share[:6], canvas * 3, strict=True)
    return [t * (side - 1) * (1 + Fraction(1, 10**6)) for t, side in sides]


def close_call(solution, triangles, canvas):
    """Whether a corner is so close to the next point that float32 may put it on either."""
    shares = oracle_shares(solution, triangles)
    places = [place for share in shares for place in oracle_places(share, canvas)]
    return any(t > 0 and abs(t - round(t)) < t * Fraction(5, 10**7) for t in places)


def oracle_triangles(solution, triangles, canvas):
    """Corners, colours and opacity of each triangle."""
    found = []
    for share in oracle_shares(solution, triangles):
        places = [math.floor(t) for t in oracle_places(share, canvas)]
        corners = [tuple(places[0:2]), tuple(places[2:4]), tuple(places[4:6])]
        found.append((corners, [float(t) for t in share[6:-1]], float(share[-1]) / 2))
    return found


def cross(a, b):
    return a[0] * b[1] - a[1] * b[0]


def minus(a, b):
    return (a[0] - b[0], a[1] - b[1])


def oracle_inside(point, corners):
    a, b, c = corners
    products = [cross(minus(point, p), minus(q, p)) for p, q in ((a, b), (b, c), (c, a))]
    return all(t >= 0 for t in products) or all(t <= 0 for t in products)


def oracle_picture(solution, triangles, canvas):
    """Paint pixel by pixel."""
    found = oracle_triangles(solution, triangles, canvas)
    picture = np.zeros((*canvas, len(found[0][1])))
    for row in range(canvas[0]):
        for column in range(canvas[1]):
            for corners, color, opacity in found:
                if oracle_inside((row, column), corners):
                    below = picture[row, column]
                    picture[row, column] = below * (1 - opacity) + opacity * np.array(color)
    return picture


@st.composite
def solutions_of(draw, count):
    """Numbers on a coarse grid, where degenerate triangles abound, or a fine one; at any scale."""
    steps = draw(st.sampled_from([1, 2, 4, 1000]))
    whole = draw(st.lists(st.integers(-steps, steps), min_size=count, max_size=count))
    scale = draw(st.sampled_from([1.0, 1.0, 0.37, 1e-20, 1e6, 3.4e38]))
    shift = draw(st.sampled_from([0.0, 0.0, 0.5]))
    # Divided first: the products of the largest scale are beyond float32.
    return (np.array(whole) / steps * scale + shift * min(scale, 1e6)).astype(np.float32)


@pytest.mark.parametrize("name", ["gray", "wide", "rgb", "smallest"])
def test_pixels_are_those_of_the_oracle(name):
    canvas, triangles, color = SETTINGS[name]
    domain = make(canvas, triangles, color)

    @given(solutions_of(domain.solution_dim))
    @example(np.zeros(domain.solution_dim, np.float32))
    @example(np.full(domain.solution_dim, -3.4e38, np.float32))
    @example(np.linspace(-3.4e38, 3.4e38, domain.solution_dim, dtype=np.float32))
    def check(solution):
        assume(not close_call(solution, triangles, canvas))
        expected = oracle_picture(solution, triangles, canvas)
        _, measures = values(domain, [solution])
        # A few products and sums of numbers below 1.
        np.testing.assert_allclose(measures, expected.reshape(1, -1), rtol=0, atol=1e-6)

    check()


def test_pixels_of_the_papers_size_are_those_of_the_oracle():
    canvas, triangles, color = SETTINGS["paper"]
    domain = make(canvas, triangles, color)
    solutions = np.random.default_rng(4).normal(0, 3, (3, 240)).astype(np.float32)
    solutions[2, ::8] = 7.0  # one feature constant
    assert not any(close_call(row, triangles, canvas) for row in solutions)
    expected = np.stack([oracle_picture(row, triangles, canvas)[..., 0] for row in solutions])
    np.testing.assert_allclose(pictures(domain, solutions), expected, rtol=0, atol=1e-6)


# Pictures worked by hand


def framed(canvas, *triangles):
    """A solution of the triangles given, each of corners, colours and opacity, as they are.

    Two triangles before them spread every feature over its whole range, so that scaling changes
    nothing: black on black, and one that is all transparent.
    """
    height, width = canvas[0] - 1, canvas[1] - 1
    colors = len(triangles[0][1])
    rows = [[0] * 6 + [0] * colors + [1], [height, width] * 3 + [1] * colors + [0]]
    for corners, color, opacity in triangles:
        rows.append([*np.ravel(corners), *color, 2 * opacity])
    return np.array(rows, np.float32).ravel()


def drawing(text):
    """``#`` for painted and ``.`` for black pixels."""
    return np.array([[mark == "#" for mark in line] for line in text.split()])


@pytest.mark.parametrize(
    ("corners", "expected"),
    [
        ([(0, 0), (0, 4), (3, 0)], "##### ###.. ##... #...."),
        ([(3, 0), (0, 4), (0, 0)], "##### ###.. ##... #...."),
        # Rows first: (3, 4) is the lower right corner.
        ([(0, 4), (3, 4), (3, 0)], "....# ...## ..### #####"),
        ([(1, 1), (1, 3), (2, 3)], "..... .###. ...#. ....."),
        # Flattened to a line: all of the line across the canvas, not only between the corners.
        ([(1, 1), (2, 2), (1, 1)], "#.... .#... ..#.. ...#."),
        ([(2, 1), (2, 2), (2, 3)], "..... ..... ##### ....."),
        ([(0, 1), (3, 1), (1, 1)], ".#... .#... .#... .#..."),
        ([(0, 0), (2, 4), (0, 0)], "#.... ..#.. ....# ....."),
        # Shrunk to a point: every pixel.
        ([(2, 3), (2, 3), (2, 3)], "##### ##### ##### #####"),
        # Corners are cut down to whole points.
        ([(0.9, 0.9), (0.2, 4), (3, 0.99)], "##### ###.. ##... #...."),
        ([(1.9, 0), (1.5, 3.9), (1.1, 2)], "..... ##### ..... ....."),
    ],
)
def test_shapes_worked_by_hand(corners, expected):
    domain = make((4, 5), 3)
    solution = framed((4, 5), (corners, [1.0], 0.5))
    (picture,) = pictures(domain, [solution])
    # Twice a half, exactly.
    np.testing.assert_array_equal(2 * picture, drawing(expected))


def test_later_triangles_cover_earlier_ones():
    # On 3 x 2 pixels: the left column, then everything, then the middle row.
    left, all_, middle = [(0, 0), (2, 0), (1, 0)], [(1, 1)] * 3, [(1, 0), (1, 1), (1, 0)]
    solution = framed((3, 2), (left, [0.5], 0.5), (all_, [1.0], 0.25), (middle, [0.0], 0.5))
    (picture,) = pictures(make((3, 2), 5), [solution])
    # Left: 0.25, then 0.25 * 0.75 + 0.25; right: 0, then 0.25; the middle row halves.
    expected = [[0.4375, 0.25], [0.21875, 0.125], [0.4375, 0.25]]
    np.testing.assert_allclose(picture, expected, rtol=1e-6)


def test_colors_are_red_green_and_blue_of_each_pixel():
    corner, all_ = [(0, 0), (0, 1), (0, 0)], [(0, 0)] * 3
    solution = framed((2, 2), (all_, [1.0, 0.5, 0.0], 0.5), (corner, [0.0, 1.0, 1.0], 0.25))
    _, measures = values(make((2, 2), 4, color=True), [solution])
    top, bottom = [0.375, 0.4375, 0.25], [0.5, 0.25, 0.0]
    np.testing.assert_allclose(measures, [top + top + bottom + bottom], rtol=1e-6)


def test_features_are_scaled_one_by_one():
    # Features of different units, each an affine image of the same picture's.
    domain = make((6, 6), 5)
    solution = np.random.default_rng(1).integers(-50, 50, (5, 8)).astype(np.float32)
    moved = solution * 2.0 ** np.arange(8) + 100 * np.arange(8)
    first, second = pictures(domain, [solution.ravel(), moved.ravel()])
    np.testing.assert_array_equal(first, second)
    assert first.max() > 0.2  # the picture is not just black


@pytest.mark.parametrize("side", [2, 28, 2048])
def test_the_largest_of_a_feature_is_the_last_point_in_spite_of_rounding(side):
    solutions = np.random.default_rng(side).normal(size=(200, 80)).astype(np.float32)
    corners = np.asarray(painting.arrange(solutions, 10, (side, side)).corners)
    np.testing.assert_array_equal(corners.max(axis=1), np.full((200, 3, 2), side - 1))
    np.testing.assert_array_equal(corners.min(axis=1), np.zeros((200, 3, 2)))


# Objective


def test_objective_worked_by_hand():
    # All pixels 0.5: the nearest image is 0.5 off in one of four pixels and the same elsewhere.
    images = [[0.0, 0.0, 0.0, 0.0], [0.5, 0.5, 1.0, 0.5], [0.9, 0.9, 0.9, 0.9]]
    domain = Triangles(np.array(images), num_triangles=3, canvas=(2, 2))
    solution = framed((2, 2), ([(1, 1)] * 3, [1.0], 0.5))
    objectives, measures = values(domain, [solution])
    np.testing.assert_array_equal(measures, np.full((1, 4), 0.5))
    np.testing.assert_allclose(objectives, [1 - 0.25 / 4], rtol=1e-6)


@pytest.mark.parametrize("color", [False, True])
def test_objective_is_that_of_the_nearest_of_all_images(color):
    domain = make((5, 4), 6, color, cells=50)
    solutions = np.random.default_rng(2).random((40, domain.solution_dim))
    objectives, measures = values(domain, solutions)
    images = np.asarray(domain.images.centroids, np.float64)
    errors = np.mean((measures[:, None].astype(np.float64) - images) ** 2, axis=2)
    assert len(set(errors.argmin(axis=1))) > 3
    np.testing.assert_allclose(objectives, 1 - errors.min(axis=1), rtol=0, atol=1e-6)
    np.testing.assert_array_equal(domain.archive().index_of(measures), errors.argmin(axis=1))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("feature", [0, 6, 7])
def test_a_broken_solution_fails_alone(bad, feature):
    domain = make((6, 6), 5)
    solutions = np.random.default_rng(3).random((3, 40))
    objectives, measures = values(domain, solutions)
    broken = solutions.copy()
    broken[1, 8 + feature] = bad
    objectives[1], measures[1] = np.nan, np.nan
    for found, expected in zip(values(domain, broken), (objectives, measures), strict=True):
        np.testing.assert_array_equal(found, expected)


# Batched, rebuilt


def test_batches_of_batches_agree_with_batches():
    domain = make((6, 6), 5)
    solutions = np.random.default_rng(5).random((3, 40)).astype(np.float32)
    expected = values(domain, solutions)
    together = jax.jit(jax.vmap(lambda rows: scored(domain, rows)))(solutions[:, None])
    for found, wanted in zip(together, expected, strict=True):
        # Compilers may round products and sums once or twice.
        np.testing.assert_allclose(found[:, 0], wanted, rtol=0, atol=1e-6)


def test_a_domain_can_be_written_to_a_run_folder_and_read_back():
    domain = make((7, 4), 4, color=True, name="ta-flowers")
    arrays = {}
    rebuilt = objects.decode(objects.encode(domain, arrays), arrays)
    solutions = np.random.default_rng(6).random((3, 40))
    assert rebuilt.name == "ta-flowers"
    assert rebuilt.canvas == (7, 4)
    np.testing.assert_array_equal(rebuilt.x0, domain.x0)
    for found, expected in zip(values(rebuilt, solutions), values(domain, solutions), strict=True):
        np.testing.assert_array_equal(found, expected)


# Renders


def test_a_render_at_canvas_size_is_the_measures():
    canvas, triangles, color = SETTINGS["rgb"]
    domain = make(canvas, triangles, color)
    solutions = np.random.default_rng(7).random((3, domain.solution_dim)).astype(np.float32)
    expected = pictures(domain, solutions)
    np.testing.assert_allclose(domain.render(solutions), expected, rtol=0, atol=1e-6)
    assert domain.render(solutions[0]).shape == expected.shape[1:]
    np.testing.assert_allclose(domain.render(solutions[1]), expected[1], rtol=0, atol=1e-6)


@pytest.mark.parametrize(("name", "factor"), [("wide", 10), ("rgb", 3)])
def test_a_larger_render_holds_the_pixels_of_the_canvas(name, factor):
    (rows, columns), triangles, color = SETTINGS[name]
    domain = make((rows, columns), triangles, color)
    solutions = np.random.default_rng(9).integers(0, 4, (3, domain.solution_dim))
    size = (factor * (rows - 1) + 1, factor * (columns - 1) + 1)
    large = domain.render(solutions, size)
    expected = pictures(domain, solutions)
    np.testing.assert_allclose(large[:, ::factor, ::factor], expected, rtol=0, atol=1e-6)
    # And more than these pixels, each made larger.
    stretched = np.repeat(np.repeat(expected, factor, 1), factor, 2)[:, : size[0], : size[1]]
    assert np.abs(large - stretched).max() > 0.05


@pytest.mark.parametrize(
    ("canvas", "size", "expected"),
    [
        ((28, 28), 280, (280, 280)),
        ((3, 8), 16, (6, 16)),
        ((8, 3), 16, (16, 6)),
        ((3, 8), (5, 7), (5, 7)),
        ((3, 8), [1, 1], (1, 1)),
        ((2, 8), 1, (1, 1)),
    ],
)
def test_size_is_rows_and_columns_or_the_longer_side(canvas, size, expected):
    domain = make(canvas, 2)
    picture = jax.eval_shape(lambda solution: domain.render(solution, size), domain.x0)
    assert picture.shape == expected


# Construction


def test_the_start_is_drawn_by_the_seed():
    first, again, other = (make((6, 6), 30, seed=seed).x0 for seed in (3, 3, 4))
    assert first.shape == (240,)
    assert first.dtype == jnp.float32
    np.testing.assert_array_equal(first, again)
    assert (np.asarray(first) != np.asarray(other)).mean() > 0.99
    assert 0 <= float(first.min()) < 0.05 < 0.95 < float(first.max()) < 1
    given = np.linspace(-1, 2, 240, dtype=np.float32)
    np.testing.assert_array_equal(make((6, 6), 30, x0=given, seed=3).x0, given)


def test_the_archive_has_a_cell_for_every_image_and_the_bounds_of_pixels():
    images = np.random.default_rng(0).uniform(0.2, 0.8, (5, 36)).astype(np.float32)
    domain = Triangles(images, canvas=(6, 6))
    archive = domain.archive()
    assert isinstance(archive, CVTArchive)
    assert archive.metric == "euclidean"
    np.testing.assert_array_equal(archive.centroids, images)
    np.testing.assert_array_equal(archive.lower, np.zeros(36))
    np.testing.assert_array_equal(archive.upper, np.ones(36))
    assert domain.name == "triangles"


def test_images_are_read_from_a_file(tmp_path):
    images = np.random.default_rng(0).random((5, 36), dtype=np.float32)
    np.save(tmp_path / "images.npy", images)
    for path in (tmp_path / "images.npy", str(tmp_path / "images.npy")):
        np.testing.assert_array_equal(Triangles(path, canvas=(6, 6)).images.centroids, images)


GOOD = np.zeros((2, 36), np.float32)


@pytest.mark.parametrize(
    ("images", "options", "message"),
    [
        (GOOD, {}, r"centroids: expected images of 28 x 28, or rows of 784 pixels, got .*36\)"),
        (GOOD, {"canvas": (6, 6), "color": True}, r"images of 6 x 6 x 3, or rows of 108 pixels, "),
        (
            np.zeros((2, 4, 9)),
            {"canvas": (6, 6)},
            r"images of 6 x 6, .*got shape \(2, 4, 9\)\. Set",
        ),
        (np.zeros(36), {"canvas": (6, 6)}, r"2 or more axes, got .* Pass one image for each cell"),
        (GOOD + 255, {"canvas": (6, 6)}, r"from 0 to 1, got 255 to 255\. Divide bytes by 255"),
        (GOOD - 0.5, {"canvas": (6, 6)}, r"centroids: expected pixels from 0 to 1, got -0.5"),
        (GOOD * np.nan, {"canvas": (6, 6)}, r"centroids: expected finite numbers, got 72"),
        ("none.npy", {}, r"centroids: expected an existing file, got 'none.npy'\. Pass an array"),
        (GOOD, {"canvas": 6}, r"canvas: expected \(rows, columns\), got 6"),
        (GOOD, {"canvas": (36, 1)}, r"canvas: expected a whole number >= 2, got 1"),
        (GOOD, {"canvas": (6, 2049)}, r"canvas: expected at most 2048 rows and columns"),
        (
            GOOD,
            {"canvas": (6, 6), "num_triangles": 0},
            r"num_triangles: expected a whole number >= 1",
        ),
        (GOOD, {"canvas": (6, 6), "color": "rgb"}, r"color: expected bool, got str 'rgb'"),
        (GOOD, {"canvas": (6, 6), "seed": -1}, r"seed: expected a whole number >= 0, got -1"),
        (GOOD, {"canvas": (6, 6), "name": 3}, r"name: expected str, got int 3"),
        (GOOD, {"canvas": (6, 6), "x0": np.zeros(8)}, r"x0: expected 240 numbers, got 8"),
        (GOOD, {"canvas": (6, 6), "x0": [np.nan] * 240}, r"x0: expected finite numbers"),
    ],
)
def test_wrong_arguments_are_refused(images, options, message):
    with pytest.raises(ValueError, match=message):
        Triangles(images, **options)


@pytest.mark.parametrize("shape", [(40,), (2, 39), (1, 2, 40)])
def test_solutions_of_another_shape_are_refused(shape):
    expected = r"solutions: expected rows of 40 numbers \(5 triangles of 8\), got shape"
    with pytest.raises(ValueError, match=expected):
        make((6, 6), 5)(jnp.zeros(shape))


def test_pictures_of_wrong_solutions_or_sizes_are_refused():
    domain = make((7, 4), 5, color=True)
    with pytest.raises(ValueError, match=r"expected one solution of 50 numbers .*\(40,\)"):
        domain.render(np.zeros(40))
    with pytest.raises(ValueError, match=r"^size:.*1.*0"):
        domain.render(domain.x0, 0)
    with pytest.raises(ValueError, match=r"^size:.*\(rows, columns\).*\(1, 2, 3\)"):
        domain.render(domain.x0, (1, 2, 3))


@pytest.mark.parametrize("dataset", ["mnist", "fashion_mnist"])
def test_the_papers_images_make_a_domain(dataset, shared_data):
    file = shared_data / "centroids" / f"{dataset}_1000.npy"
    if not file.is_file():
        pytest.skip(f"no '{file}': the paper's images are not here")
    domain = Triangles(file, seed=1)
    assert domain.archive().num_cells == 1000
    images = np.load(file)
    objectives, measures = values(domain, np.random.default_rng(0).random((5, 240)))
    best = 1 - np.mean((measures[:, None] - images) ** 2, axis=2).min(axis=1)
    np.testing.assert_allclose(objectives, best, rtol=0, atol=1e-6)
