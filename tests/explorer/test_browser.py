"""The page of the explorer in Chromium, on a desktop and on a phone, light and dark.

The list and the page of a run are part of every test run; all else are slow tests.
"""

import dataclasses
import json
import shutil
from urllib.parse import urlsplit

import numpy as np
import pytest

import gloam
from gloam.archives import Elites
from gloam.archives.store import Store
from gloam.explorer import write_html
from gloam.formats import RunFolder
from gloam.formats.config import describe
from gloam.formats.ownership import locked
from gloam.formats.run_folder import dataset_arrays, dataset_digest
from gloam.formats.tables import MetricsFile
from gloam.plots.style import line_colors
from tests.explorer.conftest import HOSTILE, serving
from tests.explorer.page import Page, chromium
from tests.run_folders import small_dms, write_grid_run, write_run, write_space_run

SCREENS = {"desktop, light": (1280, 860, False), "phone, dark": (390, 844, True)}
MANY = 10_000
# Elements that can be used and have no name for screen readers.
UNNAMED = """
return [...document.querySelectorAll("button, a, input, select, [tabindex='0'], img, progress")]
  .filter((one) => !(one.getAttribute("aria-label") || one.textContent.trim() || one.alt ||
    one.labels?.length || one.getAttribute("aria-labelledby")))
  .map((one) => one.outerHTML);
"""


@pytest.fixture(scope="module")
def driver():
    with chromium() as found:
        yield found


@pytest.fixture(params=["desktop, light", pytest.param("phone, dark", marks=pytest.mark.release)])
def page(request, driver):
    """A page whose console must stay empty and which must ask this machine alone."""
    found = Page(driver, *SCREENS[request.param])
    yield found
    assert found.errors() == []
    assert found.foreign_requests() == []


@pytest.fixture(scope="module")
def browsed(made_runs, tmp_path_factory):
    """The runs, one under a hostile name, and one with ten thousand pairs."""
    root = tmp_path_factory.mktemp("browsed") / "runs"
    shutil.copytree(made_runs, root)
    shutil.copytree(made_runs / "others" / "map-elites", root / HOSTILE)
    run_with_many_pairs(root / "many")
    return root


@pytest.fixture(scope="module")
def address(browsed):
    with serving(browsed) as found:
        yield found


def run_with_many_pairs(path):
    random = np.random.default_rng(0)
    items = random.random((MANY, 4, 4), np.float32)
    labels = [f"label {i % 7} {HOSTILE}" for i in range(MANY)]
    data = gloam.datasets.from_array(items, labels=labels)
    archive = data.archive()
    algorithm = gloam.MAPElites(archive, np.zeros(2), 0.1, batch_size=4)
    folder = RunFolder(path)
    digest = dataset_digest(dataset_arrays(data))
    settings = {"driver": "fused", "seeds": [0], "dataset": digest, "plan": {"iterations": 1}}
    folder.write_config(*describe(algorithm, None, **settings))
    folder.write_dataset(data)
    objectives = random.random(MANY, np.float32)
    objectives[::10] = -np.inf
    store = Store(random.random((MANY, 2), np.float32), objectives, items.reshape(MANY, 16), {})
    folder.write_archive(Elites(archive, store), seed=0)


def test_runs_are_listed_filtered_sorted_and_opened(page, address):
    page.open(address)
    page.wait("rows().length === 5")
    assert HOSTILE in page.texts("tr[data-id] th.name a")
    assert not page.run("return document.querySelector('main img')")
    assert page.run(UNNAMED) == []
    page.type("input[type=search]", "alpha=0.1 2d-lp")
    page.wait("rows().length === 1")
    assert page.texts("tr[data-id] th.name a") == ["grid"]
    assert page.text("#count") == "1 of 5 runs"
    page.press("Escape")
    page.wait("rows().length === 5")
    sort = "heads().find((head) => head.textContent === 'QD score').querySelector('button')"
    page.run(f"{sort}.click()")
    scores = [float(text.replace(",", "")) for text in page.column(6) if text != "–"]
    assert scores == sorted(scores, reverse=True)
    assert len(scores) == 4
    assert page.texts("thead th")[9:12] == ["Seeds", "Time", "Started"]
    page.row("grid")
    page.wait("document.querySelector('h1').textContent === 'grid'")
    page.wait("document.querySelectorAll('.chart canvas').length >= 8")
    assert page.layout_shift() < 0.1


@pytest.mark.slow
def test_labels_are_text(page, address):
    page.open_run(address, "many")
    page.wait("document.querySelectorAll('.pair').length > 3")
    assert "onerror=alert" in page.text(".pair-name b")
    assert not page.run("return document.querySelector('main [onerror]')")


# It waits for the page to ask again, which is the same on every screen.
@pytest.mark.slow
@pytest.mark.parametrize("page", ["desktop, light"], indirect=True)
def test_a_run_is_watched_while_it_goes_on(page, runs):
    folder = RunFolder(runs / "grid")
    table = folder.read_metrics()
    rows = table.to_dict("records")
    config = folder.read_config()
    object.__setattr__(config, "plan", dict(config.plan) | {"iterations": 12})
    folder.write_plan(config)
    MetricsFile(folder.path).write(table.iloc[:0])
    shutil.rmtree(runs / "grid" / "checkpoint")
    for seed in (3, 4):
        (runs / "grid" / f"archive-{seed}.npz").unlink()
    with serving(runs) as address:
        with locked(runs / "grid"):
            folder.append_metrics(rows[:4])
            page.open_run(address, "grid")
            page.wait("document.querySelector('.state.running')")
            page.wait("document.querySelector('.progress')?.textContent.startsWith('2 of 12 iter')")
            assert "left" in page.text(".progress")
            page.wait("document.body.textContent.includes('The archive appears after the first')")
            chart = "document.querySelector('.chart')?.getAttribute('aria-label')"
            page.wait(f"{chart}?.startsWith('QD score')")
            before = page.run(f"return {chart}")
            folder.append_metrics(rows[4:])
            page.wait("document.querySelector('.progress').textContent.startsWith('6 of 12 iter')")
            page.wait(f"{chart} !== {json.dumps(before)}")
        page.wait("document.querySelector('.state.failed')")


def test_a_run_shows_its_elites_and_snapshots(page, address, made_runs):
    page.open_run(address, "grid")
    page.wait("document.querySelector('.legend .bar')")
    elites = RunFolder(made_runs / "grid").read_archive(3)
    cell = int(elites.cells[0])
    page.click_cell(cell // 6, cell % 6, 8, 6)
    page.wait(f"document.querySelector('.cell h2')?.textContent === 'Cell {cell}'")
    facts = dict(zip(page.texts(".facts dt"), page.texts(".facts dd"), strict=True))
    assert float(facts["Objective"].replace(",", "")) == pytest.approx(
        elites.objectives[0], rel=1e-3
    )
    assert facts["Found"].startswith("after iteration ")
    assert page.texts(".numbers h3") == ["Measures", "Solution (4)"]
    assert "measure 1" in facts
    assert len(page.texts(".neighbours button")) == min(8, len(elites) - 1)
    page.wait("document.querySelectorAll('.facts dd')[1].textContent !== '–'")
    page.run("document.querySelector('.neighbours button').click()")
    page.wait(f"document.querySelector('.cell h2').textContent !== 'Cell {cell}'")
    assert page.run(UNNAMED) == []

    page.run("document.querySelector('.page').focus()")
    for _ in range(2):
        page.press("[")
    then = RunFolder(made_runs / "grid").read_snapshot(2)["objectives"]
    filled = int(np.isfinite(then).sum())
    page.wait(f"document.querySelector('.map figcaption').textContent.includes('{filled} of 48')")
    page.wait("document.querySelectorAll('.map figcaption')[1].textContent.includes('iteration 2')")
    assert page.text(".slider output") == "2"


@pytest.mark.slow
def test_two_measures_of_a_grid_are_chosen(page, tmp_path):
    archive = gloam.GridArchive((4, 3, 5), 0, [4, 3, 5], measure_names=("x", "y", "z"))
    folder = write_run(tmp_path / "cube", small_dms(archive, np.zeros(4)), None, seeds=[1])
    cells = np.arange(60).reshape(4, 3, 5)
    objectives = np.asarray(folder.read_archive().store.objectives)

    def shown(note, column, row, columns, rows, candidates):
        page.wait(f"document.querySelector('.map figcaption').textContent.endsWith('{note}')")
        page.click_cell(column, row, columns, rows)
        best = candidates[objectives[candidates].argmax()]
        page.wait(f"document.querySelector('.cell h2')?.textContent === 'Cell {best}'")

    with serving(tmp_path) as address:
        page.open_run(address, "cube")
        shown("best over z", 3, 1, 4, 3, cells[3, 1])
        page.select(".joined select", "2")
        shown("best over x", 4, 0, 5, 3, cells[:, 0, 4])
        page.select(".joined select", "1", 2)
        shown("x 1 to 2", 2, 2, 5, 3, cells[1:2, 2, 2])
        page.select(".map .toolbar select", "pca", 1)
        page.wait("document.querySelector('.map figcaption').textContent.includes('PCA')")
        page.select(".map .toolbar select", "grid", 1)
        shown("x 1 to 2", 0, 1, 5, 3, cells[1:2, 1, 0])
        assert page.run(UNNAMED) == []


@pytest.mark.slow
def test_colors_show_fields_and_variables_and_axes_are_chosen(page, tmp_path):
    folder = write_space_run(tmp_path / "run")
    elites = folder.read_archive()
    (tmp_path / "link").symlink_to(folder.path)
    legend = "document.querySelector('.legend').textContent"
    caption = "document.querySelector('.map figcaption').textContent"
    with serving(tmp_path) as address:
        page.open(address)
        page.wait("document.querySelector('.note')?.textContent.includes('link')")
        page.open_run(address, "run")
        page.wait("document.querySelector('.legend .bar')")
        options = page.texts(".map .toolbar select option")
        for title in ("field: speed", "field: forces_2", "variable: log10 rate"):
            assert title in options
        page.select(".map .toolbar select", "column-0")
        page.wait(f"{legend}.includes('speed')")
        page.select(".map .toolbar select", "column-6")
        page.wait(f"{legend} === 'a2None'")
        page.select(".map .toolbar select", "axes", 1)
        page.wait(f"{caption}.includes('one and two')")
        page.select(".joined select", "3")
        page.wait(f"{caption}.includes('four and two')")
        page.select(".joined select", "3", 1)
        page.wait(f"{caption}.includes('two and four')")
        cell = elites.cells[0]
        page.run(f"location.hash += '/cell/{cell}'")
        page.wait("document.querySelector('.cell h2')")
        assert page.texts(".numbers h3") == ["Measures", "Fields", "Solution"]
        facts = dict(zip(page.texts(".facts dt"), page.texts(".facts dd"), strict=True))
        assert float(facts["speed"]) == pytest.approx(elites.elite(cell).fields["speed"], rel=1e-3)
        assert page.run(UNNAMED) == []
    page.open(write_html(folder.path).as_uri())
    page.wait("document.querySelector('.legend .bar')")
    page.select(".map .toolbar select", "column-3")
    page.wait(f"{legend}.includes('forces_2')")
    page.run(f"location.hash = document.querySelector('.brand').hash + '/cell/{cell}'")
    page.wait("document.querySelector('.cell h2')")
    assert "forces_1" in page.texts(".facts dt")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["desktop, light"], indirect=True)
def test_a_discount_below_all_objectives_and_corrected_scores_are_explained(page, runs):
    folder = RunFolder(shutil.copytree(runs / "grid", runs / "high"))
    elites = folder.read_archive(3)
    store = elites.store
    high = Store(store.solutions, store.objectives + 100, store.measures, store.fields)
    folder.write_archive(Elites(elites.archive, high), seed=3)
    names = ("corrected_qd_score", "corrected_coverage")
    scores = {name: np.array([1.5, 2.5]) for name in ("f_min", *names)}
    scores |= {f"{name}_error": np.zeros(2) for name in names}
    folder.write_corrected(scores, number=30, iteration=6)
    with serving(runs) as address:
        page.open_run(address, "grid")
        page.wait("document.querySelectorAll('.map .legend')[1].textContent.includes('discount')")
        assert "lowest objective" not in page.text(".map p.small")
        page.open_run(address, "high")
        page.wait("document.querySelector('.map p.small').textContent.includes('lowest objective')")
        tiles = dict(zip(page.texts(".tile dt"), page.texts(".tile dd"), strict=True))
        assert tiles["Corrected QD score from 1.5"] == "2 ± 0.5"
        assert tiles["Corrected coverage"] == "200.0% ± 50.0%"
        assert "30 new evaluations" in page.text(".note")


@pytest.mark.slow
@pytest.mark.parametrize("page", ["desktop, light"], indirect=True)
def test_long_names_and_scores_leave_room_for_the_curves(page, runs):
    path = runs / "a long name of a run on several problems" / "with another long part of it, 3"
    shutil.copytree(runs / "grid", path)
    folder = RunFolder(path)
    table = folder.read_metrics().assign(qd_score=1359410.25, f_min=-1234.5, seconds=40000.0)
    MetricsFile(path).write(table)
    config = folder.read_config()
    started = {"iterations": 10_000, "started": 1.7e9, "name": "a long name of a problem"}
    folder.write_plan(dataclasses.replace(config, plan=started))
    with serving(runs) as address:
        page.open(address)
        page.wait("rows().length === 4")
        scrolled = "document.querySelector('.scroll-x')"
        assert page.run(f"return {scrolled}.scrollWidth <= {scrolled}.clientWidth")
        assert "2023-11-14" in page.column(11)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["desktop, light"], indirect=True)
def test_a_tail_does_not_hide_the_other_colors(page, address):
    page.open(address)
    page.wait("rows().length === 5")
    limits = """
        const { colorLimits } = await import("/static/colors.js");
        const values = Float32Array.from({ length: 100 }, (_, i) => (i ? 1 + i / 100 : -60));
        done(["auto", "all", "inner"].map((range) => colorLimits(values, range)));
    """
    found = page.run_async(limits)
    assert found[0] == pytest.approx([1.01, 1.99])
    assert found[1] == pytest.approx([-60, 1.99])
    assert found[2] == pytest.approx([1.01, 1.98])


@pytest.mark.slow
@pytest.mark.parametrize("page", ["desktop, light"], indirect=True)
def test_numbers_are_short_and_nouns_agree(page, address):
    page.open(address)
    page.wait("rows().length === 5")
    script = """
        const { counted, number, tick } = await import("/static/format.js");
        const values = [99999999, 1e8, -1234567890, 1.25e12, 2.5e-7, 1234.5];
        const counts = [0, 1, 2].map((count) => counted(count, "run"));
        done([values.map(number), [99999, 125000, -1.5e9].map(tick), counts]);
    """
    numbers, ticks, counts = page.run_async(script)
    assert numbers == ["99,999,999", "1e8", "-1.23e9", "1.25e12", "2.5e-7", "1,235"]
    assert ticks == ["99,999", "1.25e5", "-1.5e9"]
    assert counts == ["0 runs", "1 run", "2 runs"]


@pytest.mark.slow
@pytest.mark.parametrize("question", ["elites", "discount"])
def test_a_slow_answer_does_not_replace_a_later_one(page, address, question):
    page.open_run(address, "grid")
    iteration = (
        "document.querySelectorAll('.map figcaption')[{}].textContent.includes('iteration {}')"
    )
    page.wait(iteration.format(1, 6))
    hold = """
        const ask = window.fetch;
        const released = new Promise((release) => { window.release = release; });
        window.state = "asked";
        window.fetch = async (path, options) => {
          const answer = await ask(path, options);
          if (!path.includes("QUESTION?") || !path.includes("at=6")) return answer;
          window.state = "held";
          await released;
          const content = await answer.arrayBuffer();
          setTimeout(() => { window.state = "arrived"; }, 100);
          return new Response(content);
        };
        document.querySelector('.page').focus();
    """
    page.run(hold.replace("QUESTION", question))
    page.press("[")
    page.wait("window.state === 'held'")
    page.press("[")
    for place in range(2):
        page.wait(iteration.format(place, 2))
    page.run("window.release()")
    page.wait("window.state === 'arrived'")
    for place in range(2):
        assert page.run("return " + iteration.format(place, 2))


@pytest.mark.slow
def test_the_gallery_is_sorted_and_searched(page, address, made_runs):
    page.open_run(address, "pictures")
    page.wait("document.querySelectorAll('.pair').length > 0")
    folder = RunFolder(made_runs / "pictures")
    matches = gloam.datasets.Matches(folder.read_archive(), folder.read_dataset())
    best = matches.table("explained")
    assert page.text("section.card .toolbar > .quiet").startswith("9 of 9 items")
    assert page.text(".pair-name") == f"{best['label'].iloc[0]} {best['name'].iloc[0]}"
    first = "document.querySelector('.pair-name').textContent"
    page.run("document.querySelector('section.card input[type=checkbox]').click()")
    worst = best.iloc[-1]
    page.wait(f"{first} === '{worst['label']} {worst['name']}'")
    page.select("section.card .toolbar select", "distance")
    far = matches.table("distance").iloc[-1]
    page.wait(f"{first} === '{far['label']} {far['name']}'")
    label = best["label"].iloc[0]
    page.type("section.card input[type=search]", label)
    expected = {f"{label} {name}" for name in best[best["label"] == label]["name"]}
    page.wait(f"document.querySelectorAll('.pair').length === {len(expected)}")
    assert set(page.texts(".pair-name")) == expected
    page.run("document.querySelector('.pair').click()")
    page.wait("document.querySelectorAll('.cell img.full').length === 2")
    page.wait("[...document.querySelectorAll('.cell img.full')].every((one) => one.naturalWidth)")
    assert page.run(UNNAMED) == []


GREEN = (
    "<svg viewBox='0 0 2 2'><script>document.x = 1</script><path d='M0 0H2V2H0' fill='#0f0'/></svg>"
)
# The color in the middle of an image, once it is loaded.
COLOR_OF = """
    const image = new Image();
    image.onload = () => {
      const context = document.createElement("canvas").getContext("2d");
      context.drawImage(image, 0, 0);
      done([...context.getImageData(32, 32, 1, 1).data]);
    };
    image.onerror = () => done(null);
    image.src = ADDRESS;
"""


@pytest.mark.slow
@pytest.mark.parametrize("page", ["desktop, light"], indirect=True)
def test_drawings_are_shown_of_cells_and_in_the_gallery(page, runs):
    def draw(solution, measures):
        return GREEN if measures.ndim > 1 or measures[0] < 0 else 1 / 0

    full = "document.querySelector('.cell img.full').src"
    sheet = "getComputedStyle(document.querySelector(SELECTOR)).backgroundImage.slice(5, -2)"
    elites = RunFolder(runs / "grid").read_archive(3)
    with serving(runs, draw=draw) as address:
        page.open_run(address, "grid")
        page.wait("document.querySelector('.legend .bar')")
        for is_drawn in (True, False):
            cell = int(elites.cells[(elites.measures[:, 0] < 0) == is_drawn][0])
            page.click_cell(cell // 6, cell % 6, 8, 6)
            page.wait(f"document.querySelector('.cell h2')?.textContent === 'Cell {cell}'")
            page.wait("document.querySelector('.cell img.full').naturalWidth")
            color = page.run_async(COLOR_OF.replace("ADDRESS", full))
            assert (color == [0, 255, 0, 255]) == is_drawn
        assert page.run(UNNAMED) == []
        page.open_run(address, "pictures")
        page.wait("document.querySelectorAll('.pair').length > 0")
        of_gallery = sheet.replace("SELECTOR", "'.pair-picture'")
        assert page.run_async(COLOR_OF.replace("ADDRESS", of_gallery)) == [0, 255, 0, 255]
    page.open(write_html(runs / "grid", draw=draw).as_uri())
    page.wait("document.querySelector('.legend .bar')")
    cell = int(elites.cells[elites.measures[:, 0] < 0][0])
    page.click_cell(cell // 6, cell % 6, 8, 6)
    page.wait("document.querySelector('.cell .pair-picture.large').style.backgroundImage")
    of_cell = sheet.replace("SELECTOR", "'.cell .pair-picture.large'")
    assert page.run_async(COLOR_OF.replace("ADDRESS", of_cell)) is not None
    assert not page.run("return document.x")


@pytest.mark.slow
def test_ten_thousand_pairs_are_few_elements(page, address):
    page.open_run(address, "many")
    page.wait("document.querySelectorAll('.pair').length > 3")
    page.run("document.querySelector('.gallery').scrollTop = 1e7")
    page.wait("Number([...document.querySelectorAll('.pair')].at(-1).dataset.place) === 9999")
    assert page.run("return document.querySelectorAll('.pair').length") < 150
    page.select("section.card .toolbar select", "item")
    page.select("section.card .toolbar select", "empty", 1)
    page.wait("document.querySelector('.pair-figures').textContent.startsWith('empty · ')")
    assert page.text("section.card .toolbar > .quiet").startswith("1,000 of 10,000 items")


@pytest.mark.slow
def test_runs_with_several_seeds_are_tested(page, runs):
    write_grid_run(runs / "again", seeds=[5, 6, 7])
    with serving(runs) as address:
        page.open(address)
        page.wait("rows().length === 4")
        for name in ("again", "grid"):
            page.row(name, "input")
        page.press("c")
        page.wait("document.querySelectorAll('.comparison .plain-table').length === 3")
        expected = gloam.compare({name: runs / name for name in ("again", "grid")})
        values = expected.tests().loc[0, ["difference", "p", "hedges_g"]]
        shown = page.texts(".comparison > div:nth-child(4) td.number")
        assert [float(text) for text in shown] == pytest.approx(list(values), rel=1e-3)
        page.select(".comparison .toolbar select", "coverage")
        values = expected.tests("coverage").loc[0, ["difference", "p", "hedges_g"]]
        shown = page.texts(".comparison > div:nth-child(4) td.number")
        assert [float(text) for text in shown] == pytest.approx(list(values), rel=1e-3)
        # Tables that are too wide scroll; the page does not.
        assert page.run("return document.documentElement.scrollWidth <= innerWidth")
        assert page.run(UNNAMED) == []


@pytest.mark.slow
@pytest.mark.parametrize("page", ["desktop, light"], indirect=True)
def test_an_algorithm_has_the_color_that_it_has_in_figures(page, address):
    page.open(address)
    page.wait("rows().length === 5")
    algorithms = ["DMS (paper)", "CMA-MAE", "DDS", "MAP-Elites (line)", "MAP-Elites", "DMS"]
    script = """
        const { lineColor, lineNumbers } = await import("/static/colors.js");
        done(lineNumbers(NAMES).map(lineColor));
    """
    names = json.dumps([*algorithms, "mine", "DMS"])
    colors = page.run_async(script.replace("NAMES", names))
    assert colors[:-2] == list(line_colors(algorithms).values())
    assert len(set(colors)) == len(colors)  # also of two runs of one algorithm


@pytest.mark.slow
def test_two_runs_are_compared(page, address):
    page.open(address)
    page.wait("rows().length === 5")
    for name in ("grid", "others/map-elites"):
        page.row(name, "input")
    page.press("c")
    page.wait("document.querySelectorAll('.comparison .chart canvas').length >= 3")
    assert page.text("h1") == "2 runs"
    assert page.texts(".comparison table tbody th a") == ["grid", "others/map-elites"]
    assert "±" in page.text(".comparison tbody td:nth-child(4)")
    # One of the runs has a single seed, so that there is nothing to test.
    page.wait("document.body.textContent.includes('Tests need at least two seeds of each run.')")
    assert "are counted from" in page.text(".comparison .note")
    settings = page.texts(".comparison > div:last-child tbody th")
    assert "algorithm" in settings
    assert "archive.shape" not in settings
    page.press("Escape")
    page.wait("rows().length === 5")
    for name in ("grid", "others/map-elites"):
        page.row(name, "input")


@pytest.mark.slow
def test_everything_can_be_reached_by_keys(page, address):
    page.open(address)
    page.wait("rows().length === 5")
    page.press("?")
    page.wait("document.querySelector('dialog[open]')")
    page.press("Escape")
    page.wait("!document.querySelector('dialog')")
    dark = page.run("return getComputedStyle(document.body).backgroundColor")
    page.press("t")
    assert page.run("return getComputedStyle(document.body).backgroundColor") != dark
    page.press("t")
    page.press("/")
    assert page.run("return document.activeElement.type") == "search"
    page.keys("others")
    page.wait("rows().length === 1")
    page.run("document.activeElement.blur()")
    page.press("ArrowDown")
    assert page.run("return document.activeElement.textContent") == "others/map-elites"
    page.press(" ")
    page.wait("rows()[0].querySelector('input').checked")
    page.press(" ")
    page.press("Enter")
    page.wait("document.querySelector('.legend .bar')")
    page.run("document.querySelector('.plane').focus()")
    page.press("ArrowRight")
    page.wait("document.querySelector('.cell h2')")
    first = page.text(".cell h2")
    page.press("ArrowRight")
    page.wait(f"document.querySelector('.cell h2').textContent !== '{first}'")
    page.press("+")
    page.press("0")
    page.run("document.activeElement.blur()")
    page.press("Escape")
    page.wait("rows().length === 1")
    page.press("Escape")
    page.wait("rows().length === 5")


@pytest.mark.slow
def test_a_report_opens_from_a_disk(page, runs):
    path = write_html(runs / "pictures")
    page.open(path.as_uri())
    page.wait("document.querySelectorAll('.pair').length > 0")
    page.wait("document.querySelectorAll('.chart canvas').length >= 8")
    page.run("document.querySelector('.pair').click()")
    page.wait("document.querySelector('.cell .pair-picture.large')")
    assert page.texts(".numbers h3")[0] == "Measures (16)"
    elites = RunFolder(runs / "pictures").read_archive()
    assert len(page.texts(".neighbours button")) == min(8, len(elites) - 1)
    requests = {urlsplit(one).scheme for one in page.requests()}
    assert requests <= {"file", "data", "blob"}
