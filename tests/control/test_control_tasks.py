"""The tasks of control, by numbers that are worked from their equations."""

import json
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from isocost.control.loop import Loop, StackedRun
from isocost.control.methods import agent, refuse_unfit, tuned
from isocost.control.tasks import names, open_task, random_return
from isocost.control.tasks.family import BEST
from isocost.control.types import Space
from isocost.errors import RewardFailed, UserError

PAID = ("quad2d", "lane", "rooms")      # rewards are not negative
EMBEDDED = (*PAID, "pendulum", "swingup", "maze:8", "lock:8", "bandit", "reach", "family:4", "held:3", "distracted:2")


def played(task, actions, state=None, seed=0):
    """States, rewards and ends of one episode under these actions."""
    state = task.begin(np.random.default_rng(seed), ("test", 0, 0)) if state is None else np.asarray(state, float)
    out = []
    for action in actions:
        state, reward, ended = (x[0] for x in task.step(state[None], np.atleast_1d(action)[None].astype(float)))
        out.append((state, float(reward), bool(ended)))
        if ended:
            break
    return out


def test_pendulum_at_rest_at_the_bottom_and_one_step_by_hand():
    task = open_task("pendulum")
    assert sum(r for _, r, _ in played(task, [0.0] * 200, [np.pi, 0])) == pytest.approx(-200 * np.pi**2, abs=1e-9)
    ((state, reward, ended),) = played(task, [1.0], [0.1, 0.2])
    assert reward == pytest.approx(-0.015) and not ended
    assert state == pytest.approx([0.1 + 0.05 * 0.424875, 0.424875], abs=1e-6)


def test_pendulum_equals_gymnasiums():
    gymnasium = pytest.importorskip("gymnasium")
    theirs, ours = gymnasium.make("Pendulum-v1").unwrapped, open_task("pendulum")
    theirs.reset(seed=3)
    state, rng = np.array(theirs.state), np.random.default_rng(0)
    for action in rng.uniform(-2.5, 2.5, 1000):
        (next_state, reward, _), = played(ours, [action], state)
        seen, expected, *_ = theirs.step(np.array([action]))
        assert reward == pytest.approx(expected, abs=1e-6)
        assert ours.observe(next_state[None])[0] == pytest.approx(seen, abs=1e-5)
        state = next_state


def test_a_pole_that_hangs_stays_and_the_rail_ends():
    task = open_task("swingup")
    (state, reward, ended), = played(task, [0.0], [0, 0, np.pi, 0])
    assert state == pytest.approx([0, 0, np.pi, 0], abs=1e-12) and reward == pytest.approx(0, abs=1e-12) and not ended
    assert played(task, [0.0], [0, 0, 0, 0])[0][1] == 1.0       # upright in the middle
    path = played(task, [10.0] * 250, [0, 0, np.pi, 0])
    assert path[-1][2] and path[-1][0][0] > 2.4 and len(path) < 60
    ((pushed, *_),) = played(task, [1.0], [0, 0, 0, 0])
    bend = -(1 / 1.1) / (0.5 * (4 / 3 - 0.1 / 1.1))     # by hand: the pole falls against the push
    assert pushed[3] == pytest.approx(0.02 * bend) and pushed[1] == pytest.approx(0.02 * (1 - 0.05 * bend) / 1.1)


@pytest.mark.parametrize(("cells", "steps"), [(2, 1), (4, 5), (5, 5), (8, 10), (9, 10)])
def test_the_shortest_path_of_a_maze_by_hand_and_no_wall_is_crossed(cells, steps):
    """Half a cell a step from x = 0.5: x = 3 after 5 steps, where the second row begins, and x = 0.5 after 5 more."""
    task = open_task(f"maze:{cells}")
    assert task.reference == -steps
    path = played(task, np.random.default_rng(0).uniform(-1, 1, (400, 2)))
    cell = [(int(y), int(x)) for (x, y), *_ in path]
    rows = [(a, b) for a, b in pairwise(cell) if a[0] != b[0]]
    assert all({a[1], b[1]} <= {3, 2} or {a[1], b[1]} <= {0, 1} for a, b in rows)   # around a corner, at its ends
    assert all(r == -1 for _, r, _ in path) and max(y * 4 for y, _ in cell) < cells + 4
    up, = played(task, [[0.0, 1.0]], [0.5, 0.9])
    assert 0.9 < up[0][1] < 1


def test_the_lock_opens_by_its_actions_alone_and_backups_carry_the_reward_as_far_as_their_steps():
    """V(s0) = 0.99^15 = 0.860058 after 16 sweeps of one step and not before; after 4 sweeps of four."""
    task = open_task("lock:16")
    code = [int(task.right(np.array([s]))[0]) for s in range(16)]
    path = played(task, code)
    assert [r for _, r, _ in path] == [0.0] * 15 + [1.0] and path[-1][2]
    assert played(task, [1 - code[0]])[0][0] == 0
    assert played(task, [*code[:3], 1 - code[3]])[-1][0] == 0

    def swept(sweeps, n):
        """Synchronous backups of n steps along the right actions."""
        value = np.zeros(16)
        for _ in range(sweeps):
            after = value.copy()
            for s in range(16):
                steps = played(task, [code[k] for k in range(s, min(s + n, 16))], [s])
                total = sum(0.99**k * r for k, (_, r, _) in enumerate(steps))
                last = 0.0 if steps[-1][2] else 0.99 ** len(steps) * value[int(steps[-1][0][0])]
                after[s] = max(total + last, after[s])
            value = after
        return value[0]

    assert swept(15, 1) == 0 and swept(16, 1) == pytest.approx(0.99**15) == pytest.approx(0.860058, abs=1e-6)
    assert swept(3, 4) == 0 and swept(4, 4) == pytest.approx(0.99**15)


def test_the_bandits_higher_peak_is_its_reference():
    task = open_task("bandit")
    value = task.value(np.array([[0.5, 0.5], [-0.5, -0.5], [0, 0]]))
    assert value == pytest.approx([1, 0.8, 0.8 * np.exp(-1)]) and task.reference == 1
    assert played(task, [[0.5, 0.5]])[0][1:] == (1.0, True)
    grid = np.stack(np.meshgrid(*[np.linspace(-1, 1, 201)] * 2), -1).reshape(-1, 2)
    assert random_return("bandit", 4096) == pytest.approx(task.value(grid).mean(), abs=0.02)


def test_held_shows_the_state_of_the_last_decision_and_plays_the_pendulum():
    """Three steps: the decision's state stays for three, and the fourth step begins with another."""
    task, inner, actions = open_task("held:3"), open_task("pendulum"), [1.0, -0.5, 2.0, 0.3]
    seen, plain = played(task, actions, [0.1, 0.2, 0.1, 0.2, 0]), played(inner, actions, [0.1, 0.2])
    assert [(r, e) for _, r, e in seen] == [(r, e) for _, r, e in plain]
    assert all((s[:2] == p[0]).all() for (s, *_), p in zip(seen, plain, strict=True))
    assert [tuple(s[2:]) for s, *_ in seen] == [(0.1, 0.2, 1), (0.1, 0.2, 2), (*plain[2][0], 0), (*plain[2][0], 1)]
    shown = task.observe(seen[3][0][None])[0]
    assert (shown[3:6] == inner.observe(plain[2][0][None])[0]).all() and shown[6:].tolist() == [0, 1, 0]


def test_what_distracts_changes_neither_reward_nor_pendulum():
    task, inner = open_task("distracted:2"), open_task("pendulum")
    seen, plain = played(task, [1.0, 2.0], [0.1, 0.2, 0.5, 0.0]), played(inner, [1.0, 2.0], [0.1, 0.2])
    assert [r for _, r, _ in seen] == [r for _, r, _ in plain] and (seen[1][0][:2] == plain[1][0]).all()
    assert [s[2:].tolist() for s, *_ in seen] == [[0.5, 1.0], [0.5, -1.0]]
    assert task.observe(seen[1][0][None])[0, 3:].tolist() == [2.0, -4.0]


@pytest.mark.parametrize("spec", EMBEDDED)
def test_a_row_of_a_task_is_the_same_alone_and_among_others(spec):
    task, rng = open_task(spec), np.random.default_rng(1)
    low, high = (0, task.space.choices - 1) if task.space.discrete else task.bounds
    states = np.stack([task.begin(rng, ("test", 0, i)) for i in range(37)])
    for _ in range(min(task.limit, 20)):
        actions = np.round(rng.uniform(low, high, (37, task.space.actions))) if task.space.discrete else \
            rng.uniform(low, high, (37, task.space.actions))
        many = task.step(states, actions)
        assert task.observe(states).shape == (37, task.space.observation)
        for i in (0, 17, 36):
            one = task.step(states[i : i + 1], actions[i : i + 1])
            assert all((a[i] == b[0]).all() for a, b in zip(many, one, strict=True))
            assert (task.observe(states)[i] == task.observe(states[i : i + 1])[0]).all()
        states = many[0]


@pytest.mark.parametrize("spec", EMBEDDED)
def test_random_actions_return_less_than_the_reference(spec):
    random, reference = random_return(spec), open_task(spec).reference
    assert random < reference and spec.partition(":")[0] in names()
    assert spec not in PAID or 0 <= random < 0.5 * reference


def test_an_episode_that_the_limit_cuts_goes_on_for_the_learner_and_a_terminal_state_does_not():
    """r = −1, γ 0.99, Q' = −10: the target is −10.9 if cut, −1 if terminal."""
    made = tuned(agent("sac", batch=16, width=16), {"tempo.warmup": "400"})
    for spec, ends in (("pendulum", 0), ("bandit", 400)):
        loop = Loop(made, open_task(spec), [StackedRun(0, 1.0, 1e-3)], 400)
        loop.advance([400])
        *_, ended, cut = loop.replay.split(loop.replay.rows[0])
        assert (ended.sum(), cut.sum()) == (ends, 2 if spec == "pendulum" else 0)
        discount = 0.99 * (1 - ended)
        target = -1 + discount * -10
        assert target.unique().tolist() == pytest.approx([-10.9] if spec == "pendulum" else [-1.0])


@pytest.mark.parametrize(("spec", "said"), [
    ("pendulm", "did you mean pendulum"), ("maze:x", "integer above 1 after the colon, got 'x'; write maze:8"),
    ("lock:1", "integer above 1"), ("xyz", "tasks are bandit, distracted, family, goalmaze, gym, held"),
])
def test_a_task_that_does_not_exist(spec, said):
    with pytest.raises(UserError, match=said):
        open_task(spec)


@pytest.mark.parametrize(("method", "spec", "said"), [
    ("sac", "lock:4", "sac is for continuous actions, and lock:4 has discrete ones: take dqn"),
    ("dqn", "pendulum", "dqn is for discrete actions, and pendulum has continuous ones: take .*sac"),
])
def test_a_method_that_does_not_fit_the_actions(method, spec, said):
    with pytest.raises(UserError, match=said):
        refuse_unfit(agent(method), open_task(spec))


def test_a_reward_that_is_not_finite_is_the_environments_failure():
    class Broken(type(open_task("pendulum"))):
        def step(self, state, action):
            after, reward, ended = super().step(state, action)
            return after, np.where(state[:, 1] > 0, np.inf, reward), ended

    run = StackedRun(0, 1.0, 1e-3)
    loop = Loop(agent("sac", batch=16, width=16), Broken(), [run], 100)
    assert loop.advance([100]) == [0] and isinstance(run.failure, RewardFailed)
    assert "not finite (sample" in str(run.failure) and "environment failed" in str(run.failure)


class TestGymnasium:
    gymnasium = pytest.importorskip("gymnasium")

    def test_spaces_limits_and_the_scale(self):
        task = open_task("gym:Pendulum-v1@-150")
        assert (task.space, task.limit, task.reference) == (Space(3, 1), 200, -150.0)
        assert [x.tolist() for x in task.bounds] == [[-2.0], [2.0]]
        assert open_task("gym:CartPole-v1").space == Space(4, 1, 2) and open_task("gym:CartPole-v1").reference == 475

    @pytest.mark.parametrize(("spec", "said"), [
        ("gym:Pendulum-v1", "states no return at which it is solved.*write gym:Pendulum-v1@RETURN"),
        ("gym:Pendulm-v1@-1", "did you mean Pendulum-v1"), ("gym:Pendulum-v1@x", "'x', expected a number"),
        ("gym:", "names no environment"),
        ("gym:dm_control/cheetah-run-v0@1000", "dm_control is not supported. .*flex_vertedge"),
    ])
    def test_ids_that_cannot_be_used(self, spec, said):
        with pytest.raises(UserError, match=said):
            open_task(spec)

    def test_halfcheetah_repeats_itself_after_a_reset(self):
        pytest.importorskip("mujoco")
        task = open_task("gym:HalfCheetah-v5")
        assert (task.space, task.limit, task.reference) == (Space(17, 6), 1000, 4800.0)
        self.repeats(task)

    def test_ogbench_opens_without_a_download(self):
        if find_spec("ogbench") is None:
            with pytest.raises(UserError, match="ids of ogbench need `pip install ogbench`"):
                open_task("gym:pointmaze-medium-v0@1")
            pytest.skip("ogbench is not installed")
        task = open_task("gym:pointmaze-medium-v0@1")
        assert (task.space, task.limit) == (Space(2, 2), 1000)
        self.repeats(task)

    def repeats(self, task):
        found = []
        for slot in (0, 1):
            state = task.begin(np.random.default_rng(3), ("train", slot, 0))
            for k in range(5):
                state, reward, _ = task.step(state[None], np.full((1, task.space.actions), 0.1 * k))
                state = state[0]
            found.append((state[1:], reward))
        assert (found[0][0] == found[1][0]).all() and found[0][1] == found[1][1]

    def test_spaces_that_cannot_be_used(self):
        gym = self.gymnasium

        def named(name, observation, action, steps=10):
            class Env(gym.Env):
                observation_space, action_space, resets = observation, action, 0

                def reset(self, *, seed=None, options=None):
                    self.resets += 1
                    return np.array([self.resets, 0.0]), {}

            if name not in gym.registry:
                gym.register(id=name, entry_point=lambda **k: Env(), max_episode_steps=steps, reward_threshold=1.0)
            return f"gym:{name}"

        box, inf = gym.spaces.Box(-1, 1, (2,)), gym.spaces.Box(-np.inf, np.inf, (2,))
        pixels = gym.spaces.Box(0, 255, (8, 8, 3), np.uint8)
        for spec, said in (
            (named("Dict-v0", gym.spaces.Dict({"a": box}), box), "observations of kind Dict: boxes of numbers"),
            (named("Wide-v0", box, inf), "actions without bounds"),
            (named("Pixels-v0", pixels, box), r"pixels of shape \(8, 8, 3\)"),
            (named("Endless-v0", box, box, None), "no time limit"),
            (named("Drifts-v0", box, box), "begins elsewhere after a second reset with the same seed"),
        ):
            with pytest.raises(UserError, match=said):
                open_task(spec)

    def test_a_live_episode_is_reached_again_by_its_actions(self):
        """Saved in the middle of the second episode, and loaded into another stack."""
        made = tuned(agent("sac", batch=16, width=16), {"tempo.warmup": "230"})

        def loop():
            return Loop(made, open_task("gym:Pendulum-v1@-150"), [StackedRun(4, 1.0, 1e-3)], 300)

        whole, first, second = loop(), loop(), loop()
        whole.advance([250])
        first.advance([240])
        second.load(0, *first.save(0))
        assert (second.states[0, :, 1:] == first.states[0, :, 1:]).all()
        second.advance([250])
        assert (second.replay.rows == whole.replay.rows).all()
        assert all((second.weights[k] == whole.weights[k]).all() for k in whole.weights)


def test_the_reference_of_pendulum_is_that_of_its_record():
    """Of value iteration, as those of the lengths of a family; random actions are measured again, on the episodes of
    the record."""
    record = json.loads((Path(__file__).parents[2] / "experiments/results/control_references.json").read_text())
    assert open_task("pendulum").reference == record["return"] > record["value_at_the_starts"] - 3
    assert record["family_by_length"] == {str(k): v for k, v in BEST.items()}
    assert {k: random_return(k) for k in record["random"]} == pytest.approx(record["random"], abs=1e-3)
