"""The benchmark's own arithmetic, and that both sides are given the same: what the page says is what was recorded."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from bench import page, roofs, stats, targets, worker
from bench.__main__ import CASES, parser, rounded
from bench.cases import neighbour, overhead, step, study
from bench.models import letters, shape
from bench.own import choose_in_order, recipe_of
from bench.roofline import Peaks, Work, train_work
from bench.task import GOOD, MARK, TASKS, VOCAB, fingerprint, prompts, read, reward, written
from bench.worker import Failed, Worker
from isocost.ledger import Ledger
from isocost.types import Message, Problem

HOME = Path(__file__).parents[1]


# statistics -----------------------------------------------------------------------------------------------------


def test_a_ratio_is_taken_within_each_turn():
    """A turn that was slow for both moves neither the ratio nor its interval."""
    found = stats.paired([2.0, 4.0, 20.0, 2.0, 6.0, 3.0], [1.0, 2.0, 10.0, 1.0, 3.0, 1.5])
    assert found["median"] == found["low"] == found["high"] == 2.0 and found["count"] == 6


def test_intervals_are_those_of_the_sign_test():
    """Of 6 draws all lie on one side of the median with chance 2/64; of 9, 8 or more do with chance 20/512."""
    assert stats.coverage(6, 0) == pytest.approx(1 - 2 / 64)
    assert stats.coverage(9, 1) == pytest.approx(1 - 20 / 512)
    nine = stats.spread([float(x) for x in range(1, 10)])
    assert (nine["low"], nine["median"], nine["high"]) == (2.0, 5.0, 8.0)
    few = stats.spread([3.0, 1.0, 2.0])
    assert (few["low"], few["high"], few["coverage"]) == (1.0, 3.0, 0.75)


def test_intervals_cover_the_median():
    rng, inside = np.random.default_rng(0), 0
    for _ in range(400):
        found = stats.spread(rng.lognormal(size=11).tolist())
        inside += found["low"] <= 1.0 <= found["high"]
    assert inside / 400 >= 0.94


def test_differences_of_learning_by_hand():
    """Differences 0.1, 0.2, 0.3: mean 0.2, sd 0.1, half width 4.303 * 0.1 / sqrt(3) = 0.2484."""
    found = stats.difference([0.5, 0.6, 0.7], [0.4, 0.4, 0.4])
    assert found["mean"] == pytest.approx(0.2) and found["high"] - found["mean"] == pytest.approx(0.24843, abs=1e-4)
    assert found["holds_zero"]
    assert not stats.difference([0.5, 0.51, 0.5], [0.4, 0.4, 0.4])["holds_zero"]
    assert "low" not in stats.difference([0.5], [0.4])


def test_what_does_not_pair_up_is_refused():
    with pytest.raises(ValueError, match="2 blocks of one and 1 of the other"):
        stats.paired([1.0, 2.0], [1.0])
    with pytest.raises(ValueError, match="nothing was measured"):
        stats.spread([])


# the task -------------------------------------------------------------------------------------------------------


def test_the_reward_by_hand():
    assert reward([0, GOOD - 1, GOOD, 63]) == 0.5
    assert reward([]) == 0.0 and reward([5]) == 1.0


@pytest.mark.parametrize("task", TASKS.values(), ids=TASKS)
def test_both_sides_read_the_same_prompts(task):
    """One character is one token, on TRL's side by `read`'s inverse vocabulary, on ours by the tokenizer."""
    asked, text = prompts(task, 0), letters(task.end)
    assert len(asked) == task.prompts * task.steps and asked == prompts(task, 0) != prompts(task, 1)
    for p in asked[:50]:
        assert text.prompt([Message("user", p)]) == read(p) and written(read(p)) == p
        assert len(p) == task.prompt and min(read(p)) > 0 and max(read(p)) < VOCAB
    assert text.ends == ((task.end,) if task.ends else ())


def test_one_prompt_in_ten_goes_on_and_on():
    marked = [read(p)[0] == MARK for p in prompts(TASKS["ragged"], 0)]
    assert sum(marked) == len(marked) / 10 == 32 and all(MARK not in read(p)[1:] for p in prompts(TASKS["ragged"], 0))


def test_prompts_are_played_in_order():
    pool = [Problem(str(i), (Message("user", p),)) for i, p in enumerate(prompts(TASKS["base"], 0)[:6])]
    ledger = Ledger()
    first = choose_in_order(pool, ledger, 4, None)
    ledger.drawn += 4
    assert [p.id for p in (*first, *choose_in_order(pool, ledger, 4, None))] == list("01234501")
    assert fingerprint(["a", "b"]) != fingerprint(["b", "a"])


def test_the_loss_is_that_of_the_other_side():
    """Advantages with the spread of n - 1 plus 1e-4; every rollout weighs the same."""
    recipe = recipe_of(TASKS["base"])
    r = torch.tensor([0.0, 1.0, 1.0, 0.0])
    credit = recipe.advantage.func.__wrapped__(r, **recipe.advantage.keywords)
    assert torch.allclose(credit, (r - 0.5) / (3**-0.5 + 1e-4))
    assert (recipe.groups, recipe.rollouts, recipe.pace(Ledger()).lr) == (16, 16, TASKS["base"].lr)
    assert recipe.weight.__name__ == "rollout_mean" and recipe.pace(Ledger()).sampling.temperature == 1.0


# counting -------------------------------------------------------------------------------------------------------


def test_a_phase_counts_shared_prompts_once():
    phase = roofs.Phase(groups=2, n=3, prompt=4, new=5)
    assert phase.trained == 2 * (4 + 3 * 4)
    every = [*range(1, 5), *(4 + j for _ in range(3) for j in range(1, 5))]     # keys each token of a group looks at
    assert phase.looks == pytest.approx(sum(every) / len(every))
    peaks = Peaks({"fp32": 1e11, "bf16": 2e11}, 1e10, 1)
    found = roofs.learning(shape(), phase, "fp32", peaks)
    work = train_work(shape(), phase.trained, context=phase.looks, predicted=30)
    assert isinstance(work, Work) and found["flops"] == work.flops and found["floor"] > 0


def test_sampling_takes_a_tick_for_every_token_after_the_first():
    peaks = Peaks({"fp32": 1e11, "bf16": 2e11}, 1e10, 1)
    one, two = (roofs.sampling(shape(), roofs.Phase(1, 1, 4, new), "fp32", peaks) for new in (1, 2))
    assert 0 < one["floor"] < two["floor"]


def test_the_study_is_thirty_runs():
    jobs = study.listed()
    assert len(jobs) == 30 and len({j.name for j in jobs}) == 30 and len({(j.arm["n"], j.arm["B"]) for j in jobs}) == 10


# records and the page -------------------------------------------------------------------------------------------


def test_a_target_is_judged_by_the_fastest_contender():
    spread = {"median": 6.0, "low": 5.5, "high": 6.5}
    slow = {"median": 1.0, "low": 0.9, "high": 1.1}
    learning = {"mean": 0.01, "low": -0.02, "high": 0.04, "pairs": 3, "holds_zero": True}
    rows = [
        {"name": "TRL fp32", "peak_mb": 900.0},
        {"name": "isocost a", "ratio_equal_tokens": slow, "learning": learning, "peak_mb": 100.0},
        {"name": "isocost b", "ratio_equal_tokens": spread, "learning": learning, "peak_mb": 950.0},
    ]
    variant = {"name": "base", "device": "cpu", "best_trl": "TRL fp32", "rows": rows}
    found = targets.lines({"step": {"variants": [variant]}})
    assert [x["verdict"] for x in found] == ["missed", "reached", "reached"]      # misses first
    assert "isocost b" in found[1]["measured"]


def test_what_is_left_beside_a_neighbour_by_hand():
    """Blocks alternate: alone, beside. The first pair warms up; TRL's best may be another contender beside."""

    def blocks(*seconds):
        return [[{"seconds": s / 2, "tokens": 1e6}] * 2 for s in seconds]      # s microseconds a token, over two steps

    found = {
        "TRL a": {"side": "trl", "steps": blocks(99, 99, 10, 40, 10, 40)},
        "TRL b": {"side": "trl", "steps": blocks(99, 99, 12, 24, 12, 24)},
        "isocost a": {"side": "isocost", "steps": blocks(99, 99, 2, 4, 2, 6)},
        "isocost b": {"side": "isocost", "steps": blocks(99, 99, 5, 5, 5, 5)},
        "isocost c": {"side": "isocost", "why": "it fell over"},
    }
    made = neighbour.summary(found)
    rows = {r["name"]: r for r in made["rows"]}
    assert made["best_trl"] == {"alone": "TRL a", "beside": "TRL b"} and list(rows) == list(found)[:4]
    assert "ratio" not in rows["TRL a"]
    assert [rows["isocost a"]["ratio"][s]["median"] for s in ("alone", "beside")] == [5.0, 5.0]     # 24 / 4, 24 / 6
    assert rows["isocost a"]["left"]["median"] == 1.0 and rows["isocost a"]["left"]["low"] == 0.8
    (line,) = targets.lines({"neighbour": made})      # isocost a is the fastest alone; b keeps more, and is not asked
    assert line["verdict"] == "reached" and "100% (80% to 120%), isocost a" in line["measured"]


def test_a_busy_neighbour_is_there_in_every_second_block():
    with neighbour.busy(0) as nobody:
        assert nobody is None
    with neighbour.busy(1) as process:
        assert process.poll() is None
    assert process.poll() is not None


def test_an_empty_page_says_what_is_missing():
    cases = "step, neighbour, decode, learner, products, study, pilot, scaling, overlap, search, overhead"
    assert f"Not measured yet: {cases}." in page.page({})


def test_a_record_of_search_gives_its_page_and_what_was_missed():
    spread = {"median": 0.0304, "low": 0.03, "high": 0.04, "count": 7}
    ratio = {"median": 1.6, "low": 1.5, "high": 1.7, "count": 7}
    row = {"strategy": "beam", "n": 16, "cpu": spread, "plain": {**spread, "median": 0.019}, "ratio": ratio,
           "most": 1.5, "written": 900.0, "prefill": 27.4, "prefill_plain": 19.9}
    machine = {"processor": "a processor", "threads": 2, "cores": 2, "flags": ["avx2"], "gpu": None,
               "versions": {"torch": "2"}, "load_before": 0.1}
    record = {"case": "search", "command": "python -m bench search", "machine": machine, "seconds": 3.0,
              "rows": [row, {**row, "n": 4, "most": 2.0}], "problems": 60}
    told = page.page({"search": record})
    assert "| beam | 16 | 1.60 (1.50 to 1.70) | 30.4 | 19.0 | 27 | 20 |" in told
    assert "1 of 2 targets" in told
    assert "| beam, n = 16: times the CPU seconds of plain sampling | at most 1.5 |" in told


def test_a_record_of_overhead_gives_its_page():
    spread = {"median": 25000.4, "low": 2e4, "high": 3e4, "count": 7}
    share = {"median": 0.5, "low": 0.4, "high": 0.6, "count": 7}
    row = {"B": 16, "n": 8, "ours": spread, "plain": {**spread, "median": 50000.0}, "share": share}
    machine = {"processor": "a processor", "threads": 2, "cores": 2, "flags": ["avx2"], "gpu": None,
               "versions": {"torch": "2"}, "load_before": 0.1}
    command = "python -m bench overhead"
    record = {"case": "overhead", "command": command, "machine": machine, "seconds": 3.0, "rows": [row]}
    told = page.page({"overhead": record})
    assert "| 16 | 8 | 25,000 | 50,000 | 0.50 (0.40 to 0.60) |" in told
    assert "This machine had no GPU" in told and "1 of 1 targets of `bench/targets.py` are reached.\n" in told
    slow = {**row, "ours": {**spread, "median": 1e4}}
    assert "0 of 1 targets" in (told := page.page({"overhead": {**record, "rows": [slow]}}))
    assert "| at least 20,000 | 10,000" in told


def test_the_page_is_what_the_records_give():
    """`python -m bench page` writes it."""
    folder = HOME / "experiments" / "results" / "bench"
    found = page.records(folder)
    assert page.PAGE.read_text() == page.page(found, page.machines(folder))
    for name, _ in page.pictures(found):
        assert all((page.IMAGES / f"speed-{name}-{side}.svg").is_file() for side in ("light", "dark"))


def test_records_hold_what_a_rerun_needs():
    for path in (HOME / "experiments" / "results" / "bench").glob("**/*.json"):
        record = json.loads(path.read_text())
        assert record["case"] == path.stem in CASES or (path.stem.startswith("gpu-") and record["case"] == "gpu")
        assert record["command"].startswith("python -m bench")
        assert {"processor", "cores", "threads", "versions", "gpu"} <= record["machine"].keys()


def test_floats_are_rounded_and_nothing_else():
    assert rounded({"a": [1.23456789, (2, "x")], "b": True}) == {"a": [1.23457, [2, "x"]], "b": True}


# processes ------------------------------------------------------------------------------------------------------


def test_a_contender_answers_and_fails_by_name(tmp_path, monkeypatch):
    module = "from bench.worker import serve\nserve(add=lambda a, b: {'sum': a + b})\n"
    (tmp_path / "child.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with Worker("the child", sys.executable, "child", 1) as child:
        assert child.ask("add", a=1, b=2) == {"sum": 3} and child.peak_mb > 1
        with pytest.raises(Failed, match=r"the child: KeyError: 'subtract'"):
            child.ask("subtract", a=1, b=2)
    with Worker("nobody", sys.executable, "child_that_is_not", 1) as child, pytest.raises(Failed, match="No module"):
        child.ask("add", a=1, b=2)


@pytest.mark.parametrize(("chosen", "seen"), [(None, ""), ("AVX2", "AVX2")])
def test_contenders_have_mkls_mode_from_the_user_and_not_from_isocost(chosen, seen, tmp_path, monkeypatch):
    module = "import os\nfrom bench.worker import serve\nserve(mode=lambda: {'mode': os.environ.get('MKL_CBWR', '')})\n"
    (tmp_path / "child.py").write_text(module)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(worker, "CHOSEN", chosen)
    monkeypatch.setenv("MKL_CBWR", chosen or "AUTO,STRICT")
    with Worker("the child", sys.executable, "child", 1) as child:
        assert child.ask("mode") == {"mode": seen}


def test_a_missing_trl_says_what_to_do(monkeypatch, tmp_path):
    monkeypatch.setenv("BENCH_TRL_PYTHON", str(tmp_path / "python"))
    with pytest.raises(Failed, match=r"make \.venv-trl/run.*BENCH_TRL_PYTHON"):
        step.trl_python()


def test_unknown_cases_are_named(capsys):
    from bench.__main__ import main

    with pytest.raises(SystemExit):
        main(["sing"])
    assert "there is no case 'sing'" in capsys.readouterr().err
    assert all(case in parser().format_help() for case in CASES)


def test_the_plain_loop_makes_the_same_arrays():
    """What it pads is what `pack` makes of the same rollouts, so the ratio compares like with like."""
    said = overhead.Free(None).said
    prompt = np.arange(3)
    rows = [(np.concatenate((prompt, said.tokens)), 3, said)] * 2
    tokens, mask, logp, role, turn, version, lengths, values = overhead._padded(rows, [0.0, 1.0])
    assert all(x.shape == (2, 3 + overhead.NEW) for x in (tokens, mask, logp, role, turn, version))
    assert mask.sum() == 2 * overhead.NEW and lengths.tolist() == [11, 11] and values.tolist() == [0.0, 1.0]


def test_the_help_is_quick():
    """Neither torch nor the package is loaded to say what there is."""
    asked = [sys.executable, "-X", "importtime", "-m", "bench", "--help"]
    said = subprocess.run(asked, cwd=HOME, capture_output=True, text=True, check=True)
    assert "overhead" in said.stdout and "BENCH_TRL_PYTHON" in said.stdout and "torch" not in said.stderr
