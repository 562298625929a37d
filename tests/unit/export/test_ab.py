"""The table of `workbench ab`, with text of strangers in it."""

from msgspec.structs import replace

from workbench.export.markdown import markdown
from workbench.export.view.comparison import ab_section
from workbench.export.view.section import section_text
from workbench.records.comparison import ABReport, ABResult, Side
from workbench.records.document import SCHEMA_VERSION, Tool
from workbench.records.reason import Reason

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
