"""A run as tidy CSV: a line for each sample, with the columns of its case."""

import csv
import io

from ..report.names import place_text
from ..report.report import Report
from ..text.sanitize import clean
from .view.words import provenance_on

CASE = ("workload", "device", "backend", "precision", "quantization", "mode", "threads", "batch")
COLUMNS = ("run", "scenario", "case", "status", "provenance", "parameters", *CASE)


def text(report: Report) -> str:
    file = io.StringIO()
    lines = csv.writer(file, lineterminator="\n")
    lines.writerow([*COLUMNS, "round", "sample_s"])
    run = report.started.id if report.started else ""
    for row in report.rows.values():
        for each in row.candidates:
            case, origin = each.case, provenance_on(each.case.device)
            sizes = place_text({**case.params, **case.tuning})
            named = [run, row.plan.scenario, case.id, each.status, origin, sizes]
            cells = [_cell(value) for value in (*named, *(getattr(case, name) for name in CASE))]
            for block in each.blocks:
                lines.writerows([*cells, block.round, sample] for sample in block.samples_s)
    return file.getvalue().rstrip("\n")


def _cell(value: object) -> object:
    """The value; a text that a spreadsheet might read as a formula gets an apostrophe in front."""
    text = clean(value) if isinstance(value, str) else ""
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text or value
