"""Presets of algorithms, the paper's study, its report, and comparisons with other libraries."""

import lazy_loader

# Names are imported on use, those in `__init__.pyi`: some need pandas, which takes half a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
