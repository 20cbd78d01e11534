"""pyribs as a contender: built from our settings for every algorithm, and doing the same work."""

import pytest

from gloam.experiments.comparison import ALGORITHMS, Problem


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_pyribs_does_the_work_of_our_settings(algorithm):
    pytest.importorskip("ribs", reason="pyribs is not installed: pip install 'gloam[bench]'")
    pytest.importorskip("torch", reason="pyribs' discount model needs PyTorch")
    from gloam.experiments.pyribs import Pyribs

    contender = Pyribs(Problem(algorithm, 2), seed=0)
    contender.advance(2)
    assert contender.evaluations == 2 * 540
    assert contender.num_cells == 10_000
    assert contender.qd_score > 0
    # Only DMS trains, for up to five epochs.
    assert (1 <= contender.last_epochs() <= 5) == (algorithm == "dms")
