"""The scenarios that race unless some are named, and whether their objectives can be measured."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from .request import Request
from .scenario import Scenario
from .usage import UsageError


def by_default(
    request: Request, scenarios: Mapping[str, Scenario], own: Collection[str]
) -> list[str]:
    """The ids of the user's `own` scenarios, otherwise of all; optional ones only with --all."""
    offered = list(own or scenarios)
    chosen = [n for n in offered if request.all_scenarios or not scenarios[n].on_request]
    if not chosen:
        names = ", ".join(offered)
        raise UsageError(f"all scenarios are optional: add --all or name some of {names}")
    return chosen


def check_countable(scenario: Scenario, request: Request) -> None:
    """Raise UsageError for an objective that lacks its prices or its sensor."""
    if scenario.objective == "cost" and not (request.prices or request.price_file):
        raise UsageError(
            f"{scenario.id} compares cost: add --price cpu=PER_HOUR, gpu=PER_HOUR or --prices FILE"
        )
    if scenario.objective == "energy":
        from ..machine.host.readings import package_energy_j  # the screens start without psutil

        energy_j, why = package_energy_j()
        if energy_j is None:
            raise UsageError(f"{scenario.id} compares energy: {why}; choose another objective")
