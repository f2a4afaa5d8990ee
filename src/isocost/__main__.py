"""`python -m isocost` is the command `isocost`."""

from isocost.cli import main

main()
