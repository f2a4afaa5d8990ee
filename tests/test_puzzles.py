"""The built-in puzzles: what is posed, which steps and answers are right, and what the dials do."""

import json
import operator
import re
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import bases
import lessons
import pass_rates
from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.local import embedded, models
from isocost.planner.training.learning_rate import starting_rule
from isocost.steps.settings import setting_with
from isocost.steps.study import StudyRecord
from isocost.steps.training.plan import plan
from isocost.steps.training.plans import PlanOptions
from isocost.steps.training.profile import profile
from isocost.steps.training.single import starting_rule_of
from isocost.tasks import load_problems
from isocost.tasks.builtin import addition, chain, countdown, families, puzzles, sums
from isocost.tasks.builtin.drawn import Drawn
from isocost.tasks.builtin.puzzles import Puzzles
from isocost.tasks.verify.verifiers import final
from isocost.worlds.setting import Setting, open_setting

HOME = Path(__file__).resolve().parents[1]
FOLDER = embedded.EMBEDDED["tiny-puzzles"]
SOME = list(puzzles.listed(Puzzles(count=600)))


def posed(kind, prompt, answer=""):
    return puzzles.problem(kind, 1, 1, Drawn(prompt, answer, answer, prompt))


def test_every_reference_solution_is_right_step_by_step():
    for p in SOME:
        assert all(puzzles.check_steps(p, p.meta["solution"])), p
        assert final(p.meta["solution"], p) == 1.0 and p.meta["solution"].endswith(p.answer)
        assert set(p.text + p.meta["solution"]) <= set(puzzles.ALPHABET)
        assert len(p.meta["solution"]) < 192 and len(p.text) < 32


def test_chain_by_hand():
    p = posed("chain", "3+5*4-6%7>", "5")
    right = "3+5=8-7=1;1*4=4;4-6=-2+7=5;5"
    assert puzzles.check_steps(p, right) == [True] * 4
    assert chain.worked(3, [("+", 5), ("*", 4), ("-", 6)], 7) == (right.split(";")[:-1], 5)
    assert puzzles.check_steps(p, "3+5=8-7=1;1*4=5;5-6=-1+7=6;6") == [True, False, False, False]
    assert puzzles.check_steps(p, "3+5=8-7=1;5") == [True, True]                 # steps left out
    assert puzzles.check_steps(p, right[:-1] + "5=5;5") == [True, True, True, False, True]   # a step too many


def test_addition_by_hand():
    p = posed("addition", "478+395>", "873")
    assert puzzles.check_steps(p, "8+5=13;7+9+1=17;4+3+1=8;873") == [True] * 4
    assert puzzles.check_steps(p, "8+5=13;7+9=16;4+3+1=8;863") == [True, False, True, False]
    assert puzzles.check_steps(p, "873") == [True]


def test_countdown_by_hand():
    p = posed("countdown", "3,5,8,2=26>", "8*3-5+7")
    assert puzzles.check_steps(posed("countdown", "3,8,2=26>"), "8*3=24;24+2=26;8*3+2") == [True] * 3
    # a dead end: the last number misses the target, one step is taken back, then two
    searched = "8+5=13;13*2=26;26-3=23;!26+3=29;!!!8*5=40;40-3=37;37*2=74;"
    assert puzzles.check_steps(p, searched + "8*5-3*2") == [True] * 7 + [False]
    assert puzzles.check_steps(p, "8+5=13;8*2=16;13*2=26;") == [True, False, True, False]      # 8 is used; so is 13
    assert puzzles.check_steps(p, "8+5=13;13-5=8;0") == [True, False, False]                   # 5 is used
    assert puzzles.check_steps(p, "8+5=13;!!8*3=24;8*3=24;0") == [True, False, False, False]   # one step to take back
    assert puzzles.check_steps(p, "9+5=14;8+5=12;+;!") == [False, False, False, False]


@pytest.mark.parametrize(
    ("answer", "right"),
    [("8*3+2", 1), ("2+8*3", 0), ("3*8+2", 1), ("8*3+2+0", 0), ("8*3", 0), ("8*3+2;", 0), ("", 0), ("+8*3+2", 0),
     ("08*3+2", 0), ("26", 0), ("8+2*3-4", 0)],
)
def test_a_countdown_has_several_answers_and_uses_every_number_once(answer, right):
    p = posed("countdown", "3,8,2=26>", "8*3+2")
    assert final("8+3=11;" + answer, p) == right


APPLY = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def follows(numbers, steps):
    """Whether a search can be followed, by another reading of it than the checker's."""
    stack = [(None, sorted(numbers))]
    for step in steps:
        back = len(step) - len(step.lstrip("!"))
        found = re.fullmatch(r"(\d+)([-+*])(\d+)=(\d+)", step.lstrip("!"))
        if not found or back >= len(stack):
            return False
        stack = stack[: len(stack) - back]
        value, left = stack[-1]
        a, b, c = int(found[1]), int(found[3]), int(found[4])
        rest = list(left)
        for x in [a, b] if value is None else [b]:
            if x not in rest:
                return False
            rest.remove(x)
        if value not in (None, a) or APPLY[found[2]](a, b) != c:
            return False
        stack.append((c, rest))
    return True


def test_a_wrong_character_in_a_step_is_found_or_makes_another_step_that_is_right():
    rng = np.random.default_rng(0)
    for p in SOME[:60]:
        text = p.meta["solution"]
        end = text.rindex(";")
        for at in range(end):
            other = rng.choice([c for c in puzzles.ALPHABET if c != text[at]])
            changed = text[:at] + other + text[at + 1 :]
            *steps, _ = changed.split(";")
            marks = puzzles.check_steps(p, changed)[:-1]
            if p.meta["kind"] != "countdown":
                assert not all(marks) or len(steps) < text.count(";"), (p.text, changed)
            elif all(marks):
                assert follows([int(x) for x in p.text.split("=")[0].split(",")], steps), (p.text, changed)


def test_the_mixture_is_balanced_and_its_lengths_have_a_heavy_tail():
    every = [(p.meta["kind"], p.meta["level"]) for p in SOME]
    assert {every.count(x) for x in set(every)} == {50} and len(set(every)) == 12
    size = np.array([len(p.meta["solution"]) + 1 for p in SOME])
    assert np.quantile(size, 0.05) > 10 and 35 < np.median(size) < 60
    assert np.quantile(size, 0.99) > 2.5 * np.median(size)
    assert len({p.id for p in SOME}) == len({p.text for p in SOME}) == len(SOME)


@pytest.mark.parametrize("kind", puzzles.KINDS)
def test_longer_and_harder(kind):
    size = [np.mean([len(p.meta["solution"]) for p in puzzles.listed(Puzzles(kind, length=k, count=60))])
            for k in range(1, 6)]
    assert size == sorted(size) and size[4] > 2.5 * size[0]
    for level in range(1, 5):
        some = list(puzzles.listed(Puzzles(kind, level=level, count=40)))
        assert {p.meta["level"] for p in some} == {level}
        if kind == "addition":
            carries = np.mean([s.split("=")[1] >= "10" and len(s.split("=")[1]) > 1
                               for p in some for s in p.meta["solution"].split(";")[:-1]])
            assert abs(carries - addition.CARRIES[level - 1]) < 0.12
        if kind == "chain":
            assert all((int(p.text[:-1].split("%")[1]) <= 10) == (level < 3) for p in some)
            assert any("*" in p.text for p in some) == (level in (2, 4))
        if kind == "countdown":
            assert all(("*" in p.answer) == (level > 2) for p in some)
            assert max(int(x) for p in some for x in p.text.split("=")[0].split(",")) == countdown.LARGEST[level - 1]


@pytest.mark.parametrize("kind", puzzles.KINDS)
def test_problems_that_share_are_made_of_few_numbers(kind):
    def numbers(share):
        some = puzzles.listed(Puzzles(kind, level=4, length=2, share=share, count=100))
        if kind == "addition":
            return {tuple(re.findall(r"\d", step)[:2]) for p in some for step in p.meta["solution"].split(";")[:-1]}
        return {x for p in some for x in re.findall(r"\d+", p.text)[1:-1] + p.text.partition("%")[2].split()}

    few, half, many = (len(numbers(share)) for share in (0.0, 0.5, 1.0)[::-1])
    assert few < half <= many and few <= many / 2


def test_a_draw_depends_on_its_seed_alone():
    first = [p.text for p in puzzles.listed(Puzzles(count=100))]
    assert first == [p.text for p in SOME[:100]]
    assert first != [p.text for p in puzzles.listed(Puzzles(count=100, seed=1))]


def test_problems_of_one_addition_are_kin():
    assert (addition.draw(np.random.default_rng(0), 1, 1, addition.EVERY).kin.count("+")) == 1
    assert all(p.meta["kin"].startswith(p.meta["kind"]) for p in SOME)


def test_names_read_back():
    for name in ("puzzles", "puzzles:kind=chain,length=2", "puzzles:level=4,share=0.5,count=10,seed=3"):
        assert str(Puzzles.of(name)) == name


@pytest.mark.parametrize(
    ("name", "said"),
    [("puzzles:size=1", "no option 'size'"), ("puzzles:level=x", "takes an integer"), ("puzzles:level=5", "level is 1"),
     ("puzzles:length=0", "length is 1"), ("puzzles:share=2", "share is 0 to 1"), ("puzzles:share=a", "a number"),
     ("puzzles:kind=maze", "kind is chain, addition, countdown"), ("puzzles:count=0", "count is at least 1"),
     ("puzzles:seed=-1", "seed is at least 0"), ("puzzles:share=nan", "share is 0 to 1")],
)
def test_a_wrong_name_says_what_would_be_right(name, said):
    with pytest.raises(UserError, match=said):
        Puzzles.of(name)


def test_more_than_there_are_is_an_error():
    with pytest.raises(UserError, match="lower count"):
        load_problems("puzzles:kind=addition,length=1,level=4,share=1,count=5000", check=False)


def test_families_name_model_verifier_and_room():
    assert families.named("puzzles:level=1") is families.PUZZLES and families.named("rows.jsonl") is None
    assert families.of(SOME[0]) is families.PUZZLES and families.of(sums.problem(1, 2)) is families.SUMS
    assert families.SUMS.check_steps(sums.problem(47, 38, 1), "15;8;85") == [True] * 3
    setting = setting_with(data="puzzles:count=50")
    assert (setting.model, setting.lengths.max_tokens, setting.marks) == ("tiny-puzzles", puzzles.TOKENS, "final")
    assert setting_with(data="50% puzzles + 50% puzzles:level=1").model == "tiny-puzzles"
    assert setting_with(data="sums:work=1").model == "tiny" and setting_with(data="sums:work=1").marks == "final"
    assert setting_with(data="sums:base=easy").marks == "exact" and setting_with(data="rows.jsonl").marks == ""
    assert setting_with(data="puzzles", model="smollm2").model == "smollm2"


@pytest.fixture(scope="module")
def shipped():
    return models.load("tiny-puzzles")


def test_the_shipped_model_states_rates_that_suit_a_study(shipped):
    said, rates = shipped.extra["made"]["pass_at_1"], json.loads((FOLDER / "rates.json").read_text())
    right = np.array(rates["right"]) / rates["samples"]
    assert (rates["data"], len(right), rates["samples"]) == ("puzzles", puzzles.COUNT, 64)
    assert said["mean"] == pytest.approx(right.mean(), abs=1e-4) and said["problems"] == puzzles.COUNT
    assert said["tenths"] == np.histogram(right, 10, (0.0, 1.0))[0].tolist()
    assert min(said["tenths"]) >= 0.02 * puzzles.COUNT
    assert said["never"] == pytest.approx((right == 0).mean(), abs=1e-4) and said["never"] >= 0.1
    assert list(said["level"].values()) == sorted(said["level"].values(), reverse=True)
    assert 0.01 < said["cut"] < 0.1 and rates["max_tokens"] == puzzles.TOKENS


def test_the_shipped_model_carries_the_learning_rate_that_its_record_chose(shipped):
    record = json.loads((HOME / "experiments" / "results" / "puzzles_rate.json").read_text())
    own = shipped.starting_rate
    assert own == record["starting_rate"] and "--rates" in own["command"]
    rule = starting_rule(shipped.parameters, own=own)
    assert rule.at(own["rollouts"]) == pytest.approx(own["lr"]) and not rule.measured
    assert rule.at(4 * own["rollouts"]) == pytest.approx(2 * own["lr"])      # the square root of the batch
    assert starting_rule_of(Setting("tiny-puzzles")) == rule
    assert starting_rule_of(Setting("tiny")) == starting_rule(models.load("tiny").parameters)     # it carries none


def test_a_study_of_the_shipped_model_begins_at_its_rate(shipped, tmp_path):
    profile(tmp_path / "s", setting_with(data="puzzles:length=1,count=40", max_tokens=24), problems=1)
    planned = plan(StudyRecord.read(tmp_path / "s"), PlanOptions(size="tiny"))
    own = shipped.starting_rate
    assert planned.rate.at(own["rollouts"]) == pytest.approx(own["lr"])


def test_a_rate_that_is_not_one_is_not_used(shipped):
    for wrong in ({"lr": "high", "rollouts": 128, "command": ""}, {"lr": 1e-4}, [1e-4]):
        assert shipped.but(extra={"made": {"starting_rate": wrong}}).starting_rate is None
    assert shipped.but(extra={"made": "by hand"}).starting_rate is None


def test_splits_by_pass_rate_are_default_problems_with_such_rates():
    known = dict(zip((p.id for p in puzzles.listed(Puzzles())), puzzles.base_rates(), strict=True))
    for name, (low, high) in puzzles.BASES.items():
        own = list(puzzles.listed(Puzzles.of(f"puzzles:base={name}")))
        assert len(own) >= 0.1 * puzzles.COUNT and all(low <= known[p.id] <= high for p in own)
    chains = list(puzzles.listed(Puzzles.of("puzzles:base=hard,kind=chain,level=4,count=10")))
    assert len(chains) == 10 and {(p.meta["kind"], p.meta["level"]) for p in chains} == {("chain", 4)}
    assert str(Puzzles.of("puzzles:base=hard")) == "puzzles:base=hard"
    for wrong in ("base=odd", "base=hard,seed=1", "base=easy,share=0.5", "base=easy,count=5000"):
        with pytest.raises(UserError, match="base"):
            Puzzles.of(f"puzzles:{wrong}")
    with pytest.raises(UserError, match="none of the"):
        list(puzzles.listed(Puzzles.of("puzzles:base=very-easy,kind=countdown,length=5,level=4")))


def test_the_shipped_model_has_the_rates_it_states(shipped, tmp_path):
    """By 8 samples of each of 60 problems: the mean within four standard errors."""
    rates = json.loads((FOLDER / "rates.json").read_text())
    bases.write(tmp_path, shipped, puzzles.ALPHABET, {})
    found = pass_rates.rates_of_puzzles(tmp_path, samples=8, count=60)
    kept, said = json.loads((tmp_path / "rates.json").read_text()), shipped.extra["made"]["pass_at_1"]
    assert found.keys() == said.keys() and found["tokens"].keys() == said["tokens"].keys()
    assert np.mean(kept["right"]) / 8 == pytest.approx(found["mean"], abs=1e-4) and kept["data"] == "puzzles:count=60"
    stated = np.array(rates["right"][:60]) / rates["samples"]
    error = np.sqrt((stated * (1 - stated)).sum() / 8) / 60
    assert abs(found["mean"] - stated.mean()) < 4 * error + 0.01


def test_the_shipped_model_runs_in_the_kernel_and_is_small(shipped):
    config = shipped.config
    assert not {x % 16 for x in (config.hidden, config.mlp, config.head_dim)} - {0}
    assert config.max_len >= puzzles.TOKENS + max(len(p.text) for p in SOME)
    assert sum(f.stat().st_size for f in FOLDER.glob("*.*")) < 4 * 2**20
    package = tomllib.loads((HOME / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["isocost"]
    base = {str(f.relative_to(HOME / "src" / "isocost")) for f in FOLDER.glob("*.*") if f.suffix != ".py"}
    assert base <= {str(f.relative_to(HOME / "src" / "isocost")) for g in package
                    for f in (HOME / "src" / "isocost").glob(g)}


@pytest.mark.parametrize("kind", puzzles.KINDS)
def test_a_slip_makes_a_wrong_answer_in_the_same_form(kind):
    rng, wrong = np.random.default_rng(0), 0
    for _ in range(200):
        drawn = puzzles.draw(rng, kind, 3, 2)
        assert lessons.SLIPS[kind](rng, drawn, 0.0) == drawn.solution
        said = lessons.SLIPS[kind](rng, drawn, 0.3)
        wrong += not puzzles.accepts(posed(kind, drawn.prompt), said.rpartition(";")[2])
        assert set(said) <= set(puzzles.ALPHABET) and said.count(";") <= drawn.solution.count(";")
    assert 20 < wrong < 180


def test_profile_as_a_user(tmp_path):
    asked = ["profile", "--data", "puzzles:count=60", "--problems", "12", "--out", str(tmp_path / "p")]
    done = CliRunner().invoke(main, asked, catch_exceptions=False)
    found = json.loads((tmp_path / "p" / "profile.json").read_text())
    assert done.exit_code == 0 and found["model"] == "tiny-puzzles" and found["problems"] == 12 and not found["exact"]
    assert found["solutions"] == 1.0 and found["methods"]
    assert 0 < found["mean"] < 1 and found["lengths"]["max"] > 2 * found["lengths"]["p50"]


def test_the_other_built_in_model_is_an_error_that_names_this_one(tmp_path):
    with pytest.raises(UserError, match=r"alphabet.*The built-in model for puzzles is --model tiny-puzzles"):
        open_setting(setting_with(data="puzzles:count=12", model="tiny"))
    with pytest.raises(UserError, match="The built-in model for sums is --model tiny"):
        open_setting(setting_with(data="sums:work=2", model="tiny-puzzles"))
    with pytest.raises(UserError, match=r"'H' in 'Hi[^\n]*smollm2\)$"):
        open_setting(setting_with(data="puzzles:count=12", system="Hi"))
