"""Arm repertoire: reach every point of the plane with a planar arm that bends evenly."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from gloam._tools import checks
from gloam._tools.registry import register
from gloam.archives import Archive, GridArchive
from gloam.domains.domain import Domain


@register
class Arm(Domain):
    """A planar arm of ``num_joints`` links of length 1.

    A solution is a vector of joint angles, which accumulate along the arm. The measures are the
    position of the end effector. The objective is 1 minus the population variance of the angles.

    Example:
        >>> objectives, measures = Arm(num_joints=4)(jnp.zeros((1, 4)))
        >>> objectives.tolist(), measures.tolist()
        ([1.0], [[4.0, 0.0]])
    """

    num_joints: int = eqx.field(static=True)

    def __init__(self, num_joints: int = 100):
        self.num_joints = checks.count("num_joints", num_joints)

    @property
    def name(self) -> str:
        """``arm``."""
        return "arm"

    @property
    def x0(self) -> Float[Array, " sol"]:
        """A straight arm."""
        return jax.device_put(np.zeros(self.num_joints, np.float32))

    def __call__(
        self, solutions: Float[Array, "batch sol"]
    ) -> tuple[Float[Array, " batch"], Float[Array, "batch meas"]]:
        """Return the objectives and measures of solutions."""
        angles = jnp.cumsum(solutions, axis=1)
        reach = jnp.stack([jnp.sum(jnp.cos(angles), 1), jnp.sum(jnp.sin(angles), 1)], axis=1)
        return 1.0 - jnp.var(solutions, axis=1), reach

    def archive(self) -> Archive:
        """Return a grid of 100 x 100 cells that covers the reach of the arm."""
        return GridArchive((100, 100), -self.num_joints, self.num_joints, f_min=0.0)
