"""gloam."""
