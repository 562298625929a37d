"""Runs the steps of a part, each within its time, and writes down what they said.

`part-N.json` is written anew after each step, so that a part that was cut short goes on where it
stopped.  A step that hung is killed with its group and costs the others nothing.
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from .parts import PART_S, PROBE, Step

ROOT = Path(__file__).resolve().parents[2]
TAIL = 2000  # characters of standard error, or of a text, that are kept
DIES_S = 5.0  # a process inside a driver call may outlive SIGKILL; it is then left behind
SIMULATED = "simulated "  # before the device of a rehearsal


def run_part(
    number: int,
    steps: Sequence[Step],
    folder: Path,
    card: str | None,
    *,
    no_gpu: str | None = None,
    again: bool = False,
    part_s: float = PART_S,
) -> dict[str, Any]:
    """The record of a part on `card`: what became of each step.  None is no card at all."""
    began, path = time.monotonic(), folder / f"part-{number}.json"
    folder.mkdir(parents=True, exist_ok=True)
    old = kept(path)
    if card is None and old.get("card"):
        return old  # findings on a card stay when a later call finds none
    same = old.get("card") == card and not again
    record = {"part": number, "card": card, "no_gpu": no_gpu, "python": sys.version.split()[0]}
    record["at"] = datetime.now(UTC).isoformat(timespec="seconds")
    record["steps"] = dict(old.get("steps", {})) if same else {}
    write(path, record)
    simulated = card is not None and card.startswith(SIMULATED)
    device = card.removeprefix(SIMULATED) if simulated else None
    for step in steps if card else ():
        if step.name in record["steps"] or (simulated and not step.simulates):
            continue
        if time.monotonic() - began + step.limit_s > part_s:
            print(f"  {step.name}: left for the next call, ten minutes are over", flush=True)
            continue
        done = run_step(step, folder, device)
        record["steps"][step.name] = done
        write(path, record)
        ending = "killed at its limit" if done["timed_out"] else f"exit code {done['code']}"
        print(f"  {step.name}: {ending} after {done['wall_s']:.0f} s", flush=True)
    return record


def card_here(probe: Step = PROBE) -> tuple[str | None, str | None]:
    """The name of the card, or None with the reason that none can be used."""
    with tempfile.TemporaryDirectory() as folder:
        found = run_step(probe, Path(folder), None)
    said = next((fact for fact in found["facts"] if fact.get("what") == "probe"), {})
    if isinstance(said.get("name"), str):
        return said["name"], None
    return None, str(said.get("reason") or f"its test ended with {found['code']}")[:300]


def kept(path: Path) -> dict[str, Any]:
    """The record of an earlier call; empty where there is none that can be read."""
    with suppress(OSError, ValueError, RecursionError):
        found = json.loads(path.read_bytes())
        if isinstance(found, dict) and isinstance(found.get("steps", {}), dict):
            return found
    return {}


def write(path: Path, record: dict[str, Any]) -> None:
    """Put a record in its place as a whole."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(record, indent=1) + "\n")
    new.replace(path)


def run_step(step: Step, folder: Path, device: str | None) -> dict[str, Any]:
    """Run one command; its output goes to where `Step.output` says."""
    with tempfile.TemporaryDirectory(prefix="first-hour-", ignore_cleanup_errors=True) as scratch:
        out, err = Path(scratch, "out"), Path(scratch, "err")
        began = time.monotonic()
        with out.open("wb") as stdout, err.open("wb") as stderr:
            process = subprocess.Popen(
                step.command(scratch, device),
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )
            timed_out = not ends(process, step.limit_s)
        done = {
            "command": " ".join(["python", *step.command("SCRATCH", device)[1:]]),
            "code": process.returncode,
            "timed_out": timed_out,
            "wall_s": round(time.monotonic() - began, 2),
            "limit_s": step.limit_s,
            "errors": err.read_text(errors="replace")[-TAIL:],
            **taken(step, out, folder),
        }
        with suppress(OSError):
            done["trace_bytes"] = Path(scratch, "trace.json").stat().st_size
        return done


def ends(process: subprocess.Popen[bytes], limit_s: float) -> bool:
    """Wait for the end of a process; False if it had to be killed."""
    try:
        process.wait(limit_s)
    except subprocess.TimeoutExpired:
        return False
    finally:  # also where the user interrupts
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            process.wait(DIES_S)
    return True


def taken(step: Step, out: Path, folder: Path) -> dict[str, Any]:
    """The output of a step, as far as it can be read."""
    if step.output == "text":
        return {"text": out.read_text(errors="replace")[-TAIL:]}
    if step.output == "recording":
        name = f"{step.name}.json"
        (folder / name).write_bytes(out.read_bytes())
        return {"file": name}
    if step.output == "document":
        with suppress(ValueError, RecursionError):
            return {"document": json.loads(out.read_bytes())}
        return {"broken": out.read_text(errors="replace")[-TAIL:]}
    facts, broken = [], 0
    for line in out.read_text(errors="replace").splitlines():
        try:
            fact = json.loads(line)
        except (ValueError, RecursionError):
            fact = None
        if isinstance(fact, dict):
            facts.append(fact)
        else:
            broken += bool(line.strip())
    return {"facts": facts, "broken_lines": broken}
