"""Tools that the rooms of gloam share: checks, files, draws, devices, programs."""
