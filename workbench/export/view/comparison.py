"""Compared runs, and the two sides of `workbench ab`, as sections."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ...records import comparison as records
from ...report.names import candidate_name, sized_name
from ...stats.samples import median
from ...stats.unpaired import SAME_WITHIN
from ...text import units
from . import machine
from .section import Section
from .spans import Text
from .table import UNLIMITED, Column, texts_of
from .words import choice_word, with_short


def sections(found: records.RunComparison) -> Iterator[Section]:
    """The verdicts and cases of each run against A, then the machines and their software."""
    for one, run in zip(found.against, found.runs[1:], strict=True):
        yield from _against(one, found.runs[0], run)
    facts = [dict(_facts(run)) for run in found.runs]
    rows = []
    for name in dict.fromkeys(name for each in facts for name in each):
        values = [each.get(name, "-") for each in facts]
        rows.append(("*" if len(set(values)) > 1 else "", name, *values))
    header: list[str | Column] = ["", _staying("", 12)]
    header += [_staying(run.name, 18) for run in found.runs]
    yield Section.of("Machines and software", ["* marks what differs."], header, rows)


def _facts(side: records.ComparedRun) -> Iterator[tuple[str, str]]:
    yield from (("run", side.run.id), ("workbench", side.version))
    found, installed = side.machine, side.software
    if found is not None and installed is not None:
        yield from (("host", found.hostname), ("memory", units.size(found.memory.total_bytes)))
        for gpu in found.gpus:
            label = f"GPU {gpu.index}" if gpu.index is not None else gpu.device or "GPU"
            yield label, machine.gpu_title(gpu)
        facts = machine.cpu(found.cpu)[:2] + machine.drivers(found)
        for each in facts + machine.software(installed, found.os):
            yield each.label or "CPU", each.text.plain
        yield from installed.environment.items()


def _against(
    one: records.Versus, first: records.ComparedRun, run: records.ComparedRun
) -> Iterator[Section]:
    b, known = one.name, None not in (first.machine, run.machine)
    unlike = "two machines, so the results compare these too" if known else "an unknown machine"
    where = "one machine" if one.same_machine else unlike
    counts = Counter(case.word for case in one.cases)
    words = ", ".join(f"{count:,} {word}" for word, count in counts.items())
    notes = [
        f"A is run {first.run.id}, {b} is run {run.run.id}.",
        f"{units.counted(len(one.cases), 'case')} in both: {words}.",
        *(f"{warning.one_line}." for warning in one.warnings),
    ]
    yield Section.of(f"{b} against A: {where}", notes, (), ())
    if one.verdicts:
        yield _verdicts(one)
    yield _with_short_names(_cases(one, [first.round_spread, run.round_spread]))


def _verdicts(one: records.Versus) -> Section:
    here, there = (_staying(name, 14, names=True) for name in ("A", one.name))
    header: list[str | Column] = ["Verdict", _staying("", 12), here, there]
    if any(any(verdict.ci95) for verdict in one.verdicts):
        header += ["95% in A", f"95% in {one.name}"]
    note = (
        "AMBIGUOUS: both picks may be as good, a run did not measure both, or the runs asked"
        " different questions."
    )
    return Section.of("Verdicts that differ", [note], header, map(_verdict, one.verdicts))


def _cases(one: records.Versus, spreads: Sequence[float | None]) -> Section:
    b, varied = one.name, [units.percent(spread) for spread in spreads if spread is not None]
    notes = [
        f"{b}/A is the time of {b} over that of A. It is unpaired: the runs did not take turns.",
        f"SAME: the whole interval lies within {SAME_WITHIN:.0%}. FASTER, SLOWER: it excludes 1.",
    ]
    if len(varied) == 2:  # a run with one round of each case has no spread and no intervals
        rounds = f"rounds varied by {varied[0]} in A and {varied[1]} in {b}"
        notes.insert(1, f"Intervals allow for changes from run to run: {rounds}.")
    only = (("A", one.only_in_a), (b, one.only_here))
    notes += [f"Only in {n}: {len(ids)}, such as {ids[0]}." for n, ids in only if ids]
    if one.failed_here:
        (case, reason), *_ = one.failed_here.items()
        notes.append(f"Failed in {b}: {len(one.failed_here)}, such as {case}: {reason.message}.")
    named, ratio = _staying("Case", 24, names=True), _staying(f"{b}/A")
    why = Column("Why", "Why", 3, minimum=18)
    header = ("Result", named, ratio, "99% CI", f"Medians A, {b}", "Rounds", why)
    return Section.of("Cases", notes, header, map(_case, one.cases))


def _with_short_names(found: Section) -> Section:
    """Adds the cases without their sizes, for narrow tables, if these names still differ."""
    names = [texts_of(line.cells["Case"])[0] for line in found.lines]
    short = [re.sub(r"\[.*?\]", "", name.plain) for name in names]
    if len({*short}) < len(short):
        return found
    lines = [
        replace(line, cells={**line.cells, "Case": [name, *with_short(Text.of(text))]})
        for line, name, text in zip(found.lines, names, short, strict=True)
    ]
    return replace(found, lines=lines)


def _staying(title: str, minimum: int | None = None, *, names: bool = False) -> Column:
    """A column that stays at any width; its texts may be cut to `minimum` cells."""
    return Column(title, title, minimum=minimum, maximum=UNLIMITED, names=names)


def _verdict(one: records.ComparedVerdict) -> tuple[str, ...]:
    picks = [candidate_name(pick) if pick else "no pick" for pick in one.picks]
    if len({*picks}) < len({*one.picks}):  # the picks differ only in size
        picks = [sized_name(pick) if pick else "no pick" for pick in one.picks]
    words = map(choice_word, one.choices, one.picks)
    sides = [f"{word}: {pick}" for word, pick in zip(words, picks, strict=True)]
    ratios = [units.ratio_parts(ci[0], ci)[1] if ci else "-" for ci in one.ci95]
    return one.word, one.scenario, *sides, *ratios


def _case(one: records.ComparedCase) -> tuple[str, ...]:
    ratio = units.ratio_parts(one.ratio, one.ci99)
    times = ", ".join(map(units.duration, one.median_s))
    why = one.reason.message if one.reason else "beyond --fail-on" if one.beyond else ""
    return one.word, sized_name(one.id), *ratio, times, f"{one.rounds[0]} / {one.rounds[1]}", why


def ab_section(report: records.ABReport) -> Section:
    """The sides, notes on the results, and the table of results."""
    notes = [f"{side.name}: {side.label}" for side in report.sides]
    notes += [f"{sized_name(e.case)}: {e.reason.message}" for e in report.results if e.reason]
    posed = [sized_name(each.case) for each in report.results if each.basis == "simulated"]
    notes += [f"{case}: simulated, a CPU worker poses as this GPU" for case in posed]
    notes.append(f"SAME: the whole interval is within {report.tolerance:.2%}")
    named, ratio = _staying("Case", 24, names=True), _staying("B/A")
    header = ("Result", named, ratio, "95% CI", "A", "B", "Pairs of processes")
    return Section.of("B against A", notes, header, map(_both_sides, report.results))


def _both_sides(result: records.ABResult) -> list[str]:
    ratio = units.NOT_AVAILABLE if result.ratio is None else f"{result.ratio:.3f}"
    interval = "{:.3f}-{:.3f}".format(*result.ci95) if result.ci95 else units.NOT_AVAILABLE
    times = [units.duration(median(each) if each else None) for each in (result.a_s, result.b_s)]
    word = result.word or "NO RESULT"
    return [word, sized_name(result.case), ratio, interval, *times, str(len(result.ratios))]
