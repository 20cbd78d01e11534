"""Commands of the laboratory: entry points of the group ``gloam.commands``."""
