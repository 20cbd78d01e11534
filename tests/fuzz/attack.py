"""What all attacks share: limits of time and memory, and what gloam must never do.

A kind of attack is a class with a method ``draw(rng)``, which returns an `Attack`; the generator of
random numbers determines it. `test_attacks.py` tries a few of each kind, and
`benchmarks/attack.py` as many as fit into an hour.
"""

import contextlib
import dataclasses
import dis
import os
import resource
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Protocol

import jax
import matplotlib
import matplotlib.font_manager  # it starts a program when it is first imported
import numpy as np

import gloam
import gloam_lab
from gloam._tools.files import cache_folder

MARK = "GLOAM_TEST_MARK"
"""Variable of the environment with the path of a file that payloads create."""
CODE = f"open(__import__('os').environ['{MARK}'], 'w').close()"
SECRET = "GLOAM-SECRET-5711"
"""Text of a file outside of every folder that gloam is asked to read."""

_SOURCES = {Path(gloam.__file__).parent, Path(gloam_lab.__file__).parent}
_MOST_BYTES = 6 << 30  # beyond what the process has when an attack begins
_PROGRAMS = ("os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.startfile")
_FORBIDDEN = (*_PROGRAMS, "subprocess.Popen", "pickle.find_class")
_LIBRARIES = ("site-packages/numba", "site-packages/distributed", "site-packages/dask")
_LIBRARIES += ("/platform.py", "/multiprocessing/", "/concurrent/futures/process.py")
_CHANGES = ("os.mkdir", "os.remove", "os.rmdir", "os.rename", "os.truncate", "os.chmod")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


@dataclasses.dataclass(frozen=True)
class Attack:
    """One attack.

    Args:
        description: A line that says what is done.
        run: Does it, and raises an exception if gloam does not hold.
    """

    description: str
    run: Callable[[], None]


class Kind(Protocol):
    """One kind of attack. Its constructor takes a folder to work in."""

    def draw(self, rng: np.random.Generator) -> Attack:
        """Return a random attack."""
        ...


class TimeLimitError(BaseException):
    """An attack takes too long. No ``except Exception`` catches it."""


def failure_of(attack: Attack, work: Path, *, seconds: int = 60) -> str | None:
    """Try an attack; return what went wrong, or ``None`` if gloam held.

    Args:
        attack: The attack.
        work: The only folder in which files may change.
        seconds: Time limit.
    """
    mark = work / "executed"
    mark.unlink(missing_ok=True)
    os.environ[MARK] = str(mark)
    try:
        with _watched(work) as seen, _limited_memory(), _limited_time(seconds):
            attack.run()
    except TimeLimitError:
        return f"no end within {seconds} s"
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return _described(error)
    if mark.exists():
        return "code of a file was executed"
    return f"forbidden: {', '.join(sorted(set(seen)))}"[:500] if seen else None


def _described(error: BaseException) -> str:
    """An error in one line, with the last lines of gloam that it came through."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_gloam(f.filename)]
    where = ", ".join(f"{Path(f.filename).name}:{f.lineno}" for f in frames[-2:])
    text = " ".join(str(error).split())[:400]
    return f"{type(error).__name__}: {text}" + (f" [{where}]" if where else "")


def _is_gloam(file: str) -> bool:
    return bool(_SOURCES & set(Path(file).parents))


def is_raised_by_gloam(error: BaseException) -> bool:
    """Whether a ``raise`` statement in gloam made an error, and not a library that it called."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not _is_gloam(trace.tb_frame.f_code.co_filename):
        return False
    instructions = dis.get_instructions(trace.tb_frame.f_code)
    name = next(i.opname for i in instructions if i.offset == trace.tb_lasti)
    return name == "RAISE_VARARGS"


def check_refusal(error: BaseException, *, naming: Path | None = None) -> None:
    """Check that an error is one that gloam documents, in words of its own.

    Args:
        error: The error.
        naming: Folder or file that the message must contain, but for an error about the user's own
            objects.
    """
    if not isinstance(error, (ValueError, gloam.errors.EvaluationError, gloam.errors.WorkerError)):
        raise error
    if not is_raised_by_gloam(error):
        raise error
    text = str(error)
    assert len(text) < 3000, f"a message of {len(text)} characters: {text[:200]}"
    assert SECRET not in text, "the message has the content of a foreign file"
    if naming is not None and not isinstance(error, gloam.errors.ForeignError):
        assert str(naming) in text, f"the message does not name the file: {text}"


def prepare(work: Path) -> Path:
    """Make the folder of all attacks the current one; the cache of gloam is in it."""
    work.mkdir(parents=True, exist_ok=True)
    os.environ["XDG_CACHE_HOME"] = str(work / "cache")
    os.chdir(work)
    return work


@contextlib.contextmanager
def _limited_time(seconds: int) -> Iterator[None]:
    def stop(number: int, frame: Any) -> None:
        raise TimeLimitError

    usual = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, usual)


@contextlib.contextmanager
def _limited_memory() -> Iterator[None]:
    usual = resource.getrlimit(resource.RLIMIT_AS)
    if sys.platform == "linux":
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + _MOST_BYTES
        if usual[1] != resource.RLIM_INFINITY:
            limit = min(limit, usual[1])
        resource.setrlimit(resource.RLIMIT_AS, (limit, usual[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, usual)


# Forbidden operations

_watching: tuple[tuple[str, ...], list[str]] | None = None
_is_hooked = False


@contextlib.contextmanager
def _watched(work: Path) -> Iterator[list[str]]:
    """Collect programs that are started, pickles that are loaded, and writes outside of ``work``.

    Libraries may write to their caches.
    """
    global _watching, _is_hooked
    if not _is_hooked:
        sys.addaudithook(_hear)  # for good: Python cannot remove one
        _is_hooked = True
    caches = [jax.config.jax_compilation_cache_dir, cache_folder()]
    caches += [matplotlib.get_configdir(), matplotlib.get_cachedir()]
    allowed = [work, *(Path(cache) for cache in caches if cache)]
    seen: list[str] = []
    _watching = tuple(os.path.realpath(folder) for folder in allowed), seen
    try:
        yield seen
    finally:
        _watching = None


def _hear(event: str, details: tuple) -> None:
    if _watching is None:
        return
    allowed, seen = _watching
    if event in _FORBIDDEN and not _is_by_library():
        seen.append(f"{event}{details!r}"[:200])
    elif event == "open":
        path, mode, flags = details
        if flags & _WRITING or (mode is not None and set(mode) & set("wax+")):
            _hear_write(path, allowed, seen)
    elif event in _CHANGES and not (isinstance(details[-1], int) and details[-1] >= 0):
        _hear_write(details[0], allowed, seen)  # but for names relative to an open folder


def _is_by_library() -> bool:
    """Whether numba reads compiled functions, Dask or Python starts workers, or asks the system."""
    frame = sys._getframe(2)
    while frame is not None:
        if any(name in frame.f_code.co_filename for name in _LIBRARIES):
            return True
        frame = frame.f_back
    return False


def _hear_write(path: Any, allowed: tuple[str, ...], seen: list[str]) -> None:
    if isinstance(path, int):
        return
    folder, name = os.path.split(os.fsdecode(path))
    whole = os.path.join(os.path.realpath(folder or "."), name)
    harmless = whole.startswith(("/dev", "/proc")) or "__pycache__" in whole
    if not harmless and not any(whole == a or whole.startswith(a + os.sep) for a in allowed):
        seen.append(f"write to {whole}")


def temporary_folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder for attacks that is removed after use."""
    return tempfile.TemporaryDirectory(prefix="gloam-attack-")
