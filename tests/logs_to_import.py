"""What the tests of imports share: the recorded logs, and how a test reads one."""

from pathlib import Path

from click.testing import CliRunner

from isocost.cli.commands import main
from isocost.runs.arm import Arm
from isocost.trainers.reading import logs as sources
from isocost.trainers.reading.record import ImportOptions, resolve

LOGS = Path(__file__).parent / "fixtures" / "logs"
ONE = ("--n", 2, "--B", 3, "--lr", 1e-3)       # the sizes of a log that states none


def said(*args, code=0):
    """What a command printed; a mistake is one line on stderr and exit code 2."""
    done = CliRunner().invoke(main, [str(a) for a in args])
    assert done.exit_code == code, (args, done.output, done.exception)
    if code == 2:
        assert done.stderr.startswith("isocost: ") and done.stderr.count("\n") == 1, done.stderr
        return done.stderr
    return done.output


def stated(n=None, B=None, lr=None, **more):
    """What a user states, with the sizes as `isocost import` takes them."""
    return ImportOptions(Arm(n=n, B=B, lr=lr), **more)


def one(path, source=None, columns=None, **asked):
    """The only run of a log, resolved."""
    (log,) = sources.logs(Path(path), source, columns)
    return resolve(log, stated(**asked))
