"""`isocost serve`: open what answers, listen until a signal, answer what is under way, and end with the bill."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocost.disk.jsonfile import tail
from isocost.disk.shape import Keys
from isocost.errors import UserError, needed
from isocost.gather import finished
from isocost.meter import ANSWERS, Meter
from isocost.runs.files import Stream, read_json
from isocost.screen.display import Result, Row, Table, given
from isocost.screen.words import word
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import writing
from isocost.steps.settings import option_names, setting_of
from isocost.steps.training.served import Served, spent
from isocost.types import Rollout, Score
from isocost.world import World
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Setting, open_setting
from isocost.worlds.spec import Opening, spec_of

if TYPE_CHECKING:       # the server's packages are an extra
    from isocost.steps.serving.application import Application

HOST, KEY = "127.0.0.1", "ISOCOST_SERVE_KEY"
ROOM = 1024         # tokens of a completion whose request names no limit
LAST = 2**27        # bytes from the end of a journal, of which its longest line is a part
FILE = "answers.jsonl"
SIGNALS = (signal.SIGINT, signal.SIGTERM)


@dataclass(frozen=True)
class Access:
    """Where the server listens, and the key that it asks for; `port` 0 takes a free one."""

    host: str = HOST
    port: int = 8000
    key: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        if self.host not in (HOST, "localhost") and not self.key:
            raise UserError(f"--host {self.host} lets other machines in, and the server has no key: set {KEY} or give "
                            "--key, or leave --host out")


@dataclass(frozen=True)
class Load:
    """What is under way at once, in tokens; how many requests wait; and how long the end waits for them."""

    tokens: int = 2**18
    queue: int = 256
    grace: float = 30.0


@dataclass(frozen=True)
class Listening:
    """An event: the server listens."""

    url: str
    model: str
    strategy: str
    journal: str

    def rows(self) -> list[Row]:
        """Where, and what keeps the answers."""
        return [Row("", f"{self.model} with {self.strategy} at {self.url}, until Ctrl-C"),
                Row("answers and bills", word(self.journal) if self.journal else "not kept; --out keeps them")]


@dataclass(frozen=True)
class ServerEnd(Result):
    """What a server did: requests by how they ended, what their answers cost, and the requests to the model's server.
    """

    model: str
    strategy: str
    requests: Mapping[str, int]
    cost: Mapping[str, Any]
    money: Mapping[str, Any] | None = None
    server: Mapping[str, Any] | None = None
    journal: str = ""

    def rows(self) -> list[Row | Table]:
        """The requests, and what they cost."""
        ends = ", ".join(f"{n:,} {k}" for k, n in sorted(self.requests.items())) or "none"
        return given(Row("requests of clients", ends), *spent(self.cost, self.money, self.server),
                     Row("answers and bills", self.journal))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return dict(vars(self))


def setting_for(what: str, asked: Mapping[str, Any], given: Collection[str]) -> tuple[Setting, bool]:
    """The setting that serves a model or a run's final policy, and whether its problems are known.

    `asked` are options, of which `given` were given: these hold in place of a run's own. Raises UserError for a run
    without a final policy.
    """
    folder = Path(what)
    if not (folder / "run.json").is_file():
        setting, known = setting_of({**asked, "model": what}), "data" in given
        return (setting if known or "max_tokens" in given else setting.but(max_tokens=ROOM)), known
    if not (folder / "final").is_dir():
        raise UserError(f"{what} has no final policy: it did not end, or is a pilot's (only trained runs are exported)")
    setting = Setting.of(read_json(folder / "run.json")["job"]["setting"])
    own = {k: v for k, v in asked.items() if k in given and k in option_names()}
    return setting.but(**own, model=str(folder / "final")), not setting.problems.env


@contextlib.contextmanager
def opened(setting: Setting, known: bool, limits: RequestLimits) -> Iterator[World]:
    """The world of a setting, to be sampled alone and without its environment. Raises UserError.

    With `known` it has the setting's problems, and their verifier marks answers to them.
    """
    if known:
        there = open_setting(setting, learn=False, whole=True, limits=limits)
        try:
            yield there.world
        finally:
            there.close()
        return
    import torch

    torch.set_num_threads(setting.machine.threads)
    world = spec_of(setting.model).open(
        Opening((), _no_marks, Meter(), setting.sampling, setting.machine, setting.world, limits))
    try:
        yield world
    finally:
        world.close()


async def _no_marks(rollouts: Sequence[Rollout]) -> list[Score | None]:
    raise UserError("nothing marks an answer to a question that the server does not know: name its problems with "
                    "--data, or use another scorer")


def serve(
    setting: Setting, strategy: str, *, known: bool = False, access: Access = Access(), load: Load = Load(),
    served: Served = Served(), out: Path | None = None, observer: Observer = SILENT,
) -> ServerEnd:
    """Answer requests with the model of a setting until SIGINT or SIGTERM, by `strategy` where they name none.

    The problems of the setting are `known` or not. `served` is what is said of the model's server. `out` is a
    folder for the journal, which a later server continues. Raises UserError for what cannot be opened.
    """
    for package in ("starlette", "uvicorn"):
        needed(package, "serve", "`isocost serve`")
    from isocost.steps.serving.admission import Admission
    from isocost.steps.serving.application import Application
    from isocost.steps.serving.choosing import by_strategy

    choose, journal, first, name = by_strategy(strategy), None, 0, ""
    with contextlib.ExitStack() as closing:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            closing.enter_context(writing(out))
            last = tail(out / FILE, LAST, lambda line: Keys({"request": int}))
            first, name = 1 + max((line["request"] for line in last), default=-1), str(out / FILE)
            journal = Stream.mended(out / FILE)
            closing.callback(journal.close)
        world = closing.enter_context(opened(setting, known, served.limits))
        app = Application(world, setting.model, setting.measured, choose, Admission(load.tokens, load.queue),
                          key=access.key, journal=journal, first=first)
        finished(_listen(app, access, load.grace, Listening("", setting.model, strategy, name), observer))
        cost, price = world.meter.of(ANSWERS), served.token_price
        return ServerEnd(setting.model, strategy, dict(app.counts), cost.data(),
                         None if price is None else price.of(cost).data(),
                         world.about.server() if world.about.server else None, name)


async def _listen(app: Application, access: Access, grace: float, said: Listening, observer: Observer) -> None:
    """Serve until a signal; then wait for what is under way, `grace` seconds at most or until another signal.

    What is not answered by then is cancelled: it is in the journal with what it cost.
    """
    from isocost.serve.server import Server

    server, signals, loop = Server(app.app, public=bool(access.key)), asyncio.Queue[int](), asyncio.get_running_loop()
    try:
        port = server.start(access.host, access.port)
    except OSError as e:
        raise UserError(f"{access.host}:{access.port} cannot be listened on ({e.strerror}): choose another --port, or "
                        "end what uses it") from None
    try:
        for number in SIGNALS:
            loop.add_signal_handler(number, signals.put_nowait, number)
        host = f"[{access.host}]" if ":" in access.host else access.host
        observer.on(replace(said, url=f"http://{host}:{port}/v1"))
        await signals.get()
        app.closing = True
        ending = {asyncio.ensure_future(signals.get()), asyncio.ensure_future(app.idle())}
        await asyncio.wait(ending, timeout=grace, return_when=asyncio.FIRST_COMPLETED)
        for one in ending:
            one.cancel()
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        await server.stop()
        await app.idle()
