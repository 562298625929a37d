"""A Chrome trace of profiled passes, which Perfetto and chrome://tracing open."""

from __future__ import annotations

from typing import Any

import msgspec

GAP_US = 1000.0  # between one candidate and the next


class TraceFile:
    """Collects the profiles of several candidates, one behind the other on a single clock."""

    def __init__(self) -> None:
        self._events: list[dict[str, Any]] = []
        self._next_process = 1
        self._end_us = 0.0

    @property
    def is_empty(self) -> bool:
        return not self._events

    def add(self, case: str, events: list[dict[str, Any]]) -> None:
        """Append the events of one case; its processes are named after it."""
        timed = [event for event in events if event.get("ph") != "M" and "ts" in event]
        if not timed:
            return
        shift = self._end_us - min(event["ts"] for event in timed)
        processes: dict[Any, int] = {}
        for event in timed:
            own = event.get("pid")
            if own not in processes:
                processes[own] = self._next_process
                self._next_process += 1
                self._name(processes[own], case)
            self._events.append({**event, "pid": processes[own], "ts": event["ts"] + shift})
        last = max(event["ts"] + event.get("dur", 0.0) for event in timed)
        self._end_us = last + shift + GAP_US

    def _name(self, process: int, case: str) -> None:
        named = {"ph": "M", "name": "process_name", "pid": process, "args": {"name": case}}
        self._events.append(named)

    def dump(self) -> bytes:
        """The file's content, by the Trace Event Format's JSON object form."""
        return msgspec.json.encode({"traceEvents": self._events, "displayTimeUnit": "ms"})
