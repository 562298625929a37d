"""Why something is absent, failed or doubtful, and what to do about it."""

import msgspec

BUDGET = "budget"  # code where time ran out, which leaves a gap in the evidence
OVERLOADED_MACHINE = "overloaded_machine"  # others used over three quarters of the cores
NO_TIME = "no_time"  # the same without a gap: few rows have time for it, or it would be slower
NOT_READY = "it was not ready within"  # begins the message where preparing took too long
NOISE = ("busy_machine", OVERLOADED_MACHINE, "stolen_time")  # their remedy is a quieter hour


class Reason(msgspec.Struct, frozen=True, omit_defaults=False):
    """Why something is missing, was skipped or failed."""

    code: str  # stable name for scripts: "no_memory", "worker_died", "budget", ...
    message: str  # one line for people
    hint: str | None = None  # remedy

    @property
    def is_late(self) -> bool:
        """Whether time ran out, so that a longer run may show more."""
        return self.code in (BUDGET, NO_TIME)

    @property
    def is_unready(self) -> bool:
        """Whether preparing took too long; its code is that of any other lack of time."""
        return self.message.startswith(NOT_READY)

    @property
    def one_line(self) -> str:
        """The message, with the remedy in brackets."""
        return f"{self.message} ({self.hint})" if self.hint else self.message

    @property
    def dashed(self) -> str:
        """The same in a log, with the remedy after a dash."""
        return f"{self.message} - {self.hint}" if self.hint else self.message


class Warning(msgspec.Struct, frozen=True):
    """Something that makes a result less reliable, with its remedy."""

    code: str  # stable name for scripts
    message: str
    remedy: str
    subject: str | None = None  # case id, scenario id or GPU uuid; None for the whole run

    @property
    def one_line(self) -> str:
        """The message with the remedy."""
        return f"{self.message}; {self.remedy}"

    def about(self, subject: str) -> str:
        """`[row] busy; wait`."""
        return f"[{subject}] {self.one_line}" if subject else self.one_line
