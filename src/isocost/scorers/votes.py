"""The votes of eight readings: `generative` with `readings=8`. Repeats of one verdict are not independent."""

from functools import partial

from isocost.scorers import generative

score = partial(generative.score, readings=8)
