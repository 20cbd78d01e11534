"""Domains: problems that JAX can trace, with the paper's archives and starting points."""

from gloam.domains.arm import Arm as Arm
from gloam.domains.domain import Domain as Domain
from gloam.domains.linear_projection import LinearProjection as LinearProjection
from gloam.domains.triangles import Triangles as Triangles
