"""The paper's published figures: QD score and coverage, mean and standard error over seeds."""

from typing import NamedTuple


class Published(NamedTuple):
    """One cell of the paper's tables of results (appendix B)."""

    qd_score: float
    qd_score_error: float
    coverage: float
    """In per cent, as printed."""
    coverage_error: float


# Columns of each domain: DMS, CMA-MAE, DDS, MAP-Elites (line), MAP-Elites.
_ORDER = ("dms", "cma-mae", "dds", "map-elites-line", "map-elites")
_FIGURES = {  # means of 20 trials
    "2d-lp-sphere": (
        (6978.20, 17.94, 95.89, 0.43),
        (6327.90, 3.60, 80.95, 0.06),
        (3156.24, 91.07, 70.75, 0.65),
        (4908.81, 2.48, 60.42, 0.04),
        (4163.41, 4.10, 50.76, 0.07),
    ),
    "10d-lp-sphere": (
        (6409.50, 13.50, 89.21, 0.18),
        (608.53, 24.78, 6.95, 0.31),
        (4237.72, 21.18, 60.07, 0.28),
        (2570.74, 39.16, 29.20, 0.45),
        (228.65, 8.79, 2.35, 0.09),
    ),
    "20d-lp-sphere": (
        (7406.01, 23.37, 95.97, 0.07),
        (881.76, 72.92, 9.13, 0.80),
        (6990.51, 6.81, 84.31, 0.07),
        (5936.66, 6.90, 65.86, 0.10),
        (3280.34, 94.26, 35.62, 1.10),
    ),
    "50d-lp-sphere": (
        (6991.00, 4.48, 87.00, 0.04),
        (2327.11, 18.78, 24.21, 0.20),
        (6373.24, 3.24, 74.30, 0.04),
        (5204.80, 11.47, 55.77, 0.14),
        (3870.48, 12.47, 40.89, 0.14),
    ),
    "2d-lp-rastrigin": (
        (5738.90, 19.78, 91.67, 0.44),
        (5258.59, 5.97, 80.14, 0.11),
        (2495.11, 93.14, 71.68, 0.96),
        (3841.05, 4.67, 56.63, 0.07),
        (3172.59, 8.43, 48.21, 0.14),
    ),
    "10d-lp-rastrigin": (
        (5138.81, 10.31, 88.19, 0.12),
        (246.55, 36.93, 2.98, 0.49),
        (3331.70, 18.20, 59.54, 0.27),
        (2001.76, 23.09, 28.04, 0.33),
        (499.66, 14.06, 7.09, 0.22),
    ),
    "2d-lp-flat": (
        (7902.05, 35.68, 79.02, 0.36),
        (5675.90, 46.04, 56.76, 0.46),
        (6967.75, 98.80, 69.68, 0.99),
        (4510.65, 41.43, 45.11, 0.41),
        (4327.00, 17.29, 43.27, 0.17),
    ),
    "10d-lp-flat": (
        (7982.15, 24.43, 79.82, 0.24),
        (1554.90, 26.04, 15.55, 0.26),
        (6004.95, 21.52, 60.05, 0.22),
        (757.75, 20.10, 7.58, 0.20),
        (125.65, 15.88, 1.26, 0.16),
    ),
    "arm": (
        (7963.44, 2.47, 80.15, 0.01),
        (7902.43, 1.93, 79.22, 0.02),
        (5568.23, 54.86, 80.24, 0.00),
        (7458.67, 2.56, 75.60, 0.03),
        (7411.10, 2.56, 75.42, 0.03),
    ),
}
# Means over 5 seeds. The paper could not run DDS on images.
_IMAGES = {
    "ta-mnist": (
        (951.56, 0.95, 99.84, 0.10),
        (954.27, 0.69, 99.48, 0.09),
        None,
        (945.60, 1.38, 98.86, 0.15),
        (941.94, 2.01, 98.42, 0.22),
    ),
    "ta-fashion-mnist": (
        (701.14, 5.65, 72.28, 0.60),
        (625.65, 8.60, 63.92, 0.88),
        None,
        (551.13, 6.16, 56.68, 0.64),
        (513.13, 6.80, 52.68, 0.70),
    ),
    "lsi": (
        (214.91, 15.23, 3.77, 0.13),
        (14.61, 26.18, 1.56, 0.05),
        None,
        (-51827.44, 17953.11, 7.49, 1.03),
        (-18917.87, 5705.28, 5.06, 1.17),
    ),
}

_PYRIBS = ("dms", "cma-mae", "dds")

PUBLISHED: dict[tuple[str, str], Published] = {
    (domain, algorithm): Published(*figures)
    for domain, row in (_FIGURES | _IMAGES).items()
    for name, figures in zip(_ORDER, row, strict=True)
    if figures is not None
    for algorithm in ((name, f"{name}-pyribs") if name in _PYRIBS else (name,))
}

TITLES = {
    "dms-default": "DMS (default)",
    "dms": "DMS",
    "cma-mae": "CMA-MAE",
    "dds": "DDS",
    "map-elites-line": "MAP-Elites (line)",
    "map-elites": "MAP-Elites",
    "dms-pyribs": "DMS (pyribs' CMA-ES)",
    "cma-mae-pyribs": "CMA-MAE (pyribs' CMA-ES)",
    "dds-pyribs": "DDS (pyribs' CMA-ES)",
    "2d-lp-sphere": "2D LP (Sphere)",
    "10d-lp-sphere": "10D LP (Sphere)",
    "20d-lp-sphere": "20D LP (Sphere)",
    "50d-lp-sphere": "50D LP (Sphere)",
    "2d-lp-rastrigin": "2D LP (Rastrigin)",
    "10d-lp-rastrigin": "10D LP (Rastrigin)",
    "2d-lp-flat": "2D LP (Flat)",
    "10d-lp-flat": "10D LP (Flat)",
    "arm": "Arm Repertoire",
    "ta-mnist": "TA (MNIST)",
    "ta-fashion-mnist": "TA (F-MNIST)",
    "lsi": "LSI (Hiker)",
}


def title(name: str) -> str:
    """A domain's or algorithm's name as the paper prints it; other names as they are."""
    return TITLES.get(name, name)
