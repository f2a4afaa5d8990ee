"""Quad2d, lane and rooms, by numbers that are worked from their equations; and BPP's key frames."""

import numpy as np
import pytest
import torch
from test_control_tasks import played

from isocost.control import methods
from isocost.control.data import make
from isocost.control.loop import Loop, StackedRun
from isocost.control.methods import bpp
from isocost.control.tasks import open_task
from isocost.control.tasks.rooms import FRAMES, ROOMS
from isocost.control.teachers import Lessons, uniform
from isocost.errors import UserError


class TestQuad2d:
    def test_at_rest_it_stays_and_each_step_pays_1(self):
        task = open_task("quad2d")
        path = played(task, [[9.81 / 2] * 2] * 125, [0.0] * 6 + [9.81 / 2] * 2)
        assert sum(r for _, r, _ in path) == pytest.approx(task.reference) and not path[-1][2]
        assert path[-1][0] == pytest.approx([0.0] * 6 + [9.81 / 2] * 2)

    def test_one_step_by_hand(self):
        """Thrusts are 4 and 5, commanded 8 and 1, so they become 5 and 4. The tilt is 0.3 rad, the climb 1 m/s."""
        ((state, reward, ended),) = played(open_task("quad2d"), [[8.0, 1.0]], [0.5, -0.5, 0.3, 0, 1, 0.2, 4, 5])
        dx, dz, turn = -0.04 * 9 * np.sin(0.3), 1 + 0.04 * (9 * np.cos(0.3) - 9.81), 0.2 - 0.04 * 5
        by_hand = [0.5 + 0.04 * dx, -0.5 + 0.04 * dz, 0.3 + 0.04 * turn, dx, dz, turn, 5, 4]
        assert state == pytest.approx(by_hand) and not ended
        x, z, tilt = by_hand[:3]
        assert reward == pytest.approx(1 - (x**2 + z**2 + tilt**2) / 4 - (dx**2 + dz**2) / 40 - turn**2 / 100)

    def test_without_thrust_it_falls_and_crashes_and_what_is_below_0_pays_nothing(self):
        path = played(open_task("quad2d"), [[0.0, 0.0]] * 125, [0.0] * 8)
        assert path[-1][2] and path[-1][0][1] < -3
        assert len(path) == next(n for n in range(99) if 0.04**2 * 9.81 * n * (n + 1) / 2 > 3)      # 19
        assert min(r for _, r, _ in path) == 0

    def test_a_context_is_how_far_from_rest_a_start_is(self):
        past, rng = Lessons(uniform.choose, open_task("quad2d"), 0), np.random.default_rng(0)
        assert past.of(np.array([0.0]), rng).state.tolist() == [0.0] * 6 + [9.81 / 2] * 2
        half = np.stack([past.of(np.array([0.5]), rng).state for _ in range(200)])
        assert 0.7 < np.abs(half[:, 0]).max() <= 0.75


class TestLane:
    def test_a_route_without_a_penalty_returns_1_and_by_factors_less(self):
        """At 10 m/s, 40 steps of 2.5 m. The other car stands where it is passed by a lane to the left."""
        task = open_task("lane")
        path = played(task, [[0.0, 0.0]] * 100, [0, 0, 0, 10, 1e6])
        assert len(path) == 40 and path[-1][2] and sum(r for _, r, _ in path) == pytest.approx(1)
        outside = played(task, [[0.0, 0.0]] * 100, [0, 1.5, 0, 10, 1e6])
        assert sum(r for _, r, _ in outside) == pytest.approx(0.5)
        fast = played(task, [[0.0, 0.0]] * 100, [0, 0, 0, 12.5, 1e6])
        assert sum(r for _, r, _ in fast) == pytest.approx(0.8)
        ((_, both, _),) = played(task, [[0.0, 1.0]], [0, -1.5, 0, 10, 1e6])       # 11.25 m/s, 5 m/s², outside
        assert both == pytest.approx(0.25 * 11.25 / 100 * 0.5 * 0.8 * 10 / 11.25)

    def test_a_collision_and_the_edge_of_the_road_end_the_episode_and_keep_what_was_gained(self):
        task = open_task("lane")
        hit = played(task, [[0.0, 0.0]] * 100, [0, 0, 0, 10, 50])
        assert hit[-1][2] and hit[-1][0][0] == 47.5 and sum(r for _, r, _ in hit) == pytest.approx(0.475)
        passed = played(task, [[0.0, 0.0]] * 100, [0, 1.5, 0, 10, 50])
        assert passed[-1][0][0] == 100
        off = played(task, [[1.0, 0.0]] * 100, [0, 3.9, 0.5, 10, 50])
        assert off[0][2] and off[0][0][1] == pytest.approx(3.9 + 2.5 * np.sin(0.625))

    def test_a_context_is_where_the_other_car_stands(self):
        past, rng = Lessons(uniform.choose, open_task("lane"), 0), np.random.default_rng(0)
        assert [past.of(np.array([c]), rng).state[4] for c in (0, 0.5, 1)] == [30, 55, 80]


class TestRooms:
    def test_an_observation_is_the_frames_so_far_the_newest_last(self):
        task = open_task("rooms")
        state = np.concatenate(([0.0, 0.0, 2.0], np.zeros(4 * FRAMES - 4)))
        path = played(task, [[1.0, 1.0]] * 4 + [[-1.0, -1.0]] * 2, state)
        frames = task.observe(path[-1][0][None])[0].reshape(FRAMES, 4)
        along = [0, 0.25, 0.5, 0.75, 1.0, 0.75, 0.5]
        assert frames[-7:].tolist() == [[1, x, x, x == 0.75] for x in along]
        assert not frames[:-7].any() and sum(r for _, r, _ in path) == 0

    def test_the_right_room_ends_the_episode_and_pays_1(self):
        task = open_task("rooms")
        for room in range(4):
            state = np.concatenate(([0.0, 0.0, room], np.zeros(4 * FRAMES - 4)))
            path = played(task, [ROOMS[room] / 0.8] * 9, state)
            assert [r for _, r, _ in path] == [0, 0, 1] and path[-1][2]

    def test_who_navigates_finds_it_and_sees_no_room_twice(self):
        task = open_task("rooms")
        rows = make(task, {"navigate": 1.0}, 600, 0).rows.numpy()
        ends = np.flatnonzero(rows[:, -2])
        assert len(ends) > 20
        for end in ends:
            frames = torch.from_numpy(rows[end, : 4 * FRAMES].reshape(FRAMES, 4))
            rises = (frames[1:, 3] > 0) & (frames[:-1, 3] == 0)
            seen = frames[1:][rises][:, 1:3].sign().unique(dim=0)
            assert len(seen) == rises.sum() <= 3


class TestBpp:
    def test_key_frames_are_rising_edges_and_those_that_are_too_new_are_hidden(self):
        """0011011 rises at 2 and 5."""
        frames = torch.stack((torch.arange(7.0), torch.tensor([0.0, 0, 1, 1, 0, 1, 1])), -1)

        def read(kept, delay=0):
            return bpp.read(frames, kept, delay).unflatten(-1, (-1, 2))[:, 0].tolist()

        assert read("keys") == [0, 0, 2, 5, 6] and read("keys", 1) == [0, 0, 2, 5, 6]
        assert read("keys", 2) == [0, 0, 0, 2, 6] and read("keys", 5) == read("keys", 9) == [0, 0, 0, 0, 6]
        assert read("last") == [6] and read("whole") == [0, 1, 2, 3, 4, 5, 6]

    def test_the_newest_four_are_kept_and_frames_before_the_first_change_nothing(self):
        at = torch.arange(16.0)
        frames = torch.stack((at, at % 2), -1)
        assert bpp.read(frames, "keys", 0).unflatten(-1, (-1, 2))[:, 0].tolist() == [9, 11, 13, 15, 15]
        longer = torch.cat((torch.zeros(5, 2), frames[1:4]))
        assert (bpp.read(longer, "keys", 0) == bpp.read(frames[1:4], "keys", 0)).all()

    def test_sizes_and_what_is_refused(self):
        space, made = open_task("rooms").space, methods.agent("bpp", width=16)
        inputs = {kept: bpp.networks(space, made, kept=kept)["actor"].inputs for kept in ("keys", "whole", "last")}
        assert inputs == {"keys": 23, "whole": 163, "last": 7}
        with pytest.raises(UserError, match="kept is 'all': expected keys, whole, last"):
            bpp.networks(space, made, kept="all")
        with pytest.raises(UserError, match="not frames: take rooms"):
            methods.refuse_unfit(made, open_task("reach"))

    @pytest.mark.slow
    def test_with_key_frames_cloning_remembers_and_with_the_last_frame_it_does_not(self):
        task = open_task("rooms")
        rows, found = make(task, {"navigate": 1.0}, 3000, 0).rows, {}
        for kept in ("keys", "last"):
            made = methods.tuned(methods.agent("bpp", batch=32, width=32), {"networks.kept": kept})
            loop = Loop(made, task, [StackedRun(0, 1.0, 6e-3)], 1, rows)
            loop.advance([500])
            found[kept] = loop.evaluate([0], 64)[0].mean()
        assert found["keys"] > found["last"] + 0.25
