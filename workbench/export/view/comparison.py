"""Compared runs as titles, sentences and tables: text, Markdown and screens share the rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from ...records.comparison import ComparedCase, ComparedRun, ComparedVerdict, RunComparison, Versus
from ...report.names import candidate_name
from ...report.report import Report
from ...stats.unpaired import SAME_WITHIN
from ...text import units
from ...text.markdown import inert, table
from . import machine
from .facts import PROSE, fact, facts_lines, heading
from .spans import Text, join, plain_lines
from .table import UNLIMITED, plain_table


class Part(NamedTuple):
    """A title, sentences, and a table, whose first column says what stands out."""

    title: str
    notes: Sequence[str] = ()
    header: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()


def parts(found: RunComparison) -> Iterator[Part]:
    """Machines and software, then for each run against A its verdicts and its cases."""
    columns = [dict(_facts(run)) for run in found.runs]
    rows = []
    for name in dict.fromkeys(name for column in columns for name in column):
        values = [column.get(name, "-") for column in columns]
        rows.append(("*" if len(set(values)) > 1 else "", name, *values))
    header = ("", "", *(run.name for run in found.runs))
    yield Part("Machines and software", ["* marks what differs."], header, rows)
    for one, run in zip(found.against, found.runs[1:], strict=True):
        spreads = [units.percent(each.round_spread or 0) for each in (found.runs[0], run)]
        known = None not in (found.runs[0].machine, run.machine)
        yield from _against(one, spreads, known=known)


def _facts(side: ComparedRun) -> Iterator[tuple[str, str]]:
    yield from (("run", side.run.id), ("workbench", side.version))
    found, installed = side.machine, side.software
    if found is not None and installed is not None:
        yield from (("host", found.hostname), ("memory", units.size(found.memory.total_bytes)))
        yield from ((f"GPU {gpu.index}", machine.gpu_title(gpu)) for gpu in found.gpus)
        facts = machine.cpu(found.cpu)[:2] + machine.drivers(found)
        for each in facts + machine.software(installed, found.os):
            text = each.text if isinstance(each.text, Text) else join(each.text, ", ")
            yield each.label or "CPU", text.plain
        yield from installed.environment.items()


def _against(one: Versus, spreads: Sequence[str], *, known: bool) -> Iterator[Part]:
    b = one.name
    unlike = "two machines, which the words are about" if known else "an unknown machine"
    where = "one machine" if one.same_machine else unlike
    yield Part(f"{b} against A: {where}", [f"{w.message}; {w.remedy}." for w in one.warnings])
    if one.verdicts:
        of_verdict = ("Verdict", "", "A", b, "Ratio in A", f"Ratio in {b}")
        notes = ["AMBIGUOUS: both picks may be as good, or a run did not measure both."]
        yield Part("Verdicts that differ", notes, of_verdict, list(map(_verdict, one.verdicts)))
    notes = [
        f"{b}/A is the time of {b} over that of A. It is unpaired: the runs did not take turns.",
        f"Intervals allow for other runs: rounds differ by {spreads[0]} in A, {spreads[1]} in {b}.",
        f"SAME: within {SAME_WITHIN:.0%}. FASTER, SLOWER: the whole interval is.",
    ]
    only = (("A", one.only_in_a), (b, one.only_here))
    notes += [f"Only in {n}: {len(ids)}, such as {ids[0]}." for n, ids in only if ids]
    of_case = ("Word", f"{b}/A", "99% CI", "Case", "A", b, "Rounds", "Why")
    yield Part("Cases", notes, of_case, list(map(_case, one.cases)))


def _verdict(one: ComparedVerdict) -> tuple[str, ...]:
    picks = [candidate_name(pick) if pick else "no pick" for pick in one.picks]
    sides = [f"{choice}: {pick}" for choice, pick in zip(one.choices, picks, strict=True)]
    ratios = [units.ratio_parts(ci[0], ci)[1] if ci else "-" for ci in one.ci95]
    return one.word, one.scenario, *sides, *ratios


def _case(one: ComparedCase) -> tuple[str, ...]:
    ratio, times = units.ratio_parts(one.ratio, one.ci99), map(units.duration, one.median_s)
    why = one.reason.message if one.reason else "beyond --fail-on" if one.beyond else ""
    return one.word, *ratio, one.id, *times, f"{one.rounds[0]} / {one.rounds[1]}", why


def screen_parts(reports: Sequence[Report], found: RunComparison) -> Iterator[Part]:
    """A and B for a screen: their scenarios, what differs around them, the cases."""
    setup, *others = parts(found)
    yield from _scenarios(reports, found.against[0])
    notes = [f"{name}: {a}  ->  {b}" for mark, name, a, b in setup.rows if mark]
    yield Part("What differs from A to B", notes)
    yield from others


def _scenarios(reports: Sequence[Report], one: Versus) -> Iterator[Part]:
    """The scenarios that both answered, with the time of A's pick in B over that in A."""
    cases = {case.id: case for case in one.cases}
    after = {verdict.scenario: verdict for verdict in reports[1].verdicts}
    rows = []
    for verdict in reports[0].verdicts:
        if (other := after.get(verdict.scenario)) is not None:
            case = cases.get(verdict.pick or "")
            ratio = units.ratio_parts(case.ratio, case.ci99) if case else ("-", "")
            picks = [candidate_name(v.pick) if v.pick else v.choice for v in (verdict, other)]
            rows.append((case.word if case else "ONLY IN A", verdict.title, *ratio, *picks))
    if rows:
        header = ("Word", "Scenario", "B/A", "99% CI", "Pick in A", "Pick in B")
        yield Part("Scenarios: the time of A's pick", [], header, rows)


def comparison_text(found: RunComparison, width: int | None = None) -> str:
    """For a terminal of `width` cells, or for a file."""
    return plain_lines(part_lines(parts(found), width or PROSE))


def part_lines(found: Iterable[Part], width: int, table_width: int = UNLIMITED) -> list[Text]:
    """The parts one below the other; columns that `table_width` has no room for are left out."""
    lines: list[Text] = []
    for part in found:
        notes = facts_lines([fact("", note) for note in part.notes], width)
        table = plain_table(part.header, part.rows, width=table_width) if part.rows else []
        lines += [*([Text()] if lines else []), heading(part.title, width), *notes, *table]
    return lines


def comparison_markdown(found: RunComparison) -> str:
    """The same for a pull request; nothing of a run is markup in it."""
    return part_markdown(parts(found))


def part_markdown(found: Iterable[Part]) -> str:
    texts = []
    for part in found:
        texts += [f"### {inert(part.title)}", *map(inert, part.notes)]
        rows = [[*map(inert, row)] for row in part.rows]
        texts += [table([*map(inert, part.header)], rows)] if rows else []
    return "\n\n".join(texts)
