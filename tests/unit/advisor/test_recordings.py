"""Recorded runs of other devices: which files count, and which device is meant."""

import os
from pathlib import Path

import msgspec
import pytest
from builders import machine
from recorded_devices import H200, ROWS, ask, document, matmul, put, run

from workbench.advisor import whatif_devices
from workbench.advisor.recordings import Recording, load, named
from workbench.advisor.whatif import sentence
from workbench.export.json import dump
from workbench.planning.request import Request
from workbench.planning.rows import resolve
from workbench.planning.usage import UsageError
from workbench.records import events as ev
from workbench.records.document import SetupTimes
from workbench.records.reason import Warning
from workbench.report import run_files

pytestmark = pytest.mark.usefixtures("recordings_folder")


# -------------------------------------------------------------------- files


def test_no_folder_is_no_recording(recordings_folder: Path) -> None:
    recordings_folder.rmdir()
    assert load() == ([], [])


def test_a_run_counts_for_each_device_that_it_measured(recordings_folder: Path) -> None:
    put(recordings_folder, document({matmul(64): 1e-4, matmul(64, device="cpu"): 1e-3}))
    found, warnings = load()
    assert warnings == []
    assert [(r.name, r.devices, len(r.measurements)) for r in found] == [
        ("Test CPU, 8 cores", ("cpu",), 1),
        (H200, ("cuda:0",), 1),
    ]


def test_a_journal_is_a_recording_too(recordings_folder: Path) -> None:
    lines = [ev.encode(event) for event in run({matmul(64): 1e-4})]
    (recordings_folder / "run.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    (recording,), warnings = load()
    assert (recording.name, recording.file, warnings) == (H200, "run.jsonl", [])


def test_unusable_files_lead_to_warnings(recordings_folder: Path, monkeypatch) -> None:
    good = dump(document({matmul(64): 1e-4}))
    put(recordings_folder, document({matmul(64): 1e-4}))
    (recordings_folder / "README.md").write_text("not looked at")
    (recordings_folder / "a-text.json").write_text("hello")
    (recordings_folder / "another-tool.json").write_text('{"schema_version": 1, "results": []}')
    (recordings_folder / "bytes.json").write_bytes(b"\xff\xfe\x00")
    (recordings_folder / "cut.json").write_text(good[: len(good) // 2])
    (recordings_folder / "deep.json").write_text("[" * 100_000)
    (recordings_folder / "empty.json").write_text("")
    (recordings_folder / "empty.jsonl").write_text("")
    (recordings_folder / "folder.json").mkdir()
    (recordings_folder / "gone.json").symlink_to(recordings_folder / "nowhere")
    (recordings_folder / "later.json").write_text(
        good.replace('"schema_version": 1', '"schema_version": 9')
    )
    os.mkfifo(recordings_folder / "pipe.json")
    (recordings_folder / "torn.jsonl").write_text('{"event": "RunSta')
    (recordings_folder / "large.json").write_text(good + " " * 100_000)
    monkeypatch.setattr(run_files, "MOST_BYTES", len(good) + 50_000)
    found, warnings = load()
    assert [recording.file for recording in found] == ["h200.json"]
    by_file = {warning.message.partition(" ")[0]: warning for warning in warnings}
    assert len(by_file) == len(warnings) == 13
    assert "regular file" in by_file["pipe.json"].message
    assert "larger than" in by_file["large.json"].message
    assert "schema version 9" in by_file["later.json"].message
    assert by_file["gone.json"].message.endswith(": No such file or directory")
    for warning in warnings:
        assert warning.code == "recording_unusable"
        assert "Error" not in warning.message
        assert "\n" not in warning.message


@pytest.mark.parametrize(
    "change",
    [
        {"samples_s": [1e-4] * 39 + [1e-11]},
        {"setup": SetupTimes(import_s=1e9)},
        {"samples_s": [1e-4, -1e-4] * 20},
        {"samples_s": []},
        {"samples_s": [1e-4]},
        {"blocks": []},
        {"status": "failed"},
        {"simulated": True},
        {"accuracy": None},
        {"id": "another"},
    ],
    ids=lambda change: next(iter(change)),
)
def test_an_invalid_result_is_not_used(recordings_folder: Path, change: dict) -> None:
    written = document({matmul(64): 1e-4})
    for name, value in change.items():
        setattr(written.measurements[0], name, value)
    put(recordings_folder, written)
    assert load() == ([], [])


def test_a_simulated_gpu_is_no_recording(recordings_folder: Path) -> None:
    written = document({matmul(64): 1e-4})
    machine = written.machine
    fake = msgspec.structs.replace(machine.gpus[0], simulated=True)
    written.machine = msgspec.structs.replace(machine, gpus=[fake])
    put(recordings_folder, written)
    assert load() == ([], [])


def test_escape_codes_of_a_recording_do_not_reach_the_terminal(recordings_folder: Path) -> None:
    escape = "\x1b]0;owned\x07"
    written = document({matmul(4096): 1e-3})
    busy = Warning(f"busy{escape}", f"busy{escape}\nand more", f"wait{escape}", f"row{escape}")
    written.measurements[0].warnings = [busy]
    put(recordings_folder, written, f"h200{escape}.json")
    (recordings_folder / f"broken{escape}.json").write_text("hello")
    (recording,), (unusable,) = load()
    (warning,) = recording.measurements[0].warnings
    assert warning.message == r"busy\x1b]0;owned\x07\nand more"
    texts = [recording.file, recording.recorded_at, *msgspec.structs.astuple(warning)]
    texts += msgspec.structs.astuple(unusable)
    request = Request(scenarios=("floating_point",), what_if=("h200",))
    (row,) = resolve(request, ROWS)
    whatif_devices.fill([row], request)
    texts.append(sentence(row.what_if[0], "throughput"))
    assert all(text is None or text.isprintable() for text in texts)


# -------------------------------------------------------------------- names


def known(*names: str) -> list[Recording]:
    return [Recording(name, ("cuda:0",), "f.json", "", machine(), []) for name in names]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ("h200", H200),
        ("nvidia h200", H200),
        ("NVIDIA-H200", H200),
        ("9575f", "AMD EPYC 9575F, 16 cores"),
        ("epyc 16 cores", "AMD EPYC 9575F, 16 cores"),
        ("a100", "NVIDIA A100-SXM4-80GB"),
    ],
)
def test_a_device_is_known_by_the_words_of_its_name(asked: str, found: str) -> None:
    there = known(H200, "AMD EPYC 9575F, 16 cores", "NVIDIA A100-SXM4-80GB", H200)
    assert named(asked, there) == found


@pytest.mark.parametrize("asked", ["h20", "h100", "200", "", "--", "\x00", "h200 h100"])
def test_an_unknown_device_is_refused_with_a_list_of_the_known_ones(asked: str) -> None:
    with pytest.raises(UsageError) as refused:
        named(asked, known(H200, "Test CPU, 8 cores"))
    message = str(refused.value)
    assert "Recorded: NVIDIA H200; Test CPU, 8 cores" in message
    assert "workbench advise --all --thorough --crossover --output" in message


def test_the_refusal_mentions_unusable_files(recordings_folder: Path) -> None:
    (recordings_folder / "h200.json").write_text("{}")
    with pytest.raises(UsageError, match=r"Recorded: none \(1 unusable: h200.json "):
        ask()


def test_an_ambiguous_device_is_refused_unless_one_name_matches_exactly() -> None:
    there = known(H200, "NVIDIA H200 NVL")
    with pytest.raises(UsageError, match="fits several devices: NVIDIA H200; NVIDIA H200 NVL"):
        named("h200", there)
    assert named("nvidia h200", there) == H200
    assert named("nvl", there) == "NVIDIA H200 NVL"


def test_a_processor_with_fewer_cores_is_another_device() -> None:
    there = known("AMD EPYC, 2 cores", "AMD EPYC, 16 cores")
    with pytest.raises(UsageError, match="several"):
        named("epyc", there)
    assert named("epyc 2", there) == "AMD EPYC, 2 cores"
