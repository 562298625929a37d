"""The documents of many machines merged into one answer: which node type for each scenario.

Within a node the paired ratios of its document hold.  Nodes share no rounds, so they are compared
as with `--what-if`: by the far ends of both intervals, widened by the spread between equal nodes
(`stats.unpaired`).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from statistics import mode
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from ..records import fleet as doc
from ..records.reason import Reason
from ..report.candidate import price_of
from ..stats import ratios
from ..stats.objectives import HOUR_S
from ..stats.paired import Ratio
from ..stats.samples import Interval
from ..stats.unpaired import between_equals, far_ends, round_spread

ANSWERED = ("done", "partial", "running")  # states of nodes whose answers count
Answers = list[tuple[doc.FleetNode, doc.NodeAnswer]]


class Side(NamedTuple):
    """A node type by its time or its cost."""

    node_type: str
    value: tuple[float, Interval]  # seconds or cost, and its interval
    spread: float  # between equal nodes, as a share


def fleet_document(head: Mapping[str, Any], found: doc.FleetFolder) -> doc.FleetDocument:
    """The document of a folder, without prices; `head` has the first members of every document."""
    plan, nodes = found.plan, _typed(_comparable(found.nodes, found.plan))
    cluster, arguments = (plan.cluster, plan.arguments) if plan else (None, [])
    unpriced = doc.FleetDocument(**head, cluster=cluster, arguments=arguments, rows=[], nodes=nodes,
                             prices={}, warnings=found.warnings)  # fmt: skip
    return priced(unpriced, {})


def priced(fleet: doc.FleetDocument, prices: Mapping[str, float]) -> doc.FleetDocument:
    """The same nodes merged at these prices per hour."""
    return replace(fleet, rows=list(_rows(fleet.nodes, prices)), prices=dict(prices))


def _typed(nodes: Sequence[doc.FleetNode]) -> list[doc.FleetNode]:
    """Give each machine without a planned type that of equal planned machines, else its own."""
    planned = {node.run.machine: node.node_type for node in nodes if node.run and node.node_type}
    machines = [node.run.machine if node.run else "unknown" for node in nodes]
    return [
        replace(node, node_type=node.node_type or planned.get(machine, machine))
        for node, machine in zip(nodes, machines, strict=True)
    ]


def _comparable(nodes: Sequence[doc.FleetNode], plan: doc.FleetPlan | None) -> list[doc.FleetNode]:
    """The nodes, marked `incomparable` where they did another job than the planned nodes, or than
    most nodes if no planned one has answered.  A version that no node has is not required."""
    ran = [(node.node_type, node.run) for node in nodes if node.run and _has_answered(node.run)]
    if not ran:
        return list(nodes)
    versions = [run.version for _, run in ran]
    version = plan.tool_version if plan and plan.tool_version in versions else mode(versions)
    fit = [(planned, run) for planned, run in ran if run.version == version and run.answers]
    every = [run for _, run in fit]
    voters = [run for planned, run in fit if planned] or every
    model = plan.inputs.get("model") if plan else None
    subject = model.sha256 if model else mode([run.subject for run in voters] or [""])
    usual = _usual_work(every) | _usual_work(voters)

    def judged(node: doc.FleetNode) -> doc.FleetNode:
        if node.run is None or not _has_answered(node.run):
            return node
        if (text := _difference(node.run, version, subject, usual)) is None:
            return node
        reason = Reason("incomparable", text, "measure it with the options of the others")
        return replace(node, state="incomparable", reason=reason)

    return list(map(judged, nodes))


def _difference(
    run: doc.NodeRun, version: str, subject: str, usual: Mapping[str, tuple[str, str]]
) -> str | None:
    """Why a run cannot be compared with runs of this version, subject and work; None if it can."""
    if run.version != version:
        return f"it was run by workbench {run.version}, not {version}"
    if run.subject != subject and not run.scaling:
        return "it is about another model or other code"
    for answer in run.answers:
        if answer.job and _work(answer) != usual[answer.scenario]:
            did = f"{answer.job} for {answer.objective}"
            return f"its {answer.scenario} measured other work than the others: {did}"
    return None


def _has_answered(run: doc.NodeRun) -> bool:
    return bool(run.scaling) or any(answer.pick for answer in run.answers)


def _work(answer: doc.NodeAnswer) -> tuple[str, str]:
    """The work that was timed and the objective; two times are comparable if both are equal."""
    return answer.job, answer.objective


def _usual_work(runs: Sequence[doc.NodeRun]) -> dict[str, tuple[str, str]]:
    """The work that most of these runs timed, by scenario."""
    found: dict[str, list[tuple[str, str]]] = {}
    for answer in (each for run in runs for each in run.answers if each.job):
        found.setdefault(answer.scenario, []).append(_work(answer))
    return {scenario: mode(each) for scenario, each in found.items()}


def _rows(nodes: Sequence[doc.FleetNode], prices: Mapping[str, float]) -> Iterator[doc.FleetRow]:
    table: dict[str, dict[str, Answers]] = {}
    for node in nodes:
        for answer in node.run.answers if node.run and node.state in ANSWERED else ():
            of_row = table.setdefault(answer.scenario, {})
            of_row.setdefault(node.node_type, []).append((node, answer))
    spread = between_equals(_values(equal) for row in table.values() for equal in row.values())
    several = len({node.node_type for node in nodes}) > 1
    for scenario, of_row in table.items():
        cells = {name: _cell(name, equal, prices) for name, equal in of_row.items()}
        times = list(_times(cells, of_row, spread))
        costs = list(_costs(cells, times))
        ratio_of = _against_best(times)
        alike, others = _alike(ratio_of), [r for r in ratio_of.values() if r is not None]
        for name, ratio in ratio_of.items():
            if ratio is not None:
                cells[name] = replace(cells[name], ratio=ratio.value, ratio_ci95=ratio.interval)
        choice = alike[0] if len(alike) == 1 else "either"
        # A type without an interval may also be the best, unless it is far behind.
        far_s = ratios.UNDECIDED * min((side.value[0] for side in times), default=math.inf)
        vague_s = [c.value_s for c in cells.values() if c.value_s and c.value_ci95_s is None]
        is_known = bool(others or (times and not several)) and min(vague_s, default=far_s) >= far_s
        yield doc.FleetRow(
            scenario=scenario,
            choice=choice if is_known else "unknown",
            alike=alike,
            lead=others[0].value if others else None,
            lead_ci95=others[0].interval if others else None,
            cheapest=_alike(_against_best(costs)) if is_known and len(costs) == len(times) else [],
            cells=sorted(cells.values(), key=lambda cell: cell.value_s or math.inf),
        )


def _times(
    cells: Mapping[str, doc.FleetCell], answers: Mapping[str, Answers], spread: float
) -> Iterator[Side]:
    """The node types whose time has an interval; `spread` is that of nodes of any type."""
    for name, cell in cells.items():
        if cell.value_s is not None and cell.value_ci95_s is not None:
            own = round_spread([_values(answers[name])])
            wide = max(spread, math.sqrt(own[0]) if own else 0.0)
            yield Side(name, (cell.value_s, cell.value_ci95_s), wide)


def _costs(cells: Mapping[str, doc.FleetCell], times: Sequence[Side]) -> Iterator[Side]:
    """The costs of those that have a price."""
    for name, (value_s, interval_s), spread in times:
        if (cost := cells[name].per_million) is not None:
            low, high = (cost * each / value_s for each in interval_s)
            yield Side(name, (cost, (low, high)), spread)


def _values(equal: Answers) -> list[float]:
    return [answer.value_s for _, answer in equal if answer.value_s is not None]


def _cell(node_type: str, equal: Answers, prices: Mapping[str, float]) -> doc.FleetCell:
    """The cell of a node type; the node with the median time stands for all of its type."""
    values = _values(equal)
    timed = sorted(equal, key=lambda each: (each[1].value_s or math.inf, each[1].pick is None))
    (node, answer), last = timed[max(0, len(values) - 1) // 2], max(0, len(values) - 1)
    price = prices.get(node_type)
    if price is None and answer.pick is not None:
        price = price_of(answer.pick.device, prices, answer.ranks)
    cost = None if price is None or answer.per_million_s is None else price * answer.per_million_s
    return doc.FleetCell(
        **msgspec.structs.asdict(answer),
        node_type=node_type,
        node=node.name,
        nodes=len(equal),
        agreeing=sum(each.pick == answer.pick for _, each in equal),
        spread=max(values) / min(values) if last else None,
        slowest=timed[last][0].name if last else None,
        per_million=None if cost is None else cost / HOUR_S,
    )


def _against_best(sides: Sequence[Side]) -> dict[str, Ratio | None]:
    """Each node type with its value over that of the best, which comes first and has no ratio."""
    order = sorted(sides, key=lambda side: side.value[0])
    found: dict[str, Ratio | None] = {side.node_type: None for side in order}
    for name, value, spread in order[1:]:
        found[name] = far_ends(value, order[0].value, math.hypot(spread, order[0].spread))
    return found


def _alike(against: Mapping[str, Ratio | None]) -> list[str]:
    """The node types that may be the best.  An interval within 5% contains 1 too, since equal nodes
    differ by more."""
    return [name for name, ratio in against.items() if ratio is None or ratio.low <= 1]
