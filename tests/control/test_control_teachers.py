"""Teachers: what they choose, by numbers worked from their equations; and a run with one is the same stacked, alone
and continued, and is charged what it causes."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from test_control_stack import left

from isocost.control import data
from isocost.control.loop import Loop, StackedRun
from isocost.control.methods import agent, tuned
from isocost.control.tasks import open_task, random_return
from isocost.control.teachers import KIND, Lessons, alp_gmm, lessons, mbtl, riac, snapshot, teacher, uniform
from isocost.errors import UserError
from isocost.runs import driver
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, run_stack
from isocost.runs.files import read_json
from isocost.runs.stop_at import StopAt
from isocost.steps.control.single import evaluate_control
from isocost.units import ENV_STEPS
from logs_to_import import said

FAST = ("uniform", "alp-gmm:every=2", "covar-gmm:every=2", "riac:most=4", "mbtl:every=2,most=3", "snapshot:steps=5")


def past_of(contexts, returns, choose=uniform.choose):
    past = Lessons(choose, open_task("maze:9"), 3)
    past.contexts, past.returns = np.asarray(contexts, float).reshape(-1, 1), np.asarray(returns, float)
    return past


def chosen(past, many=400):
    """Contexts of so many episodes, were each the next one: (many,)."""
    rng = np.random.default_rng(0)
    return np.array([past.choose(past, rng).context[0] for _ in range(many)])


def test_a_context_is_a_cell_of_a_maze_or_a_pendulum_of_a_family():
    rng = np.random.default_rng(0)
    maze, family = past_of([], []), Lessons(uniform.choose, open_task("family:4"), 0)
    for context, cell in ((0.0, (0.5, 0.5)), (0.49, (3.5, 0.5)), (1.0, (0.5, 1.5)), (7.0, (0.5, 1.5))):
        assert np.abs(maze.of(np.array([context]), rng).state - cell).max() <= 0.25
    assert [family.of(np.array([c]), rng).state[2] for c in (0, 0.24, 0.26, 1)] == [0, 0, 1, 3]
    assert maze.anywhere(rng).steps == 90


def test_returns_are_kept_on_the_tasks_scale_in_the_order_in_which_episodes_end():
    past = Lessons(uniform.choose, open_task("maze:9"), 3, environments=2)
    low, high = random_return("maze:9"), -10.0
    for e in (0, 1):
        past.begin(e, np.random.default_rng(e))
    first = past.now[:, 0].copy()
    past.stepped(np.array([-1.0, -1.0]), np.array([False, False]))
    past.stepped(np.array([-1.0, -1.0]), np.array([False, True]))
    past.begin(1, np.random.default_rng(5))
    past.stepped(np.array([-1.0, -1.0]), np.array([True, True]))
    assert past.contexts[:2, 0].tolist() == [first[1], first[0]]
    assert past.returns == pytest.approx([(r - low) / (high - low) for r in (-2, -3, -1)])
    other = Lessons(uniform.choose, open_task("maze:9"), 3, environments=2)
    other.load(past.save())
    assert (other.contexts == past.contexts).all() and (other.now == past.now).all()


def test_learning_progress_is_the_change_of_the_nearest_task_and_0_of_the_first_six():
    past = past_of([0.1, 0.5, 0.9, 0.1, 0.5, 0.9, 0.12, 0.5], [0.0, 0.2, 0.4, 0.3, 0.1, 0.4, 1.0, 0.4])
    assert [alp_gmm.progress(past, i) for i in range(8)] == pytest.approx([0] * 6 + [0.7, 0.3])


def test_em_finds_two_gaussians_and_its_likelihood_is_that_of_what_it_returns():
    rng = np.random.default_rng(1)
    points = np.concatenate((rng.normal([0, 0], [0.1, 0.3], (300, 2)), rng.normal([2, 1], 0.2, (100, 2))))
    found = alp_gmm.mixed(points, 2, np.random.default_rng(0))
    order = found.means[:, 0].argsort()
    assert found.means[order] == pytest.approx(np.array([[0, 0], [2, 1]]), abs=0.06)
    assert found.weights[order] == pytest.approx([0.75, 0.25], abs=0.01)
    assert found.covariances[order[0]] == pytest.approx(np.diag([0.01, 0.09]), abs=0.02)
    density = sum(w * multivariate_normal.pdf(points, m, c)
                  for w, m, c in zip(found.weights, found.means, found.covariances, strict=True))
    assert found.aic == pytest.approx(2 * 11 - 2 * np.log(density).sum())


def test_alp_gmm_follows_the_tasks_whose_returns_change():
    """Returns jump between 0 and 1 on tasks of 0.6 to 0.8, and stay elsewhere."""
    rng = np.random.default_rng(2)
    context = rng.random(250)
    returns = np.where((context > 0.6) & (context < 0.8), rng.integers(0, 2, 250), 0.5)
    inside = chosen(past_of(context, returns, teacher("alp-gmm:fresh=0")))
    assert ((inside > 0.55) & (inside < 0.85)).mean() > 0.8
    mixed = chosen(past_of(context, returns, teacher("alp-gmm:fresh=1")))
    assert ((mixed > 0.55) & (mixed < 0.85)).mean() < 0.4
    assert chosen(past_of(context[:249], returns[:249], alp_gmm.choose)).std() > 0.25       # no mixture yet


def test_covar_gmm_follows_returns_that_rise_and_not_those_that_fall():
    rng = np.random.default_rng(3)
    context, time = rng.random(250), np.linspace(0, 1, 250)
    returns = np.where(context > 0.5, time, 1 - time) + 0.01 * rng.standard_normal(250)
    assert (chosen(past_of(context, returns, teacher("covar-gmm:fresh=0"))) > 0.45).mean() > 0.95
    assert (chosen(past_of(context, -returns, teacher("covar-gmm:fresh=0"))) < 0.55).mean() > 0.95


def test_riac_cuts_where_progress_differs_and_draws_by_it():
    assert riac.progress(np.array([0.0, 0, 1, 1])) == 1 and riac.progress(np.array([0.0, 1, 1])) == 0.5
    assert riac.progress(np.array([0.0, 1])) == 0
    rng = np.random.default_rng(4)
    context = rng.random(201)
    returns = np.where(context > 0.5, np.linspace(0, 1, 201), 0.3)
    past = past_of(context, returns, riac.choose)
    draws = chosen(past)
    root, low, high = past._folded["regions"][1]
    assert not root.leaf and low.high == high.low and 0.4 < low.high[0] < 0.6
    assert sorted(low.held + high.held) == list(range(201))
    assert riac.progress(past.returns[high.held]) > 0.4 > 0.1 > riac.progress(past.returns[low.held])
    assert 0.75 < (draws > 0.5).mean() < 0.95       # of 70 %: root 1 in 3, the upper region 2 in 3; 20 % anywhere


def test_riac_cuts_where_both_sides_have_episodes():
    """alp is 1 below 0.2, 0.45 up to 0.5 and 0 above: its sides differ most at a cut at 0.2, which has few below."""
    c = np.arange(401) * 0.618034 % 1
    past = past_of(c, np.select([c < 0.2, c < 0.5], [2.0, 0.9]) * np.arange(401) / 401)
    root = riac.Region(np.zeros(1), np.ones(1), list(range(401)))
    low, _ = riac.split(root, past, 400, np.random.default_rng(0))
    assert 0.4 < low.high[0] < 0.6


def test_riac_drops_its_oldest_quarter_where_no_cut_is_allowed():
    past = past_of(np.full(9, 0.5), np.arange(9.0), teacher("riac:most=8"))
    chosen(past, 1)
    (root,) = past._folded["regions"][1]
    assert root.leaf and root.held == list(range(2, 9))


def test_mbtls_process_by_hand_and_its_next_source():
    """At one point the mean is y a / (a + 0.01); far away it is 0, with variance a."""
    mean, sd = mbtl.predicted(np.array([0.5]), np.array([1.0]), np.array([0.5, 900.0]))
    size = 1.0      # ln N(1; 0, a + 0.01) is greatest at a = 0.99: 1 is the next on the grid
    assert mean == pytest.approx([size / (size + 0.01), 0]) and sd == pytest.approx([(size - size / 1.01) ** 0.5, 1])


def test_mbtl_takes_the_task_that_gains_most_over_the_gap(monkeypatch):
    """Returns are said to be 1 at all of 0.1 .. 0.9 but 1.2 at 0.9, the middle is known, c = 1: 0.9 gains 0.2, 0, 0.2,
    0.6 = 1.0 over the targets, 0.7 gains 0.2 and 0.2. With a steep gap it gains most where it is farthest."""
    tasks = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    monkeypatch.setattr(mbtl, "predicted", lambda x, y, at: (np.array([1, 1, 1, 1, 1.2]), np.zeros(5)))
    assert mbtl.following(np.array([1.0]), [2], tasks, 1.0, 1.0) == 4
    monkeypatch.setattr(mbtl, "predicted", lambda x, y, at: (np.ones(5), np.array([0.5, 0, 0, 0, 0])))
    assert mbtl.following(np.array([1.0]), [2], tasks, 1.0, 1.0) == 0     # the least known
    assert mbtl.following(np.array([1.0]), [2], tasks, 1.0, 0.0) in (0, 1, 3, 4)
    assert mbtl.following(np.ones(2), [2, 0], tasks, 1.0, 0.0) in (3, 4)  # the far end, no repeats
    assert mbtl.following(np.ones(4), [2, 0, 4, 1], tasks, 1.0, 0.0) == 3


def test_mbtl_begins_in_the_middle_takes_a_source_at_a_time_and_then_any_of_them():
    choose = teacher("mbtl:every=4,most=3,grid=5")
    past, seen = past_of([], [], choose), []
    for i in range(40):
        (c,) = past.choose(past, np.random.default_rng(i)).context
        seen.append(round(float(c), 3))
        past.contexts, past.returns = np.append(past.contexts, [[c]], 0), np.append(past.returns, c)
    first, second, third = seen[:4], seen[4:8], seen[8:12]
    assert set(first) == {0.5} and len(set(second)) == len(set(third)) == 1
    assert len({0.5, *second, *third}) == 3 and set(seen[12:]) == {0.5, *second, *third}


def test_mbtl_reads_the_end_of_a_source(monkeypatch):
    read = list[float]()
    monkeypatch.setattr(mbtl, "following", lambda y, *rest: read.extend(y) or 0)
    chosen(past_of([0.5] * 8, [0, 0, 0, 0, 0, 0, 0.5, 1], teacher("mbtl:every=8,most=2,grid=5")), 1)
    assert read == [0.75]


def test_a_rare_kind_of_state_is_drawn_as_often_as_another(monkeypatch):
    monkeypatch.setattr(snapshot, "KINDS", 2)
    past = past_of([], [], teacher("snapshot:share=1"))
    past.shown = (np.append(np.zeros((90, 2)), np.full((10, 2), 9.0), 0),)
    rng = np.random.default_rng(0)
    assert 0.4 < np.mean([past.choose(past, rng).state[0] == 9 for _ in range(400)]) < 0.6


def test_snapshots_are_states_of_demonstrations_for_the_first_episodes():
    past = lessons("snapshot:share=1,episodes=2,steps=7", open_task("maze:9"), 0)
    states = np.concatenate([x[:-1] for x in past.shown])
    drawn = [past.choose(past, np.random.default_rng(i)) for i in range(30)]
    assert all((states == x.state).all(-1).any() and x.steps == 7 for x in drawn)
    assert len({int(x.state[1]) for x in drawn}) == 2       # of both rows of the maze
    assert [len(x) for x in past.shown] == [len(x) for x in snapshot.shown(past.task, 0, 4)]
    past.contexts, past.returns = np.zeros((2, 1)), np.zeros(2)
    after = past.choose(past, np.random.default_rng(0))
    assert after.steps == 90 and (after.state < 1).all()


def jobs(spec, *seeds, task="maze:3"):
    arm = {"batch": 16, "width": 16, "rate": 1e-3}
    return [ControlJob(f"s{s}", task, "sac", s, {"env-steps": 150}, Arm(arm, sigma=(2.0, 0.5)[s % 2]), points=(80.0,),
                       sets={"tempo.warmup": "40"}, episodes=2, teacher=spec) for s in seeds]


def looped(spec, *seeds):
    """A stack of runs of two environments in which a teacher chooses."""
    task = open_task("maze:3")
    runs = [StackedRun(s, (0.5, 0.25)[s % 2], 1e-3, 2, lessons=lessons(spec, task, s, 2)) for s in seeds]
    return Loop(tuned(agent("sac", batch=16, width=16), {"tempo.warmup": "40"}), task, runs, 200)


def kept_of(loop, i, until):
    """All that a run would save when it has come to so many samples."""
    while loop.runs[i].samples < until:
        loop.advance([until + r.env_steps - r.samples if r is loop.runs[i] else 10**6 for r in loop.runs])
    tensors, state = loop.save(i)
    return {k: x.numpy().tobytes() for k, x in tensors.items()}, state


@pytest.mark.parametrize("spec", FAST)
def test_a_taught_run_is_the_same_stacked_alone_and_continued(spec):
    stacked, alone, early, late = looped(spec, 0, 1), looped(spec, 1), looped(spec, 1), looped(spec, 2, 1)
    found = kept_of(alone, 0, 150)
    assert kept_of(stacked, 1, 150) == found != kept_of(stacked, 0, 150)
    kept_of(early, 0, 80)
    late.load(1, *early.save(0))
    assert kept_of(late, 1, 150) == found and len(alone.runs[0].lessons.returns) > 4


def test_a_record_says_the_teacher_and_a_run_that_was_stopped_ends_as_one_that_was_not(tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "WORTH_SAVING", float("inf"))
    kept, spec = {"save_every": 1, "save_seconds": 0}, "alp-gmm:every=2"
    run_stack(jobs(spec, 1), [tmp_path / "a"], **kept)
    run_stack(jobs(spec, 1), [tmp_path / "b"], **kept, stop_at=StopAt(80.0, ENV_STEPS, {"env_steps": 1.0}))
    assert read_json(tmp_path / "b" / "end.json")["bill"]["train"]["env_steps"] == 80
    run_stack(jobs(spec, 1), [tmp_path / "b"], **kept)
    assert left(tmp_path / "a") == left(tmp_path / "b")
    assert read_json(tmp_path / "b" / "run.json")["teacher"] == {
        "fn": "isocost.control.teachers.alp_gmm:choose", "every": 2, "fresh": 0.2}
    run_stack(jobs("uniform", 3), [tmp_path / "c"])
    with pytest.raises(UserError, match="a and c differ in their teacher"):
        evaluate_control(tmp_path, 2)


def test_demonstrations_are_charged_and_a_snapshots_cut_is_no_end(tmp_path):
    """150 environment steps: those of four demonstrations, and samples."""
    shown = sum(len(x) - 1 for x in snapshot.shown(open_task("maze:3"), 0, 4))
    (end,) = run_stack(jobs("snapshot:steps=5,share=1", 0), [tmp_path / "a"])
    assert shown > 8 and end["samples"] == 150 - shown and end["bill"]["train"]["env_steps"] == 150
    assert json.loads((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1])["env_steps"] == 150
    with pytest.raises(UserError, match=r"demonstrations take .* and the budget is 150: raise it"):
        run_stack(jobs("snapshot:demonstrations=80", 0), [tmp_path / "b"])
    run = StackedRun(0, 1.0, 1e-3, lessons=lessons("snapshot:steps=5,share=1", open_task("maze:9"), 0))
    loop = Loop(agent("sac", batch=16, width=16), open_task("maze:9"), [run], 400)
    loop.advance([run.now + 60])
    *_, ended, cut = loop.replay.split(loop.replay.rows[0, :60])
    assert not ended.any() and cut.nonzero()[:, 0].tolist() == list(range(4, 60, 5))


def test_demonstrations_take_no_updates_on_the_set(tmp_path):
    """Three updates on the set, fewer than the steps of the demonstrations: these and the samples are all there."""
    task, path = open_task("maze:3"), tmp_path / "set.parquet"
    data.write(data.make(task, {"navigate": 1.0}, 60, 0), task.space, path)
    (job,) = jobs("snapshot", 0)
    sets = {"tempo.warmup": "40", "losses.drawn": "2"}
    (end,) = run_stack([replace(job, method="wsrl", data=str(path), offline_updates=3, sets=sets)], [tmp_path / "a"])
    assert end["updates"] == 3 + 2 * (end["samples"] - 40) and end["bill"]["train"]["env_steps"] == 150


@pytest.mark.parametrize(("spec", "task", "text"), [
    ("alp-gm", "maze:3", "unknown teacher 'alp-gm' .did you mean 'alp-gmm'"),
    ("alp-gmm:evry=3", "maze:3", "--teacher alp-gmm:evry=3: evry=3: .* takes every, fresh"),
    ("alp-gmm:fresh=2", "maze:3", r"expects a value in \[0, 1\]"),
    ("mbtl:grid=3", "maze:3", "cannot choose 5 sources of 3 tasks: write mbtl:most=3"),
    ("uniform", "pendulum", "pendulum has neither tasks nor starts that a teacher can choose"),
    ("snapshot", "pendulum", "need a script that demonstrates pendulum"),
])
def test_teachers_that_cannot_be_used(spec, task, text, tmp_path):
    with pytest.raises(UserError, match=text):
        run_stack(jobs(spec, 0, task=task), [tmp_path / "a"])
    assert not (tmp_path / "a" / "end.json").exists()


def test_the_option_of_a_run(tmp_path):
    asked = ("train", "sac", "--control", "maze:3", "--batch", 16, "--width", 16, "--budget", "240-env-steps",
             "--evaluations", 2, "--out", tmp_path / "r")
    assert "240 samples" in said(*asked, "--teacher", "alp-gmm:every=3")
    assert read_json(tmp_path / "r" / "run.json")["teacher"]["every"] == 3
    assert "its teacher differs" in said(*asked, "--teacher", "alp-gmm:every=4", code=2)
    assert "its teacher differs" in said(*asked, code=2)
    set_free = said("train", "iql", "--control", "maze:3", "--teacher", "uniform", "--budget", "20-updates", "--out",
                    tmp_path / "i", code=2)
    assert "--teacher" in set_free or "--offline" in set_free


def test_every_teacher_has_its_equation_its_source_and_a_claim():
    for name in KIND.names():
        module = KIND.load(name)
        assert module.__doc__.count("\n") > 2 and len(module.CARD.claim.split()) > 4 and teacher(name) is module.choose
    assert set(KIND.names()) == {x.partition(":")[0] for x in FAST}
