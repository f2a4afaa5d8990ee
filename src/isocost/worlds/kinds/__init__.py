"""The kinds of world: one file each, with its options, what its models lack, and how one is opened.

A file `NAME.py` with a `KIND` (`isocost.worlds.spec.Kind`) is all that `--model NAME:URL#MODEL` takes. Files here are
imported for `--help`, so they import torch, numpy and engines inside functions.
"""
