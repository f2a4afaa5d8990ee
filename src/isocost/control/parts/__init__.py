"""Functions for the seams of control that several methods share, one file for each kind."""
