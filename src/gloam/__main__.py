"""`python -m gloam` is the command `gloam`."""

from gloam.cli import main

main()
