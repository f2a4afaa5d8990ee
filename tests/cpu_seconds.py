"""Processor seconds of the suite, by room, against a budget. It fails on no clock: it prints, and can be kept.

`seconds.json` has the rooms, as the words that the names of their test files begin with, their budgets, and the seconds
of each file when they were last kept, by `python -m pytest --keep-seconds`. The longest files are run first.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

RECORD = Path(__file__).with_name("seconds.json")
KEPT = json.loads(RECORD.read_text(encoding="utf-8"))
START = pytest.StashKey[float]()


def spent() -> float:
    """Of this process and of those it waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def room(file: str) -> str:
    """The room of a test file: that of the longest word that its name begins with; a folder's name comes first.

    A file that no word is for is of the core.
    """
    name = file.removeprefix("tests/").removesuffix(".py").replace("/test_", "/").removeprefix("test_")
    words = {word: room for room, about in KEPT["rooms"].items() for word in about["files"].split()}
    return words[max((word for word in words if name.startswith(word)), key=len, default="run")]


def by_room(files: Mapping[str, float]) -> dict[str, float]:
    found: Counter[str] = Counter()
    for file, seconds in files.items():
        found[room(file)] += seconds
    return dict(found)


def table(files: Mapping[str, float]) -> list[str]:
    """A line a room, in the order of the record: seconds, budget, and where it was exceeded."""
    found, rooms = by_room(files), KEPT["rooms"]
    rows = [(name, found.get(name, 0.0), about["budget"]) for name, about in rooms.items()]
    rows.append(("all", sum(found.values()), sum(about["budget"] for about in rooms.values())))
    return [f"{name:10} {seconds:7.1f} of {budget:5} processor seconds{' OVER' * (seconds > budget)}"
            for name, seconds, budget in rows]


class Seconds:
    """Sums what tests took, with the commands that the server of forks ran for them."""

    def __init__(self, config: pytest.Config) -> None:
        self.config, self.files = config, Counter[str]()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> None:
        item.stash[START] = spent()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
        report = yield
        if call.when == "teardown":
            report.user_properties.append(("processor seconds", spent() - item.stash[START]))
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self.files[report.nodeid.split("::")[0]] += dict(report.user_properties)["processor seconds"]

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        served = self.config._tmp_path_factory.getbasetemp() / "server" / "seconds"
        for line in served.read_text(encoding="utf-8").splitlines() if served.exists() else ():
            test, seconds = line.rsplit("\t", 1)
            if file := test.split("::")[0]:
                self.files[file] += float(seconds)
        if by_room(self.files).keys() == KEPT["rooms"].keys():      # the suite, not a part of it
            terminalreporter.write_line("\n".join(table(self.files)))
        if self.config.getoption("--keep-seconds"):
            every = Counter({**KEPT["files"], **self.files})
            files = {file: round(seconds, 1) for file, seconds in every.most_common()
                     if seconds >= 1 and (self.config.rootpath / file).exists()}
            RECORD.write_text(json.dumps({**KEPT, "files": files}, indent=1) + "\n", encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--keep-seconds", action="store_true", help="write what each test file took to tests/seconds.json")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Seconds(config), "processor seconds")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest first: a worker that began one of them last would leave the others without work."""
    items.sort(key=lambda item: -KEPT["files"].get(item.nodeid.split("::")[0], 0))      # stable within a file
