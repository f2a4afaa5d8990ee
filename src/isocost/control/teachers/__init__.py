"""Teachers, one file each, choose the task or the start of each training episode, for any agent that takes samples.
Evaluations keep the task's own starts.

A teacher is `choose(past, rng, *, settings) -> Lesson`, a function of the episodes that the run has finished. A user's
own file works the same, by its path. Settings follow a colon: `alp-gmm:every=20,fresh=0.3`. A context is P numbers in
[0, 1] that select an episode of a task: the pendulum of a family, the first cell in a maze.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy import ndarray
from torch import Tensor

from isocost.chance import Purpose, generator
from isocost.control.tasks import random_return
from isocost.control.tasks.family import Pendulums
from isocost.control.tasks.maze import Maze, _home
from isocost.control.types import Choosable, ControlTask
from isocost.errors import UserError
from isocost.found import FileKind
from isocost.recipe import knobs, with_setting

KIND = FileKind("isocost.control.teachers", "teacher", ("CARD", "choose"), "docs/control.md", dashes=True)


class Lesson(NamedTuple):
    """The next episode: its first state, (D,), its context, (P,), and the number of steps after which it is cut."""

    state: ndarray
    context: ndarray
    steps: int


Choose = Callable[["Lessons", np.random.Generator], Lesson]     # each episode has a generator of its own


def contexts_of(task: ControlTask) -> int:
    """P, the size of a context; 0 for a task whose episodes cannot be chosen.

    Mazes and families are named here, not in their files: the text of a task's file is in the hash that its runs
    continue by.
    """
    return 1 if isinstance(task, Maze | Pendulums) else task.contexts if isinstance(task, Choosable) else 0


@dataclass
class Lessons:
    """The episodes of one run: those that ended, and the current ones. Returns are scaled: 0 is that of random actions,
    1 the task's reference. `shown` are states of demonstrations, (T, D) each, whose steps the run is charged."""

    choose: Choose
    task: ControlTask
    seed: int
    environments: int = 1
    shown: Sequence[ndarray] = ()
    contexts: ndarray = field(init=False)       # (N, P) of the episodes that ended, in the order of their ends
    returns: ndarray = field(init=False)        # (N,)
    now: ndarray = field(init=False)            # (k, P + 2): context, return so far, limit in steps
    _folded: dict[str, tuple[int, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        wide = contexts_of(self.task)
        self.contexts, self.returns = np.zeros((0, wide)), np.zeros(0)
        self.now = np.zeros((self.environments, wide + 2))

    def of(self, context: ndarray, rng: np.random.Generator) -> Lesson:
        """An episode of a context, (P,), clipped to [0, 1], with the task's limit."""
        task, context = self.task, np.clip(context, 0.0, 1.0)
        if isinstance(task, Maze):      # any cell but the last
            state = _home(min(int(context[0] * (task.cells - 1)), task.cells - 2)) + rng.uniform(-0.25, 0.25, 2)
        elif isinstance(task, Pendulums):
            which = min(int(context[0] * task.members), task.members - 1)
            state = np.append(rng.uniform([-np.pi, -1.0], [np.pi, 1.0]), which)
        else:
            assert isinstance(task, Choosable)
            state = task.begin_in(context, rng)
        return Lesson(state, context, task.limit)

    def anywhere(self, rng: np.random.Generator) -> Lesson:
        """An episode of any context."""
        return self.of(rng.random(contexts_of(self.task)), rng)

    def rng_after(self, count: int) -> np.random.Generator:
        """The generator for a computation after `count` episodes: the same numbers whenever it is made."""
        return generator(self.seed, Purpose.CHOOSE, count)

    def folded(self, name: str, start: Callable[[], Any], add: Callable[[Any, int], Any]) -> Any:
        """A teacher's memory: `start()`, then `add(found, i)` for each episode that ended, once and in order. A resumed
        run folds all of its episodes again, so the memory is not saved."""
        at, found = self._folded[name] if name in self._folded else (0, start())
        for i in range(at, len(self.returns)):
            found = add(found, i)
        self._folded[name] = len(self.returns), found
        return found

    def begin(self, environment: int, rng: np.random.Generator) -> ndarray:
        """The first state, (D,), of the next episode of an environment."""
        lesson = self.choose(self, rng)
        self.now[environment] = *lesson.context, 0.0, lesson.steps
        return lesson.state

    def stepped(self, reward: ndarray, over: ndarray) -> None:
        """A step of each environment: its reward, (k,), and whether its episode is over."""
        self.now[:, -2] += reward
        for row in self.now[over]:
            low = random_return(self.task.name)
            self.contexts = np.concatenate((self.contexts, row[None, :-2]))
            self.returns = np.append(self.returns, (row[-2] - low) / (self.task.reference - low))

    def save(self) -> dict[str, Tensor]:
        return {"lessons.past": torch.from_numpy(np.concatenate((self.contexts, self.returns[:, None]), -1)),
                "lessons.now": torch.from_numpy(self.now.copy())}

    def load(self, saved: Mapping[str, Tensor]) -> None:
        """What `save` gave."""
        past, self.now, self._folded = saved["lessons.past"].numpy(), saved["lessons.now"].numpy().copy(), {}
        self.contexts, self.returns = past[:, :-1], past[:, -1]


def teacher(spec: str) -> Choose:
    """A teacher with its settings. Raises UserError for an unknown one, and for settings that it does not take."""
    name, _, settings = spec.partition(":")
    found: Choose = KIND.load(name).choose
    for text in filter(None, settings.split(",")):
        key, _, value = text.partition("=")
        try:
            found = with_setting(found, key, value, name)
        except KeyError as e:
            raise UserError(f"--teacher {spec}: {text}: {e.args[0]}") from None
    return found


def lessons(spec: str, task: ControlTask, seed: int, environments: int = 1) -> Lessons:
    """The lessons of one run. Raises UserError as `teacher`, and for a task whose episodes it cannot choose."""
    chosen, module = teacher(spec), KIND.load(spec.partition(":")[0])
    shown = module.shown(task, seed, knobs(chosen)["demonstrations"]) if hasattr(module, "shown") else ()
    if not shown and not contexts_of(task):
        raise UserError(f"{task.name} has neither tasks nor starts that a teacher can choose: take family:8, maze:8 or "
                        "quad2d, or leave --teacher out")
    return Lessons(chosen, task, seed, environments, tuple(shown))
