"""Measure how fast the explorer responds, and how much an open page slows a run down.

`pages` serves a folder of 50 runs, among them archives of 10^6 cells (a grid of two measures and
centroids of ten), and measures in Chromium: the first page from the request to its last row, and
clicks on cells from the event to the panel that shows the elite.
`watched` runs the same search with and without an open page, in turns, and prints the time of each
and the CPU time of the server.
Both need `pip install 'gloam[explorer,test]'` and Chromium with its driver.
"""

import argparse
import hashlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import equinox as eqx
import jax
import numpy as np
import pandas as pd
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

import gloam
from gloam import step
from gloam._tools.draws import root_key
from gloam.archives import Elites
from gloam.formats.config import describe
from gloam.formats.tables import MetricsFile

PORT = 8473
ADDRESS = f"http://localhost:{PORT}/"
SOLUTION_DIM = 20


def large_run(path: Path, archive: gloam.archives.Archive) -> None:
    """Write a finished run with random elites in nine tenths of the cells."""
    random = np.random.default_rng(0)
    algorithm = gloam.DMS.paper(archive, np.zeros(SOLUTION_DIM), 0.5)
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=SOLUTION_DIM)
    folder = gloam.RunFolder(path)
    plan = {"iterations": 1}
    described = describe(algorithm, domain, driver="fused", seeds=[0], dataset=None, plan=plan)
    folder.write_config(*described)
    state = step.init(algorithm, root_key(0))
    cells = archive.num_cells
    centers = np.asarray(archive.centers_of(np.arange(cells)))
    objectives = np.cos(centers[:, 0] / 60) * np.cos(centers[:, 1] / 45)
    objectives = objectives.astype(np.float32) + 0.05 * random.random(cells, np.float32)
    objectives[random.random(cells) < 0.1] = -np.inf
    solutions = random.random((cells, SOLUTION_DIM), np.float32)
    store = eqx.tree_at(
        lambda s: (s.solutions, s.objectives, s.measures),
        state.store,
        (solutions, objectives, centers),
    )
    state = eqx.tree_at(lambda s: s.store, state, store)
    seeds = jax.tree.map(lambda leaf: leaf[None], state)
    seeds = eqx.tree_at(lambda s: s.iteration, seeds, jax.numpy.asarray(1, jax.numpy.int32))
    folder.write_checkpoint(seeds, seconds=1.0)
    folder.write_archive(Elites(archive, store), seed=0)
    row = {"seed": [0], "iteration": [1], "qd_score": [1.0], "coverage": [0.9], "seconds": [1.0]}
    MetricsFile(folder.path).write(pd.DataFrame(row))


def fifty_runs(root: Path) -> None:
    """Write a folder of 50 runs: two large ones, and copies of a small one."""
    large_run(root / "grid-million", gloam.GridArchive((1000, 1000), -256, 256))
    centroids = 100 * np.random.default_rng(1).standard_normal((10**6, 10), np.float32)
    large_run(root / "cvt-million", gloam.CVTArchive(centroids, index="exact"))
    domain = gloam.domains.LinearProjection(measure_dim=2)
    algorithm = gloam.DMS.paper(gloam.GridArchive((20, 20), -256, 256), domain.x0, 0.5)
    small = root / "small-00"
    options = {"run_dir": small, "progress": False, "log_every": 1}
    gloam.run(domain, algorithm, seeds=[0, 1], iterations=200, **options)
    for number in range(1, 48):
        shutil.copytree(small, root / f"small-{number:02d}")


def served(root: Path) -> subprocess.Popen:
    """Start the explorer of a folder in a separate process."""
    command = [sys.executable, "-m", "gloam", "explore", str(root)]
    command += ["--port", str(PORT), "--no-browser"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def browser() -> webdriver.Chrome:
    """Start a headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--enable-unsafe-swiftshader"):
        options.add_argument(argument)
    options.add_argument("--window-size=1360,900")
    return webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))


def waited(page: webdriver.Chrome, condition: str, seconds: float = 60.0) -> None:
    """Wait until a JavaScript expression is true."""
    end = time.monotonic() + seconds
    while not page.execute_script(f"return Boolean({condition})"):
        if time.monotonic() > end:
            raise TimeoutError(condition)
        time.sleep(0.02)


CLICK = """
const [x, y, done] = arguments;
const plane = document.querySelector(".plane");
const panel = document.querySelector(".cell-content");
const box = plane.getBoundingClientRect();
const start = performance.now();
const watch = new MutationObserver(() => {
  if (!panel.querySelector("h2")) return;
  watch.disconnect();
  done(performance.now() - start);
});
watch.observe(panel, { childList: true, subtree: true });
for (const kind of ["pointerdown", "pointerup"]) {
  const at = { clientX: box.left + x * box.width, clientY: box.top + y * box.height };
  plane.dispatchEvent(new PointerEvent(kind, { ...at, bubbles: true, button: 0, buttons: 1 }));
}
"""


def pages(clicks: int) -> None:
    """Print the times of the first page and of clicks."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        root = Path(name).resolve()
        fifty_runs(root)
        server, page = served(root), browser()
        try:
            measure_pages(page, clicks)
        finally:
            page.quit()
            server.terminate()
            server.wait()


def measure_pages(page: webdriver.Chrome, clicks: int) -> None:
    page.get("about:blank")
    times = []
    for _ in range(5):
        page.get(ADDRESS)
        waited(page, "document.querySelectorAll('tr[data-id]').length === 50")
        times.append(page.execute_script(ROWS_AT))
        page.get("about:blank")
    print(f"first page: {max(times[:1]):.0f} ms, then {statistics.median(times[1:]):.0f} ms")
    page.get(ADDRESS)
    waited(page, "document.querySelectorAll('tr[data-id]').length === 50")
    for run in ("grid-million", "cvt-million"):
        link = f"[...document.querySelectorAll('th.name a')].find((a) => a.textContent === '{run}')"
        begun = time.perf_counter()
        page.execute_script(f"{link}.click()")
        waited(page, "document.querySelector('.legend .bar')")
        opened = time.perf_counter() - begun
        if run == "grid-million":  # the discount model is compiled and drawn, once
            waited(page, "document.querySelectorAll('.legend .bar').length === 2")
        random = np.random.default_rng(0)
        taken = []
        for _ in range(clicks):
            x, y = random.uniform(0.35, 0.65, 2)
            page.set_script_timeout(20)
            taken.append(page.execute_async_script(CLICK, float(x), float(y)))
        print(
            f"{run}: archive drawn after {opened:.1f} s; click: first {taken[0]:.0f} ms, "
            f"median {statistics.median(taken):.0f} ms, slowest of the others "
            f"{max(taken[1:]):.0f} ms"
        )
        page.get(ADDRESS)
        waited(page, "document.querySelectorAll('tr[data-id]').length === 50")


ROWS_AT = "return performance.now()"


def watched(iterations: int, repeats: int) -> None:
    """Print the time of a search with and without an open page."""
    with tempfile.TemporaryDirectory(dir=".") as name:
        root = Path(name).resolve()
        domain = gloam.domains.LinearProjection(measure_dim=2)
        algorithm = gloam.DMS(domain.archive(), domain.x0, sigma0=0.5)

        def search(number: int) -> float:
            begun = time.perf_counter()
            options = {"run_dir": root / f"run-{number}", "progress": False, "log_every": 10}
            gloam.run(domain, algorithm, seeds=[0], iterations=iterations, **options)
            return time.perf_counter() - begun

        search(0)
        server, page = served(root), browser()
        alone, seen, busy = [], [], []
        try:
            for repeat in range(repeats):
                page.get("about:blank")
                alone.append(search(2 * repeat + 1))
                # The id of a run is a digest of its name.
                digest = hashlib.sha256(f"run-{2 * repeat + 2}".encode()).hexdigest()
                page.get(f"{ADDRESS}#/run/{digest[:12]}")
                before = processor_seconds(server.pid)
                seen.append(search(2 * repeat + 2))
                busy.append((processor_seconds(server.pid) - before) / seen[-1])
        finally:
            page.quit()
            server.terminate()
            server.wait()
    print("alone, seconds:  ", " ".join(f"{one:.2f}" for one in alone))
    print("watched, seconds:", " ".join(f"{one:.2f}" for one in seen))
    more = statistics.median(seen) / statistics.median(alone) - 1
    print(f"median: {more:+.1%}; the server used {statistics.mean(busy):.1%} of one core")


def processor_seconds(process: int) -> float:
    """Return the CPU time of a process (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["pages", "watched"])
    parser.add_argument("--clicks", type=int, default=20)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--repeats", type=int, default=4)
    given = parser.parse_args()
    if given.what == "pages":
        pages(given.clicks)
    else:
        watched(given.iterations, given.repeats)


if __name__ == "__main__":
    main()
