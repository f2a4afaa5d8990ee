"""Untrusted Python in processes without rights, and the tool that runs it."""

from isocost.moved import names_of_old

__getattr__ = names_of_old(__name__)
