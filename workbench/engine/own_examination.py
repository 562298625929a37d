"""Examines the user's own code: what it computes on what, and how long a call takes."""

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from ..advisor.own.candidates import is_first
from ..contract import MOST_THREADS, kind_of
from ..pool.pool import HINTS, WorkerFailed
from ..pool.worker_process import WorkerKey
from ..records.code import CodeFacts
from ..records.reason import Reason
from ..worker.code import COMMAND, FUNCTION, MODULES, TORCH, Code
from .context import RunContext
from .own_exports import about

EXAMINE_SHARE = 0.5  # most of the budget that may go into importing, building and one call
SCRIPT_SHARE = 1 / 3  # share of the budget after which a script is stopped
BACKENDS = {TORCH: "torch", FUNCTION: "python", COMMAND: "command"}
# Failures on the CPU after which code is examined on a GPU: its operators may be CUDA's alone.
NOT_ON_A_CPU = ("needs_gpu", "user_code", "no_memory", "timeout", "worker_died")
HANGS = "make it return sooner, or raise --budget"
SLOW = "raise --budget, or pass a smaller batch after --"


@dataclass
class Examination:
    """Finds the facts about the code, on the CPU, or on a GPU if it needs one.

    `code.home` is then the device whose worker answers all later questions.
    """

    context: RunContext
    code: Code
    threads: int  # those of the worker that examines a function on the CPU

    def run(self, gpus: Sequence[str]) -> tuple[CodeFacts, float]:
        """The facts, and the seconds to load the code; WorkerFailed if it raised, hung or died."""
        began_s = self.context.now()
        found = _with_threads(self._facts(gpus))
        # Only the first worker has to run a script.
        times = (each.seconds / each.share for each in found.modules if each.share)
        script_s = min(times, default=0.0)
        load_s = max(0.0, self.context.now() - began_s - script_s)
        # Shares are those of a run in which the script imports torch itself.
        script_s += max(self.context.pool.import_s.values(), default=0.0)
        modules = [
            msgspec.structs.replace(each, share=min(1.0, each.seconds / script_s))
            for each in found.modules
        ]
        return msgspec.structs.replace(found, modules=modules), load_s

    def why_failed(self, reason: Reason) -> Reason:
        """The reason of a failed examination, with what took too long and a matching remedy."""
        what, hint = self.code.name, reason.hint
        if hint == HINTS["timeout"]:
            hint = SLOW if self.code.is_script else HANGS
            if Path(self.code.folder, MODULES).exists():  # the script itself is cut in time
                what = "the calls that examine its module"
        if reason.code not in ("timeout", "worker_died"):
            return reason
        return msgspec.structs.replace(reason, message=f"{what}: {reason.message}", hint=hint)

    def key(self, device: str) -> WorkerKey:
        """The worker that answers questions; for a function it is that of its first candidate."""
        of_function = self.code.kind == FUNCTION and device == "cpu"
        return WorkerKey(device, BACKENDS[self.code.kind], self.threads if of_function else None)

    def _facts(self, gpus: Sequence[str]) -> CodeFacts:
        """A script chooses its device itself, so its worker sees a GPU if torch can use one."""
        place, kind = "cpu", self.code.kind
        if gpus and self.code.is_script:
            with suppress(WorkerFailed):
                self.context.start(self.key(gpus[0]))
                place = gpus[0]
        real = [gpu for gpu in gpus if kind != COMMAND and not kind_of(gpu).simulated]
        if real and kind == TORCH and not self.context.request.with_cpu:
            return self._for_gpu_alone(real[0])
        try:
            return self._ask(place)
        except WorkerFailed as failure:
            if failure.reason.code not in NOT_ON_A_CPU or not real:
                raise
            if self.code.is_script and not Path(self.code.folder, MODULES).exists():
                raise  # the script failed before it called a module, and it runs only once
            with suppress(WorkerFailed):  # a failure on the GPU too is not the CPU's fault
                found = self._ask_at_home(real[0])
                # A function without a parameter for the device computes on the first GPU if on any.
                on_first = failure.reason.code == "needs_gpu" and is_first(real[0])
                if kind == FUNCTION and not (found.takes_device or on_first):
                    raise failure
                notes = [*found.notes, f"it did not run on the CPU: {failure.reason.one_line}"]
                return msgspec.structs.replace(found, needs_gpu=failure.reason, notes=notes)
            raise

    def _for_gpu_alone(self, gpu: str) -> CodeFacts:
        """The facts of a module that races on this GPU alone.  To examine it takes several copies:
        if the GPU has no room for those, the CPU does it, since one copy may still fit."""
        try:
            return self._ask_at_home(gpu)
        except WorkerFailed as failure:
            if failure.reason.code != "no_memory" or self.code.is_script:
                raise
            cramped, at_home = failure, self.code
        self.context.pool.end(self.key(gpu))
        self.code = replace(at_home, home="cpu")
        try:
            return self._ask("cpu")
        except WorkerFailed:
            self.code = at_home
            raise cramped from None

    def _ask_at_home(self, gpu: str) -> CodeFacts:
        """The facts from a GPU, which also answers all later questions to the code."""
        self.code = replace(self.code, home=gpu)
        return self._ask(gpu)

    def _ask(self, device: str) -> CodeFacts:
        context, key, budget = self.context, self.key(device), self.context.request.budget
        context.start(key)
        share = EXAMINE_SHARE + SCRIPT_SHARE * self.code.is_script
        deadline_s = max(1.0, context.deadline(share * budget))
        # A script is stopped early enough for the calls that follow.
        seconds = min(SCRIPT_SHARE * budget, 2 / 3 * deadline_s)
        self.code = replace(self.code, seconds=seconds)
        asked = about(self.code, "examine")
        found = context.pool.ask(key, deadline_s, CodeFacts, **asked).result
        if found.lingers:
            context.pool.end(key)
        return found


def _with_threads(facts: CodeFacts) -> CodeFacts:
    """The facts, with the threads that OMP_NUM_THREADS gives libraries where the code sets none."""
    value = os.environ.get("OMP_NUM_THREADS", "")
    if facts.kind == COMMAND or facts.threads or not value.isdecimal() or value == "0":
        return facts
    return msgspec.structs.replace(facts, threads=min(int(value), MOST_THREADS))
