"""Discounts: they score solutions by improvement, and learn what is covered."""

from gloam.discounts.base import Discount as Discount
from gloam.discounts.convolution import CNN as CNN
from gloam.discounts.density import BufferPolicy as BufferPolicy
from gloam.discounts.density import KeepLast as KeepLast
from gloam.discounts.density import KernelDensity as KernelDensity
from gloam.discounts.density import Reservoir as Reservoir
from gloam.discounts.diagnosis import Diagnosis as Diagnosis
from gloam.discounts.diagnosis import diagnose as diagnose
from gloam.discounts.from_torch import from_torch as from_torch
from gloam.discounts.frozen import Frozen as Frozen
from gloam.discounts.model import DiscountModel as DiscountModel
from gloam.discounts.networks import MLP as MLP
from gloam.discounts.none import NoDiscount as NoDiscount
from gloam.discounts.threshold import Thresholds as Thresholds
from gloam.discounts.torch_network import TorchNetwork as TorchNetwork
