"""Verifiers: whether a finished answer is right, in place or in processes of their own."""

from isocost.moved import names_of_old

__getattr__ = names_of_old(__name__)
