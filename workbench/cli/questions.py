"""The question about the user's own model or code in a command's options."""

from typing import Any

import click

from ..planning.questions import BELONGS, MODEL, ModelQuestion, OwnQuestion
from ..planning.usage import UsageError
from ..worker.code import KINDS


def question(options: dict[str, Any]) -> ModelQuestion | OwnQuestion | None:
    """Remove the options about the user's own model or code from `options`, and return the question
    that they ask, if any."""
    subjects = {kind: text for kind in (MODEL, *KINDS) if (text := options.pop(kind)) is not None}
    if len(subjects) > 1:
        raise UsageError(f"--{' and --'.join(subjects)} exclude each other")
    kind, target = next(iter(subjects.items()), ("", ""))
    given = {
        name: value
        for name in BELONGS
        if (value := options.pop(name)) not in (None, ()) and value is not False
    }
    for name in given:
        if kind not in BELONGS[name]:
            params = click.get_current_context().command.params
            option = next(each.opts[0] for each in params if each.name == name)
            option = "what follows --" if name == "arguments" else option
            raise UsageError(f"{option} belongs to --{' or --'.join(BELONGS[name])}")
    if kind == MODEL:
        return ModelQuestion(target, **given)
    return OwnQuestion(kind, target, **given) if kind else None
