"""Problems from files: every row is used or named, and the reason names what is wrong."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from isocost.errors import UserError
from isocost.tasks import load_problems
from isocost.tasks.load import SHOWN, Reads

EXAMPLES = Path(__file__).parent.parent / "examples"

BROKEN = {   # line -> what the reason must say
    13: "not JSON", 27: "not a list", 41: "no prompt", 58: "is empty", 74: "no answer", 92: "text or a number",
    111: "not UTF-8", 130: "message 1", 163: "the prompt of line 5 again", 190: "cannot mark its own answer",
}


def write(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join((r if isinstance(r, str) else json.dumps(r)) + "\n" for r in rows), encoding="utf-8")
    return str(path)


def test_the_example_loads_whole():
    loaded = load_problems(str(EXAMPLES / "mine.jsonl"))
    assert len(loaded) == 200 and loaded.verifier == "numeric" and loaded.report.lines() == []


def test_each_broken_row_of_the_example_is_named_by_line_and_reason():
    with pytest.raises(UserError) as error:
        load_problems(str(EXAMPLES / "broken.jsonl"))
    for line, why in BROKEN.items():
        assert any(f"line {line}:" in x and why in x for x in str(error.value).splitlines()), (line, why)


def test_broken_rows_can_be_left_out_but_not_in_silence():
    loaded = load_problems(str(EXAMPLES / "broken.jsonl"), skip_broken=True)
    assert len(loaded) == 190
    assert [b.where for b in loaded.report.broken] == [f"line {i}" for i in BROKEN]
    good = {p.id: p for p in load_problems(str(EXAMPLES / "mine.jsonl")).problems}
    assert all(good[p.id] == p for p in loaded.problems)


def said(*turns):
    """A row of messages, (role, content) each, with the answer 1."""
    return {"prompt": [{"role": role, "content": content} for role, content in turns], "answer": "1"}


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ('{"prompt": "a", "answer": NaN}', "NaN"),
        ({"prompt": 3, "answer": "1"}, "text or a list of messages"),
        ({"prompt": [], "answer": "1"}, "no message of the user"),
        ({"prompt": [{"role": "robot", "content": "hi"}], "answer": "1"}, "'robot'"),
        ({"prompt": "a", "answer": ""}, "'answer' is empty"),
        ({"prompt": "a", "answer": True}, "true or false"),
        ({"prompt": "a", "answer": "1", "level": [1]}, "'level'"),
        ({"prompt": "a", "answer": "1", "level": 10**400}, "'level' must be a finite number"),
        ({"prompt": "a", "answer": "1", "id": {}}, "'id'"),
        ({"prompt": "a", "answer": "1", "system": 3}, "'system'"),
        ({"prompt": "a", "answer": "1", "solution": 3}, "'solution'"),
        ("3", "not a number"),
        ("null", "not null"),
        ("[" * 100_000, "nested too deeply"),
        ({"promt": "a", "answer": "1"}, "the row has 'promt': did you mean 'prompt'?"),
        ({"Question": "a", "answer": "1"}, "the row has 'Question': did you mean 'question'?"),
        ({"prompt": "a", "anwser": "1"}, "the row has 'anwser': did you mean 'answer'?"),
        ({"prompt": "a", "answer": None}, "or 'solution'; its 'answer' has no value"),
        ({"prompt": "a", "answer": "1", "images": [{"bytes": None, "path": "0.png"}]}, "the column 'images' holds"),
        ({"prompt": "a", "answer": "1", "picture": {"bytes": "iVBOR", "path": None}}, "the column 'picture' holds"),
        ({"prompt": "a", "answer": "1", "image_url": "http://a/0.png"}, "the column 'image_url' holds"),
        ({"prompt": "<image>How many?", "answer": "1"}, "the placeholder '<image>'"),
        (said(("user", [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "x"}}])),
         "message 1 of 'prompt' has a part of type 'image_url'; models here read text only"),
        (said(("user", [{"type": "image"}])), "a part of type 'image'"),
        (said(("user", [])), "message 1 of 'prompt' is not"),
        (said(("user", "a"), ("assistant", "<think>\n")), "leaves <think> open: completions that are begun"),
        (said(("user", "a"), ("assistant", "Let me think step by step.")), "lacks the answer '1'"),
        (said(("user", "a"), ("assistant", "Of 1 and 2, the answer is:")), "is unfinished"),
        ({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>"}]}, "<think> open"),
        ({"prompt": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "1", "prefix": True}],
          "answer": "1"}, "message 2 of 'prompt' begins the completion"),
    ],
)
def test_what_is_wrong_is_said(tmp_path, row, why):
    with pytest.raises(UserError, match="line 2: ") as error:
        load_problems(write(tmp_path, {"prompt": "fine", "answer": "1"}, row))
    assert why in str(error.value)


def test_parts_that_are_all_text_are_joined_and_a_written_solution_stays_one(tmp_path):
    rows = [
        said(("user", [{"type": "text", "text": "10"}, {"type": "text", "text": "+3="}])),
        said(("user", ["b", "c"]), ("assistant", "b is 1.\n")),
        said(("user", "d"), ("assistant", r"So $\\boxed{1.0}$")),
        {**said(("user", "e")), "images": [], "image": None, "imagery": "a simile"},
    ]
    loaded = load_problems(write(tmp_path, *rows), "words")
    assert [p.prompt[0].content for p in loaded.problems] == ["10+3=", "bc", "d", "e"]
    assert [p.meta.get("solution") for p in loaded.problems] == [None, "b is 1.\n", r"So $\\boxed{1.0}$", None]


@pytest.mark.parametrize(
    ("name", "way"),
    [("openai/gsm8k", r"load_dataset\('openai/gsm8k', split='train'\)\.to_json\('gsm8k\.jsonl'\)\", then --data gsm8k"),
     ("rows.json", r"python -c .*json\.load.* > .*rows\.jsonl"),
     ("rows.csv", r"python -c .*csv\.DictReader.* > .*rows\.jsonl"),
     ("saved", r"load_from_disk\('.*saved'\)\.to_json\('saved\.jsonl'\)")],
)
def test_data_of_other_kinds_is_refused_with_the_command_that_converts_it(tmp_path, name, way):
    path = tmp_path / name
    if name == "saved":
        path.mkdir()
        (path / "dataset_info.json").write_text("{}")
    elif "/" not in name:
        path.write_text('[{"prompt": "a", "answer": "1"}]' if name.endswith("json") else "prompt,answer\na,1\n")
    with pytest.raises(UserError, match=way) as error:
        load_problems(name if "/" in name else str(path))
    if path.is_file():        # the command as it is printed
        command = str(error.value).partition("convert it: ")[2].replace("python", sys.executable, 1)
        subprocess.run(command, shell=True, check=True)
        assert len(load_problems(str(path.with_suffix(".jsonl")))) == 1


def test_only_the_first_rows_are_listed(tmp_path):
    with pytest.raises(UserError) as error:
        load_problems(write(tmp_path, *["{}"] * (SHOWN + 5)))
    assert "and 5 more" in str(error.value) and f"line {SHOWN}:" in str(error.value)


class Letters:
    """A text of one token per character that knows no 'z'."""

    def prompt(self, messages):
        if "z" in messages[-1].content:
            raise UserError("'z' is not in this model's alphabet")
        return [ord(c) for m in messages for c in m.content]

    def encode(self, text):
        return [ord(c) for c in text]


def test_a_prompt_that_the_model_cannot_be_given_is_a_broken_row(tmp_path):
    rows = [{"prompt": "a" * k, "answer": "1", "id": f"row-{k}"} for k in (1, 9, 10, 11)]
    path, reads = write(tmp_path, *rows, {"prompt": "z", "answer": 1}), lambda: Reads(Letters(), 10)
    with pytest.raises(UserError) as error:
        load_problems(path, reads=reads)
    assert "3 of 5 rows cannot be used" in str(error.value)
    assert "line 3: the prompt of 'row-10' has 10 tokens; the model's context is 10" in str(error.value)
    assert "line 5: the model cannot read the prompt of" in str(error.value)
    kept = load_problems(path, reads=reads, skip_broken=True, limit=2)
    assert [p.id for p in kept.problems] == ["row-1", "row-9"]
    with pytest.raises(UserError, match="line 2: the prompt of 'row-9' has 13 tokens"):
        load_problems(path, reads=reads, system="four")
    none = write(tmp_path, {"prompt": "z", "answer": "1"}, {"prompt": "zz", "answer": "2"})
    with pytest.raises(UserError, match="can be given none of the 2 rows") as error:
        load_problems(none, reads=reads)
    assert "\n" not in str(error.value)
    with pytest.raises(UserError, match="contains no usable problem\n  line 1: the model cannot read"):
        load_problems(none, reads=reads, skip_broken=True)


def test_duplicates_are_used_once_and_reported(tmp_path):
    a = {"prompt": "What is 2 + 2?", "answer": "4"}
    loaded = load_problems(write(tmp_path, a, "", {**a, "prompt": " What is  2 + 2?"}, {"prompt": "b", "answer": 1}))
    assert len(loaded) == 2 and loaded.report.duplicates == (("line 3", "line 1"),) and loaded.report.rows == 3


def test_ids_are_given_or_made_from_the_prompt(tmp_path):
    rows = [{"prompt": "a", "answer": "1"}, {"prompt": "b", "answer": "1", "id": 7}]
    one, two = load_problems(write(tmp_path, *rows)).problems
    other = load_problems(write(tmp_path, {"prompt": "x", "answer": "1"}, rows[0])).problems[1]
    assert one.id == other.id and two.id == "7"
    with pytest.raises(UserError, match="already that of line 1"):
        load_problems(write(tmp_path, {**rows[0], "id": 7}, rows[1]))


def test_rows_as_other_trainers_write_them(tmp_path):
    verl = {"data_source": "gsm", "prompt": [{"role": "user", "content": "Six times seven?"}],
            "reward_model": {"style": "rule", "ground_truth": "42"}, "extra_info": {"index": 1}}
    gsm = {"question": "Six times eight?", "answer": "6 x 8 = 48\n#### 48"}
    chat = {"messages": [{"role": "user", "content": "Six times nine?"}, {"role": "assistant", "content": "54"}]}
    v, g, c = load_problems(write(tmp_path, verl, gsm, chat)).problems
    assert (v.answer, v.meta["source"], v.meta["chat"]) == ("42", "gsm", True)
    assert (g.answer, g.meta["solution"]) == ("48", "6 x 8 = 48")
    assert c.answer == "54" and [m.role for m in c.prompt] == ["user"]


def test_system_messages(tmp_path):
    rows = [{"prompt": "a", "answer": "1", "system": "own"}, {"prompt": "b", "answer": "1"}]
    one, two = load_problems(write(tmp_path, *rows), system="ours").problems
    assert [one.prompt[0].content, two.prompt[0].content] == ["own", "ours"]


def test_limit_takes_the_first_good_rows(tmp_path):
    rows = [{"prompt": str(i), "answer": "1"} for i in range(5)]
    assert [p.text for p in load_problems(write(tmp_path, *rows), limit=2).problems] == ["0", "1"]
    with pytest.raises(UserError, match="at least 1"):
        load_problems(write(tmp_path, *rows), limit=0)


def test_byte_order_mark_and_unicode(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("\ufeff" + json.dumps({"prompt": "Wie heißt 2²?", "answer": "vier"}), encoding="utf-8")
    assert load_problems(str(path)).verifier == "words"


def test_parquet(tmp_path):
    arrow = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    path = tmp_path / "rows.parquet"
    prompt = [[{"role": "user", "content": f"{i}?"}] for i in range(3)]
    parquet.write_table(arrow.table({"prompt": prompt, "answer": ["1", None, "3"]}), path)
    loaded = load_problems(str(path), skip_broken=True)
    assert [p.answer for p in loaded.problems] == ["1", "3"]
    assert str(loaded.report.broken[0]).startswith("row 2: no answer")
    path.write_bytes(b"nothing of the kind")
    with pytest.raises(UserError, match=r"rows\.parquet cannot be read"):
        load_problems(str(path))


@pytest.mark.parametrize("spec", ["nothing", "nothing.jsonl", "pyproject.toml"])
def test_what_is_no_source_is_refused(spec, monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    with pytest.raises(UserError, match=r"jsonl|not a file"):
        load_problems(spec)


def test_sums_by_name():
    short, worked = load_problems("sums:level=2,count=50"), load_problems("sums:work=2,count=50")
    assert short.verifier == "exact" and all(p.meta["exact"] for p in short.problems)
    assert worked.verifier == "final" and not any(p.meta["exact"] for p in worked.problems)
    other = load_problems("sums:count=5", verifier="numeric")
    assert not any(p.meta["exact"] for p in other.problems)   # "085" would be right too


def test_reasoning_gym():
    pytest.importorskip("reasoning_gym")
    one, again = (load_problems("reasoning-gym:chain_sum:size=5,seed=3,min_terms=2") for _ in range(2))
    assert one.problems == again.problems and len(one) == 5 and one.verifier == "reasoning-gym"
    with pytest.raises(UserError, match="near it are chain_sum"):
        load_problems("reasoning-gym:chain_sums")
    with pytest.raises(UserError, match="does not take"):
        load_problems("reasoning-gym:chain_sum:colour=red")
