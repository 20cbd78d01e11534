"""The laboratory: the paper's study, latent space illumination, and other libraries beside gloam.

The library `gloam` never imports it. Its commands (`gloam run`, `paper`, `lsi` and `bench`) are
entry points of the group ``gloam.commands``.
"""

import lazy_loader

# Names are imported on use, those in `__init__.pyi`: some need pandas, which takes half a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
