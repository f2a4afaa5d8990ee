"""`miniwob:TASK`: tasks of MiniWoB++ (Liu et al., 2018, arXiv:1802.08802) in a real browser.

    miniwob:click-button        miniwob:login-user,count=50

The pages are those of the package `miniwob`; the browser is Debian's chromium, by
`isocost.envs.adapters.browser`. The policy reads the task and the page's visible elements, each with a number, and
writes one action a turn:

    click 3        type 4 Ada Lovelace        choose 5 Monday        press Enter        scroll 6

The mouse and the keyboard are real events. Problems are seeds of the page: `count` and `seed` (the first). The reward
is the page's own without its time limit, 1 or lower, at its end. A page that reads the clock may differ from one time
to another.
"""

from __future__ import annotations

import asyncio
import atexit
import importlib.util
import json
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isocost.envs.adapters import seeded
from isocost.envs.adapters.browser import Browser, Page, program
from isocost.envs.environment_set import EnvironmentSet
from isocost.errors import UserError
from isocost.types import Fault, Message, Problem, Shown
from isocost.world import BaseEpisode, Luck

SETTLE = 0.03          # seconds after an action in which the page may change
READY = 10.0           # seconds for a page to load
KEYS = {"enter": ("Enter", 13), "tab": ("Tab", 9), "backspace": ("Backspace", 8), "escape": ("Escape", 27),
        "up": ("ArrowUp", 38), "down": ("ArrowDown", 40), "left": ("ArrowLeft", 37), "right": ("ArrowRight", 39)}
ACTION = re.compile(r"\s*(click|type|choose|scroll|press)\s+(\d+|[A-Za-z]+)(?:\s(.*))?\s*$", re.S | re.I)
HOW = "Each turn, write one action: click N, type N TEXT, choose N OPTION, scroll N, or press KEY (such as Enter)."
BEGIN = """(() => { Math.seedrandom(%s); core.EPISODE_MAX_TIME = 1e9; core.startEpisodeReal(); return true; })()"""
LOADED = "document.readyState === 'complete' && typeof core !== 'undefined' && core.cover_div !== null"
STATE = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")      # what the policy reads of a page
AT = """(() => {
  const e = window.__refs[%d]; if (!e) return null;
  e.scrollIntoView({block: 'nearest'}); const b = e.getBoundingClientRect();
  return {x: b.x + b.width / 2, y: b.y + b.height / 2, tag: e.tagName.toLowerCase(), value: e.value === undefined ? null
    : e.value};
})()"""
CHOOSE = """(() => {
  const e = window.__refs[%d], o = Array.from(e.options || []).findIndex(o => o.text.trim() === %s);
  if (o < 0) return false;
  e.selectedIndex = o; e.dispatchEvent(new Event('input', {bubbles: true}));
  e.dispatchEvent(new Event('change', {bubbles: true})); return true;
})()"""


@dataclass(frozen=True)
class Task:
    """A spec: which page, and how many seeds."""

    name: str
    page: str
    count: int
    seed: int

    @classmethod
    def of(cls, spec: str) -> Task:
        """Read "miniwob:TASK[,count=..,seed=..]". Raises UserError."""
        name, _, said = spec.partition(":")[2].partition(",")
        found = importlib.util.find_spec("miniwob")
        if found is None or not found.submodule_search_locations:
            seeded.library("miniwob", "miniwob")
        assert found is not None and found.submodule_search_locations
        home = Path(found.submodule_search_locations[0]) / "html" / "miniwob"
        page = home / f"{name}.html"
        if not re.fullmatch(r"[a-z0-9-]+", name) or not page.is_file():
            there = sorted(p.stem for p in home.glob("*.html"))
            near = [t for t in there if t.split("-")[0] == name.split("-")[0]][:8] or there[:8]
            raise UserError(f"miniwob has no task {name!r}; it has {len(there)}, among them {', '.join(near)}")
        program()
        count, seed = seeded.count_and_seed("miniwob", said)
        return cls(name, page.as_uri(), count, seed)


_LOCK = threading.Lock()
_BROWSER: list[Browser] = []


def browser() -> Browser:
    """The browser of this process, started when it is first needed, and again if it has ended."""
    with _LOCK:
        if _BROWSER and not _BROWSER[0].alive:
            _BROWSER.pop().close()
        if not _BROWSER:
            _BROWSER.append(Browser())
            atexit.register(close_browser)
        return _BROWSER[0]


def close_browser() -> None:
    """End the browser of this process, if it has one."""
    with _LOCK:
        while _BROWSER:
            _BROWSER.pop().close()


def open_miniwob(spec: str) -> EnvironmentSet:
    """What a spec names. Raises UserError."""
    which = Task.of(spec)
    named = f"miniwob-{which.name}"
    return EnvironmentSet(
        spec, lambda problem: PageEpisode(problem, which), lambda: seeded.seeds(named, which.count, which.seed),
        max_turns=10, max_tokens=32,
    )


class PageEpisode(BaseEpisode):
    """One page with one seed, until it gives its reward."""

    def __init__(self, problem: Problem, which: Task):
        self.problem, self.which = problem, which
        self.page: Page | None = None
        self.said, self.state, self.shown = "", "", ""

    async def open(self) -> Shown:
        self.page = await browser().open_page(self.which.page)
        async with asyncio.timeout(READY):
            while not await self.page.run(LOADED):
                await asyncio.sleep(0.01)
            await self.page.run(BEGIN % json.dumps(str(self.problem.meta["seed"])))
            while not await self.page.run("WOB_TASK_READY"):
                await asyncio.sleep(0.01)
        found = await self._look()
        return Shown((Message("user", f"{found['task']}\n{HOW}\n\n{self.shown}"),), key=self.state)

    async def step(self, said: str, luck: Luck) -> Shown:
        self.said = said
        why = await self._act(said)
        if why:
            return Shown((Message("user", f"error: {why}\n{self.shown}"),), key=self.state, fault=Fault.model(why))
        await asyncio.sleep(SETTLE)
        found = await self._look()
        reward = float(found["reward"]) if found["done"] else 0.0
        return Shown((Message("user", self.shown),), bool(found["done"]), reward, self.state)

    async def _look(self) -> Any:
        assert self.page is not None
        found = await self.page.run(STATE)
        self.shown = "\n".join(found["lines"]) or "the page shows nothing"
        self.state = seeded.digest(self.shown)
        return found

    async def _act(self, said: str) -> str:
        """Do what a turn says. Returns what is wrong with it; empty if nothing is."""
        assert self.page is not None
        match = ACTION.match(said)
        if match is None:
            return "no such action"
        what, where, text = match[1].lower(), match[2], (match[3] or "").strip()
        if what == "press":
            if where.lower() not in KEYS:
                return "no such key"
            await self.page.press(*KEYS[where.lower()])
            return ""
        at = await self.page.run(AT % int(where)) if where.isdecimal() else None
        if at is None:
            return "no such element"
        if what == "choose":
            chosen = at["tag"] == "select" and await self.page.run(CHOOSE % (int(where), json.dumps(text)))
            return "" if chosen else "no such option"
        if what == "scroll":
            await self.page.run(f"window.__refs[{int(where)}].scrollBy(0, 50)")
            return ""
        if what == "type" and at["value"] is None:
            return "not a field"
        await self.page.click(at["x"], at["y"])
        if what == "type":
            await self.page.run(f"window.__refs[{int(where)}].select && window.__refs[{int(where)}].select()")
            await self.page.write(text)
        return ""

    async def close(self) -> None:
        if self.page is not None:
            await self.page.close()
