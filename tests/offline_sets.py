"""Small sets of transitions for tests of offline methods, and a task that an agent fits."""

from functools import cache

from isocost.control import methods
from isocost.control.data import make
from isocost.control.tasks import open_task
from isocost.errors import UserError

TASKS = ("pendulum", "lock:4", "held:4", "goalmaze:4", "rooms")
CHEAP = {"calql": {"losses.drawn": "2"}, "ppo": {"tempo.warmup": "40", "rollout": "16"},
         "wsrl": {"losses.drawn": "2", "members": "3"}, "rlpd": {"members": "3"},
         "parl": {f"{seam}.better.{name}": "2" for seam in ("target", "losses", "explore")
                  for name in ("drawn", "kept", "steps")},
         "dsrl": {f"{seam}.steps": "2" for seam in ("target", "losses", "explore")},
         "ravl": {"members": "3", "imagine.horizon": "2", "tempo.fitted": "20"},
         "neubay": {"members": "3", "imagine.horizon": "2", "tempo.fitted": "20", "networks.models": "3"},
         "pgd": {"imagine.flow_steps": "2", "tempo.fitted": "20"}, "moorl": {"losses.steps": "2"},
         "floq": {f"{seam}.{name}": "2" for seam in ("target", "losses") for name in ("steps", "noises")}}


@cache
def made(spec, steps=300, seed=0, **shares):
    """A set on a task, by default of random actions."""
    return make(open_task(spec), shares or {"random": 1.0}, steps, seed)


def fitting(agent):
    """The first of `TASKS` that the agent fits, and the rows that it learns from; None if it takes samples."""
    for spec in TASKS:
        try:
            methods.refuse_unfit(agent, open_task(spec))
        except UserError:
            continue
        shares = {"stitch": 1.0} if spec.startswith("goalmaze") else {}
        return open_task(spec), made(spec, **shares).rows if agent.offline or agent.warms else None
    raise AssertionError(agent.name)
