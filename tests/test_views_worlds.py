"""Views of a dialogue, and the small worlds that agents' methods are tried in: their optimum is known."""

import asyncio
from functools import partial
from itertools import combinations

import numpy as np
import pytest

from isocost import chance
from isocost.envs.opening import open_environment
from isocost.envs.tiny import boxes, desk, needle, pages, rooms
from isocost.errors import UserError
from isocost.local.tokenizer import Characters
from isocost.parts import view
from isocost.parts.boxes import consensus, edges_agree, hit, overlap, parsed, votes
from isocost.steps.settings import setting_with
from isocost.types import FaultSource, Message, Turn
from isocost.worlds.setting import open_problems

SAID = [Message("assistant", c) for c in "abcdef"]
SHOWN = [Message("tool", c) for c in "uvwxyz"]
LOG = [Message("user", "?"), *(m for pair in zip(SAID, SHOWN, strict=True) for m in pair)]


def read(seen, log=LOG, turns=()):
    return "".join(m.content for m in seen(log, turns))


# views ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep", "left"), [(0, "?abcdef"), (2, "?abcdeyfz"), (5, "?abvcwdxeyfz"), (9, "?aubvcwdxeyfz")]
)
def test_exactly_the_last_results_are_kept_and_every_turn_of_the_policy(keep, left):
    assert read(partial(view.last_results, keep=keep)) == left


def test_placeholders_stand_for_earlier_results_and_a_window_and_a_workspace_drop_whole_rounds():
    assert read(partial(view.placeholders, keep=1, words="-")) == "?a-b-c-d-e-fz"
    assert read(partial(view.placeholders, keep=3, words="")) == "?abcdxeyfz"
    assert read(partial(view.window, rounds=2)) == "?eyfz"
    assert read(view.workspace) == "?fz"
    for seen in (view.last_results, view.placeholders, view.window, view.workspace, view.keyframes):
        assert read(seen, LOG[:1]) == "?", "the opening is read by every view"


def test_a_workspace_does_not_grow_and_a_history_does():
    lengths = {name: [len(read(seen, LOG[: 1 + 2 * t])) for t in range(1, 7)]
               for name, seen in (("workspace", view.workspace), ("window", partial(view.window, rounds=2)),
                                  ("all", partial(view.last_results, keep=9)))}
    assert lengths == {"workspace": [3] * 6, "window": [3, 5, 5, 5, 5, 5], "all": [3, 5, 7, 9, 11, 13]}


def test_keyframes_are_rising_edges_the_latest_of_them_and_late_by_the_delay():
    assert view.edges([bool(int(c)) for c in "0011011"]) == [2, 5]
    # states before turns 0..5; "=" in those before 1, 2, 4: edges at 1 and 4, shown by the results u (turn 0) and x (3)
    turns = [Turn(k) for k in ("s", "t=", "t=", "s", "r=", "s")]
    assert read(view.keyframes, turns=turns) == "?uxfz"
    assert read(partial(view.keyframes, most=1), turns=turns) == "?xfz"
    assert read(partial(view.keyframes, delay=3), turns=turns) == "?ufz", "turn 4's frame is 2 turns old"
    assert read(partial(view.keyframes, mark="#"), turns=turns) == "?fz"


def test_what_the_assistant_said_is_read_as_it_was_written():
    text = Characters("?ab-", 4)
    assert text.prompt([Message("user", "?"), Message("assistant", "a"), Message("tool", "b")]) == [0, 1, 4, 2]
    assert text.prompt([Message("user", "?-")]) == [0, 3]


# worlds ---------------------------------------------------------------------------------------------------------------


def rng():
    return chance.generator(0, chance.Purpose.ENVIRONMENT, 1)


def played(spec, problem, said=None, most=20):
    """The answers to these turns, or to an expert's until the episode ends."""
    async def go():
        env, shown, draw = open_environment(spec).make(problem), [], rng()
        await env.open()
        while (said is None and len(shown) < most) or (said is not None and len(shown) < len(said)):
            words = env.expert() if said is None else said[len(shown)]
            shown.append(await env.step(words, lambda: draw))
            if shown[-1].over:
                break
        return shown, env.final()

    return asyncio.run(go())


SPECS = ["pages", "pages:asked=2", "pages:keys=1,copies=1", "desk", "desk:digits=0,fee=0.1", "desk:store=4", "boxes",
         "boxes:size=9,elements=6", "needle", "needle:gold=1,pictures=10", "rooms",
         "signal:clear=1", "event:seen=1,mistaken=0,most=4", "event:asks=what,seen=1,mistaken=0",
         "reach", "reach:places=3,noise=0.1"]


@pytest.mark.parametrize("spec", SPECS)
def test_an_expert_earns_the_optimum_and_problems_are_the_same_each_time(spec):
    opened = open_environment(spec)
    problems = list(opened.problems())
    ids = [p.id for p in problems]
    assert ids == [p.id for p in opened.problems()] and len(set(ids)) == len(ids)
    for p in problems[:40]:
        shown, _ = played(spec, p)
        assert shown[-1].over and not any(s.fault for s in shown)
        assert shown[-1].reward == (0.9 if "fee" in spec else 1.0)
        if spec.startswith("rooms"):
            assert len(shown) == p.meta["level"]
        elif spec in ("pages", "pages:keys=1,copies=1"):
            assert len(shown) == p.meta["level"] + 1, "the moves of the shortest route, and the answer"
    words = {c for p in problems for m in p.prompt for c in m.content}
    assert words <= set(rooms.ALPHABET)
    assert open_problems(setting_with(env=spec, model="tiny", limit=40), whole=True)[0].problems


def test_pages_hold_the_answer_where_they_say_and_what_reading_is_worth_is_concave():
    which = pages.Pages(copies=3)
    for p in list(pages.problems(which))[:60]:
        rooms_with = [r for r, page in enumerate(p.meta["pages"]) if p.meta["subject"] in page]
        assert len(rooms_with) == 3 and p.meta["start"] not in rooms_with
        assert all(page[page.index(p.meta["subject"]) + 1] == p.answer for page in p.meta["pages"]
                   if p.meta["subject"] in page)
    worth = [pages.known(which, r) for r in range(16)]
    some = list(combinations(range(15), 3))         # where the copies are, if the rooms 0..r-1 are read
    assert worth[4] == pytest.approx(np.mean([min(c) < 4 for c in some]))
    assert worth[0] == 0 and worth[-1] == 1 and all(np.diff(worth, 2) <= 1e-12)


def test_pages_drawn_again_are_other_problems_and_the_first_draw_is_the_same():
    once, thrice = (list(pages.problems(pages.Pages(draws=k))) for k in (1, 3))
    known = {p.id: p for p in thrice}
    assert len(known) == len(thrice) == 3 * len(once)
    assert all(known[p.id].meta["pages"] == p.meta["pages"] for p in once)
    again = known[once[0].id + ".2"]
    assert again.meta["pages"] != once[0].meta["pages"] and again.meta["start"] == once[0].meta["start"]
    assert (again.prompt[0].content[:2], again.id[:8]) == (once[0].prompt[0].content[:2], once[0].id[:8])


def test_pages_answer_moves_faults_and_wrong_answers():
    p = next(p for p in pages.problems(pages.Pages()) if p.meta["level"] == 2)
    wrong = str((int(p.answer) + 1) % 10)
    shown, final = played("pages", p, ["?", "12", wrong])
    assert [s.fault.source for s in shown[:2]] == [FaultSource.MODEL] * 2 and shown[0].messages[0].content[0] == "!"
    assert (shown[2].over, shown[2].reward, final) == (True, 0.0, wrong)
    keys = [s.key for s in played("pages", p)[0]]
    assert [("=" in k) for k in keys] == [False, True, True]


def test_desk_pays_for_calls_that_are_right_and_takes_the_fee():
    which = desk.Desk(digits=2, fee=0.25, noise=0.5)
    spec = "desk:fee=0.25"
    p = next(iter(open_environment(spec).problems()))
    a, b = (int(x) for x in p.text[:-1].split())
    assert [s.reward for s in played(spec, p, [f"A{a + b}"])[0]] == [1.0]
    assert [s.reward for s in played(spec, p, [f"C{a} {b}", f"A{a + b}"])[0]] == [0.0, 0.75]
    assert [s.reward for s in played(spec, p, [f"C{a} {b}"] * 5 + [f"A{a + b}"])[0]][-1] == 0.0, "never below 0"
    assert played(spec, p, [f"{a} {b}"])[0][0].fault.source is FaultSource.MODEL
    assert played(spec, p, [f"C{a} {b}"])[0][0].messages[0].content == f"{a + b}:"
    assert desk.worth(which, 2) == 0.5 * 0.75 and desk.worth(which, 3) == 0.5 * 0.75 + 0.25 * 0.5
    found = [s.fault.source for q in list(desk.problems(desk.Desk(noise=0.9)))[:30]
             for s in played("desk:noise=0.9", q, [f"C{q.text[:-1]}"])[0] if s.fault]
    assert set(found) == {FaultSource.TOOL} and len(found) > 20


def test_the_store_wants_a_register_read_before_it_is_written_and_nothing_else_changed():
    p = next(iter(desk.problems(desk.Desk(store=4))))
    a, b = p.meta["copy"]
    held = p.meta["held"][a]
    spec, other = "desk:store=4", next(k for k in range(4) if k not in (a, b))
    assert [s.reward for s in played(spec, p, [f"R{a}", f"R{b}", f"W{b} {held}", "A"])[0]] == [0, 0, 0, 1]
    early = played(spec, p, [f"R{a}", f"W{b} {held}", "A"])[0]
    assert early[1].fault.what == "written before it was read" and early[2].reward == 0
    also = played(spec, p, [f"R{a}", f"R{b}", f"W{b} {held}", f"R{other}", f"W{other} 00", "A"])[0]
    assert also[-1].reward == float(p.meta["held"][other] == "00")


@pytest.mark.parametrize("spec", ["desk:digits=0", "desk:store=4", "desk:store=9,count=300"])
def test_the_demonstrations_of_a_desk_are_what_its_expert_says_and_pay(spec):
    listed = list(desk.problems(desk.Desk.of(spec)))
    for p in listed:
        shown = played(spec, p, p.meta["expert"])[0]
        assert len(shown) == len(p.meta["expert"]) and shown[-1].over and shown[-1].reward == 1
        assert len(played(spec, p)[0]) == len(shown), "the expert itself is as fast"
    same = [p for p in listed if spec != "desk:digits=0" and len({p.meta["held"][i] for i in p.meta["copy"]}) == 1]
    assert all(len(p.meta["expert"]) == 3 for p in same), "nothing is to be written"


def test_a_desk_whose_tools_fail_lists_no_demonstrations():
    assert not any("expert" in p.meta for p in desk.problems(desk.Desk(store=4, noise=0.1)))


def test_boxes_are_hit_by_their_middle_and_measured_by_overlap_and_edges():
    target = (1, 1, 3, 3)
    assert parsed("1133") == target and parsed("3133") is None and parsed("11333") is None and parsed("1a33") is None
    assert hit((0, 0, 4, 4), target) and not hit((3, 3, 5, 5), target) and not hit(None, target)
    assert overlap(target, (2, 2, 4, 4)) == pytest.approx(1 / 7) and overlap(target, (4, 4, 5, 5)) == 0
    assert edges_agree(target, target, 6) == 1
    assert edges_agree((0, 1, 3, 3), target, 6) == pytest.approx(4 / (1 / (5 / 6) + 3))
    for p in list(boxes.problems(boxes.Boxes()))[:50]:
        screen, _, name = p.text.partition(">")
        assert len(screen) == 36 and screen.count(name) == boxes.area(p.meta["box"])


def test_the_vote_of_boxes_is_the_largest_region_of_most_votes():
    grid = votes([(0, 0, 2, 2), (1, 1, 3, 3), (5, 5, 6, 6), None], 6)
    assert grid.sum() == 9 and grid[1, 1] == 2 and consensus(grid) == (1, 1, 2, 2)
    assert consensus(votes([(0, 0, 1, 1), (3, 3, 5, 4)], 6)) == (3, 3, 5, 4) and consensus(votes([None], 6)) is None
    assert consensus(votes([(4, 0, 5, 3)] * 3, 6)) == (4, 0, 5, 3)


def test_needle_finds_by_search_look_and_zoom_and_tells_the_order():
    p = next(iter(needle.problems(needle.Needle())))
    k = p.meta["gold"][0]
    quarter = next(i for i, f in enumerate(p.meta["pictures"][k]) if f[0] == p.meta["asked"])
    shown, final = played("needle", p, [f"S{p.meta['asked']}", f"L{k}", f"Z{k}{quarter}", "Z99", f"A{p.answer}"])
    said = [s.messages[0].content for s in shown]
    assert set(said[0][:-1]) >= {str(g) for g in p.meta["gold"]} and said[0][:-1] == "".join(map(str, p.meta["found"]))
    assert said[1][quarter] == p.meta["asked"] and said[2] == f"{p.meta['asked']}{p.answer}:" and said[3] == "!:"
    assert shown[-1].reward == 1 and final == f"{p.answer} {k}"


@pytest.mark.parametrize(("spec", "why"), [
    ("pages:copies=16", "copies times asked is 1 to 15"), ("pages:asked=3", "asked is 1 or 2"),
    ("pages:draws=0", "draws is 1 to 1000"),
    ("desk:digits=4", "0 to 3"),
    ("desk:store=1", "store is 0 or 2 to 9"), ("boxes:size=10", "size is 3 to 9"),
    ("needle:gold=5", "half of pictures"),
    ("needle:deep=1", "no option 'deep'"),
])
def test_bad_options_are_refused(spec, why):
    with pytest.raises(UserError, match=why):
        open_environment(spec)
