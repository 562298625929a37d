"""A user's model or code: what to ship or how to run it, why, where the time goes, and the code."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import nlargest

from ...advisor import subject
from ...advisor.comparison import better, worse
from ...advisor.model.overview import compared, is_as_given, original, short_name, unprofiled
from ...advisor.own import overview as own
from ...advisor.race_summary import counts_text
from ...advisor.ranking import RankedCandidate, gain_over
from ...records.reason import Warning
from ...report.candidate import Candidate, Row
from ...report.names import candidate_name
from ...report.report import Report
from ...text import units
from .answers import answer_warnings, command_lines
from .derived import RunView
from .details import INDENT, output_text
from .model_facts import built_text, code_facts, left_out, model_and_inputs, saved_text
from .ranked import candidate_lines, columns
from .spans import Fact, Text, fact, facts_lines, heading, label_width, listed, warning_fact
from .table import UNLIMITED, Cell, Column, Line, plain_cells, table_lines
from .tables import racing_text
from .words import bar

TIMES = "Where the time of one run goes"
RACED = "a whole run, raced"
MOST_OUTPUTS = 8  # those with the largest errors are listed


def head_lines(run: RunView, width: int, *, roomy: bool, title: str = "") -> list[Text]:
    """The model and its inputs, in two lines unless `roomy`; before the model is read, `title`."""
    first, *rest = _described(run.report)
    name = first.partition(": ")[0]
    if not name:
        row = run.report.subject_row
        return [Text.of((row.plan.title if row else title, "strong"))]
    head = Text.of((name, "strong"), first.removeprefix(name))
    lines = [Text.of((line, "dim")) for line in rest]
    if not roomy and len(lines) > 1:
        lines = [Text.of(lines[0], (f"  and {len(lines) - 1} more", "dim"))]
    heads = head.wrap(width) if roomy else [head]
    return [line.truncate(width) for line in (*heads, *lines)]


def _described(report: Report) -> list[str]:
    """The facts as sentences, the name first; [""] before they are known."""
    if report.code is not None:
        return list(code_facts(report.code.facts))
    return list(model_and_inputs(report.model.facts)) if report.model else [""]


def stage(run: RunView) -> str:
    """The current stage of the run; "" after it."""
    report, rows = run.report, run.report.subject_rows
    if not run.going:
        return ""
    if report.subject is None:
        return "reading it, making inputs, running it once"
    if (building := report.building) is not None:
        if building.search:
            return f"searching the nodes of {building.recipe} to leave in FP32"
        return f"building {building.recipe}"
    if not rows:
        return "choosing its candidates"
    if row := next((row for row in rows if row.verdict is None), None):
        return racing_text(row, at_batch(row) if report.code is not None else "")
    profiling = report.model is not None and report.model.advice is None
    return "profiling, to explain the result" if profiling else "finishing"


def advice_lines(
    found: Sequence[RankedCandidate], chosen: Candidate | None, run: RunView, width: int
) -> list[Text]:
    """The variant to ship, its warnings, and why; also an explanation of the `chosen` candidate."""
    report = run.report
    facts = list(_advice(found, run))
    lines = facts_lines(facts, width, INDENT)
    if facts:
        lines.insert(0, heading("Answer" if report.subject_verdict else "So far", width))
    pick = subject.pick_of(report)
    for candidate in (pick, None if chosen is pick else chosen):
        if candidate is not None:
            lines += _why_lines(candidate, run, width)
    return lines


def _why_lines(candidate: Candidate, run: RunView, width: int) -> list[Text]:
    """Why a candidate won, lost or failed; [] if unknown."""
    explained = run.report.explained.get(candidate.case.id)
    sentences = list(explained.sentences) if explained else []
    if candidate.state == "failed":
        why = f": {candidate.reason.message}" if candidate.reason else ""
        sentences.insert(0, units.as_sentence(f"failed{why}"))
    elif explained is None and candidate.reason:
        sentences.insert(0, units.as_sentence(run.elimination_text(candidate)))
    if not sentences:
        return []
    facts = [fact("", subject.brief(text, run.report)) for text in sentences]
    title = f"Why {subject.brief(candidate.name, run.report)}"
    return [Text(), heading(title, width), *facts_lines(facts, width, 0)]


def _advice(found: Sequence[RankedCandidate], run: RunView) -> Iterator[Fact]:
    report, row, verdict = run.report, run.report.subject_row, run.report.subject_verdict
    if report.subject is None and row is not None:
        yield from _refused(row)
        return
    if now := stage(run):
        yield fact("now", now, "strong")
    if run.going and verdict is None:
        yield from _leader(found, report)
        return
    verb = "Ship" if report.model else "Run it"
    sentences = (text.removeprefix(f"{verb} ") for text in subject.recommendation(report))
    yield from listed(verb.lower(), sentences)
    yield from listed("confidence", _confidence(report))
    yield from _weak(report)
    if report.subject and report.subject.advice and (saved := report.subject.advice.saved):
        yield fact("saved", saved_text(saved), "good" if saved.reason is None else "error")
    if report.code is not None:
        yield from listed("why", verdict.reasons[1:] if verdict else ())
    yield from _notes(report)
    warned = answer_warnings(verdict) if verdict else []
    if report.code is not None:  # the recommendation names what lacked time
        warned = [each for each in warned if each.code != "unmeasured"]
    yield from _warnings(warned, report)
    if verdict is not None and verdict.next_best:
        yield fact("next", subject.brief(verdict.next_best, report))


def _confidence(report: Report) -> Iterator[str]:
    """The confidence of each answer, and the comparison that it is about."""
    rows = report.subject_rows
    for row in rows:
        verdict = row.verdict
        if verdict is None or verdict.pick is None:
            continue
        against = ""
        if verdict.device_ratio is not None:
            against = ", CPU against GPU"
        elif verdict.runner_up is not None:
            against = f" against {subject.brief(candidate_name(verdict.runner_up), report)}"
        yield f"{verdict.confidence}{against}{at_batch(row) * (len(rows) > 1)}"


def subject_facts(report: Report) -> Iterator[Fact]:
    """The model or code, doubts about its results, and what was not tried; none in other runs."""
    if report.subject is None:
        return
    yield from listed("model" if report.model else "code", _described(report))
    yield from (*_weak(report), *_notes(report))
    missing = left_out(report, report.subject_verdict).items()
    yield from listed("not tried", [f"{name}: {why}" for name, why in missing])


def _weak(report: Report) -> Iterator[Fact]:
    if report.model and report.model.advice and (weak := report.model.advice.weak_evidence):
        yield fact("! weak", weak, "warning", label_tone="strong warning")


def _notes(report: Report) -> Iterator[Fact]:
    """Remarks on the way the code was run."""
    if report.code is not None:
        notes = [*report.code.facts.notes, *_steps_note(report), *_unchecked(report)]
        yield from listed("note", dict.fromkeys(notes))


def _steps_note(report: Report) -> Iterator[str]:
    """The number of steps per sample of a training, which may differ between devices."""
    found = report.candidates.values()
    counts = sorted({int(each.case.params.get("batches", 1)) for each in found})
    if counts not in ([], [1]):
        steps = " or ".join(map(str, counts))
        yield f"each sample is the mean of {steps} steps, so that all loaders count alike"


def _unchecked(report: Report) -> Iterator[str]:
    """Why results were not checked, if that came out during the race."""
    known = report.code is not None and report.code.facts.nondeterministic
    found = [each.accuracy.reference for each in report.candidates.values() if each.accuracy]
    yield from (text for text in found if text.startswith("not checked") and not known)


def _refused(row: Row) -> Iterator[Fact]:
    """Why the model could not be read, or the code could not run."""
    for candidate in row.candidates:
        if candidate.reason is not None:
            message = candidate.reason.message
            yield fact("! failed", message, "strong error", label_tone="strong error")
            if candidate.reason.hint:
                yield fact("  remedy", candidate.reason.hint)


def _leader(found: Sequence[RankedCandidate], report: Report) -> Iterator[Fact]:
    """The fastest candidate so far among those that may be picked."""
    first, given = next(iter(report.candidates.values()), None), "the model as given"
    if report.code is not None and first is not None:
        given = own.given_name(report.code, first.case)
    for ranked in found:
        if ranked.candidate.is_valid and not ranked.above:
            name = subject.brief(ranked.candidate.name, report)
            if ranked.given:
                name += f", {given}"
            elif ranked.gain is not None:
                word = (better if ranked.gain >= 1 else worse)(ranked.candidate.objective)
                name += f", {units.lead(ranked.gain)} {word} than {given}"
            yield fact("leading", name)
            return


def _warnings(found: Iterable[Warning], report: Report) -> Iterator[Fact]:
    for warning in found:
        candidate = report.candidates.get(warning.subject or "")
        about = f"{candidate.name}: " if candidate else ""
        yield warning_fact(subject.brief(f"{about}{warning.one_line}", report))


def code_lines(chosen: Candidate | None, run: RunView, width: int) -> list[Text]:
    """The operators or modules that take most of the time, and the code."""
    code = subject.snippet(run.report)
    lines = module_lines(run.report, width) or operator_lines(chosen, run.report, width)
    lines += [Text()] if lines else []
    if code is not None:
        lines += [heading("Code, copied by c", width)]
        for text in code.splitlines():
            lines += Text.of(text).wrap(width)
        lines.append(Text())
    return lines


def operator_lines(chosen: Candidate | None, report: Report, width: int) -> list[Text]:
    """The time of each operator in the model as given and in the explained variant."""
    found = compared(report, chosen.case.id if chosen else None)
    row, model = report.subject_row, report.model
    title = heading(TIMES, width)
    if found is None or row is None or model is None:
        why = unprofiled(report)
        return [title, *facts_lines([fact("", why)], width)] if why else []
    candidate = report.candidates[found.case]
    case = candidate.case
    given = original(row.candidates, model.facts, case.device_kind)
    longest = max(max(each.fp32_s, each.int8_s) for each in found.operators) or 1.0
    columns = (
        Column("operator", "Operator", minimum=10),
        Column("fp32", short_name(given.case) if given else "as given", minimum=16, maximum=44),
        Column("int8", short_name(case), minimum=16, maximum=44),
        Column("gain", "Gain", rank=1, align="right"),
    )
    lines = []
    for each in found.operators:
        cells: dict[str, Cell] = {"operator": Text.of(each.operator)}
        cells["fp32"] = _timed(each.fp32_s, longest, "cpu-1")
        cells["int8"] = _timed(each.int8_s, longest, "cpu-0")
        if each.fp32_s and each.int8_s:
            cells["gain"] = Text.of(units.gain(each.fp32_s / each.int8_s))
        lines.append(Line(each.operator, cells))
    raced = gain_over(given, candidate, Candidate.step_rounds)
    if given is not None and raced is not None:
        # The times of the race, since a profiled run is slower.
        cells = {"operator": Text.of(RACED), "fp32": Text.of(_time(given.median_s))}
        cells["int8"] = Text.of(_time(candidate.median_s))
        if raced.least is None:
            cells["gain"] = Text.of(units.gain(raced.factor))
        lines.append(Line(RACED, cells))
    return [title, *table_lines(columns, lines, width)]


def _time(seconds: float) -> str:
    return f"{units.duration(seconds, align=True):>7}"


def _timed(seconds: float, longest: float, tone: str) -> Callable[[int], Text]:
    """`3.70 ms ━━━━━━━`, or a dash if the variant has no such operator."""
    if not seconds:
        return lambda _: Text.of(("      -", "dim"))
    return bar(_time(seconds), seconds / longest, tone)


def rest_lines(chosen: Candidate | None, run: RunView, width: int) -> list[Text]:
    """The error of each output, the variants built and those not tried, and the command."""
    report, model, verdict = run.report, run.report.model, run.report.subject_verdict
    if report.subject is None:
        return []
    missing = left_out(report, verdict)
    built = model.built if model else []
    lines = other_races(run, width)
    for title, facts in (
        _outputs(chosen, report),
        ("Variants", [fact(each.recipe, built_text(each)) for each in built]),
        ("Not tried", [fact(name, why) for name, why in missing.items()]),
    ):
        if facts:
            found = facts_lines(facts, width, label_width(facts, least=0))
            lines += [heading(title, width), *found, Text()]
    return lines + (command_lines(verdict.reproduce)[1:] if verdict else [])


def _outputs(chosen: Candidate | None, report: Report) -> tuple[str, list[Fact]]:
    """The title, and the error of each output of the chosen candidate or the pick, as `listed`."""
    candidate = chosen or subject.pick_of(report)
    accuracy = candidate.accuracy if candidate else None
    if candidate is None or accuracy is None or not accuracy.listed:
        return "", []
    if chosen is None and report.model and is_as_given(candidate.case, report.model.facts):
        return "", []
    worst = nlargest(MOST_OUTPUTS, accuracy.outputs, key=lambda each: each.relative_error)
    facts = [fact(each.name, output_text(each)) for each in accuracy.outputs if each in worst]
    if (more := len(accuracy.outputs) - len(facts)) > 0:
        facts.append(fact("", f"{more} more, with no larger error", "dim"))
    facts.append(fact("", f"compared with {accuracy.reference}", "dim"))
    return f"Outputs of {short_name(candidate.case)}", facts


def model_parts(run: RunView, width: int, table_width: int) -> Iterator[list[Text]]:
    """Everything about the model or code of a finished run; nothing in other runs."""
    report, code, row = run.report, subject.snippet(run.report), run.report.subject_row
    if report.subject is None:
        if row is not None and subject.is_refused(report):
            yield facts_lines(list(_refused(row)), width, INDENT)
            yield command_lines(row.verdict.reproduce)[1:] if row.verdict else []
        return
    found, verdict = subject.ranked_candidates(report), report.subject_verdict
    first, *rest = _described(report)
    if row is not None:
        yield facts_lines(list(_advice(found, run)), width, INDENT)
    yield facts_lines([fact("", first), *(fact(" ", text) for text in rest)], width, 2)
    if row is not None and found:
        table = table_lines(columns(row, bars=False), candidate_lines(found, run), table_width)
        yield [*table, *facts_lines(list(_further_warnings(found, report)), width, INDENT)]
    explained = (" ".join(each.sentences) for each in report.explained.values())
    if why := [fact("", subject.brief(text, report)) for text in explained]:
        yield [heading("Why", width), *facts_lines(why, width)]
    yield module_lines(report, width) or operator_lines(None, report, width)
    if verdict is not None and verdict.race is not None:
        yield facts_lines([fact("race", counts_text(verdict.race))], width, INDENT)
    yield rest_lines(None, run, width)
    if code is not None:
        yield [heading("To run it as it was measured", width), *map(Text.of, code.splitlines())]


def _further_warnings(found: Sequence[RankedCandidate], report: Report) -> Iterator[Fact]:
    """Warnings about the times of candidates, one of each kind, since the table marks them all."""
    verdict = report.subject_verdict
    known = {w.code for w in answer_warnings(verdict)} if verdict else set()
    for ranked in found:
        for warning in report.measurement_warnings(ranked.candidate):
            if warning.code not in known:
                known.add(warning.code)
                yield from _warnings([warning], report)


def at_batch(row: Row) -> str:
    """` at batch 8`; "" for code without batches."""
    batch = row.candidates[0].case.batch if row.candidates else None
    return "" if batch is None else f" at batch {batch}"


def module_lines(report: Report, width: int) -> list[Text]:
    """The modules that a script calls; [] for other code."""
    rows = []
    for each in report.code.facts.modules if report.code else ():
        texts = [each.name, f"{each.calls:,}", units.duration(each.seconds, align=True)]
        texts += [units.percent(each.share), "raced" if each.chosen else "", "; ".join(each.shapes)]
        rows.append(texts)
    title = heading("Modules that the script calls", width)
    inputs = Column("inputs", "Inputs", rank=5, minimum=12, maximum=UNLIMITED)
    header = ("Module", "Calls", "Time", "Share", "", inputs)
    return [title, *table_lines(*plain_cells(header, rows, (1, 2, 3)), width)] if rows else []


def other_races(run: RunView, width: int) -> list[Text]:
    """A table for each batch except the first, with a blank line below it."""
    lines: list[Text] = []
    for row in run.report.subject_rows[1:]:
        found = candidate_lines(own.ranked_candidates(run.report, row), run)
        table = table_lines(columns(row, bars=False), found, width)
        lines += [heading(f"The race{at_batch(row)}", width), *table, Text()]
    return lines
