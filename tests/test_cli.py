"""Every command as a newcomer and as a hostile user calls it: one line and exit code 2 for a mistake, no traceback."""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import kill9
from isocost.cli.commands import main
from isocost.runs.files import read_json, read_lines
from waiting import until

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "passive"}
DATA = ("--data", "sums:base=easy,count=120", "--held-out", "0.3")
RUN = ("train", "grpo", *DATA, "-n", "4", "-B", "4")
METHOD = '''"""Mine: a wider clip.

    L = max(-A rho, -A clip(rho, 1 +- 0.3))
"""

from functools import partial

from isocost.methods import Card, grpo
from isocost.parts import loss

CARD = Card("Mine", "none", 2026, "grpo", "It learns faster.")


def recipe(**changes):
    """GRPO with a wider clip."""
    return grpo.recipe(name="mine", loss=partial(loss.clipped, low=0.3, high=0.3)).but(**changes)
'''
REWARD = '''
def reward(prompts, completions, answer, **columns):
    return [1.0 if c == a else 0.0 for c, a in zip(completions, answer)]


def dies(prompts, completions, **columns):
    raise RuntimeError("no")


def later(prompts, completions, completion_ids, **columns):
    """Fails on what a run samples, as it can only do once it runs: no check sees a reward of 30 calls and more."""
    with open("calls", "a") as f:
        f.write("x")
    if len(open("calls").read()) > 150:
        raise RuntimeError("too late")
    return [0.5]


def words(completions, **columns):
    return ["1.0"]


def dear(completions, answer, **columns):
    return [10.0 if c == a else -1.0 for c, a in zip(completions, answer)]
'''


def said(*args, code=0):
    """What a command printed; its exit code must be this, and a mistake is one line without a traceback."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    assert done.exception is None or isinstance(done.exception, SystemExit)
    if code == 2 and done.stderr:
        assert done.stderr.startswith("isocost: ") and done.stderr.count("\n") == 1, done.stderr
    return done.output


@pytest.fixture
def here(tmp_path, monkeypatch):
    """An empty folder to stand in, with a method and a reward of one's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(METHOD)
    (tmp_path / "my.py").write_text(REWARD)
    return tmp_path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "trained"
    said(*RUN, "--budget", "256-rollouts", "--out", out)
    return out


COMMANDS = (
    "quickstart", "doctor", "profile", "plan", "pilot", "fit", "train", "audit", "eval", "report", "ls", "methods",
)


def test_help_names_every_command_and_every_option_says_what_it_is_for():
    top = said("--help")
    for name in COMMANDS:
        assert re.search(rf"^  {name} ", top, re.M)
        page = said(name, "--help")
        for command, option in [(name, p) for p in main.commands[name].params if p.param_type_name == "option"]:
            assert option.help or option.name == "help", f"{command} {option.name} has no help"
        assert page.count("Usage:") == 1


def processor_seconds(*command):
    """Of Python with these arguments; the least of two: what the machine is otherwise doing is not the question."""
    took = []
    for _ in range(2):
        before = os.times()
        subprocess.run([sys.executable, *command], check=True, capture_output=True)
        after = os.times()
        took.append(after.children_user + after.children_system - before.children_user - before.children_system)
    return min(took)


@pytest.mark.parametrize("command", [(), ("train",)])
def test_help_takes_no_longer_than_loading_a_few_small_packages(command):
    """On any processor: importing torch takes ten times as long as these."""
    small = processor_seconds("-c", "import click, rich.console, numpy")
    assert processor_seconds("-m", "isocost", *command, "--help") < 3 * small


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((*RUN,), "--budget with a unit"),
        ((*RUN, "--budget", "50"), "has no unit"),
        ((*RUN, "--budget", "50k-apples"), "'apples' is not a unit"),
        ((*RUN, "--budget", "10-rollouts"), "does not pay for one update of n B = 4 x 4 = 16"),
        ((*RUN, "--budget", "1k-rollouts", "--set", "loss.hihg=1"), "low, high, dual; not 'hihg'"),
        ((*RUN, "--budget", "1k-rollouts", "--set", "loss"), "has no value"),
        ((*RUN, "--budget", "1k-rollouts", "--set", "loss.high=abc"), "expected a number"),
        ((*RUN, "--budget", "1k-rollouts", "--set", "rollouts=3"), "write --rollouts 3"),
        ((*RUN, "--budget", "1k-rollouts", "--set", "pace.temperature=3"), "write --temperature 3"),
        ((*RUN, "--budget", "1k-rollouts", "-n", "1"), "it compares siblings"),
        (("train", "brpo", *DATA, "-n", "4", "--budget", "1k-rollouts", "--dry-run"), "brpo does not run"),
        (("train", "brpo", *DATA, "-n", "4", "--budget", "1k-rollouts"), "takes 5 rollouts or more"),
        ((*RUN, "--budget", "1k-rollouts", "--set", "improve.minibatches=0"), "improve.minibatches=0: isocost.parts."),
        (("train", "scalerl", *DATA, "--budget", "500-rollouts"), "16 x 48 = 768, scalerl's own sizes where"),
        ((*RUN, "--budget", "1k-rollouts", "-n", "0"), "'--rollouts' / '-n': 0"),
        ((*RUN, "--budget", "1k-rollouts", "--lr", "-1"), "'--lr'"),
        ((*RUN, "--budget", "1k-rollouts", "--plan", "x"), "a METHOD"),
        (("train",), "a METHOD"),
        (("train", "nope", "--budget", "1k-rollouts"), "expected one of ace"),
        (("train", "./nope.py", "--budget", "1k-rollouts"), "there is no file nope.py"),
        (("train", "--plan", "nowhere"), "nowhere is not a study"),
        (("train", "--bogus"), "No such option"),
        (("profile", "--out", "s", "--model", "nowhere"), "no model 'nowhere'"),
        (("profile", "--out", "s", "--model", "."), "no model"),
        (("profile", "--out", "s", "--data", "nowhere.jsonl"), "'nowhere.jsonl' is not a file"),
        (("profile", "--out", "s", "--data", "sums:bogus=1"), "no option 'bogus'"),
        (("profile", "--out", "s", "--data", str(EXAMPLES / "mine.jsonl")), "alphabet"),
        (("profile", "--out", "s", "--verifier", "nope"), "there is no verifier 'nope'"),
        (("profile", "--out", "s", "--reward", "nope.py:f"), "no file nope.py"),
        (("profile", "--out", "s", "--reward", "my.py:nothing"), "no function 'nothing'"),
        (("profile", "--out", "s", "--reward", "my.py"), "file.py:function"),
        (("profile", "--out", "s", "--method", "nope"), "unknown method 'nope'"),
        (("profile", "--out", "s", "--method", "zscaler"), "unknown method 'zscaler' (did you mean 'scaler'"),
        (("profile", "--out", "s", *DATA, "--method", "grpo@rollouts=9"), "does not use rollouts=9: the pilot varies"),
        (("quickstart", "--out", "s", *DATA, "--method", "grpo@loss.high=0.3,groups=2"), "not use groups=2: set B"),
        (("profile", "--out", "s", *DATA, "--method", "dapo@pace.lr=1e-4"), "with `isocost plan STUDY --lr`"),
        (("profile", "--out", "s", *DATA, "--method", "mcgrpo@advantage.flat=0"), "conflicts with verifier exact"),
        (("profile", "--out", "s", "--held-out", "2.5"), "whole number of problems"),
        (("profile", "--out", "s", "--held-out", "-1"), "held-out is a share"),
        (("profile", "--out", "s", "--held-out", "100000"), "cannot hold out"),
        (("profile", "--out", "s", "--limit", "1"), "of 1 problem leaves the training split empty: give at least 3"),
        (("profile", "--out", "s", "--problems", "0"), "--problems"),
        (("profile", "--out", "s", "--temperature", "0"), "--temperature"),
        (("profile", "--out", "s", "--top-p", "0"), "--top-p"),
        (("profile", "--out", "s", "--top-k", "-3"), "--top-k"),
        (("profile", "--out", "s", "--threads", "0"), "--threads"),
        (("profile", "--out", "s", "--device", "tpu"), "auto, cpu or cuda"),
        (("profile", "--out", "s", "--dtype", "fp8"), "give auto, fp32"),
        (("profile", "--out", "mine.py/s", *DATA, "--problems", "4"), "Not a directory"),
        ((*RUN, "--budget", "64-rollouts", "--out", "mine.py/r"), "Not a directory"),
        (("quickstart", "--size", "huge"), "tiny, quick, standard"),
        (("quickstart", "--budget", "5"), "has no unit"),
        (("eval", "nowhere"), "nowhere/run.json does not exist"),
        (("report", "nowhere"), "nowhere is not a directory"),
        (("ls", "nowhere"), "no folder nowhere"),
        (("methods", "show", "nope"), "unknown method"),
        (("methods", "check", "nope"), "unknown method"),
        (("compare", "runs/a", "runs/b"), "there is no folder or file runs/a: name folders of runs, methods"),
        (("bogus",), "No such command 'bogus'"),
    ],
    ids=lambda x: " ".join(map(str, x))[-40:] if isinstance(x, tuple) else "",
)
def test_a_mistake_is_one_line_that_says_what_would_be_right_and_leaves_nothing_behind(here, args, says):
    assert says in said(*args, code=2)
    assert {p.name for p in here.iterdir()} <= {"mine.py", "my.py", "__pycache__"}


@pytest.mark.parametrize(("method", "sizes", "told"), [
    ("grpo", (), "n = 8, B = 16, lr = 0.00021, seed 0, 4,000 rollouts\n  would cost 3,968 "),
    ("mcgrpo", (), "n = 9, B = 16, lr = 0.00022, seed 0, 4,000 rollouts\n  method defaults: n = 9\n"),
    ("mcgrpo", ("-n", "8"), "\n  overridden here: n = 8 (default 9)\n"),
    ("isoeasy", (), "overridden here: lr = 0.0003 (default 5e-07), max_tokens = 4 (default 8192), "),
    ("scalerl", ("-B", "4"), "defaults: n = 16; overridden here: B = 4 (default 48), lr = 0.00015 (default 5e-07), "),
    ("scalerl", ("--set", "pace.warmup=100"), "method defaults: n = 16, B = 48, warmup = 100; overridden here: lr ="),
])
def test_a_run_has_the_sizes_of_its_method_and_lists_the_defaults_that_it_overrides(here, method, sizes, told):
    """5e-7 for a model of 7B is no rate for a small one: lr, warm-up and lengths go by what is trained."""
    assert told in said("train", method, *DATA, "--budget", "4k-rollouts", *sizes, "--dry-run")


def test_a_run_prints_the_reward_on_the_test_split_as_it_trains(here):
    text = said(*RUN, "--budget", "64-rollouts", "--out", "r")
    line = next(x for x in read_lines(here / "r" / "metrics.jsonl") if "eval/audit" in x)
    assert f"0 rollouts  step      0  held-out reward, test split {line['eval/audit']:.4f}" in text


@pytest.mark.parametrize("command", [("train", "grpo", "--budget", "1k-rollouts"), ("profile", "--out", "s")])
def test_each_of_the_ten_broken_rows_is_named(here, command):
    done = CliRunner().invoke(main, [*command, "--data", str(EXAMPLES / "broken.jsonl")])
    assert done.exit_code == 2 and "Traceback" not in done.output
    assert len(re.findall(r"^  line \d+: \S", done.output, re.M)) == 10
    assert not (here / "s").exists() and not (here / "runs").exists()


def test_an_interval_over_one_problem_is_not_given(here, trained):
    Path("one.jsonl").write_text('{"prompt": "20+17=", "answer": "37"}\n')
    for what in ((trained,), ("--model", "tiny")):
        assert "1 of 1 problem has a reward, and an interval needs two" in said(
            "eval", *what, "--data", "one.jsonl", code=2)


def test_a_plan_prints_the_whole_command_of_an_option_that_it_names():
    from isocost.planner.budget import Budget
    from isocost.steps.training.plans import whole_commands

    found = []
    texts = ("a (`isocost plan --samples 3`), or b (`isocost profile --held-out 26`)", "(`isocost plan --samples 3`)")
    for budget in (Budget.parse("300k-rollouts"), None):
        found += whole_commands(texts, Path("my studies/own"), budget)
    assert [(row.text.strip(), row.kind) for row in found] == [
        ("isocost plan 'my studies/own' --budget '300,000 rollouts' --samples 3", "command"),
        ("isocost plan 'my studies/own' --samples 3", "command"),
    ]
    assert Budget.parse("300,000 rollouts") == Budget.parse("300k-rollouts")


@pytest.mark.skipif(os.geteuid() == 0 and not Path("/proc").exists(), reason="nowhere to be refused")
def test_what_a_plan_without_a_pilot_and_a_study_without_its_plan_need_is_said(here):
    said("profile", "--out", "s", "--data", "sums:base=easy,count=60", "--problems", "8")
    said("plan", "s", "--budget", "2k-rollouts")
    assert "planned without a pilot" in said("fit", "s")
    (here / "s" / "runs").mkdir()
    kept = (here / "s" / "pilot.json").read_bytes()
    (here / "s" / "pilot.json").unlink()
    plan = (here / "s" / "plan.json").read_bytes()
    assert "restore it" in said("plan", "s", code=2) and (here / "s" / "plan.json").read_bytes() == plan
    (here / "s" / "pilot.json").write_bytes(kept)
    assert "planned without a pilot" in said("plan", "s", "--budget", "3k-rollouts", code=2)


def test_sizes_in_a_methods_name_are_those_of_the_run(here):
    asked = ("--data", "sums:base=easy,count=60", "--budget", "12-rollouts", "--out", "r")
    said("train", "grpo@rollouts=3,groups=2", *asked)
    run = read_json(here / "r" / "run.json")
    assert (run["arm"]["n"], run["job"]["arm"]["n"], run["arm"]["B"]) == (3, 3, 2)
    assert run["job"]["points"][-1] == 12 and run["job"]["sets"] == {}
    assert "rollouts is given twice" in said("train", "grpo@rollouts=3", "-n", "4", "--budget", "12-rollouts", code=2)


def test_a_file_that_makes_no_recipe_or_exits_says_so_by_name(here):
    body = METHOD[: METHOD.index("def recipe")]
    for name, end, told in (("none", "def recipe(**changes):\n    pass\n", "is a `return` missing"),
                            ("raises", "def recipe(**changes):\n    return {}['seam']\n", "KeyError: 'seam'"),
                            ("exits", "import sys\nsys.exit('no licence')\n", "SystemExit: no licence")):
        (here / f"{name}.py").write_text(body + end)
        for command in (("train", f"./{name}.py", "--budget", "1k-rollouts"),
                        ("compare", "grpo", f"./{name}.py", "--budget", "50k-rollouts")):
            text = said(*command, code=2)
            assert told in text and name in text, text


def test_a_folder_that_cannot_be_written_is_named(here):
    assert "choose a folder that can be written" in said(*RUN, "--budget", "64-rollouts", "--out", "/proc/no", code=2)


@pytest.mark.parametrize("command", [("--help",), ("laws", "list")])
def test_a_reader_that_goes_away_is_no_bug(command):
    """`isocost ... | head -1`: quiet, and the code of a program that a closed pipe ends."""
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run([sys.executable, "-m", "isocost", *command], stdout=writes, stderr=subprocess.PIPE)
    os.close(writes)
    assert (done.returncode, done.stderr) == (141, b"")


def test_the_help_of_a_command_is_in_sections_with_every_option_once():
    from isocost.cli.options import SECTIONS

    for name in ("train", "profile", "doctor", "fit"):
        command, text = main.commands[name], said(name, "--help")
        heads = [x.rstrip(":") for x in re.findall(r"^\S.*:$", text, re.M)]
        own = {p.name for p in command.params}
        assert heads == ["Options", *(title for title, names in SECTIONS.items() if own & set(names))]
        rows = re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.M)
        options = [next(o for o in p.opts if o.startswith("--")) for p in command.params if hasattr(p, "is_flag")]
        assert sorted(rows) == sorted([*options, "--help"])


def test_a_shell_completes_names_of_methods():
    from click.shell_completion import ShellComplete

    shell = ShellComplete(main, {}, "isocost", "_ISOCOST_COMPLETE")
    assert {"grpo", "gspo"} <= {x.value for x in shell.get_completions(["train"], "g")}
    assert [x.value for x in shell.get_completions(["compare", "grpo"], "dap")] == ["dapo"]
    assert [x.type for x in shell.get_completions(["train"], "./my_m")] == ["file"]


def test_lines_are_broken_for_a_terminal_only(capsys):
    from isocost.screen.console import console

    console().print("n = 2 is best " * 40)
    assert capsys.readouterr().out.count("\n") == 1


@pytest.mark.parametrize(("step", "command"), [("fit.fit_folder", ("fit", "my study")),
                                               ("profile.profile", ("profile", "--out", "my study"))])
def test_ctrl_c_prints_the_command_that_goes_on(here, monkeypatch, step, command):
    def stopped(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(f"isocost.steps.training.{step}", stopped)
    monkeypatch.setattr(sys, "argv", ["isocost", *command])
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 130
    again = shlex.join(("isocost", *command))
    assert done.stderr == f"\nstopped; what was written is kept and used again. To continue: {again}\n"


def test_a_run_and_what_it_says(trained):
    assert read_json(trained / "end.json")["reason"] == "spent" and (trained / "final" / "config.json").exists()
    assert "spent" in said(*RUN, "--budget", "256-rollouts", "--out", trained)  # again: it says how it ended
    assert "pace, budget differ" in said(*RUN, "--budget", "512-rollouts", "--out", trained, code=2)


def test_temperature_and_truncation_go_through_to_the_record(here):
    said(*RUN, "--budget", "64-rollouts", "--temperature", "1.3", "--top-p", "0.9", "--top-k", "5", "--out", "r",
         "--max-tokens", "5", "--set", "loss.high=0.28")
    recipe = read_json(here / "r" / "run.json")["recipe"]
    pace = {k: recipe["pace"][k] for k in ("temperature", "top_p", "top_k", "max_tokens")}
    assert pace == {"temperature": 1.3, "top_p": 0.9, "top_k": 5, "max_tokens": 5} and recipe["loss"]["high"] == 0.28


def test_dry_run_tells_the_cost_and_leaves_nothing_behind_but_its_own_bill(here):
    for command in ((*RUN, "--budget", "1k-rollouts"), ("profile", "--out", "s", *DATA)):
        text = said(*command, "--dry-run").replace("\n", " ")
        assert all(word in text for word in ("rollouts", " s", "of memory", "of disk"))
        cost = json.loads(said(*command, "--dry-run", "--json"))
        assert {"rollouts", "seconds", "memory_mb", "disk_mb"} <= set(cost)
    assert {p.name for p in here.iterdir()} <= {"mine.py", "my.py", "__pycache__", "runs"}
    assert [p.name for p in (here / "runs" / "grpo-0").iterdir()] == ["dry-run.json"]


def test_a_run_whose_evaluations_cost_more_than_a_quarter_of_it_says_so(here):
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(20, 50) for b in (11, 12)]
    (here / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    run = ("train", "grpo", "--data", "rows.jsonl", "-n", "4", "-B", "4", "--max-tokens", "4", "--out", "r")
    dear = " ".join(said(*run, "--budget", "64-rollouts", "--evaluations", "2").split())
    found = [x for x in read_lines(here / "r" / "metrics.jsonl") if "eval/audit" in x]
    told = read_json(here / "r" / "end.json")["bill"]["evaluation"]["rollouts"]
    assert f"{len(found)} evaluations" in dear and f"{told:,} rollouts, {told / 64:.0%} of training" in dear
    assert "--samples, --evaluations or --held-out" in dear
    few = ("--evaluations", "1", "--samples", "1")
    assert "of training" not in said(*run[:-1], "r2", "--budget", "1k-rollouts", *few)


def test_a_method_file_and_a_reward_of_ones_own(here):
    said("train", "./mine.py", *DATA, "-n", "4", "-B", "4", "--budget", "64-rollouts", "--out", "r", "--reward",
         "my.py:reward")
    there = read_json(here / "r" / "run.json")
    assert there["recipe"]["loss"]["high"] == 0.3
    assert read_json(here / "r" / "end.json")["bill"]["train"]["verify"] == 64
    assert {r for x in read_lines(here / "r" / "journal.jsonl") for r in x["rewards"]} == {0.0, 1.0}


def test_a_reward_that_fails_once_it_runs_ends_the_run_before_its_budget_is_spent_and_is_counted(here):
    text = said(*RUN, "--budget", "64-rollouts", "--out", "r", "--reward", "my.py:later", code=5)
    end = read_json(here / "r" / "end.json")
    assert "verifier failures, exception: " in text and "reward failed: my.py:later" in text
    assert end["verifier_failures"]["exception"] >= 32 and "train" not in end["bill"]


@pytest.mark.parametrize(("command", "reward", "told"), [
    *((command, "dies", "RuntimeError: no") for command in (
        (*RUN, "--budget", "64-rollouts"), (*RUN, "--budget", "64-rollouts", "--dry-run"), ("doctor", "tiny", *DATA),
        ("profile", "--out", "s", *DATA), ("compare", "grpo", "dapo", "--budget", "50k-rollouts", *DATA))),
    ((*RUN, "--budget", "64-rollouts"), "words", "TypeError: words returned '1.0' (str) where a number was expected")])
def test_a_reward_that_always_fails_is_named_with_its_row_before_anything_is_sampled(here, command, reward, told):
    text = said(*command, "--reward", f"my.py:{reward}", code=2)
    assert "gives no reward to any of the 4 rows" in text and "First: problem 1 (id 'sum-" in text and told in text
    assert {p.name for p in here.iterdir()} <= {"mine.py", "my.py", "__pycache__"}


def test_a_reward_outside_0_and_1_stops_a_study_before_it_samples_and_may_train(here):
    for command in (("profile", "--out", "s"), ("compare", "grpo", "dapo", "--budget", "50k-rollouts")):
        text = said(*command, *DATA, "--reward", "my.py:dear", code=2)
        assert "paid -1 to 10 on the rows it was tried on" in text and not (here / "s").exists()
    assert "would cost" in said(*RUN, "--reward", "my.py:dear", "--budget", "64-rollouts", "--dry-run")


def test_methods_are_listed_shown_and_held_to_their_contract(here):
    assert said("methods") == said("methods", "list")
    some = {m["name"] for m in json.loads(said("methods", "list", "--json")) if "advantage" in m["changes"]}
    assert {"reinforce", "drgrpo", "ace"} <= some and "vade" not in some
    assert "CARD" in said("methods", "show", "grpo") and "a wider clip" in said("methods", "show", "./mine.py")
    assert "keeps the contract" in said("methods", "check", "./mine.py")
    (here / "bad.py").write_text(METHOD.replace("low=0.3, high=0.3", "low=0.2, high=0.2"))
    text = said("methods", "check", "./bad.py", code=2)
    assert "BROKEN    It differs from its parent somewhere." in text and "breaks 1 of" in text
    assert [x["kept"] for x in json.loads(said("methods", "check", "./bad.py", "--json", code=2))].count(False) == 1
    (here / "syntax.py").write_text("def (")
    assert "does not import" in said("methods", "check", "./syntax.py", code=2)


def test_a_method_of_an_installed_package_is_one_by_name(here, monkeypatch):
    package = here / "site" / "wider"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "method.py").write_text(METHOD)
    told = here / "site" / "wider-1.0.dist-info"
    told.mkdir()
    (told / "METADATA").write_text("Metadata-Version: 2.1\nName: wider\nVersion: 1.0\n")
    (told / "entry_points.txt").write_text("[isocost.methods]\nmine = wider.method\n")
    monkeypatch.syspath_prepend(here / "site")
    assert "mine" in {m["name"] for m in json.loads(said("methods", "list", "--json"))}
    assert "low=0.3" in said("methods", "show", "mine")
    assert "keeps the contract" in said("methods", "check", "mine")
    train = ["train", "mine", *DATA, "-n", "4", "-B", "4", "--budget", "64-rollouts", "--out", "r", "--json"]
    there = {**ENVIRONMENT, "PYTHONPATH": os.pathsep.join([str(HERE.parent / "src"), str(here / "site")])}
    done = subprocess.run([sys.executable, "-m", "isocost", *train], env=there, capture_output=True, text=True)
    assert done.returncode == 0 and json.loads(done.stdout)["reason"] == "spent", done.stderr
    recipe = read_json(here / "r" / "run.json")["recipe"]
    assert recipe["name"] == "mine" and recipe["loss"]["high"] == 0.3


def test_problems_of_ones_own_for_the_tiny_model(here):
    rows = [{"prompt": f"{a}+{b}=", "answer": str(a + b)} for a in range(20, 50) for b in (11, 12)]
    (here / "rows.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    said("train", "grpo", "--data", "rows.jsonl", "-n", "4", "-B", "4", "--budget", "64-rollouts", "--max-tokens", "4",
         "--out", "r")
    found = json.loads(said("eval", "r", "--data", "rows.jsonl", "--base", "--json"))
    assert found["problems"] == 60 and 0 <= found["final"]["value"] <= 1
    assert found["difference"]["low"] <= found["difference"]["value"] <= found["difference"]["high"]
    assert found["cost"]["rollouts"] == 2 * 60 * 16      # the final policy and the base
    assert json.loads((here / "r" / "eval.json").read_text())["cost"] == found["cost"] == found["spent"]
    again = json.loads(said("eval", "r", "--data", "rows.jsonl", "--json"))      # nothing that was paid is forgotten
    assert again["spent"]["rollouts"] == found["cost"]["rollouts"] + again["cost"]["rollouts"] == 3 * 60 * 16


LONG = (*RUN, "--budget", "1600-rollouts", "--evaluations", "2")


@pytest.fixture(scope="module")
def never_stopped(tmp_path_factory):
    """What a run of `LONG` leaves."""
    out = tmp_path_factory.mktemp("runs") / "whole"
    said(*LONG, "--out", out)
    return kill9.left_by(out)


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_saves_and_prints_the_command_that_continues(tmp_path, never_stopped, programs_at_once, signum, code):
    """The run has a process of its own. The printed command is run as it is, and ends as a run never stopped."""
    command, note = [programs_at_once / "isocost", *LONG, "--out", str(tmp_path / "my run")], tmp_path / "pid"
    process = subprocess.Popen(command, env={**ENVIRONMENT, "PID_FILE": str(note)}, stderr=subprocess.PIPE,
                               stdout=subprocess.DEVNULL, text=True)
    assert until(lambda: len(read_lines(tmp_path / "my run" / "metrics.jsonl")) >= 8)
    os.kill(int(note.read_text()), signum)
    error = process.communicate(timeout=300)[1]
    assert process.returncode == code and "Traceback" not in error
    assert read_json(tmp_path / "my run" / "end.json")["reason"] == "interrupted"
    line = error.strip().splitlines()[-1].split("To continue: ")[1]
    said(*shlex.split(line)[1:])
    assert kill9.left_by(tmp_path / "my run") == never_stopped
