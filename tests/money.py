"""Runs of one row with given set-up times, prices and power."""

from collections.abc import Mapping, Sequence

from builders import events
from msgspec.structs import replace

from workbench.contract import Case
from workbench.planning.scenario import Scenario
from workbench.records import events as ev
from workbench.records.document import SetupTimes, Telemetry
from workbench.report.report import Report


def priced_report(
    blocks: Mapping[Case, Sequence[Sequence[float]]],
    *,
    setups: Mapping[Case, SetupTimes] | None = None,
    first_s: Mapping[Case, float] | None = None,
    prices: Mapping[str, float] | None = None,
    power: Mapping[Case, Telemetry] | None = None,
    row: Scenario | None = None,
) -> Report:
    """A finished run.  A candidate without a time of its own for the first step needs none."""
    by_id = {c.id: c for c in blocks}
    found: list[ev.AnyEvent] = []
    for event in events(blocks, gpus=["cuda:0"], row=row):
        match event:
            case ev.RacePlanned():
                event = replace(event, prices=dict(prices or {}))
            case ev.CasePrepared():
                c = by_id[event.case]
                first = (first_s or {}).get(c, 0.0)
                event = replace(
                    event,
                    setup=(setups or {}).get(c, SetupTimes(import_s=1.0)),
                    warmup=replace(event.warmup, first_s=first),
                )
            case ev.CaseFinished():
                c = by_id[event.case]
                event = replace(event, telemetry=(power or {}).get(c))
        found.append(event)
    return Report.of(found)


def watts(*, counted: float | None = None, read: float | None = None) -> Telemetry:
    """Power of a candidate's device in watts, by its energy counter or by readings."""
    return Telemetry(
        readings=4,
        clock_before_mhz=None,
        clock_mhz=None,
        clock_after_mhz=None,
        power_w=read,
        temperature_c=None,
        slowed={},
        counted_power_w=counted,
    )
