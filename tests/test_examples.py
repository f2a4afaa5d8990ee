"""Every example runs as its first lines say, and prints what it promises."""

from pathlib import Path

import pytest

from programs import Shell

HOME = Path(__file__).resolve().parents[1]
EXAMPLES = {
    "first_run.py": "step  64: training reward",
    "loop.py": " 4096 rollouts: pass@1 0.8458",
    "plan_object.py": "train n = 16, B = 8 for M = 698 updates",
    "own_method.py": "kept      It trains",
    "own_reward.py": "over 8 problems, 16 completions each",
    "imported_log.py": "law: n = 4, 8, 16",
    "openai_server.py": "over HTTP: pass@1 0.4",
}
OF_PAGES = {"own_trainer.py": "your_trainer.md"}     # runs in the commands of a page, by test_docs_run.py
CHECKED = {"own_environment.py", "own_harness.py"}   # by test_agents_run.py and test_harness.py


def test_every_example_is_here():
    assert {p.name for p in (HOME / "examples").glob("*.py")} == {*EXAMPLES, *OF_PAGES, *CHECKED}
    for name, page in OF_PAGES.items():
        assert f"python examples/{name} " in (HOME / "docs" / page).read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs(tmp_path, programs_at_once, name):
    done = Shell(tmp_path, programs_at_once).run(["python", HOME / "examples" / name])
    assert done.code == 0 and EXAMPLES[name] in done.out, done
    assert "BROKEN" not in done.out and not list(tmp_path.iterdir())


def test_the_first_run_has_25_lines_at_most():
    lines = (HOME / "examples" / "first_run.py").read_text().splitlines()
    assert len(lines) <= 25
