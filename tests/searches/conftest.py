import pytest

from tests import problems


# The default, and one that compiles fast; the others after them.
@pytest.fixture(
    params=[
        "dms",
        "map-elites-line",
        pytest.param("cma-mae", marks=pytest.mark.slow),
        pytest.param("dds", marks=pytest.mark.slow),
    ]
)
def algorithm(request):
    return problems.small(request.param)
