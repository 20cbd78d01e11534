"""Time to the first result: import, and the first iteration of the 2D search, cold and warm."""

import os
import subprocess
import sys
import tempfile
import time

IMPORT = "import time; t = time.perf_counter(); import gloam; print(time.perf_counter() - t)"
# The command line, up to the first iteration of the 2D demo.
FIRST = """
import sys
from gloam.cli import main
main(["run", "dms-paper", "lp", "--out", sys.argv[1], "--iterations", "1", "--quiet"])
"""


def seconds(code: str, *arguments: str, cache: str) -> float:
    """Return the wall time of a new process."""
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    elapsed = time.perf_counter() - start
    return float(done.stdout) if code is IMPORT else elapsed


def main() -> int:
    """Measure everything three times."""
    for number in range(3):
        with tempfile.TemporaryDirectory() as folder:
            importing = seconds(IMPORT, cache=folder)
            cold = seconds(FIRST, f"{folder}/a", cache=folder)
            warm = seconds(FIRST, f"{folder}/b", cache=folder)
        print(
            f"{number}: import {importing:.2f} s, first iteration {cold:.1f} s with an empty "
            f"cache, {warm:.1f} s with a warm one",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
