import contextlib
import shutil
import threading
import time
from pathlib import Path

import pytest

import gloam
from tests.formats.conftest import small_run

HOSTILE = "<img src=x onerror=alert(1)>"


def grid_algorithm(domain):
    """DMS on a grid of 8 by 6 cells, with a small network."""
    return gloam.DMS.paper(
        gloam.GridArchive((8, 6), -domain.edge, domain.edge),
        domain.x0,
        0.5,
        num_emitters=2,
        batch_size=4,
        num_init_points=9,
        num_empty_points=3,
        network=gloam.discounts.MLP(2, (4,)),
    )


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory) -> Path:
    """A folder with runs: on a grid with two seeds, and on a dataset of pictures."""
    root = tmp_path_factory.mktemp("explorer") / "runs"
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=4)
    options = {"iterations": 6, "log_every": 1, "progress": False}
    gloam.run(
        domain,
        grid_algorithm(domain),
        seeds=[3, 4],
        run_dir=root / "grid",
        snapshots=[2, 6],
        **options,
    )
    random = gloam.MAPElites(gloam.GridArchive((8, 6), -domain.edge, domain.edge), domain.x0, 0.5)
    gloam.run(domain, random, seeds=[0], run_dir=root / "others" / "map-elites", **options)
    small_run(root / "pictures")
    return root


@pytest.fixture
def runs(made_runs, tmp_path) -> Path:
    """A copy of the runs that a test may change."""
    return Path(shutil.copytree(made_runs, tmp_path / "runs"))


@contextlib.contextmanager
def serving(root: Path):
    """The address of an explorer in a thread."""
    uvicorn = pytest.importorskip("uvicorn", reason="the explorer needs gloam[explorer]")
    from gloam.explorer.app import explorer_app
    from gloam.explorer.library import Library
    from gloam.explorer.server import _listening

    listening = _listening("127.0.0.1", 0)
    config = uvicorn.Config(
        explorer_app(Library(root)), log_level="error", lifespan="off", ws="none"
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://localhost:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()
    listening.close()
