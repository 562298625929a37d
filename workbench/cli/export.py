"""`workbench export`: an earlier run as files for other programs and people."""

from pathlib import Path

import click

from ..export.formats import FILES, file_text
from ..files.write import replace
from ..planning.usage import UsageError, new_folder, target
from ..text.output import put
from .options import anonymize_option
from .program import command


@command("workbench export last --html run.html --svg plots")
@click.argument("run", metavar="RUN")
@click.option("--svg", metavar="DIR", help="Every plot, in a new folder.")
@anonymize_option
def export(run: str, svg: str | None, anonymize: bool, **files: str | None) -> None:
    """Write an earlier run as files.

    RUN is anything that `open` accepts.  Without FILE, the output goes to stdout.
    """
    from ..export.sections import sections
    from ..export.view.svg import svg_file
    from ..report.anonymous import anonymised
    from ..report.run_files import open_run

    named = {form: to for form, to in files.items() if to is not None}
    if not (named or svg) or [*named.values()].count("-") > 1:
        raise UsageError(f"choose from --svg DIR, --{', --'.join(files)}; one may go without FILE")
    folder = new_folder("--svg", Path(svg)) if svg is not None else None
    targets = {
        form: None if to == "-" else target(f"--{form}", Path(to), opened=True)
        for form, to in named.items()
    }
    report = open_run(run).report
    if not report.largest_batches and not any(c.blocks for c in report.candidates.values()):
        raise UsageError(f"{run} has no measurements: choose another run (workbench open {run})")
    report = anonymised(report) if anonymize else report
    for form, output in targets.items():
        content = file_text(form, report).encode()
        if output is None:
            put([content])
        else:
            output.write(content + b"\n")
    if folder is not None:
        folder.mkdir()
        plots = [plot for section in sections(report) for plot in section.plots]
        for number, plot in enumerate(plots, 1):
            replace(folder / f"plot-{number:02}.svg", svg_file(plot).encode())


for name, text in FILES.items():
    option = click.option(f"--{name}", metavar="[FILE]", is_flag=False, flag_value="-", help=text)
    option(export)
