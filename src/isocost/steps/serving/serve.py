"""`isocost serve`: open what answers, listen until a signal, answer what is under way, and end with the bill."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isocost.disk.jsonfile import tail
from isocost.disk.shape import Keys
from isocost.errors import UserError, needed
from isocost.gather import finished
from isocost.meter import ANSWERS, MODEL, Meter
from isocost.runs.files import Stream, read_json
from isocost.runs.measure import UNNAMED
from isocost.screen.display import Result, Row, Table, given
from isocost.screen.words import word
from isocost.steps.events import SILENT, Observer
from isocost.steps.folder import writing
from isocost.steps.look.evaluate import final_of
from isocost.steps.serving.answers import Choose
from isocost.steps.settings import option_names, setting_of
from isocost.steps.study import StudyRecord
from isocost.steps.test_time.profile import spec_of as strategy_of
from isocost.steps.training.served import Served, spent
from isocost.strategies import parse
from isocost.types import Rollout, Score
from isocost.world import World
from isocost.worlds.http import RequestLimits
from isocost.worlds.setting import Setting, open_other, open_setting
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
    others: what other models cost, such as the one of the strategy `route`, by account; neither `cost` nor `money` has
    it."""

    model: str
    strategy: str
    requests: Mapping[str, int]
    cost: Mapping[str, Any]
    money: Mapping[str, Any] | None = None
    server: Mapping[str, Any] | None = None
    journal: str = ""
    others: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def rows(self) -> list[Row | Table]:
        """The requests, and what they cost."""
        ends = ", ".join(f"{n:,} {k}" for k, n in sorted(self.requests.items())) or "none"
        others = (Row(k, f"{c['prefill']:,} tokens read, {c['decode']:,} written") for k, c in self.others.items())
        return given(Row("requests of clients", ends), *spent(self.cost, self.money, self.server), *others,
                     Row("answers and bills", self.journal))


@dataclass(frozen=True)
class Answerer:
    """What answers: the setting of a model, whether its problems are known, and the study whose plan chooses."""

    setting: Setting
    known: bool = False
    study: StudyRecord | None = None

    @classmethod
    def of(cls, what: str, asked: Mapping[str, Any], given: Collection[str]) -> Answerer:
        """Of a model, a run's final policy, or a study of strategies. `asked` are options, of which `given` were given:
        these hold in place of a record's own. Raises UserError for a run without a final policy, and for a study that
        has no model to answer with."""
        folder, own = Path(what), {k: asked[k] for k in given if k in option_names()}
        if (folder / "study.json").is_file():
            study = StudyRecord.read(folder)
            if study.kind != "test_time" or study.setting.model == UNNAMED:
                raise UserError(f"{what} has no strategies of a model to serve: serve the final policy of one of its "
                                f"runs, or profile with `isocost profile --model ... --strategies ...`")
            return cls(study.setting.but(**own), True, study)
        if not (folder / "run.json").is_file():
            setting, known = setting_of({**asked, "model": what}), "data" in given
            return cls(setting if known or "max_tokens" in given else setting.but(max_tokens=ROOM), known)
        final = final_of(folder)
        setting = Setting.of(read_json(folder / "run.json")["job"]["setting"])
        return cls(setting.but(**own, model=str(final)), not setting.problems.env)

    def chooses(self, strategy: str | None, price: str | None) -> tuple[Choose, str]:
        """What chooses a strategy for each request, and its name: the plan, if none is named. Raises UserError."""
        from isocost.steps.serving.choosing import PLAIN, by_plan, by_strategy

        if self.study is not None and strategy is None:
            return by_plan(self.study, price)
        return by_strategy(strategy or PLAIN), strategy or PLAIN

    def models(self, strategy: str | None) -> list[str]:
        """Other models that the strategy asks, or any that the plan of the study may choose."""
        if strategy or self.study is None:
            return parse(strategy).models if strategy else []
        about = self.study.asked
        return [model for name in (*about["strategies"], *about["searches"])
                for model in parse(strategy_of(name, max(about["sizes"]), about["scorer"])).models]

    @contextlib.contextmanager
    def opened(self, limits: RequestLimits) -> Iterator[World]:
        """The world, to be sampled alone and without its environment. Where problems are known it has them, and their
        verifier marks answers to them. Raises UserError."""
        setting = self.setting
        if self.known:
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
        world.open_other = partial(open_other, setting, _no_marks, world.meter, limits)
        try:
            yield world
        finally:
            world.close()


async def _no_marks(rollouts: Sequence[Rollout]) -> list[Score | None]:
    raise UserError("nothing marks an answer to a question that the server does not know: name its problems with "
                    "--data, or use another scorer")


def serve(
    answerer: Answerer, strategy: str | None = None, *, access: Access = Access(), load: Load = Load(),
    served: Served = Served(), out: Path | None = None, observer: Observer = SILENT,
) -> ServerEnd:
    """Answer requests until SIGINT or SIGTERM; by `strategy` where they name none, else by the plan, else one sample.
    `served` is what is said of the model's server. `out` is a folder for the journal, which a later server continues.
    Raises UserError for what cannot be opened."""
    for package in ("starlette", "uvicorn"):
        needed(package, "serve", "`isocost serve`")
    from isocost.steps.serving.admission import Admission
    from isocost.steps.serving.application import Application

    setting, price = answerer.setting, served.token_price
    choose, named = answerer.chooses(strategy, served.price)
    journal, first, name = None, 0, ""
    with contextlib.ExitStack() as closing:
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            closing.enter_context(writing(out))
            last = tail(out / FILE, LAST, lambda line: Keys({"request": int}))
            first, name = 1 + max((line["request"] for line in last), default=-1), str(out / FILE)
            journal = Stream.mended(out / FILE)
            closing.callback(journal.close)
        world = closing.enter_context(answerer.opened(served.limits))
        for second in answerer.models(strategy):
            world.other(second)
        world.open_other = None     # a request names no model to open
        app = Application(world, setting.model, setting.measured, choose, Admission(load.tokens, load.queue),
                          key=access.key, journal=journal, first=first)
        finished(_listen(app, access, load.grace, Listening("", setting.model, named, name), observer))
        cost = world.meter.of(ANSWERS)
        return ServerEnd(setting.model, named, dict(app.counts), cost.data(),
                         None if price is None else price.of(cost).data(),
                         world.about.server() if world.about.server else None, name,
                         {k: c.data() for k, c in world.meter.logical.items() if k.startswith(MODEL)})


async def _listen(app: Application, access: Access, grace: float, said: Listening, observer: Observer) -> None:
    """Serve until a signal; then wait for what is under way, `grace` seconds at most or until another signal. What is
    not answered by then is cancelled: it is in the journal with what it cost."""
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
