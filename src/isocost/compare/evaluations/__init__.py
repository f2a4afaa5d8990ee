"""Evaluation files of other programs, compared problem by problem."""
