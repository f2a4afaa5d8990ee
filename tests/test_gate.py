"""`isocost compare --pilot`: pilots of isocost's own runs, of a trainer, and of imported runs, and what follows."""

import json
import shutil

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.compare import compare_trainer, pilot_trainer, read_pilot
from isocost.compare.gate import UNDECIDABLE, own_pilot, spread_of, steps_of
from isocost.errors import UserError
from isocost.runs.files import read_json
from isocost.stats.decidable import EFFECT
from isocost.steps.folder import StudyFolder
from isocost.steps.outside import drive
from test_drive import command

DATA = ("--data", "sums:base=easy,count=120", "--held-out", "0.3")
SIZE = ("-n", "4", "-B", "2", "--seeds", "2", "--evaluations", "4", "--workers", "1")
ASK = ("compare", "grpo", "reinforce", *DATA, *SIZE, "--budget", "800-rollouts")


def said(*args, code=0):
    """What a command printed; its exit code must be this, or one of these."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code in ((code,) if isinstance(code, int) else code), (args, done.output, done.exception)
    return done.output


def recorded(folder, seed, end, *, lr=2e-4, method="m", base=0.05, imported=None):
    """A run's record: rewards at a start and four points, the last of them `end`."""
    folder.mkdir(parents=True)
    (folder / "run.json").write_text(json.dumps({
        "schema": 1, "name": folder.name, "purpose": "run", "method": method, "seed": seed,
        "arm": {"n": 8, "B": 32, "lr": lr, "multiplier": 1.0}, "model": {"name": "tiny", "parameters": 1000},
        "problems": {"spec": "p", "select": 64, "audit": 64}, **(imported or {})}))
    lines = [{"step": k, "rollouts": 1024 * k, "epoch": 0.7 * k, "eval/exact": True,
              **{f"eval/{split}": base + (end - base) * k / 4 for split in ("select", "audit")}} for k in range(5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(x) + "\n" for x in lines))


def pilot(folder, **arms):
    """A folder with runs of each arm: NAME={rate: ends}."""
    for arm, rates in arms.items():
        for lr, ends in rates.items():
            for seed, end in enumerate(ends):
                recorded(folder / arm / f"{lr:g}-{seed}", seed, end, lr=lr, method=arm)
    return folder


def lines(gate):
    return {x.name: x for x in gate.lines}


GRID = {1e-4: [0.55, 0.57, 0.56, 0.58], 2e-4: [0.60, 0.62, 0.61, 0.63], 4e-4: [0.5, 0.5, 0.5, 0.5]}
OTHER = {1e-4: [0.60, 0.59, 0.62, 0.61], 2e-4: [0.66, 0.65, 0.69, 0.65], 4e-4: [0.5, 0.5, 0.5, 0.5]}


def test_runs_in_folders_are_a_pilot(tmp_path):
    """The best rate is 2e-4, so 1e-4 is used; the spread is of the pairs at all three rates."""
    found = read_pilot(pilot(tmp_path, a=GRID, b=OTHER), ("a", "b"), seeds=12)
    assert found.exit_code == 0 and found.above and found.rates == {"a": 1e-4, "b": 1e-4}
    pairs = [np.array(OTHER[lr]) - GRID[lr] for lr in GRID]
    assert found.dof == 9 and found.sd == pytest.approx(np.sqrt(sum(((d - d.mean()) ** 2).sum() for d in pairs) / 9))
    said = lines(found)
    assert said["learns"].text == "a gains 0.52 over 0.05 (at least 0.15)"
    assert said["rate"].text == "a: best 0.0002 of 0.0001 to 0.0004, not at an edge; used: 0.0001"
    assert said["rate"].passed and said["steady"].passed and said["headroom"].passed
    assert said["visits"].text.startswith("2.8 of each problem (not asked")
    assert json.loads(json.dumps(found.to_dict()))["exit_code"] == 0


def test_a_fallen_run_a_rate_at_an_edge_equal_runs_and_a_ceiling_are_refused(tmp_path):
    fallen = {**OTHER, 1e-4: [0.60, 0.59, 0.62, 0.12]}
    gate = read_pilot(pilot(tmp_path / "fallen", a=GRID, b=fallen), ("a", "b"), seeds=12)
    assert gate.exit_code == UNDECIDABLE and "1 of 4 runs of b fell to 0.12" in lines(gate)["steady"].text
    edge = {1e-4: GRID[1e-4], 2e-4: GRID[2e-4]}
    gate = read_pilot(pilot(tmp_path / "edge", a=GRID, b=edge), ("a", "b"), seeds=12)
    assert gate.exit_code == UNDECIDABLE and "b: best 0.0002 of 0.0001 to 0.0002, the high" in lines(gate)["rate"].text
    gate = read_pilot(pilot(tmp_path / "equal", a=GRID, b=GRID), ("a", "b"), seeds=12)
    assert gate.exit_code == UNDECIDABLE and "b equals a bit for bit in 4 of 4 pairs" in lines(gate)["acts"].text
    flat = {lr: [x / 9 for x in ends] for lr, ends in GRID.items()}
    gate = read_pilot(pilot(tmp_path / "flat", a=flat, b={**flat, 1e-4: [x + 1e-3 for x in flat[1e-4]]}), ("a", "b"),
                      seeds=12)
    assert lines(gate)["margin"].passed and gate.exit_code == UNDECIDABLE and not gate.same      # nothing was learned
    high = {2e-4: [0.97, 0.99, 0.95, 0.98]}
    gate = read_pilot(pilot(tmp_path / "high", a=high, b={2e-4: [0.95, 0.97, 0.99, 0.93]}), ("a", "b"), seeds=12)
    assert not gate.above and lines(gate)["headroom"].passed is False and lines(gate)["rate"].passed is None
    assert "--seeds" in lines(read_pilot(tmp_path / "high", ("a", "b"), seeds=4))["seeds"].text


def test_three_arms_are_judged_in_pairs_and_the_worst_pair_counts(tmp_path):
    noisy = {lr: [x + s for x, s in zip(ends, (0.05, -0.04, 0.06, -0.05), strict=True)] for lr, ends in OTHER.items()}
    folder = pilot(tmp_path, a=GRID, b=OTHER, c=noisy)
    two, three = read_pilot(folder, ("a", "b"), seeds=12), read_pilot(folder, ("a", "b", "c"), seeds=12)
    assert three.sd > two.sd and "intervals of 98.7 %" in lines(three)["level"].text and three.above
    assert three.title.startswith("a, b, c, 4,096 rollouts")


def test_runs_of_unknown_seed_are_not_paired(tmp_path):
    """An imported run whose seed was not in its log: its arms' spreads are pooled, as those of independent runs."""
    unknown = {"imported": {"metric": {"kind": "held-out", "name": "acc"}}, "missing": ["the seed"]}
    for arm, ends in (("a", [0.5, 0.54, 0.52]), ("b", [0.6, 0.62, 0.64])):
        for seed, end in enumerate(ends):
            recorded(tmp_path / arm / str(seed), seed, end, imported=unknown)
    gate = read_pilot(tmp_path, ("a", "b"), seeds=8)
    assert gate.sd == pytest.approx(np.sqrt(2) * 0.02) and gate.dof == 4
    assert lines(gate)["acts"].text.startswith("no two runs have one seed")


def test_what_cannot_be_read_is_one_line(tmp_path):
    folder = pilot(tmp_path / "p", a=GRID, b={2e-4: [0.5]})
    with pytest.raises(UserError, match="--seeds 1"):
        read_pilot(folder, ("a", "b"), seeds=1)
    for arms, what in ((("a",), "at least two arms"), (("a", "c"), r"p/c holds no run"),
                       (("a", "b"), "b has 1 run at the learning rate 0.0002")):
        with pytest.raises(UserError, match=what):
            read_pilot(folder, arms)
    twice = pilot(tmp_path / "t", a=GRID, b=GRID)
    shutil.copytree(twice / "a" / "0.0001-0", twice / "a" / "again")
    with pytest.raises(UserError, match="two runs of one seed at one learning rate"):
        read_pilot(twice, ("a", "b"))
    for more, what in ((("--pilot", "nowhere"), "no such"), (("--pilot", str(folder), "--budget", "1h"), "no use"),
                       (("--pilot", "4", "--dry-run", "--budget", "1h"), "leave one"), (("--pilot", "4"), "--budget"),
                       (("--pilot", "1", *ASK[3:], "--out", str(tmp_path / "o")), "at least 2 seeds")):
        assert what in said("compare", "grpo", "reinforce", *more, code=2)
    assert "trains methods" in said("compare", folder / "a", folder / "b", "--pilot", "4", code=2)


def test_a_pilot_is_trained_on_seeds_of_its_own_and_the_comparison_follows_it(tmp_path):
    out = tmp_path / "c"
    first = said(*ASK, "--pilot", "2", "--out", out, code=(0, UNDECIDABLE))
    assert "is this comparison decidable? reinforce against grpo, 144 rollouts a run, 2 seeds" in first
    kept, rates = read_json(out / "pilot" / "gate.json"), read_json(out / "pilot" / "rates.json")["rates"]
    folders = [out / "pilot" / "runs" / name for own in kept["runs"].values() for name in own]
    runs = {f.name: read_json(f / "run.json") for f in folders}
    assert len(runs) == 8 and {r["purpose"] for r in runs.values()} == {"pilot"}
    assert all((f / "final" / "config.json").exists() for f in folders)     # a claim may read the policies of its pilot
    assert kept["rates"]["grpo"] == pytest.approx(runs["pilot-grpo-x1-s0"]["arm"]["lr"] / 2)
    assert set(rates) == set(kept["rates"]) == {"grpo", "reinforce"}
    assert said(*ASK, "--pilot", "2", "--out", out, code=(0, UNDECIDABLE)).endswith(first[first.index("is this"):])
    again = said("compare", "grpo", "reinforce", "--pilot", out, "--seeds", "9", code=(0, UNDECIDABLE))
    assert "144 rollouts a run, 9 seeds" in again

    longer = said("compare", "grpo", "reinforce", *DATA, *SIZE, "--budget", "1600-rollouts", "--dry-run", "--out", out)
    assert "in 3 probe runs" in longer and "assumed" in longer          # its runs are not as long as the pilot's
    file = out / "pilot" / "gate.json"
    whole = file.read_text()
    file.write_text(whole.replace('"rates"', '"rate"'))
    assert "gate.json: rates is missing" in said("compare", "grpo", "reinforce", "--pilot", out, code=2)
    file.write_text(whole)
    unstated = ("compare", "grpo", "reinforce", *DATA, *SIZE[:4], *SIZE[6:])      # without seeds and a budget
    found = own_pilot(StudyFolder(out / "pilot"), ["grpo", "reinforce"], "pass@1")
    seeds = max(spread_of(a, b, [(found.values(a, x), found.values(b, y)) for x, y in steps_of(found, a, b)]).needed(
        EFFECT, found.alpha) for a, b in found.pairs)
    short = said(*unstated, "--budget", "800-rollouts", "--dry-run", "--out", out, code=2)
    assert f"says that 0.05 needs {seeds} seeds per arm" in short and short.rstrip().endswith("or --seeds 2")
    least = short.partition("give --budget ")[2].partition(", or")[0]
    paid = said(*unstated, "--budget", least, "--dry-run", "--out", out)
    assert f"{seeds} runs" in paid, paid
    plan = said(*ASK, "--dry-run", "--out", out)
    assert "the pilot's learning rate: grpo" in plan and "(measured by the pilot, 2 degrees of freedom)" in plan
    said(*ASK, "--out", out, code=(0, 3, 4))
    sealed = said(*unstated, "--budget", "800-rollouts", "--dry-run", "--out", out)
    assert "2 runs" in sealed, sealed
    judged, design = read_json(out / "comparison.json"), read_json(out / "compare.json")["design"]
    assert judged["rates"] == pytest.approx(kept["rates"]) and judged["bill"]["pilot"]["runs"] == 8
    assert {p.name.split("-")[0] for p in (out / "runs").iterdir()} == {"train"}
    probes = {read_json(p)["seed"] for p in (out / "pilot" / "runs").glob("probe-*/run.json")}
    own = {r["seed"] for r in runs.values()}
    assert len(own) == 2 and not own & set(design["seeds"]) and not own & probes


def test_a_pilot_of_a_trainer(tmp_path, monkeypatch):
    monkeypatch.setattr(drive, "TICK", 0.02)
    options = {"budget": "3k-rollouts", "seeds": 2, "rollouts": 4, "groups": 4, "lr": 0.05, "evaluations": 2,
               "held_out": 64, "samples": 4, "out": tmp_path, "workers": 2}
    arms = ("group=", "none=--baseline none")
    gate = pilot_trainer(arms, command("{arm}"), pilot=2, **options)
    assert gate.seeds == 2 and lines(gate)["seeds"].passed is False and lines(gate)["acts"].passed is None
    answer = compare_trainer(arms, command("{arm}"), **options)
    assert answer.rates == pytest.approx(dict(gate.rates)) and answer.bill["pilot"]["runs"] == 8
