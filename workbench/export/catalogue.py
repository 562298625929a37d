"""The output of `workbench list`."""

from collections.abc import Mapping

from ..contract import Parameter, Workload, WorkloadError
from ..planning.scenario import Scenario
from .view.spans import PROSE, fact, facts_lines, label_width, listed, plain_lines


def catalogue_text(
    workloads: Mapping[str, Workload],
    broken: Mapping[str, WorkloadError],
    scenarios: Mapping[str, Scenario],
    width: int | None = None,
) -> str:
    """The scenarios and the workloads, for a terminal of `width` cells or for a file."""
    facts = [fact("", "Scenarios (workbench advise NAME; those on request by name or with --all)")]
    for row in scenarios.values():
        usual = [f"usual advice: {row.textbook.upper()}"] if row.textbook else []
        also = ", ".join([row.workload, *usual, *["on request"] * row.on_request])
        facts.append(fact(row.id, f"{row.question} ({also})"))
    facts.append(fact("", "\nWorkloads (workbench run NAME --set name=value)"))
    for workload in workloads.values():
        texts = [workload.teaches, *map(_parameter, workload.parameters)]
        if workload.default_batch is not None:
            texts.append(f"--batch: default {workload.default_batch}")
        facts += listed(workload.name, texts)
    facts += [fact(name, f"cannot be used: {error}") for name, error in broken.items()]
    return plain_lines(facts_lines(facts, width or PROSE, label_width(facts)))


def _parameter(parameter: Parameter) -> str:
    unit = f" {parameter.unit}" if parameter.unit else ""
    allowed = ", ".join(parameter.choices) or parameter.range_text()
    return f"{parameter.name}={parameter.default}{unit}: {parameter.help} ({allowed})"
