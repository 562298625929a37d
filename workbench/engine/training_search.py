"""The search for the best way to train the user's module, one setting at a time."""

from collections.abc import Sequence
from dataclasses import replace

from ..advisor.own import training
from ..advisor.own.candidates import keeping
from ..advisor.refinements import settled_leaders
from ..contract import WAITING_FRACTION, Case
from ..report.candidate import Candidate
from .own_search import COMPILED, OwnSearch, Stage, has_compiled, loses_by_faults

CHANGED = "its other precisions and modes"


class TrainingSearch(OwnSearch):
    def _here(self, case: Case) -> Case:
        """The case at this row's batch, with at most as many loaders as a sample has steps, since a
        sample holds whole rounds of all loaders."""
        here = super()._here(case)
        most = training.steps_per_sample(self._space, here.batch, here.device)
        here = replace(here, params={**here.params, "batches": most})
        if int(here.tuning.get("workers", 0)) <= most:
            return here
        return replace(here, tuning={**here.tuning, "workers": most})

    def _plan(self) -> list[Stage]:
        if self.follows:
            return [self._repeat_best, self._vary_settings]
        return [self._change, self._vary_settings]

    def _start(self) -> list[Case]:
        for mode, why in self._space.facts.impossible.items():
            self._exports.leave_out(mode, why)
        found, own = training.start(self._space), self._space.facts.precision
        plain = [case for case in found if case.mode is None and case.precision == own]
        return self._new(plain) or self._new(found)

    def gap(self, candidates: Sequence[Candidate]) -> str:
        """Other precisions and modes, or the compiled form of a leader in eager torch."""
        self._see(candidates, 0.0)
        may_win = self._may_win_compiled and not has_compiled(candidates)
        if not self.follows and may_win:
            self._compile()  # the race may never have come to it
        if not self.follows and self._change():
            return CHANGED
        return COMPILED if may_win and "compile" in self._exports.late else ""

    def _compiled(self) -> list[Case]:
        """The leader's compiled form, with the settings of its loader."""
        if not (ranked := self._ranked):
            return []
        found = training.after(ranked[0].case, self._space, None, 0.0)
        return [each for each in found if each.is_compiled]

    def _change(self) -> list[Case]:
        """The next precision, the code's own first: one that takes too long, as FP16 on a CPU may,
        ends the worker that all share."""
        found = training.start(self._space)
        kinds = dict.fromkeys(case.precision for case in found)
        groups = (self._new(c for c in found if c.precision == kind) for kind in kinds)
        return next(filter(None, groups), [])

    def _vary_settings(self) -> list[Case] | None:
        """Neighbours of the leader of each device, once it has led for some rounds."""
        leaders = [] if self._is_short else settled_leaders(self.candidates, self.scenario)
        for leader in leaders:
            if leader.case.id in self._varied:
                continue
            waiting = leader.blocks[-1].metrics.get(WAITING_FRACTION, 0.0)
            found = training.after(leader.case, self._space, self.scenario.batch, waiting)
            if self.follows:  # the first row has raced the modes
                found = [each for each in found if each.mode == leader.case.mode]
            if loses_by_faults(leader, leader):
                found.append(keeping(leader.case))
            # Compiling takes long, so the leader has to lead these first.
            if cases := self._new(each for each in found if not each.is_compiled):
                return cases
            self._varied.add(leader.case.id)
            if cases := self._new(self._affordable(found)):
                return cases
        return None
