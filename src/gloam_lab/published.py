"""The paper's published results, and the titles that it prints for domains and algorithms."""

from typing import NamedTuple

_PYRIBS = "-pyribs"


class Published(NamedTuple):
    """Result of one algorithm on one domain (appendix B): means and standard errors over seeds."""

    qd_score: float
    qd_score_error: float
    coverage: float
    """Coverage in per cent."""
    coverage_error: float


PUBLISHED = {
    # 20 seeds.
    ("2d-lp-sphere", "dms-paper"): Published(6978.20, 17.94, 95.89, 0.43),
    ("2d-lp-sphere", "cma-mae"): Published(6327.90, 3.60, 80.95, 0.06),
    ("2d-lp-sphere", "dds"): Published(3156.24, 91.07, 70.75, 0.65),
    ("2d-lp-sphere", "map-elites-line"): Published(4908.81, 2.48, 60.42, 0.04),
    ("2d-lp-sphere", "map-elites"): Published(4163.41, 4.10, 50.76, 0.07),
    ("10d-lp-sphere", "dms-paper"): Published(6409.50, 13.50, 89.21, 0.18),
    ("10d-lp-sphere", "cma-mae"): Published(608.53, 24.78, 6.95, 0.31),
    ("10d-lp-sphere", "dds"): Published(4237.72, 21.18, 60.07, 0.28),
    ("10d-lp-sphere", "map-elites-line"): Published(2570.74, 39.16, 29.20, 0.45),
    ("10d-lp-sphere", "map-elites"): Published(228.65, 8.79, 2.35, 0.09),
    ("20d-lp-sphere", "dms-paper"): Published(7406.01, 23.37, 95.97, 0.07),
    ("20d-lp-sphere", "cma-mae"): Published(881.76, 72.92, 9.13, 0.80),
    ("20d-lp-sphere", "dds"): Published(6990.51, 6.81, 84.31, 0.07),
    ("20d-lp-sphere", "map-elites-line"): Published(5936.66, 6.90, 65.86, 0.10),
    ("20d-lp-sphere", "map-elites"): Published(3280.34, 94.26, 35.62, 1.10),
    ("50d-lp-sphere", "dms-paper"): Published(6991.00, 4.48, 87.00, 0.04),
    ("50d-lp-sphere", "cma-mae"): Published(2327.11, 18.78, 24.21, 0.20),
    ("50d-lp-sphere", "dds"): Published(6373.24, 3.24, 74.30, 0.04),
    ("50d-lp-sphere", "map-elites-line"): Published(5204.80, 11.47, 55.77, 0.14),
    ("50d-lp-sphere", "map-elites"): Published(3870.48, 12.47, 40.89, 0.14),
    ("2d-lp-rastrigin", "dms-paper"): Published(5738.90, 19.78, 91.67, 0.44),
    ("2d-lp-rastrigin", "cma-mae"): Published(5258.59, 5.97, 80.14, 0.11),
    ("2d-lp-rastrigin", "dds"): Published(2495.11, 93.14, 71.68, 0.96),
    ("2d-lp-rastrigin", "map-elites-line"): Published(3841.05, 4.67, 56.63, 0.07),
    ("2d-lp-rastrigin", "map-elites"): Published(3172.59, 8.43, 48.21, 0.14),
    ("10d-lp-rastrigin", "dms-paper"): Published(5138.81, 10.31, 88.19, 0.12),
    ("10d-lp-rastrigin", "cma-mae"): Published(246.55, 36.93, 2.98, 0.49),
    ("10d-lp-rastrigin", "dds"): Published(3331.70, 18.20, 59.54, 0.27),
    ("10d-lp-rastrigin", "map-elites-line"): Published(2001.76, 23.09, 28.04, 0.33),
    ("10d-lp-rastrigin", "map-elites"): Published(499.66, 14.06, 7.09, 0.22),
    ("2d-lp-flat", "dms-paper"): Published(7902.05, 35.68, 79.02, 0.36),
    ("2d-lp-flat", "cma-mae"): Published(5675.90, 46.04, 56.76, 0.46),
    ("2d-lp-flat", "dds"): Published(6967.75, 98.80, 69.68, 0.99),
    ("2d-lp-flat", "map-elites-line"): Published(4510.65, 41.43, 45.11, 0.41),
    ("2d-lp-flat", "map-elites"): Published(4327.00, 17.29, 43.27, 0.17),
    ("10d-lp-flat", "dms-paper"): Published(7982.15, 24.43, 79.82, 0.24),
    ("10d-lp-flat", "cma-mae"): Published(1554.90, 26.04, 15.55, 0.26),
    ("10d-lp-flat", "dds"): Published(6004.95, 21.52, 60.05, 0.22),
    ("10d-lp-flat", "map-elites-line"): Published(757.75, 20.10, 7.58, 0.20),
    ("10d-lp-flat", "map-elites"): Published(125.65, 15.88, 1.26, 0.16),
    ("arm", "dms-paper"): Published(7963.44, 2.47, 80.15, 0.01),
    ("arm", "cma-mae"): Published(7902.43, 1.93, 79.22, 0.02),
    ("arm", "dds"): Published(5568.23, 54.86, 80.24, 0.00),
    ("arm", "map-elites-line"): Published(7458.67, 2.56, 75.60, 0.03),
    ("arm", "map-elites"): Published(7411.10, 2.56, 75.42, 0.03),
    # 5 seeds. The paper could not run DDS on images.
    ("ta-mnist", "dms-paper"): Published(951.56, 0.95, 99.84, 0.10),
    ("ta-mnist", "cma-mae"): Published(954.27, 0.69, 99.48, 0.09),
    ("ta-mnist", "map-elites-line"): Published(945.60, 1.38, 98.86, 0.15),
    ("ta-mnist", "map-elites"): Published(941.94, 2.01, 98.42, 0.22),
    ("ta-fashion-mnist", "dms-paper"): Published(701.14, 5.65, 72.28, 0.60),
    ("ta-fashion-mnist", "cma-mae"): Published(625.65, 8.60, 63.92, 0.88),
    ("ta-fashion-mnist", "map-elites-line"): Published(551.13, 6.16, 56.68, 0.64),
    ("ta-fashion-mnist", "map-elites"): Published(513.13, 6.80, 52.68, 0.70),
    ("lsi", "dms-paper"): Published(214.91, 15.23, 3.77, 0.13),
    ("lsi", "cma-mae"): Published(14.61, 26.18, 1.56, 0.05),
    ("lsi", "map-elites-line"): Published(-51827.44, 17953.11, 7.49, 1.03),
    ("lsi", "map-elites"): Published(-18917.87, 5705.28, 5.06, 1.17),
}
"""Results by domain and algorithm."""

TITLES = {
    "dms": "DMS",
    "dms-paper": "DMS (paper)",
    "cma-mae": "CMA-MAE",
    "dds": "DDS",
    "map-elites-line": "MAP-Elites (line)",
    "map-elites": "MAP-Elites",
    "dms-gradients": "DMS (gradients)",
    "cma-mega": "CMA-MEGA",
    "cma-maega": "CMA-MAEGA",
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


def published(domain: str, algorithm: str) -> Published | None:
    """Return the paper's result, which was computed with pyribs' CMA-ES, or ``None``."""
    return PUBLISHED.get((domain, algorithm.removesuffix(_PYRIBS)))


def title(name: str) -> str:
    """Return the title of a domain or an algorithm; unknown names are returned unchanged.

    >>> title("10d-lp-sphere"), title("cma-mae-pyribs")
    ('10D LP (Sphere)', "CMA-MAE, pyribs' CMA-ES")
    """
    base = name.removesuffix(_PYRIBS)
    suffix = "" if base == name else ", pyribs' CMA-ES"
    return f"{TITLES[base]}{suffix}" if base in TITLES else name
