"""The simulated cluster is counted by hand where that can be done, and its page is written from its records."""

import numpy as np
import pytest

pytestmark = pytest.mark.usefixtures("experiments")


@pytest.fixture
def experiments(monkeypatch):
    from pathlib import Path

    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "experiments")


def simulated(work, speed, **changes):
    import ray_scale

    terms = {"mtbf": float("inf"), "every": float("inf"), "checkpoint": 0.0, "start": 0.0,
             "rng": np.random.default_rng(0), **changes}
    return ray_scale.simulated(work, speed, **terms)


class Deaths:
    """Draws these times to a worker's death, then none."""

    def __init__(self, *times):
        self.times = list(times)

    def exponential(self, mean):
        return self.times.pop(0) if self.times else float("inf")

    def permutation(self, count):
        return range(count)


def test_without_failures_it_is_a_list_schedule():
    found = simulated([4.0, 3.0, 2.0, 1.0], [1.0, 1.0])
    assert found == {"makespan": 5.0, "useful": 10.0, "lost": 0.0, "starts": 0.0, "checkpoints": 0.0}


def test_starts_and_checkpoints_are_counted():
    """A run of 10 s that saves every 4 s saves at 4 and 8, not at its end."""
    found = simulated([10.0] * 4, [1.0, 1.0], every=4.0, checkpoint=1.0, start=2.0)
    assert found == {"makespan": 28.0, "useful": 40.0, "lost": 0.0, "starts": 8.0, "checkpoints": 8.0}


def test_a_slow_worker_takes_longer():
    assert simulated([6.0], [0.25])["makespan"] == 24.0


def test_a_death_loses_what_came_after_the_last_checkpoint():
    """It dies 11 s in: 2 s of start, 4 s and a checkpoint twice over 10 s would end at 12; one checkpoint was saved."""
    import ray_scale

    found = simulated([10.0], [1.0], every=4.0, checkpoint=1.0, start=2.0, rng=Deaths(11.0))
    kept, again = 4.0, ray_scale.REPLACED      # the only worker is replaced later than the death is noticed
    assert found["lost"] == 11.0 - 2.0 - 5.0 and found["starts"] == 4.0
    assert found["useful"] == 10.0 and found["checkpoints"] == 2.0
    assert found["makespan"] == 11.0 + again + 2.0 + (10.0 - kept) + 1.0


def test_without_checkpoints_all_is_lost():
    found = simulated([10.0], [1.0], rng=Deaths(9.0))
    assert found["lost"] == 9.0 and found["useful"] == 10.0


def test_the_lower_bound_is_the_work_or_the_longest_run():
    import ray_scale

    assert ray_scale.lower_bound(np.array([4.0, 4.0]), np.array([1.0, 0.5])) == pytest.approx(8 / 1.5)
    assert ray_scale.lower_bound(np.array([9.0, 1.0]), np.array([1.0, 0.5])) == 9.0
