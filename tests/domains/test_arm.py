"""The arm: postures worked by hand, and forward kinematics by complex numbers."""

import equinox as eqx
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from gloam.archives import GridArchive
from gloam.domains import Arm

PI = np.pi


@eqx.filter_jit
def compiled(domain, solutions):
    return domain(solutions)


def values(domain, solutions):
    objectives, measures = compiled(domain, np.asarray(solutions, np.float32))
    return np.asarray(objectives), np.asarray(measures)


@pytest.mark.parametrize(
    ("angles", "reach", "variance"),
    [
        ([0, 0, 0, 0], [4, 0], 0),
        # The whole arm turned: only the first joint bends. E[x^2] - E[x]^2 = pi^2/16 - pi^2/64.
        ([PI / 2, 0, 0, 0], [0, 4], 3 * PI**2 / 64),
        ([PI, 0, 0, 0], [-4, 0], 3 * PI**2 / 16),
        # Folded: every link lies back on the one before.
        ([0, PI, PI, PI], [0, 0], 3 * PI**2 / 16),
        # Bent in the middle: two links east, two links north.
        ([0, 0, PI / 2, 0], [2, 2], 3 * PI**2 / 64),
        # A square walked around, by equal angles.
        ([PI / 2, PI / 2, PI / 2, PI / 2], [0, 0], 0),
        ([-PI / 2, 0, 0, PI], [0, -2], 5 / 4 * PI**2 / 4 - PI**2 / 64),
    ],
)
def test_postures_worked_by_hand(angles, reach, variance):
    objectives, measures = values(Arm(num_joints=4), [angles])
    # pi itself is rounded to 1e-7, and four links add up.
    np.testing.assert_allclose(measures, [reach], rtol=0, atol=2e-6)
    np.testing.assert_allclose(objectives, [1 - variance], rtol=0, atol=2e-6)


@pytest.mark.parametrize("joints", [1, 7, 100])
def test_reach_and_variance_are_those_of_complex_forward_kinematics(joints):
    solutions = np.random.default_rng(joints).normal(0, 0.5, (50, joints)).astype(np.float32)
    objectives, measures = values(Arm(joints), solutions)
    exact = solutions.astype(np.float64)
    tip = np.zeros(50, complex)
    direction = np.ones(50, complex)
    for joint in exact.T:
        direction = direction * np.exp(1j * joint)
        tip = tip + direction
    # Accumulated angles near 10 are known to 1e-6, and 100 links add their errors.
    np.testing.assert_allclose(measures, np.stack([tip.real, tip.imag], 1), rtol=0, atol=1e-4)
    population = np.mean((exact - exact.mean(axis=1, keepdims=True)) ** 2, axis=1)
    np.testing.assert_allclose(objectives, 1 - population, rtol=0, atol=1e-6)


@given(arrays(np.float32, (4, 6), elements=st.floats(-100, 100, width=32)))
def test_the_arm_reaches_no_further_than_its_length(solutions):
    objectives, measures = values(Arm(num_joints=6), solutions)
    # Six cosines and sines of unit length, each rounded.
    assert (np.linalg.norm(measures, axis=1) <= 6 + 1e-5).all()
    assert (objectives <= 1).all()


def test_the_arm_comes_with_the_papers_archive_and_start():
    domain = Arm()
    archive = domain.archive()
    assert domain.name == "arm"
    np.testing.assert_array_equal(domain.x0, np.zeros(100))
    assert isinstance(archive, GridArchive)
    assert archive.shape == (100, 100)
    np.testing.assert_array_equal(archive.lower, [-100, -100])
    np.testing.assert_array_equal(archive.upper, [100, 100])


@pytest.mark.parametrize("joints", [0, -1, 2.5])
def test_an_arm_needs_joints(joints):
    with pytest.raises(ValueError, match=r"joints:.*1.*got"):
        Arm(joints)
