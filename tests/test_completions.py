"""A study of completions that were sampled before: nothing is sampled, and rows that cannot be used are named."""

import json
from math import comb

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.errors import UserError
from isocost.planner.budget import UNTIMED, Prices
from isocost.runs.files import read_json
from isocost.stats import passk
from isocost.steps.training import stored
from isocost.steps.training.stored import profile_completions
from isocost.tasks import load_problems
from isocost.tasks.completions import read_completions

MARKS = {"a": [1, 0, 0, 0], "b": [1, 1, 1, 1], "c": [0, 0, 0, 0], "d": [1, 1, 0, 0], "e": [0, 1, 0, 0]}


def said(*args, code=0):
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    return done.output


def written(path, rows):
    path.write_text("".join(json.dumps(x) + "\n" for x in rows))
    return path


def rows(marks=MARKS, **more):
    """Attempts in turn, as samplers write them: not sorted by problem."""
    width = max(map(len, marks.values()))
    return [{"problem_id": k, "prompt": f"What is {k}?", "response": f"{k}{i}", "correct": bool(each[i]),
             "usage": {"completion_tokens": 10 * (i + 1), "prompt_tokens": 7}, "finish_reason": "stop", **more}
            for i in range(width) for k, each in marks.items() if i < len(each)]


def test_rows_become_problems_with_their_attempts(tmp_path):
    found = read_completions(written(tmp_path / "x.jsonl", rows()))
    assert [p.id for p in found.problems] == list(MARKS) and found.report.rows == 20
    assert {p.id: [a.reward for a in p.attempts] for p in found.problems} == MARKS
    one = found.problems[0]
    assert one.prompt == "What is a?" and one.prompt_tokens == 7
    assert [(a.text, a.tokens, a.cut) for a in one.attempts[:2]] == [("a0", 10, False), ("a1", 20, False)]
    assert found.columns["tokens"] == "usage.completion_tokens" and found.columns["reward"] == "correct"


def test_a_row_may_hold_all_attempts_at_a_problem(tmp_path):
    tokens = [[5], [5, 6], [1], [1]]
    wide = [{"prompt": [{"role": "user", "content": f"What is {k}?"}], "rewards": each, "tokens": tokens,
             "responses": list("wxyz")} for k, each in MARKS.items()]
    found = read_completions(written(tmp_path / "x.jsonl", wide), {"completion": "responses"})
    assert [[a.reward for a in p.attempts] for p in found.problems] == list(MARKS.values())
    assert [a.tokens for a in found.problems[0].attempts] == [1, 2, 1, 1]
    assert found.problems[0].prompt == "What is a?" and len({p.id for p in found.problems}) == 5


def test_parquet_is_read_alike(tmp_path):
    pytest.importorskip("pyarrow")
    import pyarrow
    import pyarrow.parquet as parquet

    parquet.write_table(pyarrow.Table.from_pylist(rows()), tmp_path / "x.parquet")
    assert read_completions(tmp_path / "x.parquet").problems == read_completions(
        written(tmp_path / "x.jsonl", rows())).problems


@pytest.mark.parametrize(("change", "why"), [
    ({"correct": "yes"}, r"line 3: 'correct' is \"yes\"; expected a number, or true or false"),
    ({"usage": {"completion_tokens": -1}}, r"line 3: 'usage.completion_tokens' is -1; expected how many tokens"),
    ({"usage": {"completion_tokens": 2.5}}, r"line 3: 'usage.completion_tokens' is 2.5"),
    ({"problem_id": ""}, r"line 3: 'problem_id' is \"\"; expected the problem's id or prompt"),
    ({"response": 7}, r"line 3: 'response' is 7; expected text"),
    ({"correct": [1, 0], "response": ["x"]}, r"line 3: 'response' has 1 entry and 'correct' has 2: give one for each"),
])
def test_a_row_that_cannot_be_used_is_named_with_what_is_right(tmp_path, change, why):
    path = written(tmp_path / "x.jsonl", [r | change if i == 2 else r for i, r in enumerate(rows())])
    with pytest.raises(UserError, match=why) as e:
        read_completions(path)
    assert "1 of 20 rows cannot be used (--skip-broken leaves them out)" in str(e.value)
    found = read_completions(path, skip_broken=True)
    assert sum(len(p.attempts) for p in found.problems) == 19 and "line 3: " in found.report.lines()[0]


@pytest.mark.parametrize(
    ("scores", "given", "scale"),
    [([0, 25, 100, 87], "0,100", (0, 100)), ([-1, 1, -1, 1], "-1,1", (-1, 1)), ([0, 3, 5, 4], "0,5", (0, 5))],
)
def test_rewards_of_another_scale_are_read_with_scale_and_never_left_out(tmp_path, scores, given, scale):
    """Those above 1 are the best: without them the set seemed hard, and every group dead."""
    marked = {f"p{i}": scores[i:] + scores[:i] for i in range(4)}
    wide = [{"problem_id": k, "score": v, "tokens": 3} for k, each in marked.items() for v in each]
    path = written(tmp_path / "x.jsonl", wide)
    for skip in (False, True):
        with pytest.raises(UserError, match=rf"reward outside 0 to 1: give .* such as --scale {given}\)") as e:
            read_completions(path, skip_broken=skip)
        assert "--skip-broken" not in str(e.value)
    low, high = scale
    found = read_completions(path, scale=scale)
    assert [a.reward for a in found.problems[0].attempts] == [(x - low) / (high - low) for x in scores]


def test_the_scale_of_stored_completions_is_an_option_and_a_setting_of_the_study(tmp_path):
    marked = [{"problem_id": k, "score": v} for k in "abcd" for v in (0, 20, 100, 80)]
    path = written(tmp_path / "x.jsonl", marked)
    args = "profile", "--completions", path, "--out", tmp_path / "s"
    assert "--scale 0,100" in said(*args, code=2)
    said(*args, "--scale", "0,100")
    assert read_json(tmp_path / "s" / "profile.json")["mean"] == 0.5
    assert "already contains a study with" in said(*args, "--scale", "-7,200", code=2)


def test_more_than_a_few_per_cent_of_the_rows_are_not_left_out(tmp_path):
    """What is left of 20 rows without 2 may be another sample."""
    path = written(tmp_path / "x.jsonl", [r | {"correct": "yes"} if i < 2 else r for i, r in enumerate(rows())])
    with pytest.raises(UserError, match=r"2 of 20 rows .*--skip-broken leaves out at most 5% of the rows"):
        read_completions(path, skip_broken=True)


def test_attempts_beyond_some_hundred_are_not_used(tmp_path):
    """Time and memory grow with the square of the attempts at a problem: 200,000 took 300 GiB."""
    path = tmp_path / "x.jsonl"
    path.write_text(json.dumps({"problem_id": "a", "reward": [0, 1] * 300}) + "\n"
                    + json.dumps({"problem_id": "b", "reward": [1] * 600}) + "\n")
    found = profile_completions(tmp_path / "s", path, held_out=0)
    data = read_json(tmp_path / "s" / "profile.json")
    assert found.samples == stored.MOST == 512
    assert data["mean"] == 0.75
    assert any("attempts beyond 512 of a problem not used: 176 completions" in line for line in data["found"])


def test_a_row_that_is_nested_deeply_is_named(tmp_path):
    nest = "[" * 900 + "]" * 900
    path = tmp_path / "x.jsonl"
    path.write_text(f'{{"problem_id": "a", "reward": 1}}\n{{"problem_id": {nest}, "reward": 1}}\n')
    with pytest.raises(UserError, match="line 2: nested more than 100 deep"):
        read_completions(path)
    path.write_text(f'{{"prompt": "a", "answer": "1", "more": {nest}}}\n')
    with pytest.raises(UserError, match="line 1: nested more than 100 deep"):
        load_problems(str(path))
    path.write_text(json.dumps({"prompt": "a", "answer": "1", "more": ["[" * 300, '"[' * 300]}) + "\n")
    assert len(load_problems(str(path))) == 1


@pytest.mark.parametrize(("column", "number"), [
    ("correct", "1e999"), ("correct", "1" + "0" * 400), ("tokens", "1e999"), ("tokens", "1" + "0" * 400),
])
def test_a_number_beyond_all_floats_is_a_row_that_cannot_be_used(tmp_path, column, number):
    path = tmp_path / "x.jsonl"
    path.write_text('{"problem_id": 1, "correct": 1, "tokens": 3}\n'
                    f'{{"problem_id": 1, "correct": 1, "tokens": 3, "{column}": {number}}}\n')
    with pytest.raises(UserError, match=f"line 2: '{column}' is .*; expected "):
        read_completions(path)


def test_a_column_that_is_missing_is_named_with_those_there_are(tmp_path):
    path = written(tmp_path / "x.jsonl", [{"q": "x", "mark": 1}, {"q": "x", "mark": 0}])
    with pytest.raises(UserError, match=r"no column for the problem .*it has q, mark: name it with --map problem="):
        read_completions(path)
    assert len(read_completions(path, {"problem": "q", "reward": "mark"}).problems[0].attempts) == 2
    with pytest.raises(UserError, match=r"no column 'marks' \(--map reward=marks\); it has q, mark"):
        read_completions(path, {"problem": "q", "reward": "marks"})
    with pytest.raises(UserError, match=r"--map score=mark: the names are problem, prompt"):
        read_completions(path, {"score": "mark"})
    (tmp_path / "bad.jsonl").write_text("{not json\n")
    with pytest.raises(UserError, match="its first row cannot be read: not JSON"):
        read_completions(tmp_path / "bad.jsonl")
    with pytest.raises(UserError, match="does not exist"):
        read_completions(tmp_path / "none.jsonl")


def test_a_profile_of_stored_completions_is_that_of_their_rewards(tmp_path):
    found = profile_completions(tmp_path / "s", written(tmp_path / "x.jsonl", rows()), held_out=0.4)
    table = np.array(list(MARKS.values()), dtype=float)
    summary = passk.summary(table)
    for key in ("right", "histogram", "dead", "pass_at", "h", "regime"):
        assert getattr(found, key) == summary[key], key
    by_hand = {k: np.mean([1 - comb(4 - sum(m), k) / comb(4, k) for m in MARKS.values()]) for k in (1, 2, 4)}
    assert {x["k"]: x["value"] for x in found.pass_at} == pytest.approx(by_hand)
    dead = np.mean([(comb(sum(m), 2) + comb(4 - sum(m), 2)) / comb(4, 2) for m in MARKS.values()])
    assert found.dead[0]["n"] == 2 and found.dead[0]["share"] == pytest.approx(dead)
    assert found.lengths["mean"] == 25 and found.lengths["max"] == 40 and found.lengths["prompt"] == 7
    assert (found.pool, found.select, found.audit) == (3, 1, 1) and found.ids == list(MARKS)
    assert found.cost["rollouts"] == 0 and found.stored["completions"] == 20 and found.stored["written"] == 500
    prices = Prices.of_profile(read_json(tmp_path / "s" / "profile.json"))
    assert (prices.prefill, prices.decode) == (7, 25)


def test_attempts_that_are_not_equally_many_use_most_completions(tmp_path):
    """Six problems with 8 attempts and three with 2: 48 completions of six problems, not 18 of nine."""
    marks = {f"p{i}": [1, 0] * 4 for i in range(6)} | {f"q{i}": [1, 0] for i in range(3)} | {"r": [1] * 12}
    found = profile_completions(tmp_path / "s", written(tmp_path / "x.jsonl", rows(marks)))
    assert found.samples == 8 and len(found.right) == 7
    assert "3 problems with fewer than 8 attempts left out, 6 completions" in found.found
    assert "attempts beyond 8 of a problem not used: 4 completions" in found.found
    with pytest.raises(UserError, match="has no problem with 2 attempts or more that have a reward"):
        profile_completions(tmp_path / "t", written(tmp_path / "y.jsonl", rows({"a": [1], "b": [0]})))
    assert not (tmp_path / "t" / "study.json").exists()


def test_an_attempt_without_a_reward_is_in_no_table(tmp_path):
    marked = [r | {"correct": None} if i == 0 else r for i, r in enumerate(rows())]
    found = profile_completions(tmp_path / "s", written(tmp_path / "x.jsonl", marked))
    assert found.unscored == 1 and found.ids == ["b", "c", "d", "e"] and found.samples == 4


def test_without_token_counts_lengths_are_not_known(tmp_path):
    path = written(tmp_path / "x.jsonl", [{"problem_id": r["problem_id"], "reward": r["correct"]} for r in rows()])
    text = said("profile", "--completions", path, "--out", tmp_path / "s", "--held-out", 2)
    assert "answers: not known: no token was counted" in text and "--map tokens=COLUMN" in " ".join(text.split())
    assert read_json(tmp_path / "s" / "profile.json")["lengths"] is None
    plan = said("plan", tmp_path / "s", "--size", "tiny")
    assert "  rollouts" in plan and "tokens  " not in plan
    assert "the profile has no token counts" in said("plan", tmp_path / "s", "--budget", "1M-tokens", code=2)
    said("plan", tmp_path / "s", "--budget", "200-rollouts")
    assert "max_completion_length: 0" not in said("export", tmp_path / "s", "--to", "trl")


def test_a_study_of_completions_is_planned_and_not_run(tmp_path):
    marks = {f"p{i}": [int(j < i % 9) for j in range(8)] for i in range(60)}
    path, s = written(tmp_path / "x.jsonl", rows(marks)), tmp_path / "s"
    text = said("profile", "--completions", path, "--out", s, "--model", "my-7b", "--parameters", "7B", "--price",
                "1usd/M-input,2usd/M-output", "--temperature", 0.7)
    money = read_json(s / "profile.json")["money"]["amount"]
    assert money == pytest.approx((480 * 7 + 2 * 60 * sum(range(10, 81, 10))) / 1e6, abs=1e-6)
    assert "sampling them cost" in text and "480 completions of" in text
    pilot = said("plan", s)
    assert "pilot-n8-s2" in pilot and "run time" not in pilot and "of memory a run" not in pilot
    assert "the time of training is not known" in said("plan", s, "--budget", "1h", code=2)
    for command in (("pilot", s), ("train", "--plan", s), ("audit", s), ("verdict", s)):
        assert "was made of stored completions: " in said(*command, code=2)
    assert "it has no model that could be sampled" in said("profile", "--out", s, code=2)
    assert "has no prescription" in said("export", s, "--to", "trl", code=2)
    said("plan", s, "--budget", "2k-rollouts")
    config = said("export", s, "--to", "trl")
    assert "temperature: 0.7" in config and "max_completion_length: 80" in config
    assert "my-7b on" in said("ls", tmp_path)


def test_options_of_sampling_do_not_go_with_completions(tmp_path):
    path = written(tmp_path / "x.jsonl", rows())
    out = ("--out", tmp_path / "s")
    assert "--data has no use with --completions" in said("profile", "--completions", path, "--data", "x", *out, code=2)
    assert "--map names columns of --completions" in said("profile", "--map", "reward=x", *out, code=2)
    assert "'big' is not a number of parameters" in said("profile", "--parameters", "big", *out, code=2)
    said("profile", "--completions", path, *out)
    assert "already contains a study with different settings" in said(
        "profile", "--completions", written(tmp_path / "y.jsonl", rows({"a": [1, 0], "b": [0, 0]})), *out, code=2)


def test_the_regime_is_defined_on_16_samples():
    """Of 32 with two right: the chance that 16 of them hold at most one."""
    low = (comb(30, 16) + 2 * comb(30, 15)) / comb(32, 16)
    assert passk.regime_of([2, 2, 2], 32).h == pytest.approx(low)
    assert passk.regime_of([1, 2, 0], 16).h == pytest.approx(2 / 3) and passk.regime_of([1, 2, 0], 4).h == 2 / 3


def test_pass_at_k_has_an_interval_over_problems():
    right = [0, 1, 2, 8, 16, 16, 5, 0]
    curve = passk.pass_curve(right, 16)
    assert [x.k for x in curve] == [1, 2, 4, 8, 16]
    for x in curve:
        assert x.value == pytest.approx(passk.pass_at(right, 16, x.k)) and x.low < x.value < x.high
    assert not UNTIMED.known
