"""Discounts: they score solutions by improvement, and learn what is covered."""

from gloam.discounts.discount import Discount as Discount
from gloam.discounts.discount import NoDiscount as NoDiscount
from gloam.discounts.discount import untrained as untrained
from gloam.discounts.discount_model import DiscountModel as DiscountModel
from gloam.discounts.from_torch import from_torch as from_torch
from gloam.discounts.networks import CNN as CNN
from gloam.discounts.networks import MLP as MLP
from gloam.discounts.networks import Frozen as Frozen
from gloam.discounts.thresholds import Thresholds as Thresholds
