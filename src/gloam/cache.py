"""The folder for files that can be computed or downloaded again."""

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """The folder that ``GLOAM_CACHE`` names, or the user's cache folder of this platform.

    It has centroids, downloaded datasets, embeddings and compiled programs. Nothing is lost when
    it is deleted. It need not exist yet.
    """
    given = os.environ.get("GLOAM_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("gloam", appauthor=False)
