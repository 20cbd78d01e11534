"""The laboratory: what reproduces the paper, and what compares gloam with other libraries.

* `arborescences` and `density_descent`: algorithms that only comparisons need, CMA-MEGA, CMA-MAEGA
  and DDS;
* `presets`: algorithms with the paper's settings for a domain (`gloam run`);
* `study` and `report`: the paper's experiments, and their tables and figures beside the `published`
  results and the `ceilings` of the domains (`gloam paper`, `gloam paper-report`);
* `downloads`: files of MNIST and Fashion-MNIST (`gloam datasets fetch`);
* `speed` and `contenders`: gloam, pyribs and QDax on the same problems (`gloam bench`);
* `Generator` and `latent_digits`: image generators, and a small one of digits whose latents are
  searched (`gloam run dms latent-digits`);
* `latent_illumination`: StyleGAN3 and CLIP in JAX, and the search of faces for landscapes
  (`gloam lsi`).

The library `gloam` never imports it. Its commands are entry points of the group ``gloam.commands``,
and its algorithms of ``gloam.pieces``, so that `gloam` can read the files that name them.
"""

import lazy_loader

# Names are imported on use, those in `__init__.pyi`: some need pandas, which takes half a second.
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
