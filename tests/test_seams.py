"""A recipe is data: described with every default bound, tuned by its functions' own signatures."""

import pickle
from functools import partial

import pytest

from isocost import methods
from isocost.parts import loss
from isocost.recipe import describe, diff, fingerprint, tune


def test_a_restated_default_is_no_difference():
    recipe = methods.load("grpo").recipe()
    low = describe(recipe)["loss"]
    fn = recipe.loss.func if isinstance(recipe.loss, partial) else recipe.loss
    restated = recipe.but(
        loss=partial(fn, **{k: v for k, v in low.items() if k not in ("fn",) and not isinstance(v, (dict, list))})
    )
    assert diff(recipe, restated) == {}


def test_describe_binds_defaults_that_nobody_wrote_down():
    assert {"low", "high"} <= set(describe(loss.clipped))


def test_descriptions_survive_pickling_and_hash_alike():
    recipe = methods.load("dapo").recipe()
    assert fingerprint(describe(pickle.loads(pickle.dumps(recipe)))) == fingerprint(describe(recipe))


def test_tune_reads_a_string_as_the_type_it_replaces():
    recipe = methods.load("grpo").recipe()
    assert tune(recipe, "rollouts", "32").rollouts == 32
    assert tune(recipe, "refill", "true").refill is True
    assert tune(recipe, "pace.lr", "1e-4").pace.keywords["lr"] == 1e-4
    assert tune(recipe, "pace.stop", '["a", "b"]').pace.keywords["stop"] == ("a", "b")


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("lossy.high", 1, "neither a seam"),
        ("loss.hihg", 1, "not 'hihg'"),
        ("loss", 1, "set one of its settings"),
        ("rollouts", "many", "expected a number"),
        ("rollouts", "true", "another type"),
        ("improve.minibatches", "2.5", "expected an integer"),
        ("enrich.reference", "1", "several functions"),
        ("max_age", "-1", r"expected a value in \[0, inf\)"),
        ("pace.stop", "null", "expected a list"),
        ("pace.stop", ";", "expected a list"),
    ],
)
def test_tune_names_what_would_be_right(path, value, says):
    with pytest.raises(KeyError, match=says):
        tune(methods.load("grpo").recipe(), path, value)


def test_a_users_function_is_described_with_its_source(tmp_path):
    file = tmp_path / "mine.py"
    head = ('from isocost.methods import Card, grpo\nCARD = Card("Mine", "none", 2026, "grpo", "It differs.")\n')
    body = (
        "def weight(batch):\n    return batch.mask / {k}\n\n"
        "def recipe(**changes):\n    return grpo.recipe(name='mine', weight=weight).but(**changes)\n"
    )
    seen = []
    for k in (2, 3):
        file.write_text(head + body.format(k=k))
        seen.append(describe(methods.load(str(file)).recipe())["weight"]["source"])
    assert seen[0] != seen[1] and all(seen)
