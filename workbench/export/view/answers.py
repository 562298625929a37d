"""The answer of a row: verdict, reasons, warnings, advice, and its candidates."""

from collections import Counter
from collections.abc import Iterator, Sequence

from ...advisor import break_even
from ...advisor.comparison import TIMED, Comparison
from ...advisor.race_summary import counts_text, eliminated_by_first_block
from ...advisor.ranking import has_equal
from ...advisor.subject import answer
from ...records.document import Sweep
from ...records.reason import NOISE, Reason, Warning
from ...records.verdict import OPEN, ObjectivePick, Verdict
from ...report import sweeps
from ...report.candidate import CANCELLED, Candidate, Row
from ...report.names import candidate_name, in_words, place_text
from ...report.report import Report
from ...stats.paired import Ratio
from ...stats.ratios import TOLERANCE, is_tie
from ...text import units
from .curves import curve_lines
from .derived import RunView
from .details import INDENT, metrics_text
from .spans import Fact, Text, fact, facts_lines, heading, listed, warning_fact
from .table import longest_that_fits, table_lines
from .tables import pending_texts, raced_lines, result_columns, run_columns
from .words import choice_text, choice_word, confidence_text, pick_texts

PLOT_HEIGHT = 14  # lines of the curves with axis and title
NAMED_OPERATORS = 5  # in one line


def answer_lines(row: Row, run: RunView, width: int) -> list[Text]:
    """Question, answer, reasons, warnings and command of a row; the table says why an answer is
    missing."""
    facts = [fact("", row.plan.question, "dim")] if row.plan.question else []
    facts += answer_facts(row, run) if row.verdict is not None else _lead_facts(row, run)
    lines = [heading(row.title, width), *facts_lines(facts, width, INDENT)]
    return lines + command_lines(row.plan.reproduce)


def race_lines(row: Row, run: RunView, width: int) -> list[Text]:
    """The candidates of a row; none before its race."""
    return table_lines(run_columns(row, run), raced_lines(row, run), width) if row.started else []


def result_lines(row: Row, run: RunView, width: int, table_width: int) -> list[Text]:
    """A row of a finished run: the answer if it has one, the race and the candidates."""
    lines = [heading(row.title, width), *facts_lines(result_facts(row, run), width, INDENT)]
    if (verdict := row.verdict) is not None:
        lines += [*command_lines(verdict.reproduce)[1:], Text()]
    found = raced_lines(row, run)
    lines += table_lines(result_columns(row), found, table_width) if found else []
    return lines + facts_lines(notes([row], run), width, INDENT)


def result_facts(row: Row, run: RunView) -> list[Fact]:
    """The answer and the race of a finished row; without a verdict the fastest candidate."""
    if (verdict := row.verdict) is None:
        return _lead_facts(row, run)
    race = [fact("race", counts_text(verdict.race))] if verdict.race is not None else []
    return [*answer_facts(row, run), *race]


def _lead_facts(row: Row, run: RunView) -> list[Fact]:
    """The best candidate against the next one; [] if they have too few common rounds."""
    best, other = run.best(row), run.runner_up(row)
    ratio = run.stated(row).get(other.case.id) if other is not None else None
    if best is None or other is None or ratio is None or not ratio.pairs:
        return []
    label = "fastest" if row.plan.objective in TIMED else "best"
    sentence = Comparison(best, other, ratio).sentence(run.case_name)
    return [fact("so far" if run.going else label, sentence)]


def ending_lines(run: RunView, width: int, *, starts: bool) -> list[Text]:
    """The end of a run in one line: the answers, and the keys for the next action; keys that start
    a run only if `starts`."""
    verdicts = run.report.verdicts
    answers = [(v.confidence == OPEN, choice_word(v.choice, v.best_gpu)) for v in verdicts]
    counts = Counter(OPEN if is_open else word for is_open, word in answers)
    most = counts.most_common() if len(verdicts) > 1 else []  # the table shows a single one
    found = [f"{word} in {count} of {len(verdicts)}" for word, count in most]
    noise = [each.message for each in run.report.warnings if counts[OPEN] and each.code in NOISE]
    if verdicts and all(verdict.no_gpu and verdict.choice == "cpu" for verdict in verdicts):
        found = ["No GPU was found: the CPU runs every scenario"]
    export = ["e: export"] if run.report.has_results else []
    keys = ["   ".join(export)]
    if starts:
        longest = ("n: another run or your own code", "n: another run")
        keys = [*("   ".join([key, *export]) for key in longest), "n: new"]
    forms = []
    for parts in ([*found, *noise[:1]], found):
        said = Text.of(("; ".join(parts) + ".  " if parts else "", "strong"))
        forms += [*(Text.of(said, (text, "dim")) for text in keys), said]
    return [longest_that_fits(forms, width)]


def rest_text(report: Report) -> str:
    """Where the rest of a cut run is, or the command that measures it; empty for other runs."""
    if report.status not in ("incomplete", CANCELLED) or report.started is None:
        return ""
    from ...report import history, journal  # their imports would delay the first picture
    from ...report.cut_run import resumable

    if not journal.is_kept(run := report.started.id):
        return ""
    if report.status != CANCELLED:  # just after that the engine still holds the journal
        if history.is_being_written(kept := journal.path_of(run)):
            return "the run is still under way"
        if history.summary_of(kept).status == "done":  # a part of it was opened, from a copy
            return f"`workbench open {run}` shows the whole run"
    known = resumable(report)
    return f"`workbench resume {known}` measures the rest" if known else ""


def command_lines(command: str) -> list[Text]:
    """A blank line and the command; [] without one, as for a plain run from a document."""
    return [Text(), Text.of(("$ ", "dim"), (command, "command"))] if command else []


def answer_facts(row: Row, run: RunView) -> list[Fact]:
    """The verdict, or the state of the race before there is one."""
    if (verdict := row.verdict) is None:
        if row.plan.owes_verdict or run.going:
            return [Fact("answer", pending_texts(row, run)[0])]
        return _lead_facts(row, run)
    # The variant of a model counts, not the kind of device.
    said = listed("answer", answer(row, run.report))  # names the pick in words
    facts = said or [Fact("answer", _choice(verdict))]
    if (pick := row.picked) is not None:
        words = "" if said or has_equal(verdict) else f"  ({in_words(pick.case)})"
        facts.append(Fact("pick", Text.of(pick_texts(verdict, run)[0], (words, "dim"))))
    facts += [*listed("why", verdict.reasons[1:]), *advice_facts(verdict)]
    facts += [warning_fact(w.one_line) for w in answer_warnings(verdict)]
    return facts + ([fact("next", verdict.next_best)] if verdict.next_best else [])


def answer_warnings(verdict: Verdict) -> list[Warning]:
    """The warnings about the row, without those about the time of a single candidate."""
    return [warning for warning in verdict.warnings if warning.subject == verdict.scenario]


def _choice(verdict: Verdict) -> Text:
    """The choice, its confidence and the first reason: the result of the measurement."""
    found = Text.of(choice_text(verdict), " (", confidence_text(verdict))
    if verdict.basis == "simulated":
        found = Text.of(found, ", ", ("simulated", "warning"))
    return Text.of(found, f").  {verdict.reasons[0]}" if verdict.reasons else ")")


def notes(rows: Sequence[Row], run: RunView) -> list[Fact]:
    """Remarks that no column shows, each once with its candidates or points of a sweep."""
    found, order = dict[tuple[str, str], dict[str, None]](), run.walk()  # where each remark applies
    for row in sorted(rows, key=lambda row: order.index(row.plan.scenario)):
        place = place_text(row.plan.point)
        for warning in run.report.disturbances(row) if row.verdict is None else ():
            found.setdefault(("! warning", warning.one_line), {})[place] = None
        for candidate in row.candidates:
            name = run.case_name(candidate.case.id)
            for label, text in _remarks(candidate, row, run):
                named = f"{name} ({place})" if place and label != "simulated" else name
                found.setdefault((label, text), {})[named] = None
    said: dict[str, list[str]] = {}
    for (label, text), places in found.items():
        parts = filter(None, [", ".join(filter(None, places)), text])
        said.setdefault(label, []).append(": ".join(parts))
    return [each for label in sorted(said) for each in listed(label, said[label])]


def _remarks(candidate: Candidate, row: Row, run: RunView) -> Iterator[tuple[str, str]]:
    """Label and text of each remark on one candidate."""
    found = run.measured(candidate)
    metrics = [metrics_text(found)] if found.metrics else []
    asked = "batch" in row.plan.point or row.plan.objective == "memory"
    if asked and found.memory_peak_bytes is not None:
        metrics.append(f"peak memory {units.size(found.memory_peak_bytes)}")
    if metrics:
        yield "metrics", ", ".join(metrics)
    if candidate.operators:
        top = candidate.operators[:NAMED_OPERATORS]
        yield "profile", ", ".join(f"{each.name} {units.percent(each.share)}" for each in top)
    if candidate.simulated:
        yield "simulated", "a CPU worker poses as this GPU"
    if row.plan.point and candidate.reason is not None:
        state = "eliminated" if candidate.eliminated else candidate.state
        yield state, candidate.reason.message
    for warning in found.warnings:
        if warning.subject != row.plan.scenario:
            yield "! warning", warning.message


def advice_facts(verdict: Verdict) -> list[Fact]:
    """Crossover, break-even points, recorded devices, and the best by each objective."""
    facts = []
    if verdict.crossover is not None:
        from ...advisor import crossover  # here, since most runs have none

        facts.append(fact("crossover", crossover.sentence(verdict.crossover)))
    facts += listed("break-even", break_even.sentences(verdict))
    if verdict.what_if:
        from ...advisor import whatif
    for number, found in enumerate(verdict.what_if):
        text = whatif.sentence(found, verdict.objective)
        facts.append(fact(" " if number else "what if", text, "dim" if found.missing else ""))
    # The longest name is wider than the column of labels.
    facts += [fact(name.removeprefix("most "), text) for name, text in cost_lines(verdict)]
    return facts + [fact(" ", sentence, "dim") for sentence in cost_notes(verdict)]


def crossover_lines(row: Row, sweep: Sweep, width: int) -> list[Text]:
    """The curves over the size of a scenario with a crossover."""
    pick, at = row.picked, sweeps.place_of(row, list(sweep.axes))
    label = pick.case.label if pick is not None else None
    crossover = row.verdict.crossover if row.verdict is not None else None
    return curve_lines(sweep, at, label, width, PLOT_HEIGHT, crossover)


def cost_notes(verdict: Verdict) -> list[str]:
    """Caveats of the most frugal pick: different sensors, and candidates without a reading."""
    pick = next((f.pick for f in verdict.by_objective if f.objective == "most_frugal"), None)
    if pick is None:
        return []
    source = next(cost.joules_from for cost in verdict.costs if cost.id == pick)
    texts = []
    if others := [c for c in verdict.costs if c.joules_from not in (None, source)]:
        one, other = candidate_name(pick), units.listed([candidate_name(c.id) for c in others], 1)
        texts.append(
            f"The energy of {one} ({source}) and {other} ({others[0].joules_from}) comes from "
            "different sensors. The two are not directly comparable."
        )
    if unread := [cost for cost in verdict.costs if cost.joules_from is None]:
        names = units.listed([candidate_name(cost.id) for cost in unread], 1)
        texts.append(f"No power reading for {names}: most frugal excludes it.")
    return texts


def cost_lines(verdict: Verdict) -> Iterator[tuple[str, str]]:
    """The names fastest, cheapest and most frugal, each with its best or why there is none."""
    for found in verdict.by_objective:
        text = f"unknown: {_because(found.unknown)}" if found.unknown else ""
        if found.pick is not None:
            text = f"{candidate_name(found.pick)}, {_value(found)}; {_lead(found, verdict)}"
        yield found.objective.replace("_", " "), text


def _lead(found: ObjectivePick, verdict: Verdict) -> str:
    """The lead of the best over the next."""
    if found.runner_up is None:
        return "no other candidate to compare with"
    next_ = candidate_name(found.runner_up)
    if found.ratio is None:
        left = eliminated_by_first_block(verdict.race, found.runner_up)
        few = f"too few rounds to compare with {next_}"
        return few if left is None else f"{next_} was eliminated early ({left.message})"
    if found.ratio_ci95 is None:
        level = found.ratio <= 1 + TOLERANCE
        lead = "about level with {}: {}" if level else "leads {} by about {}"
        return lead.format(next_, units.ratio(found.ratio))
    lead = units.times(found.ratio, found.ratio_ci95)
    if is_tie(Ratio(found.ratio, *found.ratio_ci95, 0)):
        return f"level with {next_}: {lead}"
    if found.ratio_ci95[0] <= 1:
        return f"cannot be distinguished from {next_}: {units.apart(found.ratio, found.ratio_ci95)}"
    return f"leads {next_} by {lead}"


def _because(reason: Reason) -> str:
    """Two sentences, since the remedies of some reasons are long."""
    remedy = f" {units.as_sentence(reason.hint)}" if reason.hint else ""
    return f"{reason.message}.{remedy}"


def _value(found: ObjectivePick) -> str:
    kind, slash, per = found.unit.partition("/")
    if found.value is None:
        return "too few samples for a 99th percentile"
    if slash:
        shown = units.duration(found.value) if kind == "s" else units.joules(found.value)
        return f"{shown}/{per}"
    money = units.significant(found.value) if found.value >= 1e-3 else units.figure(found.value)
    return f"{money} {found.unit}"
