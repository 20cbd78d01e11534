import os
from pathlib import Path

import pytest
from hypothesis import Phase, settings

# A compiled function's first call may take seconds; the same examples come in every run. A failing
# example is shrunk but not explained, which would take minutes.
settings.register_profile(
    "gloam",
    deadline=None,
    derandomize=True,
    max_examples=40,
    phases=[phase for phase in Phase if phase is not Phase.explain],
)
settings.load_profile("gloam")


@pytest.fixture(scope="session")
def shared_data() -> Path:
    default = Path(__file__).parents[2] / "shared" / "data"
    folder = Path(os.environ.get("GLOAM_DATA", default))
    if not folder.is_dir():
        pytest.skip(f"no data folder '{folder}': set GLOAM_DATA to the folder with the data")
    return folder
