"""The verifiers `math` and `numeric` against right and wrong answers: generated, reported, and math-verify's own."""

import json
from pathlib import Path

import pytest

import marks
from isocost.tasks import load_problems
from isocost.tasks.verify import answers, numbers, verifiers
from isocost.tasks.verify.grade import Grader
from isocost.types import Message, Problem

FIXTURES = Path(__file__).parent / "fixtures"
SHARE = 8                 # one generated pair in so many in the suite: all take seconds


def rows(name):
    return [json.loads(line) for line in (FIXTURES / name).read_text().splitlines()]


def mark(verifier, answer, completion):
    return marks.mark(marks.Pair(verifier, "", answer, completion, None))


@pytest.fixture(autouse=True)
def _math_verify():
    pytest.importorskip("math_verify")


def test_generated_answers_are_marked_right():
    pairs = list(marks.pairs(20))
    assert len(pairs) >= 2000 and len({p.kind for p in pairs}) >= 40
    wrong = [(p, got) for p in pairs[::SHARE] if (got := marks.mark(p)) != p.right]
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6))
def test_all_generated_answers_are_marked_right(seed):
    assert marks.wrong_marks(seed)[1] == []


@pytest.mark.parametrize("verifier", ["math", "numeric"])
def test_reported_marks(verifier):
    """Bare LaTeX golds, lists, boxes, per cent and tiny numbers, as users of other trainers reported them."""
    wrong = [(row, got) for row in rows("reported_marks.jsonl")
             if row["verifier"] == verifier and (got := mark(verifier, row["answer"],
             row["completion"])) != row["right"]]
    assert wrong == []


def test_pairs_of_math_verify():
    """Short pairs of math-verify's own tests (Apache 2.0) in which it and `math` agree: [gold, completion, right]."""
    wrong = [(row, got) for row in rows("math_verify_pairs.jsonl") if (got := mark("math", *row[:2])) != row[2]]
    assert wrong == []


# Of math-verify's pairs, those marked otherwise here: [gold, completion, what `math` gives (None: refused)] and why.
OTHERWISE = [
    ("1,22", "1.22", 0.0),                                     # a comma separates values
    ("1000.99", "1000,99", 0.0),
    ("$1 - \\frac{1}{\\mathrm{e}}$", "$1 + \\frac{1}{\\mathrm{e}}$", 0.0),        # math-verify's error
    ("$(\\frac{3}{5},\\frac{8}{3}]$", "$(0.6,2.6667]$", 0.0),                     # four digits are not 1e-6
    (r"$x \in [-2,7]$", r"$-2 \le x \le 7$", 1.0),                                # one set
    (r"$1\leq|z|\leq \frac{3}{2}$", r"$z \in [-\frac{3}{2}, -1] \cup [1, \frac{3}{2}]$", 0.0),      # would need solving
    (r"\boxed{1} papers and \boxed{2} bins", r"$\boxed{1,2}$", None),             # two boxes, words between them
    (r"\boxed{W(n) = 1 \text{ and } W(n) = -1", "W(x)=1orW(x)=-1", None),         # the gold's box has no end
]


@pytest.mark.parametrize(("gold", "completion", "right"), OTHERWISE)
def test_pairs_of_math_verify_that_are_marked_otherwise(gold, completion, right):
    assert mark("math", gold, completion) == right


@pytest.mark.parametrize(
    "gold",
    ["(3, 7)", "-5, 2", "2 or 5", "x = 4, y = 9", "3:07", "2^10", r"5\sqrt{2}", "2024-03-05", "1331 and 1728", "5±1",
     "3-5", "3 apples, 7 pears", "(-\\infty, 3]", "x < 5", "1.2.3", "1,22", "0,111", "(12,102)", "2x", r"10\pi", "52_8",
     "555-1234", "5!", "8x-y+16=0", "three", "Alice has 3 apples and Bob has 7", r"\boxed{3} or \boxed{4}",
     r"\boxed{3"],
)
def test_numeric_refuses_a_gold_that_is_not_one_number(gold):
    with pytest.raises(ValueError, match=r"is not one number; --verifier math .* --verifier words"):
        verifiers.numeric("3", Problem("p", (Message("user", "?"),), gold))


@pytest.mark.parametrize(
    ("gold", "value"),
    [("72", 72), ("1 1/2", "3/2"), (r"3\frac12", "7/2"), ("$1,234.50", "1234.5"), ("1 000", 1000), ("50%", 50),
     (r"42\text{ cm}^2", 42), ("Alice has 42", 42), (r"6.6\times 10^{-3}", "0.0066"), ("−7", -7), ("½", "1/2"),
     ("x = 5", 5), ("47+38=85", 85), ("about 3 apples", 3), (r"\boxed{\frac{3}{4}}", "3/4"), ("3rd", 3)],
)
def test_numeric_reads_a_gold_that_is_one_number(gold, value):
    assert verifiers._one_number(gold).value == numbers.Fraction(value)


def test_rows_whose_answer_is_misread_are_refused_with_the_way_out(tmp_path):
    """By default too: nine answers in ten are numbers, so `numeric` marks, and a pair is none."""
    path = tmp_path / "mixed.jsonl"
    answers_ = [str(i) for i in range(30)] + ["(3, 7)"]
    path.write_text("".join(json.dumps({"prompt": f"q{i}", "answer": a}) + "\n" for i, a in enumerate(answers_)))
    with pytest.raises(verifiers.UserError, match=r"line 31: .*'\(3, 7\)' is not one number; --verifier math"):
        load_problems(str(path))
    with pytest.raises(ValueError, match=r"cannot be read: 'Alice has 3 apples' has words.*--verifier words"):
        verifiers.math("7", Problem("p", (Message("user", "?"),), "Alice has 3 apples and Bob has 7"))


def test_rows_in_bare_latex_are_tried_in_a_box(tmp_path):
    """The columns of MATH: every row's own answer is right, as `\\boxed{answer}`."""
    path = tmp_path / "math.jsonl"
    golds = [r"7\sqrt{3}", "-5, 2", "(3, 7)", r"10\pi", "[0, 5)", "6-5i", "y = 2x + 4", r"\frac{\pi}{4}", "p-q", "42"]
    path.write_text("".join(json.dumps({"problem": f"q{i}", "answer": a, "solution": f"so $\\boxed{{{a}}}$."}) + "\n"
                            for i, a in enumerate(golds)))
    found = load_problems(str(path), "math")
    assert [p.answer for p in found.problems] == golds
    with Grader("math", workers=1, timeout=20) as grader:
        own = grader.mark([(p.meta["solution"], p) for p in found.problems])
        next_ones = [(q.meta["solution"], p) for p, q in zip(found.problems, found.problems[1:], strict=False)]
        assert own == [1.0] * len(golds) and grader.mark(next_ones) == [0.0] * (len(golds) - 1)


@pytest.mark.parametrize(
    ("text", "found"),
    [(r"First \boxed{12}. No, \boxed{15", []), (r"\boxed{12} or \boxed{}", []), (r"\fbox{3}", ["3"]),
     (r"\boxed{1}, \boxed{2} and \boxed{3}", ["1, 2, 3"]), (r"\boxed{1} is not \boxed{2}", ["1", "2"]),
     (r"\boxed{\left\{1, 2\right.}", [r"\left\{1, 2\right."]), ("Add 3.\n#### 4", ["4"]),
     ("The answer is **42**.", ["42"]), ("Final Answer: $x^2$. I hope so.", ["x^2"]), (r"Hence $\frac12$.",
      [r"\frac12"]),
     ("It costs $5 and then $7", ["It costs $5 and then $7"]), ("", [])],
)
def test_where_the_answer_stands(text, found):
    assert answers.final(text) == found


DENIED = ["The answer is definitely not 42.", "It is certainly not 42, though.", "We can rule out 42", "It can't be 42",
          "It is either 49 or 42.", "It might be 49, but it could also be 42.", "The answer is 42 (this is wrong).",
          r"The answer is 42 \text{ is wrong}.", "The answer is 49 = 42.", r"\boxed{49 = 42}", r"\boxed{49 or 42}"]
ASSERTED = ["It is not 41 but 42.", "6 is not prime, so we take 42.", r"\boxed{42 = 42.0}", "6*7 = 42",
            "The answer is x = 42.", "We cannot use 41. The answer is 42.", "42 is not a prime",
            "That makes 84/2 or 42.", "The sum is 40 + 2 = 42.", "I do not need more steps: 42"]


@pytest.mark.parametrize("verifier", ["math", "numeric"])
def test_a_number_that_is_denied_or_one_of_two_is_no_answer(verifier):
    assert [text for text in DENIED if mark(verifier, "42", text) != 0.0] == []
    assert [text for text in ASSERTED if mark(verifier, "42", text) != 1.0] == []
    assert mark(verifier, "50%", r"\boxed{1/2 = 50\%}") == 1.0 and mark(verifier, "1/3", "1/3 = 0.333333") == 1.0


def test_math_reads_yes_and_no_in_any_case():
    assert mark("math", "yes", "Yes.") == mark("math", "no", r"\boxed{\text{NO}}") == 1.0
    assert mark("math", "True", "true") == 1.0
    assert mark("math", "yes", "no") == mark("math", "no", "not") == 0.0
