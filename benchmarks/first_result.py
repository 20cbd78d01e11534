"""Time to the first result, with an empty cache of compiled programs and with a warm one.

That is the import, the first `ask` of the quickstart (without imports), and the first iteration of
`gloam run` on 2D LP, with the start of the process.
"""

import os
import subprocess
import sys
import tempfile
import time

IMPORT = "import time; t = time.perf_counter(); import gloam; print(time.perf_counter() - t)"
# The quickstart, up to its first solutions.
ASK = """
import time
import gloam, numpy as np
gloam.DMS, gloam.Search, gloam.GridArchive
start = time.perf_counter()
archive = gloam.GridArchive(shape=(100, 100), lower=-1, upper=1)
gloam.Search(gloam.DMS(archive, x0=np.zeros(10), sigma0=0.2), seed=1).ask()
print(time.perf_counter() - start)
"""
# The command line, up to the first iteration of the 2D demo.
FIRST = """
import sys
from gloam.cli import main
sys.argv[1:] = ["run", "dms-paper", "lp", "--out", sys.argv[1], "--iterations", "1", "--quiet"]
main()
"""


def seconds(code: str, *arguments: str, cache: str) -> float:
    """Return the wall time of a new process."""
    environment = os.environ | {"XDG_CACHE_HOME": cache}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # installed packages are compiled
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    elapsed = time.perf_counter() - start
    return elapsed if code is FIRST else float(done.stdout)


def main() -> int:
    """Measure everything three times."""
    for number in range(3):
        with tempfile.TemporaryDirectory() as folder:
            importing = seconds(IMPORT, cache=folder)
            asks = [seconds(ASK, cache=folder) for _ in range(2)]
            cold = seconds(FIRST, f"{folder}/a", cache=folder)
            warm = seconds(FIRST, f"{folder}/b", cache=folder)
        print(
            f"{number}: import {importing:.2f} s, first ask {asks[0]:.2f} s and with a warm cache "
            f"{asks[1]:.2f} s, first iteration {cold:.1f} s and {warm:.1f} s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
