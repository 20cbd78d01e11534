"""Networks for the discount model: any Equinox module from one row of measures to a number."""

from gloam.discounts.networks.cnn import CNN as CNN
from gloam.discounts.networks.from_torch import from_torch as from_torch
from gloam.discounts.networks.frozen import Frozen as Frozen
from gloam.discounts.networks.mlp import MLP as MLP
