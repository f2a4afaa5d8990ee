"""`python`: a Python tool in the sandbox, for problems whose final answer is checked.

    isocost train grpo --env python --data reasoning-gym:basic_arithmetic

Files that a program writes stay for the next call of the same episode; variables do not.
"""

from __future__ import annotations

import atexit
import contextlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from isocost.envs.sandbox.client import CallLimits, CallResult, Sandbox, SandboxFailed
from isocost.envs.threads import in_thread
from isocost.envs.tool_episode import ToolEpisode
from isocost.envs.tools import Tool, Toolbox, ToolFailed
from isocost.errors import UserError
from isocost.options import NamedOptions
from isocost.types import Problem

SCHEMA = {
    "name": "python",
    "description": "Run a Python program and return what it prints, and the value of its last line. It has the "
    "standard library, no network, and a folder for files that stay until the end. Variables do not stay.",
    "parameters": {
        "type": "object", "required": ["code"],
        "properties": {"code": {"type": "string", "description": "the program"}},
    },
}
_SAID = {
    "memory": "the program needed more than {memory} MB of memory",
    "cpu": "the program needed more than {cpu} s of CPU time",
    "time": "the program took longer than {wall:g} s", "disk": "the program wrote too much",
    "output": "the program printed too much", "killed": "the program was ended by a signal", "cut": "more was printed",
}


@dataclass(frozen=True)
class Python(NamedOptions):
    """The limits of one call, and the sandbox."""

    memory: int = 512           # MB of address space
    cpu: int = 5                # seconds of CPU time
    wall: float = 10.0          # seconds
    sandbox: str = "all"        # "none": with the rights of this process, for models that are trusted

    def __post_init__(self) -> None:
        if self.sandbox not in ("all", "none"):
            raise UserError(f"python: sandbox is all or none, not {self.sandbox!r}")
        self.limits()

    def limits(self) -> CallLimits:
        """The same for the sandbox. Raises UserError for a limit of 0."""
        return CallLimits(memory=self.memory << 20, cpu=self.cpu, wall=self.wall)


@cache
def opened(which: Python) -> Sandbox:
    """One sandbox for all episodes with these limits, closed when this process ends."""
    sandbox = Sandbox(which.limits(), layers="none" if which.sandbox == "none" else "all")
    atexit.register(sandbox.close)
    return sandbox


class Programs(ToolEpisode):
    """Answers with the help of programs. Its final answer is marked by the problem's own verifier."""

    def __init__(self, problem: Problem, which: Python = Python()):
        super().__init__(problem)
        self.which, self.held = which, contextlib.ExitStack()
        self.folder: Path | None = None

    async def prepare(self) -> Toolbox:
        self.folder = self.held.enter_context(opened(self.which).folder())
        return Toolbox([Tool(SCHEMA, self.run)], fatal=(SandboxFailed,))

    async def run(self, code: str) -> str:
        """Run a program, with `random` seeded by the turn's luck."""
        assert self.folder is not None and self.luck is not None
        seed = int(self.luck().integers(2**31))
        return said(await opened(self.which).run(code, self.folder, seed=seed), self.which)

    async def close(self) -> None:
        await in_thread(self.held.close)


def said(result: CallResult, which: Python) -> str:
    """What the policy reads. Raises ToolFailed for a program that did not end well."""
    note = _SAID.get(result.how, "").format(memory=which.memory, cpu=which.cpu, wall=which.wall)
    text = result.text.rstrip("\n")
    text = "\n".join(x for x in (text, f"[{note}]" if note else "") if x)
    if result.how in ("ok", "cut"):
        return text or "[no output]"
    raise ToolFailed(text or "[no output]", result.how)
