"""Evaluation files of other programs are compared problem by problem: their scores, intervals, and what it would take.

The numbers on GPQA Diamond are those that evalconfidence 0.1.1 prints for its own example.
"""

import csv
import json
import zipfile
from math import inf, sqrt
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.compare import asked
from isocost.compare.evaluations.files import read
from isocost.compare.evaluations.judge import compare_evaluations
from isocost.compare.folders import compare_on_disk
from isocost.errors import UserError
from isocost.stats import paired

HERE = Path(__file__).parent / "fixtures" / "evaluations"
LOGS = Path(__file__).parent / "fixtures" / "logs"


def rows(path, scores, **more):
    """A file of rows: `scores` by problem."""
    path.write_text("".join(json.dumps({"id": k, "score": x, **{a: f(k) for a, f in more.items()}}) + "\n"
                            for k, own in scores.items() for x in own))
    return path


def written(path, data):
    path.write_bytes(data)
    return path


@pytest.fixture
def gpqa(tmp_path):
    """The two models of evalconfidence's example, one file each."""
    out = []
    with (HERE / "gpqa_diamond.csv").open() as file:
        table = list(csv.DictReader(file))
    for name in ("gpt-5-nano", "gpt-5.4-mini"):
        out.append(rows(tmp_path / f"{name}.jsonl", {r["item"]: [float(x) for x in r[name]] for r in table}))
    return out


def test_numbers_are_those_of_a_published_tool_on_its_own_example(gpqa):
    found = compare_evaluations(gpqa)
    pair, arm = found.pairs[0], found.arms[0]
    assert pair.value == pytest.approx(0.058585858585858595, abs=1e-12)
    assert (pair.low, pair.high) == pytest.approx((0.0037847928651483995, 0.1133869243065688), abs=1e-9)
    assert pair.p == pytest.approx(0.036271001484081404, abs=1e-9)
    assert (arm.mean, arm.naive, arm.se) == pytest.approx(
        (0.6757575757575758, 0.01488443091570342, 0.027595553003115756), abs=1e-9)
    means = [{k: np.mean(v) for k, v in read(f).scores.items()} for f in gpqa]
    variance = np.var([means[0][k] - means[1][k] for k in means[0]], ddof=1)
    assert paired.problems_needed(variance, 0.06, 0.05) == 334
    assert found.exit_code == 0 and pair.answer == "gpt-5-nano.jsonl"


@pytest.mark.parametrize(("names", "metric", "means", "problems", "samples"), [
    (("lm_eval_a.jsonl", "lm_eval_b.jsonl"), "acc", (0.5, 0.5), 12, 12),
    (("verifiers_a.jsonl", "verifiers_b.jsonl"), "", (0.3, 1.0), 10, 20),
    (("verifiers_a.jsonl", "verifiers_b.jsonl"), "right", (0.2, 0.9), 10, 20),
    (("verifiers_a.jsonl", "verifiers_b.jsonl"), "length", (0.5, 0.5), 10, 20),
    (("lighteval_a.parquet", "lighteval_b.parquet"), "extractive_match", (4 / 6, 1.0), 6, 6),
    (("inspect_a.eval", "inspect_b.eval"), "", (0.25, 0.25), 4, 8),
])
def test_each_programs_file_is_read_by_its_content(names, metric, means, problems, samples, tmp_path):
    """Also under another name, where the format does not need the suffix."""
    for name, mean in zip(names, means, strict=True):
        found = read(HERE / name, metric)
        assert np.mean([x for own in found.scores.values() for x in own]) == pytest.approx(mean)
        assert (len(found.scores), found.samples) == (problems, samples)
        if name.endswith(".jsonl"):
            (tmp_path / "renamed.jsonl").write_bytes((HERE / name).read_bytes())
            assert read(tmp_path / "renamed.jsonl", metric).written_by == found.written_by != "rows"


def test_inspects_json_is_read_as_its_eval(tmp_path):
    with zipfile.ZipFile(HERE / "inspect_a.eval") as archive:
        names = [n for n in archive.namelist() if n.startswith("samples/")]
    scores = {f"q{i}": {"match": {"value": v}} for i, v in enumerate("CIPN")}
    (tmp_path / "log.json").write_text(json.dumps(
        {"samples": [{"id": k, "epoch": 1, "scores": v, "model_usage": {"m": {"output_tokens": 3}}}
                     for k, v in scores.items()]}))
    found = read(tmp_path / "log.json")
    assert found.scores == {"q0": (1.0,), "q1": (0.0,), "q2": (0.5,), "q3": (0.0,)} and found.tokens == 12
    assert found.written_by == "Inspect" and len(names) == read(HERE / "inspect_a.eval").samples


def test_clusters_widen_the_interval_as_the_sandwich_estimator_says():
    values, clusters = np.array([1.0, 1.0, 0.0, 0.0, 1.0, 0.0]), ["a", "a", "b", "b", "c", "c"]
    mean = paired.mean_of(values, clusters)
    # residual sums of a, b, c: 1, -1, 0; G / (G - 1) sum S^2 / n^2
    assert mean.se == pytest.approx(sqrt(3 / 2 * 2 / 36)) and mean.dof == pytest.approx(2)
    alone = paired.mean_of(values, list("abcdef"))
    assert alone.se == pytest.approx(paired.mean_of(values).se) and alone.dof == pytest.approx(5)
    # w = 2/3, 1/6, 1/6 of residual sums 1/3, 1/3, -2/3: sum S^2 / (1 - w) / n^2; 1/2 + 1.4^2 - 1.78 = 0.68
    large = paired.mean_of(np.array([1.0, 1.0, 1.0, 0.0, 1.0, 0.0]), list("aaaabc"))
    assert large.se == pytest.approx(sqrt((1 / 9 * 3 + 1 / 9 * 6 / 5 + 4 / 9 * 6 / 5) / 36))
    assert large.dof == pytest.approx(1 / 0.68)


def test_a_large_cluster_counts_for_few_degrees_of_freedom():
    """Ten clusters without an effect, one of which has half of the problems: 5 % of intervals leave out 0."""
    rng = np.random.default_rng(0)
    clusters = [str(i) for i, k in enumerate((27, *[3] * 9)) for _ in range(k)]
    shared = np.array([int(c) for c in clusters])
    found = [paired.mean_of(rng.normal(size=10)[shared] + 0.3 * rng.normal(size=54), clusters) for _ in range(500)]
    assert np.mean([m.p < 0.05 for m in found]) < 0.08


def test_clusters_are_read_from_a_column(tmp_path):
    scores = {f"q{i}": [float(i % 2)] for i in range(8)}
    other = {k: [1.0] for k in scores}
    files = [rows(tmp_path / name, own, topic=lambda k: int(k[1:]) // 4)
             for name, own in (("a.jsonl", scores), ("b.jsonl", other))]
    apart = compare_evaluations(files).pairs[0]
    together = compare_evaluations(files, columns={"cluster": "topic"}).pairs[0]
    assert apart.value == together.value == -0.5 and apart.high - apart.low != together.high - together.low
    alone = [rows(f, own, cluster=lambda k: None if k == "q7" else "passage")
             for f, own in zip(files, (scores, other), strict=True)]
    pair = compare_evaluations(alone).pairs[0]      # of one passage and of one problem: one degree of freedom
    assert pair.high - pair.low > 12 * 2 * 0.1
    with pytest.raises(UserError, match=r"a.jsonl and b.jsonl are of cluster passage: an interval needs at least two"):
        compare_evaluations([rows(f, own, cluster=lambda k: "passage")
                             for f, own in zip(files, (scores, other), strict=True)])


def test_an_arms_mean_counts_a_problem_once(tmp_path):
    """However many samples it has: the difference of the means is the pair's."""
    own = {f"q{i}": [float(i % 2)] * (9 * (i % 2) + 1) for i in range(20)}
    files = [rows(tmp_path / "a.jsonl", own), rows(tmp_path / "b.jsonl", {k: [0.0] for k in own})]
    found = compare_evaluations(files)
    assert found.arms[0].mean - found.arms[1].mean == found.pairs[0].value == 0.5
    assert found.arms[0].se == pytest.approx(sqrt(5 / 19 / 20))


def test_what_it_would_take_is_what_a_larger_study_finds():
    """With the samples that it names a difference is found in 80 % of draws, and fewer find it less often."""
    rng, problems, effect, level = np.random.default_rng(0), 200, 0.08, 0.05
    base = rng.uniform(0.2, 0.8, problems)
    gap = rng.normal(effect, 0.1, problems).clip(-0.15, 0.2)

    def draw(k):
        a = (rng.random((problems, k)) < (base + gap)[:, None]).astype(float)
        b = (rng.random((problems, k)) < base[:, None]).astype(float)
        return paired.difference(list(a), list(b))

    spread = draw(400)[1]
    needed = int(paired.samples_needed(spread, problems, float(gap.mean()), level))
    found = {k: np.mean([draw(k)[0].p < level for _ in range(200)]) for k in (max(1, needed // 3), needed)}
    assert found[needed] > 0.7 and found[max(1, needed // 3)] < found[needed]
    assert paired.samples_needed(spread, problems, 0.01, level) == inf
    assert paired.samples_needed(paired.PairSpread(0.1, None, None), problems, 0.1, level) is None


def test_no_difference_seen_is_no_proof_of_none(tmp_path):
    """Equal answers to 20 problems do not show that two evaluations are the same within 0.01; to 2,000 they do."""
    few, many = ({f"q{i}": [float(i % 3 > 0)] for i in range(k)} for k in (20, 2000))
    every = {f"q{i}": [1.0] for i in range(20)}
    for scores, answer in ((few, "cannot tell"), (many, "same"), (every, "cannot tell")):
        files = [rows(tmp_path / name, scores) for name in ("a.jsonl", "b.jsonl")]
        pair = compare_evaluations(files).pairs[0]
        assert pair.answer == answer
        assert pair.high == pytest.approx(3 / len(scores), rel=0.1)         # the rule of three
        assert answer == "same" or "429 problems instead of 20" in pair.to_tell[1]


def test_rare_differences_are_seldom_taken_for_none():
    """One arm alone fails on 3 of 200 problems in the mean: at that margin the arms are rarely the same."""
    rng, problems, share = np.random.default_rng(0), 200, 3 / 200
    highest = []
    for _ in range(150):
        b = (rng.random((problems, 1)) >= share).astype(float)
        highest.append(paired.difference(list(np.ones((problems, 1))), list(b))[0].interval(0.05)[1])
    assert np.mean(np.array(highest) < share) < 0.05


def test_few_disagreements_are_tested_exactly(tmp_path):
    """Five problems of 200 that one arm alone solves: McNemar's exact p is 2 / 2^5, so it is not found."""
    a = {f"q{i}": [1.0] for i in range(200)}
    files = [rows(tmp_path / "a.jsonl", a), rows(tmp_path / "b.jsonl", {k: [float(i >= 5)] for i, k in enumerate(a)})]
    pair = compare_evaluations(files).pairs[0]
    assert pair.p == pytest.approx(2 / 2**5) and pair.answer == "cannot tell"
    assert paired.exact_p(np.array([1.0] * 26)) is None and paired.exact_p(np.array([0.5])) is None


def test_seeds_of_training_add_their_variance(tmp_path):
    rng = np.random.default_rng(1)
    for arm, up in (("a", (0.1, 0.3, 0.5)), ("b", (0.0, 0.0, 0.0))):
        (tmp_path / arm).mkdir()
        for seed, more in enumerate(up):
            rows(tmp_path / arm / f"s{seed}.jsonl", {f"q{i}": [float(rng.random() < 0.3 + more)] for i in range(300)})
    pair = compare_evaluations([tmp_path / "a", tmp_path / "b"]).pairs[0]
    assert pair.answer == "cannot tell" and pair.high - pair.low > 0.5         # two degrees of freedom
    assert pair.detectable > (pair.high - pair.low) / 2
    assert any("seeds of training instead of 3" in way for way in pair.to_tell)
    with pytest.raises(UserError, match=r"a has 3 files and b 2: give both as many"):
        (tmp_path / "b" / "s2.jsonl").unlink()
        compare_evaluations([tmp_path / "a", tmp_path / "b"])


def test_a_log_of_questions_keeps_the_error_rate_of_one(gpqa, tmp_path):
    log = tmp_path / "asked.jsonl"
    first = compare_evaluations(gpqa, log=log)
    other = compare_evaluations(gpqa, margin=0.02, log=log)
    again = compare_evaluations(gpqa, log=log)
    assert (first.number, other.number, again.number) == (1, 2, 1) and again == first
    assert first.pairs[0].level == pytest.approx(1 - asked.rate(1)) and len(log.read_text().splitlines()) == 2
    assert first.exit_code == 4                     # what one question would have answered, the first of many does not
    total = sum(asked.rate(k) for k in range(1, 100_000))
    assert total < asked.ALPHA < total + 1e-6
    log.write_text('{"x": 1}\n')
    with pytest.raises(UserError, match=r"asked.jsonl, line 1 is no question"):
        compare_evaluations(gpqa, log=log)


@pytest.mark.parametrize(("make", "message"), [
    (lambda d: [rows(d / "a.jsonl", {"p": [1.0]}), rows(d / "b.jsonl", {"q": [1.0]})],
     r"a.jsonl and b.jsonl cannot be compared: they share 0 of 1 problems, such as 'p' and 'q'"),
    (lambda d: [HERE / "lm_eval_a.jsonl", HERE / "lm_eval_b.jsonl"],
     r"lm_eval_a.jsonl has 2 scores: choose one with --metric, of acc,none, acc_norm,none"),
    (lambda d: [HERE / "lm_eval_a.jsonl", LOGS / "trl" / "n4-s0"],
     r"lm_eval_a.jsonl is an evaluation file and .*n4-s0 is a log of another trainer: all arms must be of one kind"),
    (lambda d: [rows(d / "a.jsonl", {"p": ["?"], "q": [None]}), HERE / "lm_eval_b.jsonl"],
     r"a.jsonl: none of its 2 samples has a score"),
    (lambda d: [written(d / "a.csv", b"id,score\np,1\n\xe9,0\n"), LOGS / "trl" / "n4-s0"],
     r"a.csv is not text in UTF-8: save it in that encoding"),
    (lambda d: [written(d / "a.jsonl", (HERE / "lm_eval_a.jsonl").read_bytes() + b'{"doc_id": 1}\n'),
                HERE / "lm_eval_b.jsonl"], r"a.jsonl cannot be read: 'metrics'; write it again"),
])
def test_what_cannot_be_compared_says_why(make, message, tmp_path):
    with pytest.raises(UserError, match=message):
        compare_on_disk(make(tmp_path))


def test_a_trainers_single_logs_are_compared_at_equal_cost(tmp_path):
    """Two logs of TRL, read for the comparison only: one run an arm tells nothing, and says so."""
    found = compare_on_disk([LOGS / "trl" / "n2-s1", LOGS / "trl" / "n2-s2"], sizes={"n": 2, "B": 4})
    assert found.exit_code == 4 and [len(a.values) for a in found.comparison.arms] == [1, 1]


def test_the_command_says_the_answer_and_exits_with_it(gpqa, tmp_path):
    done = CliRunner().invoke(main, ["compare", *map(str, gpqa), "--json", "--out", str(tmp_path / "kept")])
    assert done.exit_code == 0 and json.loads(done.output)["pairs"][0]["answer"] == "gpt-5-nano.jsonl"
    assert json.loads((tmp_path / "kept" / "comparison.json").read_text())["pairs"][0]["problems"] == 198
    said = CliRunner().invoke(main, ["compare", *map(str, gpqa), "--margin", "0.2"]).output
    assert "gpt-5-nano.jsonl is better" in said
    assert CliRunner().invoke(main, ["compare", str(gpqa[0]), str(gpqa[1]), "--budget", "1h"]).exit_code == 2
