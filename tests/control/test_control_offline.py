"""Offline sets and the methods that learn from them, by numbers worked from the papers' equations."""

import json
import math
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from isocost.control import data, methods
from isocost.control.loop import Loop, StackedRun
from isocost.control.luck import Draws, Luck
from isocost.control.methods import calql, floq, fql, iql, ota, rebrac, sharsa
from isocost.control.networks import Effort, Numbers, Params
from isocost.control.parts import backup, flow, mix
from isocost.control.parts.goals import FAR, GoalWalk
from isocost.control.parts.heads import FlowValue
from isocost.control.policy import ControlPolicy
from isocost.control.replay import Replay
from isocost.control.tasks import open_task
from isocost.control.types import Space, Transitions
from isocost.errors import UserError
from isocost.runs.arm import Arm
from isocost.runs.control import ControlJob, run_stack
from isocost.runs.files import read_json, read_lines
from isocost.runs.stop_at import StopAt
from isocost.units import FLOPS
from logs_to_import import said
from offline_sets import made


class Fixed(Luck):
    """Luck that gives what it was made with."""

    def __init__(self, **values):
        object.__setattr__(self, "values", values)

    def normal(self, name, *shape):
        return torch.as_tensor(self.values[name.replace(" ", "_")], dtype=torch.float32).expand(1, *shape)

    uniform = normal


class Given(Numbers):
    """A network that is this function of its input: (S, K or 1, B, I) -> (S, K, B, out)."""

    outputs = 1     # in place of the property

    def __init__(self, function, outputs=1, members=1):
        super().__init__((0.0,), members)
        object.__setattr__(self, "function", function)
        object.__setattr__(self, "outputs", outputs)

    def __call__(self, weights, x):
        return self.function(x).expand(x.shape[0], self.members, -1, -1) + 0 * weights.sum()


def params(**networks):
    return Params(networks, {k: torch.zeros(1, n.members, 32, requires_grad=True) for k, n in networks.items()})


def chain(lengths, rewards=None, space=None, ended=True):
    """Trajectories of these lengths in a fixed replay: states 0, 1, 2, .. in each, reward −1 a step, or these."""
    space, rows, k = space or Space(1, 1), [], 0
    for j, length in enumerate(lengths):
        for t in range(length):
            last, goal = t == length - 1, [0.0] * space.goal
            reward = -1.0 if rewards is None else rewards[k]
            rows.append([10.0 * j + t, *goal, 0.1 * t, reward, 10.0 * j + t + 1, *goal, last and ended,
                         last and not ended])
            k += 1
    return Replay.of_set(space, 1, torch.tensor(rows, dtype=torch.float32)).view([0])


# sets -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path):
    """A set in a file, with its task."""
    task = open_task("maze:4")
    found = made("maze:4", 400, navigate=0.25, random=0.75)
    data.write(found, task.space, tmp_path / "a.parquet")
    return task, found, tmp_path / "a.parquet"


def test_a_set_is_read_as_it_was_written_and_its_card_says_who_made_it(kept):
    task, found, path = kept
    back = data.read(path, task)
    assert (back.rows == found.rows).all() and back.card == found.card and not back.notes
    card = back.card
    by = card["behaviours"]
    many = by["navigate"]["trajectories"], by["random"]["trajectories"]
    assert sum(many) == card["trajectories"] and abs(many[0] - 0.25 * sum(many)) <= 1
    assert by["navigate"]["return"] > -15 > by["random"]["return"] and card["terminal"] + card["cut"] == sum(many)
    assert (card["observation"], card["action"], card["dtype"], len(card["hash"])) == (2, 2, "float32", 64)
    assert card["transitions"] == len(back.rows) >= 400
    assert (made("maze:4", 400, seed=1, navigate=0.25, random=0.75).rows[:9] != found.rows[:9]).any()


def test_the_transitions_of_a_set_are_those_of_the_task(kept):
    """Replayed from each observation the task gives the reward and what follows, and the time limit cuts."""
    task, found, _ = kept
    seen, action, reward, then, end, cut = data.split(task.space, found.rows)
    after, paid, ended = task.step((seen.astype(float) + 1) * 2, action.astype(float))
    inside = np.abs(seen * 2 + 2 - np.round(seen * 2 + 2)).min(-1) > 1e-3       # off the walls, where float32 decides
    assert inside.mean() > 0.5 and np.allclose(task.observe(after)[inside], then[inside], atol=1e-5)
    assert (paid[:, None] == reward).all() and (ended[inside] == (end[inside, 0] > 0)).all()
    ends = np.flatnonzero((end + cut)[:, 0])
    lengths = np.diff(np.concatenate(([-1], ends)))
    assert ((lengths == task.limit) == (cut[ends, 0] > 0)).all()


def changed(path, name, change, card=None):
    """The file with a column changed, and with another card; without one if it is empty."""
    table = pq.read_table(path)
    columns = {c: table.column(c) for c in table.column_names}
    columns[name] = change(columns[name].combine_chunks())
    meta = table.schema.metadata if card is None else {data.CARD: json.dumps(card)} if card else None
    pq.write_table(pa.table({k: v for k, v in columns.items() if v is not None}).replace_schema_metadata(meta), path)


def edited(row, value):
    def change(column):
        plain = column.to_pylist()
        plain[row] = value(plain[row])
        return pa.array(plain, column.type)
    return change


@pytest.mark.parametrize("name, change, card, said", [
    ("reward", edited(3, lambda x: x + 1), None, "is not what its card says: the hash"),
    ("reward", lambda c: None, {}, "has no column reward"),
    ("reward", lambda c: c.cast(pa.float64()), {}, "reward has values of type double, expected float32: cast them"),
    ("observation", lambda c: pa.FixedSizeListArray.from_arrays(c.flatten()[: len(c)], 1), {},
     r"observation is fixed_size_list<\w+: float>\[1\], expected a list of 2 floats"),
    ("reward", edited(7, lambda x: math.nan), {}, "reward of row 7 is not finite"),
    ("action", edited(2, lambda x: [3.0, 0.0]), {}, r"actions are between -\S+ and 3, expected \[-1, 1\]"),
    ("observation", edited(5, lambda x: [9.0, 9.0]), {}, "after row 4 comes another state than it says"),
    ("terminal", lambda c: pa.array([True] * len(c)), {}, "rows are both terminal and cut"),
])
def test_a_set_that_cannot_be_used_is_one_line(kept, name, change, card, said):
    task, _, path = kept
    changed(path, name, change, card)
    with pytest.raises(UserError, match=said):
        data.read(path, task)


def test_terminal_and_cut_swapped_are_told_and_a_set_is_for_its_task(kept, tmp_path):
    task, _, path = kept
    with pytest.raises(UserError, match="was made on maze:4, not on maze:8: give --control maze:4"):
        data.read(path, open_task("maze:8"))
    table = pq.read_table(path)
    swapped = table.set_column(4, "terminal", table.column("cut")).set_column(5, "cut", table.column("terminal"))
    pq.write_table(swapped.replace_schema_metadata(None), path)
    assert "terminal rows are at the time limit of 40 steps" in data.read(path, task).notes[0]
    (tmp_path / "no.parquet").write_text("x")
    with pytest.raises(UserError, match="make one with `isocost collect`"):
        data.read(tmp_path / "no.parquet", task)


@pytest.mark.parametrize("shares, said", [
    ({"navigate": 1.0}, "'navigate' is no behaviour on pendulum"), ({"random": 0.5}, "sum to 0.5, expected 1"),
    ({"random": -1.0}, "the share of random is -1"),
])
def test_behaviours_that_do_not_exist(shares, said):
    with pytest.raises(UserError, match=said):
        data.make(open_task("pendulum"), shares, 10, 0)


def test_scripts_of_mazes():
    """navigate arrives; stitch stays within a few cells and starts everywhere; explore covers the corridor."""
    task = open_task("goalmaze:8")
    found = {name: data.make(task, {name: 1.0}, 2000, 0) for name in ("navigate", "stitch", "explore")}
    assert found["navigate"].card["cut"] == 0 and found["navigate"].card["return"]["mean"] > -20
    seen = data.split(task.space, found["stitch"].rows)[0]
    assert (seen[:, 2:] == [-0.75, -0.25]).all()       # the goal: the middle of the last cell, (0.5, 1.5)
    assert found["stitch"].card["terminal"] < 0.3 * found["stitch"].card["trajectories"]
    for name in ("stitch", "explore"):
        at = data.split(task.space, found[name].rows)[0][:, :2] * 2 + 2
        assert len({(int(x), int(y)) for x, y in at}) == 7     # an episode ends in the last cell


def test_no_number_is_drawn_twice_for_trained_behaviours():
    """Neither by two policies nor in two steps, also where fewer episodes are left than before."""
    seen = []

    class Wandering:
        """A policy whose actions are its draws, one for each episode that it is asked about."""
        loop = property(lambda self: self)

        def of_action(self, drawn):
            return Effort()

        def policy(self, rows, observation, luck):
            noise = luck.normal("act", observation.shape[1], 2)
            seen.append(noise)
            return noise.clamp(-1, 1).double().numpy()

    made = data.make(open_task("maze:2"), {"a": 0.5, "b": 0.5}, 900, 0, {"a": Wandering(), "b": Wandering()})
    numbers = torch.cat([x.flatten() for x in seen])
    assert made.card["terminal"] > 64 and len(numbers.unique()) > 0.999 * len(numbers)     # float32 has few of them


# parts ------------------------------------------------------------------------------------------------------------


def test_expectiles_and_weights():
    """The 0.7-expectile of {0, 1} is 0.7, of {0, 0, 1} 0.538462; weights are capped at 100."""
    for sample, found in (((0.0, 1.0), 0.7), ((0.0, 0.0, 1.0), 0.538462)):
        at = torch.linspace(0, 1, 100_001, dtype=torch.double)
        loss = sum(backup.expectile(x - at, 0.7) for x in sample)
        assert float(at[loss.argmin()]) == pytest.approx(found, abs=1e-5)
    assert backup.weight(torch.tensor([0.0, 1.0, 1.6, 100.0]), 3.0).tolist() == pytest.approx(
        [1, math.exp(3), 100, 100])


def test_iql_by_hand():
    """r −1, γ 0.5, V 2 everywhere, Q' 3 and 4: y = 0, u = 1; weight e^3; the actor is 0.5 off on one number."""
    nets = {"value": Given(lambda x: torch.full_like(x[..., :1], 2.0)), "actor": Given(lambda x: 0 * x[..., :1]),
            "critic": Given(lambda x: torch.tensor([3.0, 4.0])[None, :, None, None].expand(1, 2, x.shape[2], 1), 1, 2)}
    p, one = params(**nets), torch.zeros(1, 1, 1)
    batch = Transitions(one, one + 0.5, torch.full((1, 1), -1.0), one, torch.full((1, 1), 0.5))
    target = iql.target(batch, p, p, Fixed())
    assert target.tolist() == [[[0.0, 3.0]]]
    found = iql.losses(batch, target, p, Fixed(), tau=0.7, beta=3.0)
    assert [found[k].item() for k in ("critic", "value", "actor")] == pytest.approx(
        [9 + 16, 0.7, math.exp(3) * 0.25 / 2])


def test_weights_of_trajectories():
    """T → ∞: each row alike; T → 0: the best alone; the advantage removes what the start explains."""
    replay = chain([2, 4, 2], rewards=[1, 1, 0, 0, 0, 1, 1.5, 1.5])     # returns 2, 1, 3; starts 0, 10, 20
    u = (torch.arange(800) + 0.5) / 800

    def share(**settings):
        at = mix.weighted(replay, 800, Fixed(replay=u), **settings).others["row"][0]
        return (torch.bincount(at, minlength=8) / 800).tolist()

    assert share(weighting="return", temperature=1e6) == pytest.approx([1 / 8] * 8, abs=2e-3) == share()
    assert share(weighting="return", temperature=1e-3) == pytest.approx([0] * 6 + [0.5] * 2)
    w = np.exp([0.5 / 0.5] * 2 + [0.0] * 4 + [1 / 0.5] * 2)        # (2 − 1)/2, 0, 1
    assert share(weighting="return", temperature=0.5) == pytest.approx(list(w / w.sum()), abs=2e-3)
    lucky = chain([2, 2, 2, 2], rewards=[0, 0, 0, 10, 0, 20, 0, 30.5])      # the start is worth itself, and 0.5 is not
    at = mix.weighted(lucky, 64, Fixed(replay=(torch.arange(64) + 0.5) / 64), weighting="advantage", temperature=1e-3)
    assert set(at.others["row"][0].tolist()) <= {0, 1, 6, 7}    # the least-squares line leaves both ends above it
    with pytest.raises(UserError, match="weighting is 'best': expected none, return, advantage"):
        mix.weighted(replay, 2, Fixed(replay=u[:2]), weighting="best")


def test_returns_to_the_end_of_a_trajectory_and_past_a_cut():
    assert mix.returns(chain([3, 1]), 0.5).tolist() == [-1.75, -1.5, -1, -1]
    assert mix.returns(chain([3], ended=False), 0.5).tolist() == [-2, -2, -2]       # −1 for ever: −1 / (1 − γ)


def test_goals_lie_ahead_and_are_reached_at_their_state_alone():
    """A trajectory of 4 rows has 5 states; rows 0 and 3, goals 2 ahead and the last state."""
    replay = chain([4, 3], space=Space(2, 1, goal=1))
    walk = GoalWalk(replay, 2, Fixed(replay=[[0.01, 3.5 / 7]], g_kind=[[0.5, 0.5]], g_ahead=[[0.3, 0.9]], g_row=0.99))
    assert walk.row.tolist() == [[0, 3]] and walk.left.tolist() == [[4, 1]]
    goal, far = walk.goal("g", current=0.2, future=0.5)
    assert goal[0, :, 0].tolist() == [2, 4] and far.tolist() == [[2, 1]]
    assert walk.state(9)[0, :, 0].tolist() == [4, 4] and walk.state(1)[0, :, 0].tolist() == [1, 4]
    for kind, found, steps in ((0.1, [0, 3], [0, 0]), (0.8, [13, 13], [FAR, FAR])):
        luck = Fixed(replay=[[0.01, 3.5 / 7]], g_kind=kind, g_ahead=0.3, g_row=0.99)
        goal, far = GoalWalk(replay, 2, luck).goal("g", current=0.2, future=0.5)
        assert goal[0, :, 0].tolist() == found and far.tolist() == [steps]


# flows ------------------------------------------------------------------------------------------------------------


def test_a_flow_of_constant_velocity_is_exact_for_any_number_of_steps():
    """v = a − z: z + Σ v/N = a; and the loss of the exact velocity is 0."""
    a, z = torch.tensor([[[0.3, -0.8]]]), torch.tensor([[[1.5, 0.25]]])
    p = params(actor=Given(lambda x: (a - z)[:, None].expand(-1, -1, x.shape[2], -1), 2))
    for steps in (1, 3, 10):
        assert torch.allclose(flow.carried(p, "actor", torch.zeros(1, 1, 1), z, steps), a, atol=1e-6)
    luck = Fixed(actor_start=z, actor_time=0.7)
    assert flow.cloned(p, "actor", torch.zeros(1, 1, 1), a, luck).item() == pytest.approx(0, abs=1e-12)
    assert flow.cloned(p, "actor", torch.zeros(1, 1, 1), a + 1, luck).item() == pytest.approx(1)
    same = flow.noise(None, "x", 2, 4, 3)
    assert same.shape == (2, 4, 3) and (same == same[0, 0]).all()      # without luck, one draw for all rows


def fql_batch():
    one = torch.zeros(1, 4, 1)
    return Transitions(one, torch.rand(1, 4, 2, generator=torch.Generator().manual_seed(0)) - 0.5, torch.zeros(1, 4),
                       one, torch.zeros(1, 4))


def test_fql_gives_no_gradient_of_q_to_the_flow_and_the_flows_action_for_a_large_alpha():
    made_agent = methods.agent("fql", batch=16, width=16)
    nets = made_agent.networks(Space(1, 2), made_agent)
    rng = np.random.default_rng(0)
    weights = {k: torch.from_numpy(n.start(rng))[None].requires_grad_() for k, n in nets.items()}
    p, luck, batch = Params(nets, weights), Luck([Draws(0)], [0], "test"), fql_batch()
    found = fql.improved(batch, p, luck, alpha=1e9, steps=10)
    assert torch.autograd.grad(found["actor"].sum(), [weights["flow"], weights["critic"]], allow_unused=True) == (
        None, None)
    z = luck.normal("new", 4, 2)
    away = fql.one_step(p, batch.observation, z) - flow.carried(p, "flow", batch.observation, z, 10)
    assert found["actor"].item() / 1e9 == pytest.approx((away**2).mean().item(), rel=1e-5)


@pytest.mark.parametrize("steps", [1, 4, 8, 16, 32])
def test_floq_reads_the_value_that_an_exact_velocity_carries_and_recovers(steps):
    """v = (y − z)/(1 − t): y from any noise. v = c (y − z)/(1 − t), c 0.5: the rest is Π (1 − c/j), j = 1 .. K."""
    times = set()

    class Exact(FlowValue):
        c = 1.0

        def encoded(self, z, t, ratio=16.0):
            return torch.cat((z, t), -1)

        def __call__(self, weights, x):
            z, t = x[..., 1:2], x[..., 2:]
            times.update(t.unique().tolist())
            return self.c * (3.0 - z) / (1 - t)

    class Half(Exact):
        c = 0.5

    start = torch.tensor([[[-2.0], [0.5], [2.0]]])
    for kind in (Exact, Half):
        p = Params({"velocity": kind(3, 1, 8, members=2)}, {"velocity": torch.zeros(1, 2, 32)})
        rest = (3.0 - floq.value(p, torch.zeros(1, 3, 1), start, steps)) / (3.0 - start[..., 0])
        wanted = 0.0 if kind is Exact else math.prod(1 - 0.5 / j for j in range(1, steps + 1))
        assert torch.allclose(rest, torch.full_like(rest, wanted), atol=1e-5)
    assert times == {k / steps for k in range(steps)}
    if steps > 1:
        assert wanted == pytest.approx({4: 0.2734, 8: 0.1964, 16: 0.1399, 32: 0.0993}[steps], abs=1e-4)


def test_floq_gives_no_gradient_of_the_distilled_critics_to_the_velocity():
    made_agent = methods.tuned(methods.agent("floq", width=16), {"losses.noises": "2"})
    nets = made_agent.networks(Space(1, 2), made_agent)
    rng = np.random.default_rng(0)
    weights = {k: torch.from_numpy(n.start(rng))[None].requires_grad_() for k, n in nets.items()}
    found = made_agent.losses(fql_batch(), torch.zeros(1, 4), Params(nets, weights), Luck([Draws(0)], [0], "test"))
    assert torch.autograd.grad(found["critic"].sum(), weights["velocity"], allow_unused=True) == (None,)
    net = nets["velocity"]
    seen = net.encoded(torch.tensor([[-50.0]]), torch.tensor([[0.5]]))
    assert seen.shape == (1, 114) and seen[0, :50].sum().item() == pytest.approx(1)
    assert seen[0, 50:52].tolist() == pytest.approx([1, 0], abs=1e-6)       # sin π/2, sin π


# held to the set --------------------------------------------------------------------------------------------------


def test_calql_lifts_the_policys_actions_to_the_sets_return_and_no_others():
    """Q is −5 everywhere. R = −2 lifts, R = −9 does not; uniform actions stay −5 − log density."""
    nets = {"critic": Given(lambda x: torch.full_like(x[..., :1], -5.0)), "actor": Given(lambda x: 0 * x[..., :2], 2)}
    one = torch.zeros(1, 2, 2)
    batch = Transitions(one, one[..., :1], torch.zeros(1, 2), one, torch.zeros(1, 2),
                        {"return": torch.tensor([[-2.0, -9.0]])})
    q = calql.spread(batch, params(**nets), Fixed(anywhere=0.5, here=0.0, there=0.0), 3)
    density = -0.5 * math.log(2 * math.pi) - math.log(1 + 1e-6)
    assert q.shape == (1, 1, 2, 9)
    assert q[0, 0, 0].tolist() == pytest.approx([-5 + math.log(2)] * 3 + [-2 - density] * 6, abs=1e-5)
    assert q[0, 0, 1].tolist() == pytest.approx([-5 + math.log(2)] * 3 + [-5 - density] * 6, abs=1e-5)


def test_rebrac_by_hand_and_where_the_next_action_is_not_known():
    replay = chain([3, 2])
    batch = rebrac.sample(replay, 5, Fixed(replay=(torch.arange(5) + 0.5) / 5))
    assert batch.others["known"].tolist() == [[1, 1, 0, 1, 0]]
    assert batch.others["next"][0, [0, 1, 3], 0].tolist() == pytest.approx([0.1, 0.2, 0.1])
    p = params(actor=Given(lambda x: 0 * x[..., :1]), critic=Given(lambda x: torch.full_like(x[..., :1], -4.0)))
    y = rebrac.target(batch, p, p, Fixed(next=0.0), penalty=10.0)      # −1 + 0.99 (−4 − 10 a'²), −1 where it ended
    assert y[0].tolist() == pytest.approx([-1 - 0.99 * 4.1, -1 - 0.99 * 4.4, -1, -1 - 0.99 * 4.1, -1], abs=1e-5)
    p = Params(p.networks, p.weights, frozenset({"actor"}))
    loss = rebrac.losses(batch, y, p, Fixed(), penalty=10.0)["actor"].item()
    assert loss == pytest.approx(10 * (batch.action**2).mean().item() + 1, abs=1e-5)    # λ Q = −4/4


def constant(*values, outputs=1):
    """A network of so many members, each of which is a number everywhere."""
    return Given(lambda x: torch.tensor(values)[None, :, None, None].expand(1, -1, x.shape[2], outputs), outputs,
                 len(values))


def one(size=1, reward=-1.0, discount=0.5, **others):
    """A transition from zeros to zeros by the action 0."""
    zero = torch.zeros(1, 1, size)
    return Transitions(zero, zero[..., :1], torch.full((1, 1), reward), zero, torch.full((1, 1), discount), others)


def test_calql_by_hand():
    """y = −1 + 0.5 min(−3, −4), without entropy; the penalty of −5 everywhere is what `spread` has above −5."""
    actor, batch = Given(lambda x: 0 * x[..., :1].expand(-1, -1, -1, 2), 2), one(**{"return": torch.tensor([[-9.0]])})
    p = params(actor=actor, critic=constant(-5.0, -5.0), temperature=Numbers((0.0,)))
    slow, luck = params(critic=constant(-3.0, -4.0)), Fixed(next=0.3, new=0.0, anywhere=0.5, here=0.0, there=0.0)
    assert calql.target(batch, p, slow, luck).item() == pytest.approx(-3)
    none, some = (calql.losses(batch, torch.zeros(1, 1), p, luck, alpha=x, drawn=3)["critic"].item() for x in (0, 2))
    assert none == pytest.approx(2 * 25)
    above = calql.spread(batch, p, luck, 3).logsumexp(-1) + 5
    assert some - none == pytest.approx(2 * above.sum().item(), rel=1e-4) and above.min() > 0


def test_fql_by_hand():
    """y = −1 + 0.5 (2 + 4)/2; the flow ends at 0.5, the actor at 0: α 0.25 − (1 + 2)/2."""
    p = params(actor=constant(0.0), flow=constant(0.5), critic=constant(1.0, 2.0))
    luck = Fixed(next=0.0, new=0.0, flow_start=0.0, flow_time=0.5)
    assert fql.target(one(), p, params(critic=constant(2.0, 4.0)), luck).item() == pytest.approx(0.5)
    assert fql.losses(one(), torch.zeros(1, 1), p, luck, alpha=2.0)["actor"].item() == pytest.approx(0.5 - 1.5)


def test_floq_by_hand():
    """Noise 0.1, slow velocity 3: y = −1 + 0.5 · 3.1. Velocity 1 for y 2: 3 noises of (1 − 1.9)²; Q 0 against 1.1."""
    class Moving(FlowValue):
        def __call__(self, weights, x):
            return torch.full((1, 1, x.shape[2], 1), float(self.width))

    def velocity(speed):
        return Moving(2 + 50 + 64, 1, speed, low=0.0, high=1.0)

    p = params(actor=constant(0.0), flow=constant(0.0), critic=constant(0.0, 0.0), velocity=velocity(1))
    luck = Fixed(next=0.0, next_start=1.0, start=1.0, time=0.5, new=0.0, flow_start=0.0, flow_time=0.5)
    slow = params(velocity=velocity(3))
    assert floq.target(one(), p, slow, luck, steps=4, noises=3).item() == pytest.approx(-1 + 0.5 * 3.1)
    found = floq.losses(one(), torch.full((1, 1), 2.0), p, luck, steps=4, noises=3)
    assert [found[k].item() for k in ("velocity", "critic")] == pytest.approx([3 * 0.81, 2 * 1.21])


# goals ------------------------------------------------------------------------------------------------------------


def aimed_at(replay, steps_ahead, count=1, **more):
    """Luck that draws row 0, and a goal so many steps ahead."""
    left = replay.stored[0]
    u = (steps_ahead - 0.5) / left
    return Fixed(replay=0.0, value_kind=0.5, value_ahead=u, value_row=0.0, actor_kind=0.0, actor_ahead=u, actor_row=0.0,
                 low_kind=0.5, low_ahead=u, low_row=0.0, **more)


@pytest.mark.parametrize("far, k, reward, discount", [(3, 3, 0.9**3, 0), (4, 4, 0.9**4, 0), (6, 4, 0, 0.9**4)])
def test_sharsa_discounts_by_the_steps_it_takes_and_is_there_at_its_goal(far, k, reward, discount):
    replay = chain([8], space=Space(2, 1, goal=1))
    batch = sharsa.sample(replay, 1, aimed_at(replay, far), gamma=0.9, steps=4)
    assert batch.following[0, 0].tolist() == [k, far] and batch.observation[0, 0].tolist() == [0, far]
    assert (batch.reward.item(), batch.discount.item()) == pytest.approx((reward, discount))
    assert batch.others["subgoal"].item() == k and batch.others["low"][0, 0].tolist() == [0, 4]


def test_sharsa_goes_on_from_the_end_of_a_trajectory_without_its_goal():
    """2 of 4 steps are left: γ² V(s_end, g), and no reward; the discount is that of the steps taken."""
    replay = chain([2, 2], space=Space(2, 1, goal=1))
    luck = Fixed(replay=0.0, value_kind=0.9, value_ahead=0.0, value_row=0.99, actor_kind=0.0, actor_ahead=0.0,
                 actor_row=0.0)
    batch = sharsa.sample(replay, 1, luck, gamma=0.9, steps=4)
    assert batch.following[0, 0].tolist() == [2, 12]
    assert (batch.reward.item(), batch.discount.item()) == pytest.approx((0, 0.81))


def test_sharsa_prefers_the_subgoal_that_its_critic_does():
    """Subgoals are the noise; Q is −|w − 0.5|; the action is the subgoal that was chosen."""
    nets = {"high": Given(lambda x: 0 * x[..., :1]), "critic": Given(lambda x: -(x[..., 2:3] - 0.5).abs()),
            "actor": Given(lambda x: x[..., 1:2])}
    noise = torch.tensor([[[-1.0, 0.4, 2.0]]])
    found = sharsa.explore(params(**nets), torch.zeros(1, 1, 2), Fixed(subgoal=noise, flow=0.0), drawn=3, steps=1)
    assert found.item() == pytest.approx(0.4)


@pytest.mark.parametrize("option, value", [(1, -9.561792), (4, -2.970100)])
def test_the_value_of_ota_on_a_chain_counts_options(option, value):
    """d = 10, γ 0.99: −(1 − γ^⌈d/n⌉)/(1 − γ), by backups of what `sample` draws; 0 only at the goal."""
    replay, table = chain([10], space=Space(2, 1, goal=1)), {10: 0.0}
    for at in range(9, -1, -1):
        u = (10 - at - 0.5) / (10 - at)
        luck = Fixed(replay=(at + 0.5) / 10, value_kind=0.5, value_ahead=u, value_row=0.0, low_kind=0.5, low_ahead=u,
                     low_row=0.0, actor_kind=0.5, actor_ahead=u, actor_row=0.0)
        batch = ota.sample(replay, 1, luck, gamma=0.99, option=option, steps=8)
        assert batch.observation[0, 0].tolist() == [at, 10]
        table[at] = batch.reward.item() + batch.discount.item() * table[int(batch.following[0, 0, 0])]
    assert table[0] == pytest.approx(value, abs=1e-5)
    luck = Fixed(replay=0.0, value_kind=0.1, low_kind=0.1, actor_kind=0.5, **{f"{n}_ahead": 0.0 for n in (
        "value", "low", "actor")}, **{f"{n}_row": 0.0 for n in ("value", "low", "actor")})
    batch = ota.sample(replay, 1, luck, gamma=0.99, option=option, steps=8)
    assert (batch.reward.item(), batch.discount.item()) == (0, 0)


def test_sharsa_learns_probabilities_of_logits():
    """r 0.1, γ^k 0.5, V of logit 0: 0.1 + 0.5 · 0.5. V goes to the least of the slow critics."""
    batch = one(2, reward=0.1, subgoal=torch.zeros(1, 1, 1))
    slow = params(critic=constant(math.log(0.2 / 0.8), math.log(0.4 / 0.6)))
    assert sharsa.target(batch, params(value=constant(0.0)), slow, Fixed())[0, 0].tolist() == pytest.approx([0.35, 0.2])


def test_each_level_of_ota_is_weighed_by_its_own_value():
    """V = −d/10 above and −d/5 below; goal 6, options and subgoals of 4; subgoals at 0, an action 0.6 off."""
    def far(by):
        return Given(lambda x: -(x[..., 1:2] - x[..., :1]).abs() / by, 1, 2)

    p = params(critic=far(10), low=far(5), high=constant(0.0), actor=constant(math.atanh(0.6)))
    replay = chain([8], space=Space(2, 1, goal=1))
    batch = ota.sample(replay, 1, aimed_at(replay, 6), gamma=0.99, option=4, steps=4)
    target = ota.target(batch, p, p, Fixed())
    assert target[0, 0, [0, 3]].tolist() == pytest.approx([-1 - 0.99 * 0.2, -1 - 0.99 * 1.0])
    found = ota.losses(batch, target, p, Fixed())
    assert found["high"].item() == pytest.approx(math.exp(3 * 0.4) * 16 / 2, rel=1e-5)
    assert found["actor"].item() == pytest.approx(math.exp(3 * 0.2) * 0.36 / 2, rel=1e-5)


def test_implicit_values_by_hand():
    """V' 1 and 3 ahead, 0 and 4 here; r −1, γ 0.5: y −0.5 and 0.5, A = −1 + 0.5 − 2 < 0: weight 1 − τ for both."""
    def value(x):
        return torch.where(x[..., :1] > 0, torch.tensor([1.0, 3.0])[None, :, None, None],
                           torch.tensor([0.0, 4.0])[None, :, None, None])
    p = params(critic=Given(value, 1, 2))
    here, ahead = torch.zeros(1, 1, 2), torch.ones(1, 1, 2)
    found = backup.implicit(p, "critic", here, torch.full((1, 1), -1.0), ahead, torch.full((1, 1), 0.5))
    assert found.tolist() == [[[-0.5, 0.5, -2.5]]]
    assert backup.implicit_loss(p, "critic", here, found, 0.7).item() == pytest.approx(0.3 * (0.25 + 3.5**2))
    assert backup.gain(p, "critic", ahead, here).item() == 0


def test_saw_is_taught_by_its_near_policy_by_the_gain_of_the_subgoal():
    """μ_w 0.6, μ 0, V = −|g − s|/10, g 6, w 4 ahead, a 0: weights e^{0.3}, e^{1.2}; KL = 0.36/2; none into μ_w."""
    saw_agent = methods.agent("saw")
    near = params(near=Given(lambda x: torch.full_like(x[..., :1], math.atanh(0.6))),
                  actor=Given(lambda x: 0 * x[..., :1]),
                  critic=Given(lambda x: -(x[..., 1:2] - x[..., :1]).abs() / 10, 1, 2))
    replay = chain([8], space=Space(2, 1, goal=1))
    batch = saw_agent.sample(replay, 1, aimed_at(replay, 6), gamma=0.99, steps=4)
    assert batch.others["far subgoal"][0, 0].tolist() == [4, 6] and batch.others["near"][0, 0].tolist() == [0, 4]
    found = saw_agent.losses(batch, saw_agent.target(batch, near, near, Fixed()), near, Fixed())
    assert found["actor"].item() == pytest.approx(math.exp(3 * 0.4) * 0.36 / 2, rel=1e-5)
    assert found["near"].item() == pytest.approx(math.exp(3 * 0.1) * 0.36 / 2, rel=1e-5)
    assert torch.autograd.grad(found["actor"].sum(), near.weights["near"], allow_unused=True, retain_graph=True) == (
        None,)


@pytest.mark.parametrize("name", ["sharsa", "ota", "saw"])
def test_a_method_of_goals_needs_a_task_with_one(name):
    with pytest.raises(UserError, match="no goal: take goalmaze:8"):
        methods.refuse_unfit(methods.agent(name), open_task("maze:8"))


# runs -------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def where(tmp_path_factory):
    """A set for maze:2 in a file."""
    path = tmp_path_factory.mktemp("set") / "m.parquet"
    task = open_task("maze:2")
    data.write(data.make(task, {"navigate": 1.0}, 200, 0), task.space, path)
    return path


def job(seed, path, method="fql", **more):
    given = {"budget": {"updates": 60.0}, "points": (40.0,), "episodes": 2, "data": str(path), **more}
    return ControlJob(f"s{seed}", "maze:2", method, seed, arm=Arm(batch=16, width=16, rate=1e-3), **given)


def left(out: Path):
    last = sorted(out.glob("checkpoints/step-*"))[-1]
    return (out / "metrics.jsonl").read_bytes(), (last / "learner.safetensors").read_bytes()


def test_a_set_is_charged_what_was_played_for_it():
    """64 trajectories of 200 steps are played side by side, of which one is in the set; half of them by a flow, whose
    action is 10 passes of 2 FLOP a multiplication."""
    task, agent = open_task("pendulum"), methods.agent("flowbc", width=16)
    (net,) = agent.networks(task.space, agent).values()
    still = {"actor.weights": torch.zeros(1, net.size)}
    found = data.make(task, {"mine": 0.5, "random": 0.5}, 10, 0, {"mine": ControlPolicy(agent, task, still)})
    assert (found.card["trajectories"], found.card["transitions"]) == (1, 200)
    assert found.card["cost"] == {"env_steps": 64 * 200, "flop": 32 * 200 * 10 * 2 * net.multiplications}
    assert data.make(task, {"random": 1.0}, 10, 0).card["cost"] == {"env_steps": 64 * 200, "flop": 0}


class Died(BaseException):
    """As a kill: nothing handles it."""


def test_an_offline_run_takes_no_samples_and_leaves_the_same_bytes_after_a_kill(where, tmp_path, monkeypatch):
    monkeypatch.setattr("isocost.runs.driver.WORTH_SAVING", float("inf"))
    whole = [tmp_path / "whole" / f"s{s}" for s in (0, 1)]
    ends = run_stack([job(0, where), job(1, where)], whole, save_every=1, save_seconds=0)
    lines, about = read_lines(whole[0] / "metrics.jsonl"), read_json(whole[0] / "run.json")
    assert [(x["updates"], x["env_steps"]) for x in lines if "return" in x] == [(0, 0), (40, 0), (60, 0)]
    train, held_out = ends[0]["bill"]["train"], ends[0]["bill"]["evaluation"]
    assert (train["env_steps"], train["updates"]) == (0, 60) and held_out["env_steps"] > 0
    assert train["train"] == 60 * 16 * 4 and ends[0]["flop"] == 60 * about["update"]["flop"]
    assert about["data"]["hash"] == data.read(where, open_task("maze:2")).card["hash"] and about["data"]["behaviours"]
    assert ends[0]["transitions"]["collected"] == 0 and ends[0]["detail"] == "no further update fits into 60 updates"

    seen, outs = [], [tmp_path / f"s{s}" for s in (0, 1)]

    def dies(name, line):
        seen.append(line)
        if len(seen) == 3:
            raise Died

    with pytest.raises(BaseException) as told:
        run_stack([job(0, where), job(1, where)], outs, save_every=1, save_seconds=0, on_step=dies)
    assert "Died" in repr(told.value)
    for s in (1, 0):
        run_stack([job(s, where)], [outs[s]], save_every=1, save_seconds=0)
    assert [left(o) for o in outs] == [left(o) for o in whole]


def test_an_amount_that_pays_for_the_rest_does_not_stop_an_offline_run(where, tmp_path):
    """The next 20 of 60 updates are expected to cost what 20 of the first 40 did, and not what all of them did."""
    run_stack([job(0, where)], [tmp_path / "a"])
    flop = read_json(tmp_path / "a" / "end.json")["flop"]
    for share, updates in ((59 / 60, 40), (1.0, 60)):
        at = StopAt(share * flop, FLOPS, {"updates": flop / 60})
        end, = run_stack([job(0, where)], [tmp_path / "b"], stop_at=at)
        assert (end["reason"], end["updates"]) == ("stopped", updates)


def test_an_evaluation_of_a_flow_is_charged_ten_passes_a_step(where, tmp_path):
    end, = run_stack([job(0, where, "flowbc", budget={"updates": 2.0}, points=())], [tmp_path / "a"])
    held_out, about = end["bill"]["evaluation"], read_json(tmp_path / "a" / "run.json")
    assert held_out["score"] == 10 * held_out["env_steps"] and about["action"] == {"flop": 0, "score": 0}
    flop = held_out["env_steps"] * about["evaluated"]["flop"]
    assert end["flop_of"] == {"updates": end["flop"], "acting": 0, "evaluation": flop} and flop > 0


def test_a_run_goes_on_with_the_set_that_it_began_with_alone(where, tmp_path):
    run_stack([job(0, where, budget={"updates": 2.0})], [tmp_path / "a"])
    task = open_task("maze:2")
    data.write(data.make(task, {"random": 1.0}, 100, 0), task.space, tmp_path / "other.parquet")
    with pytest.raises(UserError, match="its data differs"):
        run_stack([job(0, tmp_path / "other.parquet", budget={"updates": 2.0})], [tmp_path / "a"])


@pytest.mark.parametrize("method, more, said", [
    ("iql", {"data": None}, "iql learns from a set, without samples: give --offline FILE"),
    ("sac", {}, "sac takes samples of its own, and no set: leave --offline out, or take bpp, calql, fdvl, floq"),
    ("iql", {"budget": {"env-steps": 100.0}}, "takes no environment steps: give a budget such as 20k-updates"),
    ("iql", {"environments": 2}, "takes no environment steps"),
])
def test_what_does_not_go_together(where, tmp_path, method, more, said):
    with pytest.raises(UserError, match=said):
        run_stack([job(0, where, method, **more)], [tmp_path / "a"])
    assert not (tmp_path / "a").exists()


def test_the_command_line_says_what_a_set_is_for(where, tmp_path):
    """A study and a comparison go by samples, and no built-in method learns discrete actions from a set."""
    runs = [tmp_path / "a", tmp_path / "b"]
    for out in runs:
        run_stack([job(0, where, budget={"updates": 2.0}, points=())], [out])
    assert f"by samples. `isocost eval {runs[0]}`" in " ".join(said("compare", *runs, code=2).split())
    refused = said("profile", "--control", "maze:2", "--method", "iql", "--out", tmp_path / "s", code=2)
    assert "isocost collect maze:2" in refused and not (tmp_path / "s").exists()
    train = ("train", "iql", "--control", "maze:2", "--offline", where, "--budget", "2-updates", "--out", runs[0])
    assert "a run on a set counts FLOP, time" in said(*train, "--stop-at", "9-env-steps", code=2)
    discrete = said("collect", "lock:4", "--steps", 9, "--out", tmp_path / "l.parquet")
    assert "no built-in method learns discrete" in discrete
    collect = ("collect", "maze:2", "--steps", 9, "--out", tmp_path / "m.parquet")
    assert "share of random is 0, expected above 0" in said(*collect, "--by", "random=0", "--by", "stitch", code=2)
    assert f"isocost train iql --control maze:2 --offline {tmp_path / 'm.parquet'}" in " ".join(said(*collect).split())


def test_a_policy_of_several_modes_is_evaluated_by_draws_of_each_run_alone():
    """Two runs of flow BC on a bandit: the returns of a run are those it has alone, and its draws differ."""
    task = open_task("bandit")
    rows = data.make(task, {"random": 1.0}, 200, 0).rows

    def returns(seeds):
        agent, runs = methods.agent("flowbc", batch=16, width=16), [StackedRun(s, 1.0, 1e-3) for s in seeds]
        loop = Loop(agent, task, runs, 1, rows)
        loop.advance([20] * len(seeds))
        return loop.evaluate(range(len(seeds)), 6)[0]

    both = returns([0, 1])
    assert (returns([1])[0] == both[1]).all() and len(set(both[0])) > 1
