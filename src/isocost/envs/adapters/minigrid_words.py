"""Minigrid and BabyAI in words: what the agent sees in front of it, in the manner of BabyAI-Text (Carta et al., 2023,
arXiv:2302.02662), and its seven actions.
"""

from __future__ import annotations

from typing import Any

from isocost.screen.words import counted

# Numbers of minigrid.core.constants, which the image of an observation holds: (object, colour, state).
OBJECTS = {2: "wall", 4: "door", 5: "key", 6: "ball", 7: "box", 8: "goal", 9: "lava"}
COLOURS = ("red", "green", "blue", "purple", "yellow", "grey")
DOORS = ("open", "closed", "locked")
ACTIONS = ("turn left", "turn right", "go forward", "pick up", "drop", "toggle", "done")
_SHORT = {"left": 0, "right": 1, "forward": 2, "pickup": 3, "open": 5}
ABOUT = f"""You are in a grid world and see only what is in front of you. Each turn, write one action:
{', '.join(ACTIONS)}.
"toggle" opens a door or a box that is one step in front of you; a locked door needs its key in your hand."""


def about(env: Any) -> str:
    """The rules and the actions."""
    return ABOUT


def show(observation: Any, info: Any) -> str:
    """The goal, what is carried, and what column 3 of the last row of the (7, 7, 3) image sees, nearest first."""
    image = observation["image"]
    width, height = image.shape[:2]
    middle = width // 2
    seen: list[tuple[int, str]] = []
    for i in range(width):
        for j in range(height):
            thing, colour, state = (int(x) for x in image[i, j])
            forward, side = height - 1 - j, i - middle
            if thing in OBJECTS and thing != 2 and (forward or side):
                seen.append((forward + abs(side), f"a {_named(thing, colour, state)} {_where(forward, side)}"))
    walls = [
        ("in front of you", [image[middle, height - 1 - k, 0] for k in range(1, height)]),
        ("on your left", [image[middle - k, height - 1, 0] for k in range(1, middle + 1)]),
        ("on your right", [image[middle + k, height - 1, 0] for k in range(1, middle + 1)]),
    ]
    for where, row in walls:
        if 2 in (line := [int(x) for x in row]):
            seen.append((line.index(2) + 1, f"a wall {_steps(line.index(2) + 1)} {where}"))
    thing, colour, state = (int(x) for x in image[middle, height - 1])
    carried = f" You carry a {_named(thing, colour, state)}." if thing in (5, 6, 7) else ""
    listed = "; ".join(text for _, text in sorted(seen)) or "nothing"
    return f"Goal: {observation['mission']}.{carried}\nYou see {listed}."


def read(said: str) -> int | None:
    """The number of an action; None if the words are none."""
    plain = said.strip().strip(".\"'").lower()
    return ACTIONS.index(plain) if plain in ACTIONS else _SHORT.get(plain)


def _named(thing: int, colour: int, state: int) -> str:
    if thing in (8, 9):
        return OBJECTS[thing]
    door = f"{DOORS[state]} " if thing == 4 and state < len(DOORS) else ""
    return f"{door}{COLOURS[colour]} {OBJECTS[thing]}"


def _steps(count: int) -> str:
    return counted(count, "step")


def _where(forward: int, side: int) -> str:
    parts = [f"{_steps(forward)} in front of you"] if forward else []
    if side:
        parts.append(f"{_steps(abs(side))} to your {'right' if side > 0 else 'left'}")
    return " and ".join(parts)
