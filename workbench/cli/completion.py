"""Values that a shell completes; click has the scripts for bash, zsh and fish."""

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from .. import catalog
from ..precisions import PRECISIONS

MOST = 50  # values offered at once; the state folder may have thousands of runs
PLAIN = re.compile(r"[\w.:@+-]+", re.ASCII)  # names that need no quotes in a shell
OF_FILES = re.compile(r"FILE|PATH|DIR|OUT|TARGET|RUN|A B|\.onnx")  # metavars


def _devices(_: click.Context) -> Iterable[str]:
    cards = sum(1 for _ in Path("/dev").glob("nvidia[0-9]*"))
    return ["cpu", "gpu", *(f"cuda:{number}" for number in range(cards)), "fake:0"]


def _runs(_: click.Context) -> Iterable[str]:
    from ..report import journal

    return ["last", *journal.run_ids()]


def _scenarios(context: click.Context) -> Iterable[str]:
    from ..planning.scenarios import load_with

    return load_with(context.params.get("scenario_file"))[0]


KNOWN: dict[str, Callable[[click.Context], Iterable[str]]] = {  # by name of the parameter
    "devices": _devices,
    "backends": lambda _: catalog.backends(),
    "precisions": lambda _: PRECISIONS,
    "workloads": lambda _: catalog.files(),
    "scenarios": _scenarios,
    "names": lambda context: [*catalog.files(), *_scenarios(context)],
    **dict.fromkeys(("run", "runs"), _runs),
}


class Text(click.types.StringParamType):
    """A text that a shell completes, by the name and metavar of its parameter."""

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The values that begin like this, or like the last item of a list; [] after any error."""
        before, comma, word = incomplete.rpartition(",")
        is_file = OF_FILES.search(str(param.metavar)) is not None
        found = [CompletionItem(incomplete, type="file")] if is_file else []
        with suppress(Exception):
            names = KNOWN[param.name or ""](ctx)
            fitting = (name for name in names if name.startswith(word) and PLAIN.fullmatch(name))
            found += [CompletionItem(f"{before}{comma}{name}") for name in islice(fitting, MOST)]
        return found


def completed(parameters: list[click.Parameter]) -> list[click.Parameter]:
    """The parameters, with completion for texts."""
    for parameter in parameters:
        if parameter.type is click.STRING:
            parameter.type = Text()
    return parameters
