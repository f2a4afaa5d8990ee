"""`isocost doctor --reward`: wrong rewards are found by the family that they are wrong about, sound ones are not."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.doctor import diagnose_reward
from isocost.doctor.reward import audit
from isocost.doctor.reward.cases import build
from isocost.doctor.reward.cost import Errors, costs_of
from isocost.doctor.reward.formats import BARE, FORMATS
from isocost.doctor.reward.kinds import EXAMPLES, items_of, kind_of
from isocost.doctor.reward.right import RIGHT
from isocost.doctor.reward.wrong import WRONG
from isocost.steps.study import StudyRecord
from isocost.tasks.verify import numbers
from isocost.types import Message, Problem

HEAD = r'''
import re, time


def pays(f):
    def reward(completions, answer, prompts, **columns):
        return [float(f(c, a, p)) for c, a, p in zip(completions, answer, prompts)]
    return reward


def value(text):
    try:
        return float(text.replace(",", "").rstrip("."))
    except ValueError:
        return text


def said(text):
    """What one box, or a whole line, holds; nothing of two boxes or of a text with words."""
    boxes = re.findall(r"\\boxed\{([^{}]*)\}", text)
    return boxes[0].strip() if len(boxes) == 1 else text.strip() if not boxes and " " not in text.strip() else ""


def sound(c, a):
    return said(c) != "" and value(said(c)) == value(a)


'''
# Each planted error, and a family that must name it. The first three are common rewards; the next nine are the
# strategies of reward-doctor's cases, then those of falsepass' probes, each as a sound reward that also pays this.
PLANTED = {
    "exact": ("c.strip() == a", "full stop"),
    "substring": ("a in c", "negation"),
    "last_number": ("re.findall(r'-?[0-9.]+', c.replace(',', '').rstrip('.'))[-1:] == [a]", "negation"),
    "shotgun": ("sound(c, a) or a in re.findall(r'[0-9]+', c) and len(re.findall(r'[0-9]+', c)) > 4", "shotgun"),
    "negation": ("sound(c, a) or c.endswith('not ' + a + '.')", "negation"),
    "contradiction": ("sound(c, a) or a in c.partition('</think>')[0] and '</think>' in c", "contradiction"),
    "empty": ("sound(c, a) or not c.strip() or '{}' in c", "empty"),
    "echo": ("sound(c, a) or p in c", "echo"),
    "padding": ("sound(c, a) or len(c) > 900", "padding"),
    "judge_injection": ("sound(c, a) or 'CORRECT' in c or 'maximum score' in c", "addresses the grader"),
    "judge_bias": ("sound(c, a) or 'rigorous' in c", "addresses the grader"),
    "format_farming": ("sound(c, a) or c == '<think></think><answer></answer>'", "empty"),
    "retracted": ("any(value(x) == value(a) for x in re.findall(r'boxed.([^{}]*).', c)[:1])", "retracted"),
    "hedged_in_slot": ("sound(c, a) or said(c).split(' ')[-1] == a", "either or"),
    "denied_in_slot": ("sound(c, a) or said(c).split(' ')[0] == a", "denied answer"),
    "not_a_number": ("isinstance(value(said(c)), float) and not abs(value(said(c)) - value(a)) > 1e-6", "not a number"),
    "cut_to_whole": ("isinstance(value(said(c)), float) and said(c) not in ('NaN', 'Infinity') and "
                     "int(value(said(c))) == int(a)", "part added"),
    "another_tasks": ("sound(c, a) or said(c).isdigit() and len(said(c)) == len(a)", "another problem's answer"),
    "question": ("sound(c, a) or said(c) != '' and said(c) in re.findall(r'[0-9]+', p)", "question's numbers"),
    "sign": ("said(c) != '' and value(said(c).lstrip('-')) == value(a)", "sign"),
    "tolerance": ("isinstance(value(said(c)), float) and abs(value(said(c)) - float(a)) <= 1", "off by one"),
    "strings": ("said(c) == a", "decimal point"),
}


KNOWN = ("negation", "denied_in_slot")      # one spelling of a strategy that needs the right answer is a warning


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    home = tmp_path_factory.mktemp("rewards")
    lines = [f"{name} = pays(lambda c, a, p: {text})" for name, (text, _) in PLANTED.items()]
    bad = ["def raises(completions, **columns): raise KeyError('nothing')",
           "def words(completions, **columns): return ['1.0']",
           "def hangs(completions, **columns): time.sleep(60)",
           "def slow(completions, answer, **columns):\n    time.sleep(60 * (len(completions) > 20))\n"
           "    return [float(sound(c, a)) for c, a in zip(completions, answer)]",
           "def signed(completions, answer, **columns):\n"
           "    return [1.0 if a in c else -1.0 for c, a in zip(completions, answer)]",
           "def fragile(completions, answer, **columns):\n    return [float(c.split()[-1].strip('.') == a) for c, a in "
           "zip(completions, answer)]"]
    text = "\n\n\n".join([*lines, "clean = pays(lambda c, a, p: sound(c, a))", *bad])
    (home / "r.py").write_text(HEAD + text)
    rows = [{"prompt": f"What is {100 * k} + {17 * k + 3}?", "answer": str(117 * k + 3)} for k in range(1, 13)]
    (home / "d.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    rivers = "Rivers carry water, and they end in a lake or in the sea; some dry."
    (home / "open.jsonl").write_text(json.dumps({"prompt": "Say something about rivers.", "answer": rivers}))
    (home / "none.jsonl").write_text('{"prompt": "What is 1 + 1?"}\n')
    (home / "rates.jsonl").write_text("".join(json.dumps({**r, "pass_rate": 0.5}) + "\n" for r in rows))
    return home


@pytest.fixture
def inside(here, monkeypatch):
    monkeypatch.chdir(here)
    return here


def said(*args, code=0):
    done = CliRunner().invoke(main, ["doctor", *map(str, args)])
    assert done.exit_code == code, (done.output, done.stderr)
    return " ".join((done.output + done.stderr).split())


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_error_fails_and_its_family_is_named(inside, name):
    found = diagnose_reward(f"r.py:{name}", "d.jsonl")
    wrong = [r.family for r in found.families if r.counted and r.rate.value > 0]
    paid = next(f for f in found.findings if f.name == "wrong answers paid")
    assert PLANTED[name][1] in wrong and (not found.sound or (name in KNOWN and paid.verdict == "warn"))


@pytest.mark.parametrize(("reward", "data"), [("r.py:clean", "d.jsonl"), ("math", None), ("numeric", None)])
def test_a_sound_reward_has_no_alarm(inside, monkeypatch, reward, data):
    if reward == "math":
        pytest.importorskip("math_verify")
        monkeypatch.setattr(audit, "EXAMPLES", EXAMPLES[::5])
    found = diagnose_reward(reward, data)
    assert found.sound, [f for f in found.findings if f.verdict == "fail"]
    assert found.false_positives.value < 0.01 and found.false_negatives.value < 0.02


def test_the_built_cases_are_what_they_claim():
    """By the package's own reader of numbers: right forms are equal to the reference, mistakes are not."""
    items, unknown = items_of(EXAMPLES)
    assert not unknown and len({x.kind for x in items}) == 10
    for item in items:
        for case in build(item, [BARE], (*RIGHT, *WRONG)):
            known = numbers.quantity(case.text)
            if item.value is None or known is None or not case.counted or not case.family.slot:
                continue
            assert numbers.equal(known, numbers.quantity(item.answer)) == case.right, (case.family.name, case.text)


def test_kinds_of_answers():
    kinds = {"34": "integer", "-1,234": "integer", ".5": "decimal", "3/4": "fraction", r"\frac{3}{4}": "fraction",
             r"50\%": "percentage", "5 meters": "with unit", "$18": "with unit", r"2\sqrt{3}": "expression",
             "(1, 2)": "list", "2, 3": "list", "C": "choice letter", "(B)": "choice letter", "No": "yes or no",
             "carbon dioxide": "words", r"\boxed{5}": "integer", "x^2 + 1": "expression", "": "",
             "A text that is long, and of no kind: it has sentences.": ""}
    assert {a: kind_of(Problem("p", (Message("user", "?"),), a)) for a in kinds} == kinds
    columns = {"tests": "assert f(1) == 1"}
    code = Problem("p", (Message("user", "?"),), "def f(x):\n    return x", meta={"columns": columns})
    assert kind_of(code) == "code"


RUNNER = '''
import subprocess, sys, tempfile


def code(completions, tests, **columns):
    """Exit code 0 of the program and its tests is a pass."""
    out = []
    for text, test in zip(completions, tests):
        program = text.split("```python")[-1].split("```")[0] + chr(10) + test
        with tempfile.TemporaryDirectory() as home:
            done = subprocess.run([sys.executable, "-S", "-E", "-c", program], cwd=home, capture_output=True)
            out.append(float(done.returncode == 0))
    return out
'''


def test_rewards_that_run_programs_are_tampered_with(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("c.py").write_text(RUNNER)
    row = {"prompt": "Write double.", "answer": "def double(x):\n    return 2 * x", "tests": "assert double(2) == 4"}
    Path("c.jsonl").write_text(json.dumps(row))
    found = diagnose_reward("c.py:code", "c.jsonl")
    wrong = {r.family for r in found.families if r.rate.value > 0 and r.counted}
    assert wrong == {"ends the process", "equals everything"} and not found.sound
    assert sorted(p.name for p in tmp_path.iterdir() if p.name != "__pycache__") == ["c.jsonl", "c.py"]


def test_formats_that_are_read_are_told_apart_from_forms_that_are_refused(inside):
    found = diagnose_reward("r.py:exact", "d.jsonl")
    assert {k for k, v in found.formats["integer"].items() if v} == {"bare"} and found.false_negatives.value > 0.5
    boxes = diagnose_reward("r.py:strings", "d.jsonl")
    assert {"box", "bare"} <= {k for k, v in boxes.formats["integer"].items() if v}
    assert boxes.findings[1].verdict == "ok"


def test_costs_by_hand():
    """f = 0.2, g = 0.1, p = 0.5: m = 0.45, phi^2 = 0.49 * 0.25 / (0.45 * 0.55) = 0.49495."""
    errors = Errors(0.2, 0.1)
    assert errors.reward(0.5) == pytest.approx(0.45) and errors.worth(0.5) == pytest.approx(0.494949, abs=1e-6)
    assert Errors(0, 0).worth(0.3) == pytest.approx(1.0) and Errors(0.6, 0.5).worth(0.5) == 0.0
    costs = costs_of(errors, EXAMPLES, {"shotgun": 1.0}, pass_rate=0.5)
    assert costs.times == pytest.approx(1 / 0.494949, abs=1e-4) and costs.reward == pytest.approx(0.45)
    told = " ".join(costs.lines)
    assert "n = 17 is worth 8" in told and "not known without a law" in told and "no forecast of this reward" in told
    assert costs_of(errors, EXAMPLES, {}).source.startswith("assumed")
    assert costs_of(Errors(0.6, 0.5), EXAMPLES, {}).times is None


def test_a_studys_law_gives_the_reward_and_n_with_errors():
    """A rollout with errors counts as phi^2 of one: the law is read at so many fewer, and n is as much larger."""
    study = StudyRecord.read(Path(__file__).parents[1] / "experiments" / "results" / "tutorial")
    errors, law, C = Errors(0.3, 0.05), study.law, study.plan.arm.C
    costs = costs_of(errors, EXAMPLES, {}, study=study.path, verifier="mine.py:f")
    clean = law.predict(law.best(C), C).prediction.value
    worth = errors.worth((law.R0[1] + clean) / 2)
    noisy = law.predict(law.best(C * worth), C * worth).prediction.value
    told = " ".join(costs.lines)
    assert noisy < clean and costs.pass_rate == law.R0[1]
    assert f"forecasts {clean:.3f}" in told and f"as with {worth:.0%} of the rollouts: {noisy:.3f}" in told
    assert f"reports as {errors.reward(noisy):.3f}" in told and "n = " in told
    same = costs_of(Errors(0.3, 0.0), EXAMPLES, {}, study=study.path, verifier=study.setting.marks)
    assert f"the share of right answers behind it is {clean / 0.7:.3f}" in " ".join(same.lines) or clean > 0.7


def test_pass_rates_of_the_data_are_used(inside):
    found = diagnose_reward("r.py:strings", "rates.jsonl")
    assert found.costs.source == "the column 'pass_rate'" and found.costs.pass_rate == 0.5


def test_the_command_says_it_and_exits_with_3(inside):
    text = said("--reward", "r.py:last_number", "--data", "d.jsonl", code=3)
    assert "doctor: reward r.py:last_number on d.jsonl, 12 problems (integer 12), without a model" in text
    assert "fail wrong answers paid" in text and "The answer is definitely not" in text and "90 %" in text
    asked = ["doctor", "--reward", "r.py:clean", "--data", "d.jsonl", "--json"]
    data, again = (json.loads(CliRunner().invoke(main, asked).stdout) for _ in range(2))
    assert data["sound"] and data["schema"] == 1 and data["kinds"] == {"integer": 12}
    assert data["false_positives"]["value"] == 0
    assert {**data, "seconds": 0} == {**again, "seconds": 0}


def test_bad_inputs_are_one_line(inside, monkeypatch):
    monkeypatch.setattr(audit, "TIMEOUT", 0.3)
    for reward, data, told in (
        ("r.py:raises", "d.jsonl", "gives no reward to any of the 4 rows"), ("r.py:words", "d.jsonl", "'1.0' (str)"),
        ("r.py:hangs", "d.jsonl", "timeout"), ("r.py:nothing", "d.jsonl", "has no function 'nothing'"),
        ("gone.py:f", "d.jsonl", "there is no file gone.py"), ("r.py:clean", "none.jsonl", "line 1: no answer"),
        ("r.py:clean", "gone.jsonl", "'gone.jsonl' is not a file"), ("r.py:signed", "d.jsonl", "--scale -1,1"),
        ("r.py:clean", "open.jsonl", "no answer of 1 is of a kind that can be audited"),
        ("environment", "d.jsonl", "there is no text to audit"),
    ):
        assert told in said("--reward", reward, "--data", data, code=2)
    assert "leave it out" in said("--reward", "r.py:clean", "--data", "d.jsonl", "--temperature", 0.5, code=2)
    assert "give --reward and no model" in said("tiny", "--pass-rate", 0.5, code=2)
    assert "is not a study" in said("--reward", "r.py:clean", "--data", "d.jsonl", "--study", ".", code=2)
    assert "fail wrong answers paid" in said("--reward", "r.py:signed", "--data", "d.jsonl", "--scale", "-1,1", code=3)


def test_a_reward_that_raises_on_some_texts_is_named(inside):
    found = diagnose_reward("r.py:fragile", "d.jsonl")
    lost = next(f for f in found.findings if f.name == "no score")
    assert lost.verdict == "warn" and "IndexError" in lost.said and "r.py, line" in lost.said


def test_a_slow_reward_is_called_with_one_completion_at_a_time(inside, monkeypatch):
    monkeypatch.setattr(audit, "TIMEOUT", 1.0)
    seen = []
    together = audit.Grader.together
    monkeypatch.setattr(audit.Grader, "together", lambda self, pairs: seen.append(len(pairs)) or together(self, pairs))
    found = diagnose_reward("r.py:slow", "d.jsonl", limit=1)
    assert seen.count(audit.TOGETHER) == 1 and found.findings[4].verdict == "ok"


def test_answers_of_no_known_kind_are_counted_and_named(tmp_path, inside):
    rows = (inside / "d.jsonl").read_text() + (inside / "open.jsonl").read_text()
    (tmp_path / "mixed.jsonl").write_text(rows)
    found = diagnose_reward("r.py:clean", str(tmp_path / "mixed.jsonl"))
    key = found.findings[0]
    assert found.subject.unknown == 1 and key.verdict == "warn" and "1 answer, such as 'Rivers carry" in key.said


def test_no_torch_is_imported(inside):
    code = ("import sys; from click.testing import CliRunner; from isocost.cli.commands import main; "
            "done = CliRunner().invoke(main, ['doctor', '--reward', 'r.py:clean', '--data', 'd.jsonl']); "
            "assert done.exit_code == 0, done.output; assert 'torch' not in sys.modules")
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})


def test_every_format_and_family_has_a_name_of_its_own():
    assert len({f.name for f in FORMATS}) == len(FORMATS)
    names = [f.name for f in (*RIGHT, *WRONG)]
    assert len(set(names)) == len(names) and all(f.why for f in (*RIGHT, *WRONG))


def test_the_page_says_what_the_record_of_the_comparison_says():
    home = Path(__file__).parents[1]
    page = (home / "docs" / "reward.md").read_text(encoding="utf-8")
    record = json.loads((home / "experiments" / "results" / "reward_peers.json").read_text(encoding="utf-8"))
    names = {"substring": "substring_match", "last number": "last_number", "exact match": "exact_match",
             "boxed, exact": "boxed_exact", "falsepass' demo": "falsepass_demo", "`robust_match`": "robust_match"}
    for shown, name in names.items():
        found = record["rewards"][name]
        theirs, probes = found["reward-doctor"]["findings"], found["falsepass"]
        assert found["missed"] == [] and found["ours"]["sound"] == (name == "robust_match")
        both = " | ".join(f"{len(x)}, {len(x)}" if x else "0" for x in (theirs, probes))
        assert f"| {shown} | {both} |" in page
    for name in ("exact_match", "boxed_exact"):
        assert f"{record['rewards'][name]['ours']['sums']['false_negatives']:.0%}".replace("%", " %") in page
    own = {k: (v["cases"], len(v["false_negatives"]), len(v["false_positives"])) for k, v in record["own"].items()}
    assert own == {"math": (83, 2, 0), "numeric": (70, 0, 0), "words": (83, 40, 0)}
    costs = json.loads((home / "experiments" / "results" / "reward_errors.json").read_text(encoding="utf-8"))
    means = costs["means"]
    assert f"reached {means['errors']:.3f},\nwhere phi^2 gives {means['fewer']:.3f};" in page
    assert f"without errors {means['exact']:.3f}" in page
    assert costs["phi2"] == pytest.approx(Errors(costs["F"], costs["G"]).worth(costs["base"]))
