"""Runs and sides compared, as text and as Markdown; whole outputs are golden files."""

import re

from builders import case, machine, report, steady
from msgspec.structs import replace

from workbench.advisor.compare import RunSide, compared
from workbench.export.markdown import markdown
from workbench.export.view.comparison import ab_section, sections
from workbench.export.view.section import section_text
from workbench.records.comparison import ABReport, ABResult, ComparedVerdict, RunComparison, Side
from workbench.records.document import SCHEMA_VERSION, Tool
from workbench.records.machine import Gpu
from workbench.records.reason import Reason

ONE, TWO = case("cpu-a"), case("cpu-b")


def comparison(*factors: float, fail_on: float | None = None) -> RunComparison:
    runs = [report({ONE: steady(factor), TWO: steady(2.0)}) for factor in factors]
    first, *others = (RunSide("ABC"[number], run) for number, run in enumerate(runs))
    return RunComparison(
        schema_version=SCHEMA_VERSION,
        tool=Tool("workbench", "0", "compare"),
        fail_on=fail_on,
        runs=[side.run for side in (first, *others)],
        against=[compared(first, other, fail_on) for other in others],
    )


def test_verdicts_that_differ_do_not_look_alike() -> None:
    found = comparison(1.0, 1.5)
    sized = [f"matmul[n={n}]/cpu/torch/fp32/t8" for n in (512, 1024)]
    verdict = ComparedVerdict("row", "AMBIGUOUS", ("cpu", "cpu"), tuple(sized), (None, None))
    against = [replace(found.against[0], verdicts=[verdict])]
    _, verdicts, *_ = sections(replace(found, against=against))
    (row,) = verdicts.rows
    assert row[2:4] == [f"CPU: matmul[n={n}] cpu torch fp32 t8" for n in (512, 1024)]


def test_every_cell_of_a_markdown_table_has_its_column() -> None:
    found = markdown(sections(comparison(1.0, 1.5, 0.5, fail_on=0.05)))
    blocks = [block.splitlines() for block in found.split("\n\n") if block.startswith("|")]
    assert len(blocks) == 3  # machines, B and C
    for header, rule, *rows in blocks:
        widths = {line.replace("\\|", "").count("|") for line in (header, rule, *rows)}
        assert rows and len(widths) == 1
    assert re.search(r"\| SLOWER \| [^|]+ \| 1.50x \|", found) and r"beyond \-\-fail\-on" in found
    assert re.search(r"\| FASTER \| [^|]+ \| 0.50x \|", found)


def test_a_run_with_one_round_of_each_case_does_not_seem_steady() -> None:
    one, many = (RunSide(n, report({ONE: steady(1.0, r)})) for n, r in (("A", 1), ("B", 8)))
    found = comparison(1.0, 1.0)
    changed = replace(found, runs=[one.run, many.run], against=[compared(one, many, None)])
    assert "varied by" in section_text(sections(found))
    assert "varied by" not in section_text(sections(changed))


def test_a_run_of_an_unknown_machine_is_not_said_to_be_of_another() -> None:
    found = comparison(1.0, 1.0)
    against = [replace(found.against[0], same_machine=False)]
    runs = [replace(run, machine=None) for run in found.runs]
    for sides, expected in [(found.runs, "two machines"), (runs, "an unknown machine")]:
        changed = replace(found, against=against, runs=sides)
        assert f"B against A: {expected}" in section_text(sections(changed))


def test_text_of_a_run_is_no_markup() -> None:
    hostile = "a|b`<img src=x>*c*_[d](e)@all\n# f"
    found = comparison(1.0, 1.0)
    cases = [replace(each, id=hostile) for each in found.against[0].cases]
    against = [replace(found.against[0], cases=cases)]
    text = markdown(sections(replace(found, against=against)))
    assert r"a\|b\`\<img src\=x\>\*c\*\_\[d\](e)@<!-- -->all\\n\# f" in text
    assert "<img" not in text.replace("\\<", "")


def test_only_what_differs_is_marked() -> None:
    (*_, facts) = sections(comparison(1.0, 1.0))
    assert {row[0] for row in facts.rows} == {""}
    found = comparison(1.0, 1.0)
    runs = [found.runs[0], replace(found.runs[1], version="1")]
    (*_, facts) = sections(replace(found, runs=runs))
    assert [row[1:] for row in facts.rows if row[0] == "*"] == [["workbench", "0", "1"]]


def test_text_and_markdown_have_the_same_cells() -> None:
    found = comparison(1.0, 1.3)
    text, written = section_text(sections(found)), markdown(sections(found)).replace("\\", "")
    for section in sections(found):
        for row in section.rows:
            assert all(cell in text and " ".join(cell.split()) in written for cell in row)


def test_a_gpu_without_a_number_is_labelled_with_its_device() -> None:
    found = comparison(1.0, 1.0)
    gpus = [Gpu(None, "fake:0", None, None, "Test GPU"), Gpu(None, None, None, None, None)]
    both = replace(found.runs[0].machine, gpus=[*gpus, *machine("cuda:0").gpus])
    runs = [replace(run, machine=both) for run in found.runs]
    (*_, facts) = sections(replace(found, runs=runs))
    assert [row[1] for row in facts.rows if "Test GPU" in row[2]] == ["fake:0", "GPU 0"]
    assert "None" not in section_text([facts])


def test_a_machine_that_is_not_known_leaves_its_facts_out() -> None:
    found = comparison(1.0, 1.0)
    runs = [found.runs[0], replace(found.runs[1], machine=None)]
    (*_, facts) = sections(replace(found, runs=runs))
    assert ["*", "host", "host", "-"] in facts.rows


def test_a_narrow_table_keeps_the_reasons_and_the_names_of_facts() -> None:
    found = comparison(1.0, 1.5)
    cases = [
        replace(each, ci99=None, reason=Reason("few", "only 1 round in A"))
        for each in found.against[0].cases
    ]
    against = [replace(found.against[0], cases=cases)]
    parts = [*sections(replace(found, against=against))]
    text = section_text(parts, 60)
    assert max(map(len, text.splitlines())) <= 60
    assert "only 1 round in A" in text and "99% CI" not in text and "workbench" in text
    assert "99% CI" in section_text(parts, 120)


HOSTILE = "x|<script>alert(1)</script>\x1b[2J @all"
REPORT = ABReport(
    schema_version=SCHEMA_VERSION,
    tool=Tool("workbench", "0", "ab"),
    sides=[Side("A", "--python old"), Side("B", HOSTILE)],
    results=[
        ABResult("one", "SLOWER", 1.051, (1.04, 1.0625), [1.05] * 3, [0.01] * 3, [0.0105] * 3),
        ABResult(HOSTILE, reason=Reason("user_code", f"side B: {HOSTILE}")),
    ],
    tolerance=0.02,
    fail_on=0.02,
    exit_code=4,
)


def test_a_row_has_word_ratio_interval_and_times() -> None:
    text = section_text([ab_section(REPORT)])
    (line,) = [line for line in text.splitlines() if line.startswith("SLOWER")]
    assert " ".join(line.split()) == "SLOWER one 1.051 1.040-1.062 10.0 ms 10.5 ms 3"
    assert "A: --python old" in text
    assert "NO RESULT" in text
    assert "within 2.00%" in text
    assert "\x1b" not in text


def test_a_narrow_table_keeps_the_ratio() -> None:
    long = replace(REPORT.results[0], case="matmul[n=2048] cpu onnxruntime fp32 t2 " * 2)
    text = section_text([ab_section(replace(REPORT, results=[long]))], 60)
    (line,) = [line for line in text.splitlines() if line.startswith("SLOWER")]
    assert " 1.051" in line and len(line) <= 60


def test_a_command_has_no_empty_brackets() -> None:
    command = replace(REPORT.results[0], case="own[]/cpu/command")
    text = section_text([ab_section(replace(REPORT, results=[command]))])
    assert "SLOWER  own cpu command  1.051" in text


def test_a_simulated_gpu_is_named() -> None:
    posed = replace(REPORT.results[0], basis="simulated")
    (section,) = [ab_section(replace(REPORT, results=[posed]))]
    assert "one: simulated, a CPU worker poses as this GPU" in section.notes
    assert not any("simulated" in note for note in ab_section(REPORT).notes)


def test_markdown_shows_hostile_text_as_text() -> None:
    text = markdown([ab_section(REPORT)])
    assert "@<!-- -->all" in text  # mentions no user
    plain = text.replace("\\|", "").replace("\\<", "").replace("<!-- -->", "")
    assert "<" not in plain
    assert "\x1b" not in text
    table = [line for line in plain.splitlines() if line.startswith("|")]
    assert {line.count("|") for line in table} == {8}
    assert len(table) == 4
