"""What claims read from runs, from attempts and journals whose numbers are known."""

from __future__ import annotations

import json

import numpy as np
import pytest

from experiments import measures
from isocost.errors import UserError
from isocost.types import Fault, Message, Problem, Rollout, Score, Stop, Turn


def attempt(faults: list[Fault | None], right: float = 1.0, stop: Stop = Stop.DONE, final: str = "", **meta) -> Rollout:
    problem = Problem("p", (Message("user", "?"),), "a", meta=meta)
    turns = tuple(Turn(key=str(t), fault=f) for t, f in enumerate(faults))
    return Rollout(problem, (), final, stop=stop, turns=turns, score=Score(right))


def test_calls_are_of_successes_and_bad_turns_of_all():
    """Two successes with 3 and 1 calls, of which one failed; a failure with two malformed turns, which ran out."""
    model, tool = Fault.model("no such call"), Fault.tool("failed")
    found = measures.turns_of([attempt([None, tool, None, None]), attempt([None, None]),
                        attempt([model, model, None], right=0.0, stop=Stop.TURNS)])
    assert found == pytest.approx({"success": 2 / 3, "bad turns": 2 / 3, "form": 2 / 3, "calls": 2.0, "failed": 0.5})


def test_an_attempt_with_a_malformed_turn_is_not_in_form_even_if_it_is_right():
    assert measures.turns_of([attempt([Fault.model("no"), None]), attempt([None])])["form"] == 0.5


def test_what_is_no_box_overlaps_nothing_and_has_no_size():
    """The target has 4 cells: the box itself; one of 16 around it, which overlaps a quarter; and words."""
    there = [attempt([], final=said, box=(1, 1, 3, 3)) for said in ("1133", "0044", "no")]
    found = measures.regions_of(there)
    assert found["hit"] == pytest.approx(2 / 3)
    assert found["overlap"] == pytest.approx((1 + 0.25) / 3)
    assert found["size error"] == pytest.approx(np.log(4) / 2)


def test_form_and_calls_are_of_the_last_share_of_the_groups(tmp_path):
    """Four groups of two attempts: the last quarter is the last group, where one of two is in form."""
    old = {"attempts": [0, 1], "stops": ["done"] * 2, "faults": [{}, {}], "turns": [9, 9], "rewards": [1.0, 1.0]}
    new = {**old, "faults": [{"model": 1}, {"tool": 2}], "turns": [3, 5]}
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(x) + "\n" for x in (old, old, old, new)))
    assert measures.form(tmp_path) == {"form": 0.5}
    assert measures.calls(tmp_path, 0.25) == {"calls": 3.0, "log calls": pytest.approx(np.log(3)), "failed": 1.5}
    assert measures.form(tmp_path, 0.5) == {"form": 0.75}


def test_read_tokens_are_those_of_training_for_each_environment_step(tmp_path):
    lines = [{"step": 0, "rollouts": 8, "env_steps": 10, "prefill": 100},
             {"step": 1, "rollouts": 8, "env_steps": 40, "prefill": 600},
             {"step": 2, "rollouts": 16, "eval/audit": 0.5}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert measures.read_tokens(tmp_path) == {"read": 15.0}


def test_success_at_tokens_lies_between_evaluations_and_is_the_last_beyond_them(tmp_path):
    lines = [{"step": k, "rollouts": 8 * k, **x} for k, x in (
        (0, {"eval/audit": 0.2}), (1, {"decode": 100}), (1, {"eval/audit": 0.6}))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert [measures.at_tokens(tmp_path, k)["pass@1 at tokens"] for k in (0, 25, 500)] == pytest.approx([0.2, 0.3, 0.6])


def test_success_after_steps_and_their_entropy_and_a_run_that_is_shorter_is_refused(tmp_path):
    lines = [{"step": k, "rollouts": 8 * k, **x} for k, x in (
        (0, {"eval/audit": 0.2}), (0, {"reward": 0, "entropy": 2.0}), (1, {"reward": 0, "entropy": 1.0}),
        (2, {"reward": 0, "entropy": 9.0}), (4, {"eval/audit": 0.6}))]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert measures.after_steps(tmp_path, 2) == pytest.approx({"pass@1 after steps": 0.4, "entropy": 1.5})
    with pytest.raises(UserError, match="ends after 4 steps: expected 5"):
        measures.after_steps(tmp_path, 5)


def test_the_end_is_foretold_from_the_first_half_alone(tmp_path):
    """Evaluations on a sigmoid from 0.1 to 0.9 with its middle at 200 rollouts, and an end that is not on it."""
    costs = [0, 12.5, 25, 50, 100, 200, 400, 800]
    lines = [{"step": k, "rollouts": C, "eval/audit": 0.1 + (0.8 / (1 + (200 / C) ** 2) if C else 0)}
             for k, C in enumerate(costs)]
    lines[-1]["eval/audit"] = 0.3
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    assert measures.foretold(tmp_path)["foretold"] == pytest.approx(0.1 + 0.8 * 16 / 17, abs=1e-3)


def test_wrong_attempts_alone_and_tokens_of_each_rollout(tmp_path):
    """Wrong attempts of the last half have 3 and 9 tokens; from the first update on a rollout has 5."""
    journal = [{"attempts": [0, 1], "lengths": [50, 50], "rewards": [0.0, 1.0]},
               {"attempts": [0, 1, 2], "lengths": [3, 70, 9], "rewards": [0.0, 1.0, -0.5]}]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(x) + "\n" for x in journal))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(
        {"step": k, "reward": 0, "decode": 10 * k, "rollouts": 2 * k}) + "\n" for k in range(1, 5)))
    assert measures.wrong(tmp_path) == {"log wrong tokens": pytest.approx(np.log(6))}
    assert measures.spent(tmp_path) == {"log tokens": pytest.approx(np.log(5))}


def test_shares_and_ages_are_of_the_journal(tmp_path):
    """One of four rollouts of updates is dead; groups are one and four updates old; one of two is all right."""
    lines = [{"step": 1, "version": 0, "attempts": [0, 1], "fates": ["dead", "trained"], "rewards": [1.0, 1.0]},
             {"step": 4, "version": 0, "attempts": [0, 1], "fates": ["trained", "trained", "lost"], "rewards": [1, 0]}]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(
        {"step": k, "reward": 0, "decode": 10 * k, "rollouts": 2 * k}) + "\n" for k in range(1, 5)))
    assert measures.dead(tmp_path) == {"dead": 0.25} and measures.age(tmp_path) == {"age": 2.5}
    assert measures.balance(tmp_path, 1) == {"group": 2, "settled": 0.5, "distance": 0.25, "right": 0.75, "tokens": 5.0}


def test_ticks_of_a_wave_are_those_of_its_longest_and_a_group_that_went_on_is_not_counted_twice(tmp_path):
    """Wave 0 ends at 4 ticks with b given up, which goes on in wave 1: 7 tokens less the 4 that it had."""
    def line(wave, slot, name, lengths, cancelled=0):
        return {"step": wave, "wave": wave, "slot": slot, "id": name, "lengths": lengths, "cancelled": cancelled,
                "attempts": [0] * len(lengths), "rewards": [0.0] * len(lengths)}

    lines = [line(0, 0, "a", [4, 2]), line(0, 1, "b", [], 2), line(1, 0, "b", [7, 5], -2)]
    (tmp_path / "journal.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(
        {"step": k, "reward": 0, "decode": 8 * k, "rollouts": 2 * k}) + "\n" for k in range(2)))
    (tmp_path / "run.json").write_text(json.dumps({"method": "april"}))
    assert measures.tails(tmp_path, cold=1)["ticks"] == 100 * (4 + 3) / 4
