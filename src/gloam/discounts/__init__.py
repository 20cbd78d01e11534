"""Discounts: they score solutions by improvement, and learn what is covered."""

from gloam.discounts.base import Discount as Discount
from gloam.discounts.model import DiscountModel as DiscountModel
from gloam.discounts.networks import MLP as MLP
