"""Verifiers: whether a finished answer is right, in place or in processes of their own."""
