"""Functions that worker processes import."""

import os
import time
from pathlib import Path

import numpy as np


def batch(x):
    return 1 - np.square(x).sum(axis=1), x[:, :2]


def one(x):
    return 1 - np.square(x).sum(), x[:2]


def with_field(x):
    return 1 - np.square(x).sum(axis=1), x[:, :2], {"third": x[:, 2]}


def measures_alone(x):
    return x[:, :2]


def raises(x):
    if (x[:, 0] > 1).any():
        raise RuntimeError("too far")
    return batch(x)


def raises_alone(x):
    if x[0] > 1:
        raise RuntimeError("too far")
    return one(x)


def crashes(x):
    if x[0] > 1:
        os._exit(7)
    return one(x)


def batch_crashes(x):
    if (x[:, 0] > 1).any():
        os._exit(7)
    return batch(x)


def hangs(x):
    if x[0] > 1:
        time.sleep(600)
    return one(x)


def hangs_at_some(x):
    if int(1e6 * abs(x[0])) % 4 == 0:
        time.sleep(600)
    return one(x)


def batch_hangs(x):
    if (x[:, 0] > 1).any():
        time.sleep(600)
    return batch(x)


def crashes_once(x):
    """Ends its process at the first call, in whichever process that is."""
    mark = Path(os.environ["GLOAM_TEST_MARK"])
    if x[0] > 1 and not mark.exists():
        mark.touch()
        os._exit(7)
    return one(x)


factor = 0.0


def set_factor(value):
    global factor
    factor = value


def scaled(x):
    return factor * x[:, 0], x[:, :2]


def broken_start():
    raise RuntimeError("no model file")


def process_number(x):
    return np.full(len(x), float(os.getpid() % 100_000)), x[:, :2]
