"""Verifiers: what is right, and what nobody should be paid for."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from isocost.errors import UserError
from isocost.tasks import load_problems
from isocost.tasks.verify import numbers, verifiers
from isocost.tasks.verify.grade import Grader
from isocost.types import Message, Problem


def gold(answer, **meta):
    return Problem(str(answer), (Message("user", f"Tell me {answer}?"),), answer, meta=meta)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("it is 1,234.50", Fraction(2469, 2)), ("5-3", None), ("x = -3", -3), ("85.", 85), ("47+38=85", 85), ("$18",
         18),
        (r"so \boxed{\frac{1}{3}}", Fraction(1, 3)), (r"\boxed{4} or \boxed{4.0}", 4), ("1/3", Fraction(1, 3)),
        ("#### 72 (not 80)\n#### 71", 71), ("1e3", 1000), (".5", Fraction(1, 2)), ("−7", -7), ("12%", 12),
        (r"\boxed{1} and \boxed{2}", None), ("", None), ("٨٥", None), ("1/0", None), ("none", None),
        (r"\boxed{", None), ("9" * 5000, None), ("1e999", 10**999), ("(4, 7)", None), ("The point is (3, 7).", None),
        ("7 1/2", Fraction(15, 2)), (r"7\sqrt{2}", None), ("5:07", None), ("I buy 7 apples.", 7), ("3^10", None),
        (r"\boxed{42 \times 1}", None), ("It costs 5 × 3 = 15 dollars.", 15), ("She needs 5 + 3", None), ("2x", None),
        ("a room of 1,000.99m²", Fraction(100099, 100)), ("the 3rd", 3), (r"\frac{3}{4} of it", Fraction(3, 4)),
    ],
)
def test_numbers_are_read(text, value):
    found = numbers.said(text)
    assert (found and found.value) == value


@given(some.fractions(max_denominator=1000), some.sampled_from(["{}", "The answer is {}.", r"\boxed{{{}}}", "#### {}"]))
def test_a_written_number_reads_back(x, frame):
    assert numbers.said(frame.format(x)) == numbers.Quantity(x)


def test_rounding_is_not_right_but_rounding_error_is():
    assert verifiers.numeric("0.333", gold("1/3")) == 0.0
    assert verifiers.numeric("0.3333333333", gold("1/3")) == 1.0
    assert verifiers.numeric("84.9999999", gold("85")) == 0.0
    assert verifiers.numeric("85.0", gold("85")) == 1.0


@pytest.mark.parametrize("text", ["85 ", " 85", "85\n", "085", "85.0", "+85", "８５", "8", "", "85="])
def test_exact_accepts_one_spelling(text):
    assert verifiers.exact("85", gold("85")) == 1.0 and verifiers.exact(text, gold("85")) == 0.0


def test_words_forgive_dress_and_nothing_else():
    assert [verifiers.words(t, gold("North Pole")) for t in ("north  pole.", '"North Pole"', "the North Pole", "")] == [
        1.0, 1.0, 0.0, 0.0]


def test_final_reads_what_follows_the_last_step():
    assert [verifiers.final(t, gold("85")) for t in ("15;8;85", "85", "85;", "85;8")] == [1.0, 1.0, 0.0, 0.0]


def test_math_equivalence():
    pytest.importorskip("math_verify")
    assert verifiers.math(r"It is $\frac{2}{4}$.", gold(r"\frac{1}{2}")) == 1.0
    assert verifiers.math(r"\boxed{x+1}", gold("$1+x$")) == 1.0
    assert verifiers.math("0.333", gold(r"\frac{1}{3}")) == 0.0
    assert verifiers.math(r"\boxed{1} \boxed{2}", gold("2")) == 0.0
    with pytest.raises(ValueError, match="cannot be read"):
        verifiers.math("1", gold(""))


def test_reasoning_gym_pays_nothing_for_merely_containing_the_answer():
    pytest.importorskip("reasoning_gym")
    problem = load_problems("reasoning-gym:chain_sum:size=1", check=False).problems[0]
    chatty = f"perhaps {problem.answer} or not"
    assert verifiers.ReasoningGym()(str(problem.answer), problem) == 1.0
    assert verifiers.ReasoningGym(partial=True)(chatty, problem) > 0.0
    assert verifiers.ReasoningGym()(chatty, problem) == 0.0
    with pytest.raises(ValueError, match="does not come from"):
        verifiers.ReasoningGym()("1", gold("1"))


def test_a_users_reward_gets_what_it_names(tmp_path):
    path = tmp_path / "rewards.py"
    path.write_text(
        "def one(prompts, completions, level, **rest):\n"
        "    assert sorted(rest) == ['answer', 'completion_ids'], rest\n"
        "    assert rest['completion_ids'] == [[1, 2]]\n"
        "    return [len(completions[0]) + level[0]]\n"
        "async def chat(completions, prompts):\n"
        "    return [float(completions[0][0]['content'] == prompts[0][0]['content'])]\n"
        "def none(completions): return [None]\n"
        "def two(completions): return [1.0, 2.0]\n"
        "def word(completions): return ['1.0']\n"
        "def ids(completions, completion_ids): return [len(completion_ids[0])]\n"
    )
    plain = gold("x", columns={"level": 10})
    assert verifiers.PythonReward(str(path), "one")("abc", plain, [1, 2]) == 13.0
    talk = gold("x", chat=True)
    assert verifiers.PythonReward(str(path), "chat")(talk.text, talk) == 1.0
    assert verifiers.PythonReward(str(path), "none")("abc", plain) is None
    with pytest.raises(ValueError, match="must return 1 reward"):
        verifiers.PythonReward(str(path), "two")("abc", plain)
    with pytest.raises(TypeError, match="where a number was expected"):
        verifiers.PythonReward(str(path), "word")("abc", plain)
    assert verifiers.PythonReward(str(path), "ids")("abc", plain, [1, 2]) == 2
    assert verifiers.PythonReward(str(path), "ids")("abc", gold("x", completion_ids=[1, 2, 3])) == 3


def test_a_reward_is_tried_on_completions_that_a_policy_may_write(tmp_path):
    """One that reads numbers only: without a reward for a sentence, which is reported with its row."""
    path = tmp_path / "rewards.py"
    path.write_text(
        "def number(completions, answer, completion_ids):\n"
        "    assert len(completions) > 1 or len(completion_ids[0]) == len(completions[0])\n"
        "    return [float(c) == float(a) for c, a in zip(completions, answer)]\n"
        "def none(completions): return [None]\n"
    )
    rows = [(f"line {i}", gold(str(i))) for i in range(1, 41)]
    with Grader(f"{path}:number", workers=1, timeout=20) as grader:
        trial = verifiers.try_reward(rows, f"{path}:number", grader.mark)
        assert len(trial.warnings) == 2 and (trial.low, trial.high) == (0.0, 1.0)
        assert "fails on a sentence: line 1 (id '1'), completion 'I do not know.': ValueError" in trial.warnings[0]
        assert "fails on an empty completion" in trial.warnings[1]

        def digits(text):
            if not text.isdecimal():
                raise UserError("not in the alphabet")
            return list(text)

        assert verifiers.try_reward(rows, f"{path}:number", grader.mark, digits).warnings == ()
        pairs = [("5", gold("5")), ("6", gold("5"))]
        assert grader.together(pairs) == [1.0, 0.0]
        assert grader.together([("x", gold("5"))] * 2).startswith("ValueError")
    with Grader(f"{path}:none", workers=1) as grader, pytest.raises(UserError, match=r"of the 4 rows .* line 1 .*None"):
        verifiers.try_reward(rows, f"{path}:none", grader.mark)


REWARDS = """
import re, statistics
def shortest(completions, **kw):
    return [1.0 if len(c) == min(map(len, completions)) else 0.0 for c in completions]
def shortest_right(completions, answer, **kw):
    right = [len(c) for c, a in zip(completions, answer) if re.search(rf"\\b{a}\\b", c)]
    return [float(bool(re.search(rf"\\b{a}\\b", c)) and len(c) == min(right)) for c, a in zip(completions, answer)]
def novelty(prompts, completions, **kw): return [1 / completions.count(c) for c in completions]
def whitened(completions, answer, **kw):
    right = [float(c == a) for c, a in zip(completions, answer)]
    return [x - statistics.fmean(right) for x in right]
def ranked(completions, **kw):
    return [sorted(map(len, completions)).index(len(c)) / len(completions) for c in completions]
def apart(completions, answer, **kw): return [float(c == a) for c, a in zip(completions, answer)]
def first_only(completions, answer): return [float(completions[0] == answer[0])]
seen = []
def unsteady(completions, **kw):
    seen.append(1)
    return [float(len(seen) % 3) for c in completions]
def always(completions, **kw): return [1.0 for c in completions]
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    return float(solution_str == ground_truth)
def reward_func(queries, prompts, labels): return [0.0]
def needs(completions, answer, trainer_state): return [0.0]
"""


@pytest.mark.parametrize("name", ["shortest", "shortest_right", "novelty", "whitened", "ranked"])
def test_a_reward_that_compares_completions_is_refused_before_anything_is_sampled(comparing, name):
    """One by one it is a constant: every group would be dead, and a held-out reward of 1 would mean nothing."""
    with pytest.raises(UserError, match=r"compares the completions of a call: .* earns .* alone and .* beside"):
        comparing(name)


def test_a_reward_that_does_not_compare_is_used(comparing):
    assert comparing("apart").warnings == () and comparing("first_only").warnings == ()
    assert comparing("unsteady").warnings == ()       # its rewards differ anyway: the doctor marks everything twice
    assert "gives 1 to all 16 completions" in comparing("always").warnings[0]


@pytest.mark.parametrize(
    ("name", "says"),
    [("compute_score", r"the signature that verl calls; add .*\[compute_score\(None, c, a\) for c, a in"),
     ("reward_func", r"that OpenRLHF calls; .*reward_func\(completions, prompts, answer\)"),
     ("needs", r"takes 'trainer_state', which the rows do not have; a reward takes answer, prompts, completions")],
)
def test_a_signature_of_another_trainer_is_named(comparing, name, says):
    with pytest.raises(UserError, match=says):
        comparing(name)


@pytest.fixture(scope="module")
def comparing(tmp_path_factory):
    path = tmp_path_factory.mktemp("rewards") / "rewards.py"
    path.write_text(REWARDS)
    rows = [(f"line {i}", gold(str(i))) for i in range(1, 41)]

    def tried(name):
        reward = verifiers.PythonReward(str(path), name)

        def mark(pairs):
            return [one(lambda text=text, p=p: reward(text, p)) for text, p in pairs]

        def together(pairs):
            return one(lambda: reward.together([(text, p, ()) for text, p in pairs]))

        def one(call):
            try:
                return call()
            except Exception as e:
                return f"{type(e).__name__}: {e}"

        return verifiers.try_reward(rows, f"{path}:{name}", mark, None, together)

    return tried


def test_names_of_verifiers():
    with pytest.raises(UserError, match="there are exact"):
        verifiers.find("exactly")
    with pytest.raises(UserError, match="no file"):
        verifiers.find("python:nowhere.py:f")
    with pytest.raises(UserError, match=r"write file\.py:function"):
        verifiers.find("python:nowhere.py")


@pytest.mark.parametrize(("verifier", "bad"), [("numeric", "twelve"), ("math", "")])
def test_an_answer_that_cannot_be_read_is_an_error_and_never_pays(verifier, bad):
    if verifier == "math":
        pytest.importorskip("math_verify")
    with Grader(verifier, workers=1) as grader:
        wrong = verifiers.check_gold([gold("1"), gold(bad)], verifier, grader.mark)
        assert [d.id for d in wrong] == [bad] and "cannot mark its own answer" in wrong[0].why
        assert isinstance(grader.mark([(bad, gold(bad))])[0], str)   # no score, rather than right


NUMBERS = [gold(a) for a in ("12", "7", "1/3", "85", "85")]


@pytest.mark.parametrize("verifier", ["exact", "numeric", "words"])
def test_cheats_earn_nothing(verifier):
    with Grader(verifier) as grader:
        found = verifiers.probe(NUMBERS, verifier, grader.mark)
    paid = {k: v for k, v in found.earned.items() if v > 0}
    assert paid.pop("right") == 1.0
    assert paid.pop("constant") == pytest.approx(0.4)    # two of the five answers are 85
    assert set(paid) <= {"echo"} and found.flips == 0.0
    # "Tell me 85?" read back ends on the number it should: a numeric verifier pays, and the probe says so
    assert ("echo" in paid) == (verifier == "numeric") == any("echo" in w for w in found.warnings)


def test_a_verifier_that_can_be_cheated_is_named():
    def generous(pairs):
        return [1.0 if any(c.isdigit() for c in text) else 0.0 for text, _ in pairs]

    found = verifiers.probe(NUMBERS, "numeric", generous)
    assert found.earned["boxes"] == found.earned["rounded"] == found.earned["digits"] == 1.0
    assert {w.split("'")[1] for w in found.warnings} == {"constant", "echo", "boxes", "digits", "rounded"}


def test_an_unsteady_verifier_is_named():
    calls = iter(range(10**6))
    found = verifiers.probe(NUMBERS, "numeric", lambda pairs: [float(next(calls) % 3 == 0) for _ in pairs])
    assert found.flips > 0.3 and "marked twice" in found.warnings[-1]
