"""Where the time before the first iteration goes: tracing, lowering and XLA, by program.

    python benchmarks/compilation.py --algorithms dms dms-paper --domains 2d-lp-sphere --seeds 1

Every algorithm is compiled in a process of its own, with an empty cache of compiled programs. The
two programs are those of `gloam.run`: `begin` makes the first state, `loop` runs iterations. A run
compiles them at the same time. "Warm" is the same in a second process, which reads what the first
one left in the cache.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import pandas as pd


def measure(algorithm: str, name: str, num_seeds: int, centroids_dir: str | None) -> None:
    """Print the times of both programs as JSON."""
    began = time.perf_counter()
    import jax
    import numpy as np

    from gloam._tools.compiler import compile_lowered, compiler_options
    from gloam.runs.fused_driver import FusedDriver
    from gloam_lab.presets import preset_algorithm
    from gloam_lab.study import domain_named

    imported = time.perf_counter()
    domain = domain_named(name, centroids_dir)
    driver = FusedDriver(domain, preset_algorithm(algorithm, domain), list(range(num_seeds)))
    jax.block_until_ready(driver._x0s)
    built = time.perf_counter()
    programs, given = driver._programs, (driver._arrays, driver._keys, driver._x0s)
    print(json.dumps({"program": "", "import": imported - began, "build": built - imported}))
    traced = programs._begin.trace(*given)
    report("begin", traced, time.perf_counter() - built, compile_lowered, compiler_options())
    started = time.perf_counter()
    loop = programs._loop.trace(driver._arrays, traced.out_info, np.ones(2, np.int32))
    report("loop", loop, time.perf_counter() - started, compile_lowered, compiler_options())


def report(name: str, traced: Any, tracing: float, compiled: Callable, options: dict) -> None:
    """Lower and compile a traced program, and print its times."""
    started = time.perf_counter()
    lowered = traced.lower()
    lowering = time.perf_counter() - started
    text = lowered.as_text()
    started = time.perf_counter()
    compiled(lowered, options)
    row = {"program": name, "trace": tracing, "lower": lowering}
    row |= {"xla": time.perf_counter() - started, "operations": text.count(" = ")}
    print(json.dumps(row))


def main() -> None:
    """Measure every algorithm with an empty cache and with a warm one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--algorithms", nargs="+", default=["dms", "dms-paper"])
    parser.add_argument("--domains", nargs="+", default=["2d-lp-sphere"])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--centroids-dir")
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        measure(options.algorithms[0], options.domains[0], options.seeds, options.centroids_dir)
        return
    rows = []
    for domain in options.domains:
        for algorithm in options.algorithms:
            with tempfile.TemporaryDirectory() as folder:
                environment = os.environ | {"XDG_CACHE_HOME": folder}
                environment.pop("JAX_COMPILATION_CACHE_DIR", None)
                command = [sys.executable, __file__, "--one", "--algorithms", algorithm]
                command += ["--domains", domain, "--seeds", str(options.seeds)]
                if options.centroids_dir:
                    command += ["--centroids-dir", options.centroids_dir]
                for cache in ("empty", "warm"):
                    done = subprocess.run(
                        command, env=environment, capture_output=True, text=True, check=True
                    )
                    found = [json.loads(line) for line in done.stdout.splitlines()]
                    common = {"algorithm": algorithm, "domain": domain, "cache": cache}
                    rows += [common | row for row in found]
    print(pd.DataFrame(rows).round(2).to_string(index=False, na_rep=""))


if __name__ == "__main__":
    main()
