"""Which methods act on the turns of a dialogue, or on environments of their own; they have tests of their own."""

from isocost import methods
from isocost.recipe import functions
from isocost.seams import SEAMS


def _acts_on_turns(name: str) -> bool:
    recipe = methods.load(name).recipe()
    used = (x for seam in SEAMS for x in functions(getattr(recipe, seam)))
    return any(x.declared.has("needs_turns", x.settings) for x in used)


OF_TURNS = {name for name in methods.names() if _acts_on_turns(name)}
OF_BOXES = {"guig1", "guirc"}       # they act on boxes on a screen
OF_OTHERS = {"webrl", "vragrl", "temporalr1"}       # a critic of turns; problems with pictures, or with events
OF_ONE_TURN = [name for name in methods.names() if name not in OF_TURNS | OF_BOXES | OF_OTHERS]
