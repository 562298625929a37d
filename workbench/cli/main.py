"""The command line: the commands, their options, and every error as one line.

stdout carries data only; progress, warnings and errors go to stderr.
"""

import errno
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from click.shell_completion import get_completion_class

from .. import __version__
from ..engine.exit_codes import CUT_SHORT, FAILED, USAGE
from ..errors import WorkloadError
from ..planning.usage import UsageError
from ..records.errors import JournalError
from ..text.output import let_go, say, say_bug
from ..text.sanitize import shown
from .options import own_options, run_options, scenario_options
from .program import Program, ReaderGone, examples

NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
SHORT = {  # errors of a system that is short of something, with remedies (errno(3))
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "the whole machine has too many files open; close some",
    errno.EAGAIN: "raise the limit on processes (ulimit -u), or end some",
    errno.ENOMEM: "free memory, or raise the limit on it (ulimit -v)",
}
LONGEST = 2000  # characters of an error; enough for the choices of an option
DEFAULT = click.core.ParameterSource.DEFAULT


@click.group(
    cls=Program,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "workbench                                  the table of scenarios, live",
        "workbench --json --quick | jq .summary     the same in half a minute, for a script",
        "workbench advise --torch package.module:build",
    )
    + "\n\nExit codes: 0 done, 1 no result, 2 wrong use, 3 --strict, 4 --fail-on, 130 cut short.",
)
@scenario_options
@own_options
@run_options
@click.version_option(__version__, prog_name="workbench", message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, /, **options: Any) -> None:
    """On this machine, for this job: CPU or GPU - and how sure are we?

    Measures candidates live and recommends one per scenario, as `workbench advise` without names.
    In a terminal it opens the workbench; elsewhere it writes text, or JSON on request.
    """
    if context.invoked_subcommand is None:
        from .measure import advise

        context.invoke(advise, scenarios=(), **options)
    elif given := [n for n in options if context.get_parameter_source(n) is not DEFAULT]:
        name = next(p.opts[0] for p in context.command.params if p.name == given[0])
        command = f"workbench {context.invoked_subcommand}"
        raise UsageError(f"put {name} after {command}, if `{command} --help` lists it")


def main(arguments: list[str] | None = None) -> None:
    """Run the command, and turn every error into one line."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by the parent process
            setattr(sys, name, Path(os.devnull).open(mode))  # noqa: SIM115 - until the end
    sys.stdout.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]  # as stderr has it
    if os.path.expanduser("~") == "~":  # noqa: PTH111 - Path.home() would raise
        os.environ["HOME"] = "/"  # as in containers
    shell, _, wanted = os.environ.get("_WORKBENCH_COMPLETE", "bash_source").partition("_")
    words = {"COMP_WORDS", "COMP_CWORD"} if wanted == "complete" else set()
    is_known = get_completion_class(shell) is not None and wanted in ("source", "complete")
    if not is_known or not words <= os.environ.keys():
        fail("_WORKBENCH_COMPLETE is bash_source, zsh_source or fish_source", USAGE)
    try:
        # Also for `python -m workbench`, of which click would derive another variable.
        cli.main(arguments, prog_name="workbench", standalone_mode=False)
    except click.exceptions.Exit as ended:
        sys.exit(ended.exit_code)
    except click.ClickException as error:
        fail(f"{error.format_message()}{hint_of(error, arguments or sys.argv)}", USAGE)
    except (UsageError, JournalError, WorkloadError) as error:
        hint = getattr(error, "hint", None)
        fail(f"{error} ({hint})" if hint else str(error), FAILED if is_full(error) else USAGE)
    except (KeyboardInterrupt, click.Abort) as error:
        if isinstance(cut := error.__cause__, EOFError):  # which click takes for Ctrl-D
            raise cut from None
        sys.exit(CUT_SHORT)
    except ReaderGone:
        let_go(sys.stdout)  # else the interpreter would complain at exit
        sys.exit(CUT_SHORT)
    except Exception as error:
        refuse(error)
        with suppress(BrokenPipeError):
            say_bug(error)
        sys.exit(FAILED)


def hint_of(error: click.ClickException, words: list[str]) -> str:
    """A further sentence where an option or an argument stands in the wrong place."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    place = context.info_name if context is not None else None
    is_script = any(word.startswith("--torch") for word in words)
    if isinstance(error, click.NoSuchOption) and is_script:
        return " The arguments of a script follow `--`."
    if isinstance(error, click.NoSuchOption) and place == "run":
        return " A parameter of a workload takes --set NAME=VALUE."
    if isinstance(error, click.NoSuchOption) and context is not None:
        other = {"export": "open", "open": "export"}.get(place or "", "")
        command = cli.get_command(context, other)
        if command and any(error.option_name in option.opts for option in command.params):
            return f" {error.option_name} belongs to `workbench {other}`."
    if isinstance(error, click.MissingParameter) and isinstance(error.param, click.Argument):
        return " It comes before the options."  # one of them may have taken it
    if "extra argument" in error.message:
        files = " Each file follows its format, such as --html run.html."
        return files if place == "export" else f" `workbench {place} --help` lists what it takes."
    return ""


def is_full(error: BaseException | None) -> bool:
    """Whether a full disk caused `error`, which is no fault of the command line."""
    while error is not None and getattr(error, "errno", None) not in NO_ROOM:
        error = error.__context__
    return error is not None


def refuse(error: Exception) -> None:
    """End with one line if `error` is the system's fault: a resource, an output or a folder."""
    failed = error if isinstance(error, OSError) else OSError()
    number, why, name = failed.errno, failed.strerror, failed.filename
    if number in NO_ROOM:
        let_go(sys.stdout)
        fail(f"{name or 'the output'} cannot be written: {why}; write it elsewhere", FAILED)
    if number in SHORT:
        fail(f"{why}: {SHORT[number]}", FAILED)
    if number == errno.ECANCELED:  # raised by `Control.writing`
        let_go(sys.stdout)
        sys.exit(CUT_SHORT)
    if sys.platform == "linux" and not Path("/proc/self").exists():
        fail("there is no /proc here: run `mount -t proc proc /proc`", FAILED)
    try:
        Path.cwd()
    except FileNotFoundError:
        fail("the current directory no longer exists: change to one that does", USAGE)
    try:
        import tempfile

        tempfile.gettempdir()
    except FileNotFoundError:
        fail("no folder for temporary files can be written: set TMPDIR to one that can", FAILED)


def fail(message: str, code: int) -> None:
    """Exit with one line on stderr, which only the first of several ranks writes."""
    from ..worker.launcher import launch_of

    launch = launch_of(os.environ)
    if launch is None or launch.rank == 0 or code != USAGE:
        line = shown(" ".join(message.split()), LONGEST)
        with suppress(BrokenPipeError):
            say(f"workbench: {line}")
    sys.exit(code)
