import contextlib
import shutil
import threading
import time
from pathlib import Path

import pytest

import gloam
from tests.run_folders import GRID, ITERATIONS, write_grid_run, write_pictures_run

HOSTILE = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="session")
def made_runs(tmp_path_factory) -> Path:
    """A folder with runs: on a grid with two seeds, on a dataset, and one of a real search."""
    root = tmp_path_factory.mktemp("explorer") / "runs"
    write_grid_run(root / "grid")
    write_pictures_run(root / "pictures")
    domain = gloam.domains.LinearProjection(measure_dim=2, solution_dim=4)
    algorithm = gloam.MAPElites(GRID, domain.x0, 0.5, batch_size=8)
    options = {"iterations": ITERATIONS, "log_every": 1, "progress": False}
    gloam.run(domain, algorithm, seeds=[0], run_dir=root / "others" / "map-elites", **options)
    return root


@pytest.fixture
def runs(made_runs, tmp_path) -> Path:
    """A copy of the runs that a test may change."""
    return Path(shutil.copytree(made_runs, tmp_path / "runs"))


@contextlib.contextmanager
def serving(root: Path, *hosts: str, by_address: bool = False, draw=None):
    """The address of an explorer in a thread."""
    uvicorn = pytest.importorskip("uvicorn", reason="the explorer needs gloam[explorer]")
    from gloam.explorer.app import explorer_app
    from gloam.explorer.library import Library
    from gloam.explorer.server import _listening

    listening = _listening("127.0.0.1", 0)
    app = explorer_app(Library(root, draw), hosts, by_address=by_address)
    server = uvicorn.Server(uvicorn.Config(app, log_level="error", lifespan="off", ws="none"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    yield f"http://localhost:{listening.getsockname()[1]}/"
    server.should_exit = True
    thread.join()
    listening.close()
