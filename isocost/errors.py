"""What a user can put right, and what a user asked for. Neither shows a traceback; all else is a bug and does."""


class UserError(Exception):
    """A mistake in what was asked: the message names the thing and says what would be right."""


class Interrupted(Exception):
    """Asked to stop by a signal, with all paid for on disk. `resume` is the command that goes on, if another."""

    def __init__(self, signum: int, resume: str = ""):
        super().__init__(f"stopped by signal {signum}")
        self.signum, self.resume = signum, resume


class RewardFailed(UserError):
    """A verifier failed too often to go on. What was paid for is kept, and once it is mended the run can go on."""
