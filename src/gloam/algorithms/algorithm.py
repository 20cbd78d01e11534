"""What an algorithm is: an emitter, an archive and a discount."""

import equinox as eqx

from gloam.archives import Archive
from gloam.discounts import Discount
from gloam.emitters import Emitter


class Algorithm(eqx.Module):
    """A pairing of pieces. `gloam.step` runs any of them; subclasses only choose the pieces."""

    emitter: eqx.AbstractVar[Emitter]
    archive: eqx.AbstractVar[Archive]
    discount: eqx.AbstractVar[Discount]
