"""Sets of Minari: read into the columns of a set, and written from one, without a download."""

import sys
from types import SimpleNamespace

import numpy as np
import pytest

from isocost.control import data
from isocost.control.minari_sets import columns_of, read_minari, write_minari
from isocost.control.tasks import open_task
from isocost.errors import UserError
from logs_to_import import said
from offline_sets import made


def episode(steps, size, action, ended=False, cut=False):
    """Of rewards 0, 1, .. and observations that count."""
    last = np.arange(steps) == steps - 1
    return SimpleNamespace(observations=np.arange((steps + 1) * size).reshape(-1, size) / 100.0,
                           actions=np.full((steps, 1), action), rewards=np.arange(steps), terminations=last & ended,
                           truncations=last & cut)


def test_episodes_become_columns():
    """Pendulum's torque is within 2. Both flags at once are an end; without one the last step is cut, as is any that is
    truncated."""
    s, a, r, then, end, cut = columns_of("x", open_task("pendulum"), [
        episode(2, 3, 2.0, ended=True, cut=True), episode(3, 3, -1.0, cut=True), episode(1, 3, 0.0)])
    assert a[:, 0].tolist() == [1, 1, -0.5, -0.5, -0.5, 0] and r[:, 0].tolist() == [0, 1, 0, 1, 2, 0]
    np.testing.assert_allclose(s[[0, 1, 2]], [[0, 0.01, 0.02], [0.03, 0.04, 0.05], [0, 0.01, 0.02]])
    np.testing.assert_allclose(then[[1, 2]], [[0.06, 0.07, 0.08], [0.03, 0.04, 0.05]])
    assert end[:, 0].tolist() == [0, 1, 0, 0, 0, 0] and cut[:, 0].tolist() == [0, 0, 0, 0, 1, 1]
    inside = episode(3, 3, 0.0)
    inside.truncations[0] = inside.terminations[1] = inside.truncations[1] = True
    *_, end, cut = columns_of("x", open_task("pendulum"), [inside])
    assert end[:, 0].tolist() == [0, 1, 0] and cut[:, 0].tolist() == [1, 0, 1]


def test_the_number_of_a_discrete_observation_is_one_of_several():
    s, a, *_ = columns_of("x", open_task("lock:4"), [SimpleNamespace(
        observations=np.array([0, 1, 3]), actions=np.array([1, 0]), rewards=np.zeros(2), terminations=np.zeros(2, bool),
        truncations=np.zeros(2, bool))])
    assert s.tolist() == [[1, 0, 0, 0], [0, 1, 0, 0]] and a[:, 0].tolist() == [1, 0]


@pytest.mark.parametrize("wrong, told", [
    (episode(2, 4, 0.0), "3 observations of 4 numbers and actions of 1; pendulum has 3 and 1"),
    (episode(2, 3, 2.5), "an action 1.25 times as far from the middle as the bounds of pendulum"),
])
def test_episodes_of_another_task_are_refused(wrong, told):
    with pytest.raises(UserError, match=told):
        columns_of("x", open_task("pendulum"), [wrong])


def test_without_the_package_one_line_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(UserError, match=r"a set of Minari needs h5py, of the extra \[minari\]: pip install h5py"):
        read_minari(str(tmp_path), open_task("pendulum"))


@pytest.mark.parametrize("spec", ["pendulum", "maze:4", "lock:4"])
def test_a_set_that_is_written_is_read_again_to_the_same_bytes(spec, tmp_path, monkeypatch):
    """By its folder and, where that is among Minari's, by its id; Minari itself reads the same numbers."""
    minari = pytest.importorskip("minari")
    task, own = open_task(spec), made(spec)
    write_minari(own, task, tmp_path / "set-v0")
    found = read_minari(str(tmp_path / "set-v0"), task)
    assert found.rows.numpy().tobytes() == own.rows.numpy().tobytes() and dict(found.card) == dict(own.card)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    assert read_minari("set-v0", task).card["hash"] == own.card["hash"]
    theirs = minari.load_dataset("set-v0")
    assert (theirs.total_steps, theirs.total_episodes) == (own.card["transitions"], own.card["trajectories"])
    _, _, reward, _, end, cut = data.split(task.space, own.rows)
    for name, column in (("rewards", reward), ("terminations", end), ("truncations", cut)):
        assert np.concatenate([getattr(e, name) for e in theirs]).tolist() == column[:, 0].tolist(), name
    with pytest.raises(UserError, match=f"was made on {spec}, not on bandit"):
        read_minari("set-v0", open_task("bandit"))
    with pytest.raises(UserError, match="Minari cannot read other-v0"):
        read_minari("other-v0", task)


def test_it_is_collected_and_learned_from_by_command(tmp_path):
    pytest.importorskip("minari")
    out = tmp_path / "m-v0"
    collect = ("collect", "maze:2", "--steps", 40, "--to", "minari", "--out", out)
    text = " ".join(said(*collect).split())
    assert f"--offline minari:{out}" in text and " ".join(said(*collect).split()) == text
    assert "holds another set" in said(*collect, "--seed", 1, code=2)
    assert "2 updates" in said("train", "iql", "--control", "maze:2", "--offline", f"minari:{out}", "--budget",
                               "2-updates", "--batch", 16, "--width", 16, "--out", tmp_path / "r")
