"""Values for the seams that two methods or more use, one file for each seam."""

__all__ = [
    "allocate", "boxes", "choose", "enrich", "episode", "experts", "guide", "improve", "loss", "pace", "play",
    "reward", "schedule", "select", "view", "weight",
]
