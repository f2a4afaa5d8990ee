"""The commands. Each parses, calls one function of the package and returns its result, which `reported` prints.

Heavy imports are inside the commands, so that `--help` is fast.

Exit codes: 0 done (audit: hit; compare: a difference), 1 a bug, 2 a user's mistake, 3 audit: miss (doctor: something
fails; compare: the same), 4 audit: cannot tell, or uninformative (compare: cannot tell), 5 a run that could not
continue (starved, diverged, reward failed, unbilled) or whose budget was over before its first update, 6 compare
--pilot: not decidable as planned, 130 and 143 stopped by Ctrl-C and SIGTERM with everything saved, 141 the reader of
what it prints has gone.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from isocost.cli.catalogues import envs, laws, methods
from isocost.cli.checks import doctor
from isocost.cli.control import control_options
from isocost.cli.control_run import collect, control_run_options, measured, trained, without_control
from isocost.cli.kinds import answer, audit, begun, plan, without_kinds
from isocost.cli.options import (
    ANY,
    FOLDER,
    POSITIVE,
    SHARE,
    SOME,
    OneLine,
    Size,
    a_method,
    after_profile,
    given,
    json_option,
    launched,
    model_options,
    priced,
    reported,
    samples_said,
    server_limits,
    server_options,
    site_of,
    stop_option,
    study_in,
    trainer_option,
    worth_option,
)
from isocost.cli.rollouts import rollouts
from isocost.cli.scoring import scorer
from isocost.cli.serving import serve
from isocost.cli.test_time import strategy_options
from isocost.errors import UserError
from isocost.screen.terminal import echo, show_log

OF_RUN = ("run", "as_json", "samples", "base", "data", "strategy", "truth")       # options of `eval` of a run
OF_OWN = ("study", "workers", "dry_run", "as_json")     # options of the steps of a study of another kind
STORED = (       # options of a profile of stored completions
    "out", "as_json", "completions", "columns", "model", "parameters", "held_out", "skip_broken", "seed",
    "method", "price", "samples", "temperature", "top_p", "top_k", "max_tokens", "scale",
)


def setting(asked: dict[str, Any]) -> Any:
    """The setting of a command's options, which are taken out of `asked`."""
    from isocost.steps.settings import option_names, setting_of

    return setting_of({name: asked.pop(name) for name in option_names()})


@click.group(cls=OneLine, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="isocost")
def main() -> None:
    """Plan, predict and audit reinforcement-learning runs.

    A study is a folder, and goes: profile, plan, pilot, fit, plan, train, audit, report. Each step reads what the
    ones before it wrote, can be rerun alone, and continues where it was stopped. `isocost quickstart` runs them all.
    """
    show_log()


@main.command()
@click.option("--seed", type=ANY, default=0, show_default=True, help="of every run and every interval")
@click.option("--world", help="a built-in world: sums, puzzles, agents (rooms, several turns), think (strategies at "
              "test time on puzzles), or control (a pendulum)  [default: sums]")
@click.option(
    "--size",
    help="a preset, fixed before planning: tiny, quick, standard, long or agents  [default: quick; agents for --world "
    "agents]",
)
@click.option(
    "--budget", help="what pilot and training may spend, instead of a preset: 50k-rollouts, 2h, 1e15flop"
)
@priced
@click.option("--method", shell_complete=a_method, help="instead of the recipe that follows from the profile")
@click.option("--out", type=FOLDER, help="the study's folder  [default: studies/quickstart-SEED]")
@click.option("--workers", type=SOME, help="runs side by side; results do not depend on it")
@click.option("--dry-run", is_flag=True, help="profile, then print the cost of the rest")
@json_option
@model_options
@reported
def quickstart(out: Path | None, world: str | None, shown: Any, **asked: Any) -> Any:
    """Run a whole study on the built-in model and problems, or on your own."""
    from isocost.steps import kinds
    from isocost.steps.settings import kind_of_world, of_world

    own = any(asked.get(k) for k in ("data", "env", "model"))
    world = world or (None if own else "sums")
    asked = of_world(world, asked, given())
    kind = kind_of_world(world)
    asked["size"] = asked["size"] or ("quick" if kind == "training" else None)
    out = out or Path("studies") / f"quickstart-{asked['seed']}"
    return kinds.whole(kind, out, setting(asked), asked, shown)


@main.command()
@click.option("--out", type=FOLDER, required=True, help="the study's folder")
@click.option("--seed", type=ANY, default=0, show_default=True, help="of everything that is sampled")
@click.option("--method", shell_complete=a_method, help="instead of the recipe that follows from the profile")
@click.option("--problems", type=SOME, default=512, show_default=True, help="sampled 16 times each")
@click.option(
    "--completions",
    type=click.Path(dir_okay=False, path_type=Path),
    help="a .jsonl or .parquet of attempts with their rewards, instead of sampling a model; --model is then a label",
)
@click.option(
    "--map", "columns", multiple=True, metavar="NAME=COLUMN",
    help="of --completions: which column is problem, prompt, completion, reward, tokens, prompt_tokens, stop or level; "
    "of the log of --trainer: step, reward, held_out, rollouts, seconds or length",
)
@click.option("--parameters", type=Size(), help="the model's size where it is not known here: 7B, 135M")
@click.option("--dry-run", is_flag=True, help="print what it would cost")
@strategy_options
@trainer_option
@control_options
@launched
@click.option("--metrics", metavar="PATH", help="with --trainer: its log, JSON lines  [default: {out}/metrics.jsonl]")
@click.option("--lr", type=POSITIVE, help="with --trainer: a learning rate to start from")
@click.option("--groups", "-B", type=SOME, help="with --trainer: problems per update of its first run  [default: 8]")
@click.option(
    "--scale", metavar="LOW,HIGH",
    help="with --trainer or --completions: least and largest reward of a rollout, if not 0,1",
)
@click.option("--stall", type=POSITIVE, help="with --trainer: minutes without a new line of its log  [default: 30]")
@json_option
@server_options
@model_options
@reported
def profile(
    out: Path, as_json: bool, completions: Path | None, shown: Any, **asked: Any
) -> Any:
    """Start a study: measure what the model can do on the problems before training.

    The model is one on this machine, one behind an OpenAI-compatible server (--model openai:URL#MODEL), or none: the
    attempts are in a file (--completions). With --trainer the study's runs are those of your own trainer: a first run
    of a few updates shows that it starts, logs and evaluates, and what it costs. --held-out and --samples then say how
    many problems its evaluations have.
    """

    from isocost.cli.printer import printed

    if (begin := begun({**asked, "completions": completions}, given())) is not None:
        return begin(out, shown)
    limits, columns = server_limits(asked), asked.pop("columns")
    if completions is not None:
        from isocost.steps.outside.importing import scale_of
        from isocost.steps.training.stored import profile_completions

        if unused := [written for name, written in given().items() if name not in STORED]:
            raise UserError(f"{unused[0]} has no use with --completions, which were sampled before: leave it out")
        asked["scale"] = scale_of(asked["scale"])
        kept = {k: asked[k] for k in STORED if k in asked and (k != "temperature" or k in given())}
        found = profile_completions(out, completions, columns=columns, **kept)
        printed(found, shown, as_json)
        after_profile(out, as_json)
        return None
    from isocost.steps.events import Noted
    from isocost.steps.training.profile import profile

    if columns:
        raise UserError("--map names columns of --completions, or of the log of --trainer; leave it out, or name one")
    asked = without_kinds(asked, given())
    dry_run = asked["dry_run"]
    if "samples" in given():
        shown.on(Noted(samples_said(asked)))
    measured = profile(out, setting(asked), limits=limits, observer=shown, **asked)
    printed(measured, shown, as_json)
    after_profile(out, as_json or dry_run)
    return None


main.add_command(plan)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--longer", multiple=True, metavar="N=C", help="continue n's runs to C rollouts: 4=24576, 4=4x, all=4x")
@click.option("--seeds", multiple=True, metavar="N=K", help="K more runs of n, in the grid or new to it: 8=2, all=2")
@click.option("--turns", type=SOME, help="with --longer or --seeds: the turn limit of these runs  [default: every one "
              "that is compared]")
@click.option("--workers", type=SOME, help="runs side by side; results do not depend on it  [default: as planned]")
@launched
@click.option("--dry-run", is_flag=True, help="list the runs and their cost")
@trainer_option
@worth_option
@stop_option
@json_option
@reported
def pilot(
    study: Path, longer: tuple[str, ...], seeds: tuple[str, ...], turns: int | None, worth: float | None,
    stop_at: str | None, shown: Any, **asked: Any,
) -> Any:
    """Run the pilot: the learning-rate probe, then the grid of n, then its edges at half and twice the rate.

    --longer and --seeds add the runs that a law or a plan names; what was run is not paid for again.
    """
    from isocost.steps.kinds import own_step
    from isocost.steps.outside.early import Stops
    from isocost.steps.training.pilot import Additions, pilot

    site = site_of(asked)
    if (own := own_step(study_in(study), "pilot", given(), OF_OWN)) is not None:
        return own(study_in(study), workers=asked["workers"], dry_run=asked["dry_run"], observer=shown)
    added, stops = Additions(longer, seeds, turns), Stops(worth, at=stop_at)
    return pilot(study_in(study), added, site=site, observer=shown, stops=stops, **asked)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--metric", help="what the law is of: pass@1, best@4 or worst@4 (one, or all, of 4 right), or mark (with "
              "--truth)")
@json_option
@reported
def fit(study: Path, metric: str | None) -> Any:
    """Fit the law to a study's pilot; if it is not identified, name the runs that would resolve it."""
    from isocost.steps.kinds import own_step
    from isocost.steps.training.fit import fit_folder

    if (study / "study.json").exists() and (own := own_step(study_in(study), "fit", given(), OF_OWN)) is not None:
        return own(study_in(study))
    return fit_folder(study, metric=metric)


@main.command()
@click.argument("method", required=False, shell_complete=a_method)
@click.option(
    "--plan",
    "study",
    type=FOLDER,
    help="train the prescription of this study's plan: sealed, paired with its comparator",
)
@click.option(
    "--budget", help="what this run may spend on training: 50k-rollouts, 2M-tokens, 1e15flop, 30m, 8gpu-hours"
)
@priced
@click.option("--seed", type=ANY, default=0, show_default=True, help="of everything that is sampled")
@click.option("--out", type=FOLDER, help="the run's folder  [default: runs/METHOD-SEED]")
@click.option("--rollouts", "-n", type=SOME, help="n: per problem  [default: the method's own, 8 as a rule]")
@click.option("--groups", "-B", type=SOME, help="B: problems per update  [default: the method's own, 16 as a rule]")
@click.option("--lr", type=POSITIVE, help="learning rate  [default: the model's own or assumed from its size, by n B]")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="SEAM.NAME=VALUE",
    help="a setting of a seam, such as loss.high=0.28",
)
@click.option(
    "--evaluations",
    type=ANY,
    default=8,
    show_default=True,
    help="points of compute at which held-out reward is evaluated; of control by default two per doubling",
)
@click.option(
    "--save-every",
    type=ANY,
    default=0,
    show_default=True,
    help="updates between checkpoints, besides those at evaluations",
)
@click.option("--keep-checkpoints", "checkpoints", type=click.IntRange(2), default=2, show_default=True,
              help="the last checkpoints that are kept, for `profile --checkpoints RUN@STEP`")
@click.option("--keep-rollouts", "keep", type=ANY, default=0, metavar="GROUPS",
              help="groups of every update to keep as text, 8 rollouts of each  [default: 2, of updates 1, 2, 4, 8, "
              "... and before evaluations]")
@click.option("--workers", type=SOME, help="with --plan: runs side by side; results do not depend on it")
@control_run_options
@launched
@trainer_option
@worth_option
@stop_option
@click.option("--stop", is_flag=True, help="your own trainer: end a run that is unlikely (3 %) to reach the forecast's "
              "lower bound; the audit then cannot tell")
@click.option("--dry-run", is_flag=True, help="print what it would cost")
@json_option
@model_options
@reported
def train(
    method: str | None, study: Path | None, workers: int | None, trainer: str | None, stop: bool, worth: float | None,
    stop_at: str | None, shown: Any, **asked: Any,
) -> Any:
    """Train: METHOD is a name (see `isocost methods`) or a .py file; or --plan STUDY. Run it again to continue."""

    if method is not None and study is None and asked["control"]:
        return trained(method, {**asked, "stop_at": stop_at}, given(), shown)
    without_control(asked, given())
    if (study is None) == (method is None):
        raise UserError("name what to train: a METHOD (see `isocost methods`), or --plan STUDY")
    site = site_of(asked)
    if study is not None:
        from isocost.steps.kinds import own_step
        from isocost.steps.outside.early import Stops
        from isocost.steps.training.train import train

        if (own := own_step(study_in(study), "train", given(), OF_OWN)) is not None:
            return own(study_in(study), workers=workers, dry_run=asked["dry_run"], observer=shown)
        return train(study_in(study), workers=workers, dry_run=asked["dry_run"], trainer=trainer, site=site,
                     stops=Stops(worth, stop, stop_at), observer=shown)
    asked["stop_at"] = stop_at
    if trainer is not None or site.to is not None or stop or worth is not None:
        raise UserError("--trainer, --stop, --worth and --launch are for a study: `isocost train --plan STUDY`")
    from isocost.steps.training.single import train_one

    return train_one(method or "", setting(asked), observer=shown, **asked)


main.add_command(answer)
main.add_command(audit)
main.add_command(collect)


@main.command()
@click.argument("folder", type=FOLDER)
@click.option("--target", type=SHARE, help="held-out reward at the end  [default: the forecast's lower bound]")
@click.option("--worth", type=SHARE, help="stop if the rest of the run is expected to gain less than this")
@json_option
@reported
def verdict(folder: Path, **asked: Any) -> Any:
    """Advise to continue, stop or change n: for a run, or for a study's runs, while they train. Stops nothing."""
    from isocost.steps.look.verdict import verdict

    return verdict(folder, **asked)


@main.command()
@click.argument("arms", nargs=-1, required=True, metavar="A B...", shell_complete=a_method)
@click.option("--budget", help="methods: cost of all probes and runs: 200k-rollouts, 2M-tokens, 1h")
@click.option("--seeds", type=SOME, help="methods: runs per arm, paired by seed  [default: 5, or what a --pilot in the "
              "folder says]")
@click.option("--rollouts", "-n", type=SOME, help="n of every arm, per problem; of logs that lack it  [default: 8]")
@click.option("--groups", "-B", type=SOME, help="B of every arm, problems per update; of logs that lack it "
              " [default: 16]")
@click.option("--own-sizes", is_flag=True, help="methods: every arm at its method's own n and B")
@click.option("--lr", type=POSITIVE, help="methods: the middle learning rate; each arm probes 1/4, 1 and 4 times it")
@click.option("--evaluations", type=SOME, default=8, show_default=True, help="methods: evaluations per run, doubling")
@click.option("--margin", type=POSITIVE, default=0.01, show_default=True, help="reward within which arms are the same")
@click.option("--metric", default="pass@1", show_default=True,
              help="pass@1, best@4, worst@4 or mark (with --truth); of evaluation files, the name of a score")
@click.option("--unit", default="rollouts", show_default=True, help="folders: rollouts, tokens, flops or seconds")
@click.option("--to-parents", is_flag=True, help="methods: compare each with its parent only")
@click.option("--set", "sets", multiple=True, metavar="SEAM.NAME=VALUE", help="methods: a setting of every arm")
@click.option("--seed", type=ANY, default=0, show_default=True, help="of everything that is sampled")
@click.option("--out", type=FOLDER, help="folder for the record  [default: comparisons/A-B for methods]")
@click.option("--workers", type=SOME, help="runs side by side; results do not depend on it")
@launched
@trainer_option
@click.option("--metrics", metavar="PATH", help="with --trainer: its log, JSON lines  [default: {out}/metrics.jsonl]")
@click.option("--map", "columns", multiple=True, metavar="NAME=COLUMN", help="columns of logs, or of evaluation files")
@click.option("--stall", type=POSITIVE, help="with --trainer: minutes without a new line of its log  [default: 30]")
@click.option("--dry-run", is_flag=True, help="methods: show the design, its cost and its power")
@click.option("--log", type=click.Path(dir_okay=False, path_type=Path), help="counts what was asked, so that many "
              "comparisons in a row keep the error rate of one")
@click.option("--pilot", metavar="SEEDS|FOLDER", help="is the comparison decidable? Train a pilot of this many seeds "
              "per arm (4 as a rule), or read an earlier one, and stop")
@json_option
@model_options
@reported
def compare(arms: tuple[str, ...], as_json: bool, dry_run: bool, shown: Any, **asked: Any) -> Any:
    """Judge which is better at equal cost: methods, which are trained, or what is on disk, which is read.

    A and B are names (see `isocost methods`) or .py files; or folders of runs, logs that `isocost import` reads, or
    evaluation files (lm-eval, verifiers, lighteval, Inspect, JSON lines, CSV), paired by problem.
    METHOD@SEAM.NAME=VALUE,... is a method with its
    own settings, including n and B (rollouts=9). Every method's learning rate is tuned alike within the budget. With
    --trainer, A and B are NAME=WORDS, and the words replace {arm} in the command.
    Exits 0 if arms differ, 3 if they are the same within the margin, 4 if the comparison cannot tell; with --pilot 0 if
    the comparison is decidable, else 6.
    """
    from isocost.cli.comparison import compared
    from isocost.compare.results import ComparisonPlan
    from isocost.steps.events import CostSample

    answer = compared(arms, asked, given(), shown, dry_run=dry_run)
    if not isinstance(answer, ComparisonPlan) or not answer.pricing or as_json:
        return answer
    shown.on(answer)
    shown.on(CostSample.of(answer.pricing))
    return None


@main.command(name="eval")
@click.argument("run", type=FOLDER, required=False)
@click.option(
    "--samples",
    type=SOME,
    default=16,
    show_default=True,
    help="per problem, when pass@1 cannot be computed exactly",
)
@click.option("--data", help="problems other than the run's held-out ones; with --model, all of these")
@click.option("--strategy", metavar="SPEC", help="how each answer is made, such as best-of:n=16,scorer=steps")
@click.option("--base", is_flag=True, help="also the policy that the run started from, with the paired difference")
@click.option(
    "--model", help="instead of a run: 'tiny', 'tiny-puzzles', 'smollm2', a Hugging Face folder, or openai:URL#MODEL"
)
@click.option("--env", metavar="SPEC", help="with --model, as for `isocost profile`")
@click.option("--max-turns", type=SOME, help="with --env  [default: the environment's own]")
@click.option("--verifier", "--reward", help="with --model, as for `isocost profile`  [default: the problems' own]")
@click.option("--truth", metavar="VERIFIER", help="report pass@1 by this verifier, and the mark of the one that trains "
              "beside it")
@click.option("--limit", type=SOME, help="with --model: use only this many problems")
@click.option("--skip-broken", is_flag=True, help="with --model: skip rows that cannot be used; they are listed")
@click.option("--system", help="with --model: a system message put before every problem")
@click.option("--temperature", type=POSITIVE, help="with --model  [default: 1]")
@click.option("--top-p", type=SHARE, help="with --model  [default: 1]")
@click.option("--top-k", type=ANY, help="with --model; 0 keeps all  [default: 0]")
@click.option("--max-tokens", type=SOME, help="with --model, per completion  [default: as for `isocost profile`]")
@server_options
@json_option
@reported
def evaluate(
    run: Path | None, samples: int, base: bool, strategy: str | None, shown: Any, **asked: Any
) -> Any:
    """Measure a run's policy on held-out problems, or a model on --data or in --env, with an interval over problems."""
    from isocost.steps.look.evaluate import evaluate, evaluate_model
    from isocost.steps.settings import setting_of

    model, price, limits = asked["model"], asked.pop("price"), server_limits(asked)
    if (run is None) == (model is None):
        raise UserError("name what to measure: a RUN, or a model with --model and --data")
    if run is not None:
        if (found := measured(run, samples if "samples" in given() else None, given())) is not None:
            return found
        if unused := [option for name, option in given().items() if name not in OF_RUN]:
            raise UserError(f"{unused[0]} is for a model: a run is measured with its own settings. Leave it out")
        return evaluate(run, samples=samples, base=base, data=asked["data"], strategy=strategy, truth=asked["truth"],
                        observer=shown)
    if base or not (asked["data"] or asked["env"]):
        raise UserError("--base is for a run" if base else "name the problems to measure the model on with --data, or "
                        "an environment with --env")
    return evaluate_model(setting_of(asked), samples=samples, strategy=strategy, price=price, limits=limits,
                          observer=shown)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="[default: STUDY/report.html]")
@reported
def report(study: Path, out: Path | None) -> None:
    """Write the study as one HTML file that opens without a network."""
    from isocost.report import write

    echo(write(study, out))


@main.command(name="import")
@click.argument("sources", type=click.Path(path_type=Path), nargs=-1, required=True)
@click.option("--out", type=FOLDER, help="[default: runs/NAME for one log, studies/imported for several]")
@click.option("--from", "source", help="the trainer or format that wrote it  [default: recognised by content]")
@click.option("--study", is_flag=True, help="make a study even of one log")
@click.option(
    "--map", "columns", multiple=True, metavar="NAME=COLUMN",
    help="which column is reward, held_out, step, ...; seed, n, B or run separates the runs of one table",
)
@click.option("--n", "-n", type=SOME, help="rollouts per problem, if the log lacks it")
@click.option("--B", "-B", "B", type=SOME, help="problems per update, if the log lacks it")
@click.option("--lr", type=POSITIVE, help="learning rate, if the log lacks it")
@click.option("--seed", type=ANY, help="the seed, if the log lacks it  [default: runs are numbered in the order given]")
@click.option("--names", metavar="PATTERN", help="how a run's name spells its sizes, such as 'n{n}-s{seed}'")
@click.option("--scale", metavar="LOW,HIGH", help="least and largest reward of a rollout, if not 0 and 1")
@click.option("--base", type=float, help="reward of the policy before training, in the log's units, if missing")
@click.option("--model", help="the model that was trained, as a label")
@click.option("--data", help="the problems it was trained on, as a label")
@click.option("--control", metavar="TASK", help="logs of value-based control: curves of return over samples of this "
              "task, with a table of settings to fill in")
@json_option
@reported
def import_runs(control: str | None, shown: Any, **asked: Any) -> Any:
    """Import runs of TRL, verl, prime-rl, tinker, wandb, TensorBoard, SB3, CleanRL, or from CSV or JSON lines.

    One log becomes a run; several become a study for `fit`, `plan`, `compare` and `report`. What the logs lack is
    listed.
    """
    from isocost.steps.outside.importing import import_logs

    if control is not None:
        from isocost.cli.control import imported

        return imported(control, asked, given(), shown)
    return import_logs(**asked, observer=shown)


@main.command()
@click.argument("study", type=FOLDER)
@click.option("--to", "target", help="trl, verl, prime-rl, nemo-rl, skyrl or openrlhf; of control, sb3")
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="[default: printed]")
@json_option
@reported
def export(study: Path, target: str | None, out: Path | None, as_json: bool) -> Any:
    """Write a study's prescription as another trainer's configuration or launch line."""
    from isocost.steps.look.export import export

    found = export(study_in(study), target)
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(found.text, encoding="utf-8")
    if out is None or as_json:
        return found
    echo(out)
    return None


@main.command()
@click.argument("folder", type=FOLDER, default=Path("."))
@json_option
@reported
def ls(folder: Path) -> Any:
    """List the studies and runs below a folder."""
    from isocost.steps.look.listing import list_folder

    return list_folder(folder)


main.add_command(doctor)
main.add_command(rollouts)
main.add_command(scorer)
main.add_command(envs)
main.add_command(laws)
main.add_command(methods)
main.add_command(serve)
