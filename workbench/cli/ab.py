"""`workbench ab`: two sides of one job in turns."""

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from .. import catalog
from ..contract import THREAD_VARIABLES
from ..engine.exit_codes import CUT_SHORT
from ..export.formats import DOCUMENT, FORMATS
from ..planning.questions import OwnQuestion
from ..planning.request import Request, check_python
from ..planning.usage import UsageError, check_known
from ..records.comparison import Side
from ..text.output import put
from .options import adapt, fail_on_option, flag, own_options, run_options, value
from .program import command, echo_json, head
from .questions import question

OF_A_SIDE = ("--python", "--env", "--path", "--command")
# Options of other runs that do not apply here, or that each side has for itself.
LEFT_OUT = {
    "python", "command", "thorough", "trace", "strict", "strict_samples", "output", "control",
    "save_best", "no_samples", "verbose",
    *(f"as_{name}" for name in FORMATS if name != DOCUMENT),
}  # fmt: skip
FOLDER = click.Path(exists=True, file_okay=False, resolve_path=True)


@command(
    "workbench ab matmul --python old/bin/python --python new/bin/python",
    "workbench ab --function package.module:work --path main --path branch --fail-on 2%",
    "workbench ab --command 'python old.py' --command 'python new.py' --markdown",
    context_settings={"default_map": {"budget_s": 120.0}},
)
@click.argument("names", nargs=-1, metavar="[WORKLOAD|SCENARIO]...")
@value("--python PATH", "Interpreter of a side.", "pythons", multiple=True)
@value("--env NAME=VALUE", "Variables of a side, separated by spaces.", "envs", multiple=True)
@click.option("--path", "paths", multiple=True, type=FOLDER, help="Folder searched first for code.")
@value("--command COMMAND", "Your own command.", "commands", multiple=True)
@fail_on_option
@flag("--markdown", "A table for a pull request.")
@own_options
@run_options
def ab(names: tuple[str, ...], fail_on: float | None, markdown: bool, **options: Any) -> None:
    """Compare two sides of one job in turns: SAME, FASTER, SLOWER or AMBIGUOUS.

    Give --python, --env, --path or --command twice, first for side A and then for side B.  Each
    named workload or scenario, or your own code, races as the first of its cases.
    """
    from ..engine.ab import ABRun
    from ..export.markdown import tables
    from ..export.view.comparison import ab_section
    from ..planning import scenarios
    from ..planning.rows import resolve
    from ..pool.control import Cancelled, Control
    from .launch import take_part

    as_json = options.pop("as_json")
    given = {option: options.pop(f"{option[2:]}s") for option in OF_A_SIDE}
    if max(map(len, given.values())) != 2:
        raise UsageError(f"give one of {', '.join(OF_A_SIDE)} twice, once for each side")
    first, other = both = side_of("A", 0, given), side_of("B", -1, given)
    check_python(first.python)
    check_python(other.python)
    options |= {"command": first.command, "save_best": None, "python": first.python}
    known = scenarios.load_with(None)
    asked = job_of(names, first.path, options, known[0])
    request = take_part(Request(**asked, **options))
    control, rows = Control(), resolve(request, *known)
    with control.signals():
        try:
            report = ABRun(request, both, control).run(rows, fail_on, head("ab"))
        except Cancelled:
            sys.exit(CUT_SHORT)
    if as_json:
        echo_json(report)
    else:
        put([tables([ab_section(report)], as_markdown=markdown)])
    sys.exit(report.exit_code)


adapt(
    ab,
    LEFT_OUT,
    budget_s="Wall time; default 120.",
    quick="Smaller sizes.",
    model="Your own ONNX model.",
)


def job_of(
    names: tuple[str, ...], directory: str, options: dict[str, Any], scenarios: Iterable[str]
) -> dict[str, Any]:
    """The fields of the request that name its job; the options about own code are removed."""
    asked = question(options)
    if isinstance(asked, OwnQuestion):
        asked = replace(asked, directory=directory)
    if asked is not None:
        return {"question": asked, "scenarios": names}
    if not names:
        raise UsageError(f"name a workload, or your own code: {', '.join(catalog.files())}")
    check_known("workload or scenario", names, [*catalog.files(), *scenarios])
    are_workloads = any(name in catalog.files() for name in names)
    return {"workloads" if are_workloads else "scenarios": names}


def side_of(name: str, place: int, given: Mapping[str, Sequence[str]]) -> Side:
    """The side at this place in repeated options; an option given once applies to both."""
    label = " ".join(f"{option} {each[place]}" for option, each in given.items() if len(each) == 2)
    python, settings, path, command = (
        values[place] if (values := given[option]) else None for option in OF_A_SIDE
    )
    pairs = [word.partition("=") for word in (settings or "").split()]
    if not all(variable and equals for variable, equals, _ in pairs):
        raise UsageError(f"--env takes NAME=VALUE, not {settings}")
    variables = {variable: value for variable, _, value in pairs}
    taken = [variable for variable in THREAD_VARIABLES if variable in variables]
    if taken and command is None:
        why = "the threads of a case are part of it, see --threads"
        raise UsageError(f"--env takes no {taken[0]}: {why}")
    if path:
        after = variables.get("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
        variables["PYTHONPATH"] = os.pathsep.join([path, after])
    return Side(name, label, python, path or "", command, variables)
