"""Words for Gymnasium's Blackjack-v1 (Sutton & Barto, 2018, example 5.1).

A win pays 1, a draw 0.5, a loss 0: Gymnasium's 1, 0 and -1 as a score between 0 and 1.
"""

import re

ABOUT = "Blackjack. Get close to 21, not over it. Answer with one word: hit (another card) or stick (stop)."


def about(env):
    return ABOUT


def show(observation, info):
    total, dealer, ace = observation
    return f"Your cards: {total}{', with an ace as 11' if ace else ''}. The dealer shows {dealer}. Hit or stick?"


def read(said):
    """The first of the two words in the turn."""
    found = re.search(r"\b(hit|stick)\b", said.lower())
    return {"hit": 1, "stick": 0}[found[1]] if found else None


def reward(value):
    return (value + 1) / 2
