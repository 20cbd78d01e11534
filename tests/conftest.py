import ctypes
import gc
import importlib.util
import itertools
import mmap
import os
import signal
import sys
from pathlib import Path


def _jaxlib_knows(flag: str) -> bool:
    """Whether XLA has a flag; it ends the process at one that it does not have.

    The name of a flag is a string that ends by a zero byte. Names of former flags are elsewhere.
    """
    name = flag.encode() + b"\0"
    spec = importlib.util.find_spec("jaxlib")
    folders = (spec and spec.submodule_search_locations) or []
    for library in (path for folder in folders for path in Path(folder).glob("*jax_common*")):
        with library.open("rb") as file:
            if mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ).find(name) >= 0:
                return True
    return False


# The tests measure no speed, and most of the time of a compilation goes into optimising and into
# the new emitters of fused loops.
_FLAGS = ["--xla_backend_optimization_level=0"]
if _jaxlib_knows("xla_cpu_use_fusion_emitters"):
    _FLAGS += ["--xla_cpu_use_fusion_emitters=false"]
if _jaxlib_knows("xla_cpu_parallel_codegen_split_count"):  # all cores are busy
    _FLAGS += ["--xla_cpu_parallel_codegen_split_count=1"]
os.environ["XLA_FLAGS"] = " ".join([os.environ.get("XLA_FLAGS", ""), *_FLAGS])
# They compile the same small programs again and again: all workers share one cache of them.
_CACHE = Path(__file__).parents[1] / ".pytest_cache" / "compiled"
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(_CACHE))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
# Nobody reads the places in the source that compiled programs remember.
os.environ.setdefault("JAX_TRACEBACK_IN_LOCATIONS_LIMIT", "0")
# pyribs adds a few rows at a time, which takes less time than to compile its functions.
os.environ.setdefault("NUMBA_DISABLE_JIT", "1")

# Programs are made of many small objects that live long: by default, a tenth of the time goes into
# looking for garbage among them.
gc.set_threshold(100_000, 50, 100)

from jaxtyping import install_import_hook  # noqa: E402

import tests.typechecker  # noqa: E402, F401  # by its name, below

# Shapes and dtypes of arrays are checked against their annotations where the arithmetic is. Modules
# that users call check their arguments themselves, and the tests hold them to their own messages.
_CHECKED = (
    "gloam._tools.draws",
    "gloam.emitters.cma_es",
    "gloam.emitters.sep_cma_es",
    "gloam.discounts.training",
    "gloam_lab.latent_illumination.clip_towers",
    "gloam_lab.latent_illumination.stylegan3_layers",
)
if os.environ.get("GLOAM_CHECK_SHAPES", "on") != "off":
    install_import_hook(_CHECKED, "tests.typechecker.checked")

import jax  # noqa: E402
import pytest  # noqa: E402
from hypothesis import HealthCheck, Phase, settings  # noqa: E402

from gloam.algorithms import dms as dms_module  # noqa: E402
from tests import problems  # noqa: E402

# A compiled function's first call may take seconds, and so may anything on a busy machine; the same
# examples come in every run. A failing example is shrunk but not explained, which takes minutes.
settings.register_profile(
    "gloam",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize=True,
    max_examples=10,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("gloam")


@pytest.fixture(autouse=True, scope="session")
def _ctrl_c():
    """Ctrl-C as in a terminal: programs in the background of a script start with it ignored."""
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, usual)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Mark the laboratory's tests as slow, its networks and attacks for releases, and order files.

    First those that drop all programs, when there are few, and then the longest one, so that no
    worker is alone with it in the end.
    """
    for item in items:
        if _room(item.path) == "lab":
            item.add_marker("slow")
        if _room(item.path) == "fuzz" or _IMAGES & {item.path.name, item.path.parent.name}:
            item.add_marker("release")

    def place(item):
        return item.get_closest_marker("first") is None, _room(item.path) != "test_docs.py"

    items.sort(key=place)


# Latent space illumination: networks that take long to compile, and rarely change.
_IMAGES = {"latent_illumination", "test_lsi.py"}


def _room(path: Path) -> str:
    """Return the folder below `tests` of a file, or the name of a file that is in none."""
    return path.relative_to(Path(__file__).parent).parts[0]


_modules = itertools.count(1)


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    """Drop compiled programs after every 25 files: those of all tests would take gigabytes."""
    yield
    if next(_modules) % 25 == 0:
        jax.clear_caches()
        gc.collect()
        if sys.platform == "linux":
            ctypes.CDLL(None).malloc_trim(0)  # freed memory goes back to the system


# Their subject is the whole `gloam.DMS`, or their bounds are from seeds of it. All other tests have
# fewer emitters to compile.
_WHOLE = {"algorithms", "emitters", "test_docs.py", "test_docs_claims.py", "test_units.py"}
_WHOLE |= {"test_agreement.py", "test_compiling.py", "test_kernels.py", "test_kills.py"}


# A hook and no fixture, because fixtures of a whole session would be set up before it.
@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    with pytest.MonkeyPatch.context() as patch:
        if not _WHOLE & {_room(item.path), item.path.name}:
            patch.setattr(dms_module, "_mixture", problems.few_emitters)
        return (yield)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GLOAM_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no data folder '{folder}': set GLOAM_DATA to the folder with the data")
    return folder


# One of each kind of emitter, discount and archive.
_SLOW = [pytest.param(name, marks=pytest.mark.slow) for name in ("cma-mae", "dds")]


@pytest.fixture(params=["dms", "map-elites-line", *_SLOW])
def algorithm(request):
    return problems.small(request.param)


@pytest.fixture
def dms():
    return problems.small("dms")
