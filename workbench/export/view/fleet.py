"""A fleet as sections."""

from collections import Counter
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from ...records.fleet import FleetCell, FleetDocument, FleetNode, FleetRow
from ...report.names import candidate_name
from ...text import units
from .section import Section

LISTED = 40  # most nodes in the list; of larger fleets it has only nodes without an answer
NOTES = (
    "Time, pick, lead and confidence are those of the node with the median time, where the lead is"
    " paired. Spread: the slowest of equal nodes over the fastest.",
    "Node types are compared unpaired: intervals take the far ends of both sides and the"
    " differences between equal nodes. either: such an interval contains 1 or lies within 5%.",
)
SCALING = "Ranks share a batch. Efficiency: speed-up over one rank, in turns, per GPU or thread."


def sections(found: FleetDocument, skip: int = 0) -> Iterator[Section]:
    """Scenarios by node type, the nodes, and their answers; `skip` columns after the first are left
    out, to scroll sideways."""
    types = list(dict.fromkeys(node.node_type for node in found.nodes))
    header = ["Scenario", "Node type", "Lead", "95%", *types]
    tables = [
        Section.of("Scenario by node type", (), header, [_row(row, types) for row in found.rows]),
        _nodes(found),
        *_scaling(found),
        Section.of(
            "Answers",
            NOTES,
            ["Scenario", "Node type", "Pick", "Time", "Lead", "95%", "Confidence", "Nodes",
             "Spread", "Per million", "Not compared"],
            [_cell(row, cell) for row in found.rows for cell in row.cells],
        ),
    ]  # fmt: skip
    for table in tables:
        left = min(skip, len(table.columns) - 2)
        yield replace(table, columns=[*table.columns[:1], *table.columns[1 + left :]])


def summary(found: FleetDocument) -> str:
    """`6 of 8 nodes have answered; 1 failed, 1 lost.`"""
    states = Counter(node.state for node in found.nodes)
    done = states.pop("done", 0)
    others = ", ".join(f"{count:,} {state}" for state, count in states.items())
    return f"{done:,} of {len(found.nodes):,} nodes have answered{others and f'; {others}'}."


def _row(row: FleetRow, types: list[str]) -> list[str]:
    cells = {cell.node_type: f"{cell.device} {_time(cell)}" for cell in row.cells if cell.pick}
    lead, bounds = units.ratio_parts(row.lead, row.lead_ci95)
    choice = f"either: {', '.join(row.alike)}" if row.choice == "either" else row.choice
    return [row.scenario, choice, lead, bounds, *(cells.get(name, "-") for name in types)]


def _time(cell: FleetCell) -> str:
    return "-" if cell.value_s is None else units.duration(cell.value_s)


def _cell(row: FleetRow, cell: FleetCell) -> list[str]:
    pick = candidate_name(cell.pick.id) if cell.pick else "none"
    cheapest = "" if cell.node_type not in row.cheapest else " cheapest"
    cheapest = " either" if cheapest and len(row.cheapest) > 1 else cheapest
    return [
        row.scenario,
        cell.node_type,
        pick if cell.agreeing == cell.nodes else f"{pick} ({cell.agreeing} of {cell.nodes})",
        _time(cell),
        *units.ratio_parts(cell.lead, cell.lead_ci95),
        cell.confidence,
        str(cell.nodes),
        f"{cell.spread:.2f}x {cell.slowest}" if cell.spread else "-",
        "-" if cell.per_million is None else f"{units.significant(cell.per_million)}{cheapest}",
        cell.uncompared.message if cell.uncompared else "",
    ]


def _nodes(found: FleetDocument) -> Section:
    listed = [node for node in found.nodes if node.state != "done"]
    listed = found.nodes if len(found.nodes) <= LISTED else listed[:LISTED]
    notes = [summary(found), *(f"! {w.one_line}." for w in found.warnings)]
    notes += [f"{', '.join(names)}: {text}" for text, names in _events(listed).items()]
    header = ["Job", "State", "Node type", "Node", "Queued", "Run"]
    return Section.of("Nodes", notes, header, list(map(_node, listed)))


def _node(node: FleetNode) -> list[str]:
    took = node.run.duration_s if node.run else None
    times = ["-" if s is None else units.clock(s) for s in (node.queued_s, took)]
    return [node.name, node.state, node.node_type, node.node, *times]


def _events(nodes: Sequence[FleetNode]) -> dict[str, list[str]]:
    """Each failure or log text, with the names of the nodes that have it."""
    found: dict[str, list[str]] = {}
    for node in nodes:
        log = [] if node.state == "running" else node.log
        if text := " | ".join([*([node.reason.message] if node.reason else []), *log]):
            found.setdefault(f"{node.state}: {text}", []).append(node.name)
    return found


def _scaling(found: FleetDocument) -> Iterator[Section]:
    rows = [
        [node.name, node.node_type, node.node, str(each.ranks), each.device,
         units.duration(each.median_s),
         *("-" if x is None else units.percent(x) for x in (each.efficiency, each.sync_fraction))]
        for node in found.nodes
        if node.run and node.state != "incomparable"
        for each in node.run.scaling
    ]  # fmt: skip
    if rows:
        header = ["Job", "Node type", "Node", "Ranks", "Device", "Step", "Efficiency", "All-reduce"]
        yield Section.of("Scaling over nodes", [SCALING], header, rows)
