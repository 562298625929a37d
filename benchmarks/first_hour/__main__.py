"""The first hour on a GPU: `python -m benchmarks.first_hour --part 1 --into FOLDER`.

Runs what a reading of the CUDA code predicts for a card, in six parts of at most ten minutes, and
writes report.md and report.json into the folder.  A step that has run is not repeated.  Exit code
0: what could be tried was confirmed; 1: something was refuted; 3: nothing could be tried.
"""

import argparse
import json
import re
import shutil
import sys
import tomllib
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from .evidence import Evidence, NotTried
from .judge import NOTHING_TRIED, exit_code, judge, report
from .pages import markdown, page, reports
from .parts import PARTS
from .runner import ROOT, SIMULATED, card_here, run_part

RECORDINGS = ROOT / "assets" / "recordings"
REPORTS = RECORDINGS / "first-hour"  # apart: each file in RECORDINGS is the document of a run
PAGE = ROOT / "docs" / "cuda.md"
FOR_TESTS = ["pytest", "hypothesis", "jsonschema"]
KEPT = {"table": "default", "thorough": "rows", "ceilings": "ceilings"}  # step to end of the name


def parts(text: str) -> list[int]:
    if text == "all":
        return list(PARTS)
    if text == "none":
        return []
    if text.isdecimal() and int(text) in PARTS:
        return [int(text)]
    raise argparse.ArgumentTypeError(f"{text!r}: one of 1 to {max(PARTS)}, all, or none")


def missing() -> list[str]:
    """The packages that the project and the tests for a card need, and this interpreter lacks."""
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = [*(re.split(r"[<>=!~ \[]", each)[0] for each in needed), *FOR_TESTS]
    lacking = []
    for name in names:
        try:
            version(name)
        except PackageNotFoundError:
            lacking.append(name)
    return lacking


def keep(folder: Path, into: Path) -> list[str]:
    """Copy the recordings and the report of a real card, unedited; returns lines for the README."""
    seen = Evidence(folder)
    if seen.card is None or seen.rehearsed:
        raise SystemExit("first_hour: nothing of a real card is in the folder; run its parts first")
    lines = []
    for step, ending in KEPT.items():
        try:
            document = seen.document(step)
        except NotTried as why:
            print(f"not kept: {why}", file=sys.stderr)
            continue
        machine = document["machine"]
        name = f"{short(seen.card)}-{machine['cpu']['effective_cores']}-{ending}.json"
        shutil.copyfile(folder / f"{step}.json", into / name)
        at, command = str(document["run"]["started_at"])[:10], document["tool"]["command"]
        lines.append(f"- `{name}`: `{command} --json`, {seen.card}, {at}")
        lines.append(f"  (look before you commit: it names the host {machine['hostname']!r})")
    (into / "first-hour").mkdir(exist_ok=True)
    shutil.copyfile(folder / "report.json", into / "first-hour" / f"{short(seen.card)}.json")
    return lines


def short(card: str) -> str:
    """`h100-pcie` of "NVIDIA H100 PCIe": all from the first word with a digit on."""
    found = re.search(r"[a-z]*\d.*", card.casefold())
    return re.sub(r"[^a-z0-9]+", "-", found.group()).strip("-") if found else "gpu"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("first_hour", description=__doc__)
    parser.add_argument("--part", type=parts, default=[], help="1 to 6, all, or none: judge only")
    parser.add_argument("--into", type=Path, metavar="FOLDER", help="for the files and the report")
    parser.add_argument("--again", action="store_true", help="repeat steps that have run")
    parser.add_argument("--device", metavar="fake:0@8", help="rehearse on a simulated GPU")
    parser.add_argument("--keep", action="store_true", help="copy recordings and report to assets")
    parser.add_argument("--table", action="store_true", help="write the table of docs/cuda.md")
    parser.add_argument("--missing", action="store_true", help="packages that are not installed")
    asked = parser.parse_args(arguments)
    if asked.missing:
        print(*missing())
        return 0
    if asked.table:
        PAGE.write_text(page(PAGE.read_text(), reports(REPORTS)))
        return 0
    if asked.into is None:
        parser.error("name a folder: --into FOLDER")
    if find_spec("msgspec") is None:  # a bare rented machine lacks it
        parser.error(f"install what is missing: {' '.join(missing())}")
    if asked.device is not None and not re.fullmatch(r"fake:\d+(@[\d.]+)?", asked.device):
        parser.error("--device rehearses on a simulated GPU, such as fake:0@8")
    try:
        return hour(asked)
    except BrokenPipeError:
        return exit_code(judge(Evidence(asked.into)))
    except OSError as error:
        parser.error(f"{asked.into}: {error.strerror}")


def hour(asked: argparse.Namespace) -> int:
    """Run the parts, judge what is in the folder, and write the report."""
    card, no_gpu = None, None
    if asked.device is not None:
        card = SIMULATED + asked.device
    elif asked.part:
        card, no_gpu = card_here()
        print(card or f"no GPU: {no_gpu}", flush=True)
    for number in asked.part:
        print(f"part {number}", flush=True)
        run_part(number, PARTS[number], asked.into, card, no_gpu=no_gpu, again=asked.again)
    seen = Evidence(asked.into)
    found = judge(seen)
    written = report(seen, found)
    asked.into.mkdir(parents=True, exist_ok=True)
    (asked.into / "report.json").write_text(json.dumps(written, indent=1) + "\n")
    (asked.into / "report.md").write_text(markdown(written, found))
    for each in found:
        print(f"{each.id:24} {each.answer}")
    if asked.keep:
        print(*keep(asked.into, RECORDINGS), sep="\n")
    code = exit_code(found)
    if code == NOTHING_TRIED:
        print("nothing could be tried: no finding has a figure of a real card", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
