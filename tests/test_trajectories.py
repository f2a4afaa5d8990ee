"""The simulated schedule of RollArt: dialogues that go on one by one, or in step."""

import json

import numpy as np

import trajectories
from isocost.disk.jsonfile import read_json


def test_two_dialogues_by_hand():
    seconds = np.zeros((1, 3, trajectories.TURNS))
    seconds[0, 0, 0], seconds[0, 1, 1], seconds[0, 2, 2] = 4.0, 3.0, 9.0
    base = trajectories.TURNS * trajectories.DECODE
    assert trajectories.together(seconds[:, :2]).tolist() == [base + 4 + 3], "both wait for either"
    assert trajectories.one_by_one(seconds[:, :2]).tolist() == [base + 4]
    assert trajectories.one_by_one(seconds, 1).tolist() == [base + 4], "the slowest of three is left behind"


def test_a_tail_makes_the_difference_and_equal_latencies_make_none():
    even = np.ones((2, 5, trajectories.TURNS))
    assert (trajectories.together(even) == trajectories.one_by_one(even)).all()
    drawn = trajectories.latencies(2.0, 64, 200)
    assert abs(drawn.mean() - 1) < 0.05 and drawn.min() >= 0.5
    assert (trajectories.together(drawn) / trajectories.one_by_one(drawn)).mean() > 1.3
    assert (trajectories.one_by_one(drawn, 4) <= trajectories.one_by_one(drawn)).all()


def test_the_record_is_what_the_script_measures():
    record = read_json(trajectories.Path(trajectories.__file__).parent / "results" / "trajectories.json")
    assert record["rows"] == json.loads(json.dumps(trajectories.measured()))
