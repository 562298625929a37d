"""A run as gauges in OpenMetrics text.

node_exporter's textfile collector reads Prometheus's older format, in which `# UNIT` and `# EOF`
are comments.  It refuses time stamps and the type `info`, so neither is written.
"""

import json
from collections.abc import Iterator

from ..report.report import Report
from ..text.sanitize import clean
from .view.derived import RunView
from .view.words import provenance, provenance_on

Sample = tuple[str, float | None, dict[str, str]]  # gauge, value, labels


def text(report: Report) -> str:
    lines, described = list[str](), ""
    for name, value, labels in sorted(_samples(report), key=lambda sample: sample[0]):
        if value is None:
            continue
        if name != described:
            lines.append(f"# TYPE workbench_{name} gauge")
            unit = name.partition("_")[2]
            lines += [f"# UNIT workbench_{name} {unit}"] if unit else []
            described = name
        # JSON escapes what both formats escape: backslashes, quotation marks and line breaks.
        texts = [f"{k}={json.dumps(clean(v), ensure_ascii=False)}" for k, v in labels.items()]
        lines.append(f"workbench_{name}{{{','.join(texts)}}} {value!r}")
    return "\n".join([*lines, "# EOF"])


def _samples(report: Report) -> Iterator[Sample]:
    run = RunView(report)
    for row in report.rows.values():
        for candidate in filter(lambda each: each.is_valid, row.candidates):
            measured, origin = run.measured(candidate), provenance_on(candidate.case.device)
            labels = {"scenario": row.plan.scenario, "case": measured.id, "provenance": origin}
            yield "median_seconds", measured.median_s, labels
            if (rate := measured.throughput) is not None:
                yield "throughput", rate.value, {**labels, "unit": rate.unit}
    for verdict in report.verdicts:
        labels = {"scenario": verdict.scenario, "case": verdict.pick or "none"}
        labels["provenance"] = provenance(verdict.basis)
        yield "lead_ratio", verdict.lead[0], labels
        answer = {"choice": verdict.choice, "confidence": verdict.confidence}
        yield "pick", 1.0, {**labels, **answer}
