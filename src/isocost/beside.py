"""Learning in a thread of its own, beside the event loop that samples.

Nothing depends on which of the two is faster. Sampling reads the weights that the engine has, which do not change
meanwhile. What both sides use, the learner and the groups that the ledger keeps, sampling gets when the update that is
under way is done: as if learning had been first, which is the order where they take turns.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextvars import copy_context
from dataclasses import replace
from typing import Any, TypeVar, cast

from isocost.gather import POLL
from isocost.ledger import Ledger
from isocost.world import Overlap, World

T = TypeVar("T")
SHARED = ("learner", "reference", "critic")     # of a world: what learning uses, and may change


class Learning:
    """The thread that learns. One call at a time."""

    def __init__(self, overlap: Overlap):
        self.overlap = overlap
        self.thread = ThreadPoolExecutor(1, thread_name_prefix="isocost-learner")
        self.now: Future[Any] | None = None

    async def beside(self, learn: Callable[[], T], waves: Collection[asyncio.Future[Any]]) -> T:
        """What `learn` returns, when the waves are complete too. If it raises, that is raised at once."""
        self.overlap.share(sampling=True, learning=True)
        self.now = self.thread.submit(copy_context().run, learn)
        learned = asyncio.wrap_future(self.now)
        left: set[asyncio.Future[Any]] = {learned, *waves}
        try:
            while left:
                _, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                if learned.done() and learned.exception() is not None:
                    break
                self.overlap.share(sampling=left != {learned}, learning=learned in left)
            return await learned
        finally:
            self.done()
            self.overlap.share(sampling=False, learning=False)

    def done(self) -> None:
        """Return when nothing is being learned."""
        while self.now is not None and not wait([self.now], timeout=POLL).done:
            pass

    def close(self) -> None:
        self.done()
        self.thread.shutdown()


def seen_by_sampling(world: World, ledger: Ledger, learning: Learning) -> tuple[World, Ledger]:
    """The world and the ledger as sampling reads them while another thread learns."""
    shared = {name: cast(Any, _After(x, learning)) for name in SHARED if (x := getattr(world, name)) is not None}
    return replace(world, **shared), cast(Ledger, _Kept(ledger, learning))


class _After:
    """An object whose attributes are read when the update that is under way is done."""

    def __init__(self, inner: Any, learning: Learning):
        self._inner, self._learning = inner, learning

    def __getattr__(self, name: str) -> Any:
        self._learning.done()
        return getattr(self._inner, name)


class _Kept:
    """A ledger whose kept groups are read when the update that is under way is done."""

    def __init__(self, ledger: Ledger, learning: Learning):
        self.__dict__.update(_ledger=ledger, _learning=learning)

    def __getattr__(self, name: str) -> Any:
        if name == "kept":
            self._learning.done()
        return getattr(self._ledger, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._ledger, name, value)
