"""The cost of a case in a fresh process, although many cases share one worker.

Only the first case of a process pays for loading libraries and kernels.  Preparing it a second time
shows how much that was, and every later case gets this amount added.  Standard library only.
"""

from dataclasses import dataclass

from .loading import LOADING


@dataclass(frozen=True)
class StartUp:
    """Seconds from nothing to the first result."""

    phases: dict[str, float]  # seconds of each phase of the preparation
    first_step_s: float

    @property
    def seconds(self) -> float:
        return sum(self.phases.values()) + self.first_step_s


class ColdStart:
    """The start-up costs of the cases of one process."""

    def __init__(self) -> None:
        self._loading: StartUp | None = None  # paid by the first case for all

    def alone(self, measured: StartUp, repeated: StartUp) -> StartUp:
        """The cost of a case in a process of its own, from its first and second preparation.

        The phase "loading" is what the process pays once, whatever its cases.
        """
        own, first_step_s = measured.phases, measured.first_step_s
        if self._loading is None:
            self._loading = _difference(measured, repeated)
            own = {name: s - self._loading.phases.get(name, 0.0) for name, s in own.items()}
        else:
            # A first step loads kernels of its own, as that of the first case did: no sum.
            first_step_s = max(first_step_s, self._loading.first_step_s)
        loading_s = own.get(LOADING, 0.0) + sum(self._loading.phases.values())
        return StartUp({**own, LOADING: loading_s}, first_step_s)


def _difference(measured: StartUp, repeated: StartUp) -> StartUp:
    """The part of the start-up cost that only the first preparation pays.

    Compiling does not count: a second time finds the code in a cache, but no other case uses it.
    """
    phases = {
        name: max(0.0, spent - repeated.phases.get(name, 0.0))
        for name, spent in measured.phases.items()
        if name != "compile"
    }
    return StartUp(phases, max(0.0, measured.first_step_s - repeated.first_step_s))
