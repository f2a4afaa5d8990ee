"""An environment of your own: a prize is behind one of five doors, and a wrong door is closed.

    isocost envs check examples/own_environment.py:Doors
    isocost train grpo --env examples/own_environment.py:Doors --model tiny-agents --budget 4k-env-steps

It is one class. isocost makes an object of it for each attempt, calls `open` once, `step` for each turn and `close` at
the end, and adds the rewards of the turns. The prize is behind the door whose letter is the middle one in the alphabet,
so there is something to learn. With probability `STUCK` a door does not open: a fault of the tool, not of the model.
"""

from collections.abc import Iterator

from isocost import chance
from isocost.types import Fault, Message, Problem, Shown

STUCK = 0.1


class Doors:
    """Two turns to open the right one of five doors, which pays 1 at once and 0.5 in the second turn."""

    max_turns, max_tokens = 2, 2
    tries = ("A", "K", "Z", "AB")       # turns that `isocost envs check` says

    @staticmethod
    def problems() -> Iterator[Problem]:
        """Two hundred rows of doors, the same in every process."""
        rng = chance.generator(0, chance.Purpose.CHOOSE, 5)
        for number in range(200):
            doors = "".join(rng.permutation(list("ABCDEFGHIJKLMNOPQRSTUVWXYZ"))[:5])
            prompt = (Message("user", f">{doors[0]} A:{doors}"),)
            yield Problem(f"doors-{number}", prompt, sorted(doors)[2], meta={"doors": doors})

    def __init__(self, problem: Problem):
        self.problem, self.doors, self.turn, self.said = problem, problem.meta["doors"], 0, ""

    async def open(self) -> Shown:
        return Shown(self.problem.prompt, key=self.doors)

    async def step(self, said, luck) -> Shown:
        """`luck()` is a random generator of this turn: with it, a resumed or forked rollout is answered as before."""
        self.said, self.turn = said, self.turn + 1
        if len(said) != 1 or said not in self.doors:
            return self._shown("!", Fault.model("no such door"))
        if luck().random() < STUCK:
            return self._shown("!", Fault.tool("stuck door"))
        if said == self.problem.answer:
            return Shown(over=True, reward=1.0 / self.turn)
        self.doors = self.doors.replace(said, "")
        return self._shown("")

    def _shown(self, mark: str, fault: Fault | None = None) -> Shown:
        return Shown((Message("tool", f"{mark}A:{self.doors}"),), key=self.doors, fault=fault)

    def final(self) -> str:
        return self.said

    async def close(self) -> None:
        """Files and connections are closed here."""
