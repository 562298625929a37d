"""Pictures: their content and order, broken files, and resizing."""

import io
import multiprocessing
import os
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from checking import fails_with
from PIL import Image
from small import tuning_of
from support import go_on, stop
from tasks import prepared

from workbench import catalog
from workbench.contract import Case, Host, Setup, WorkloadError
from workloads import data_loading as loading, preprocessing as resizing
from workloads._shared import pictures
from workloads._shared.training import SHARED_MEMORY

BATCHES = 3


@pytest.fixture(autouse=True, scope="module")
def few_photographs() -> Any:
    before, loading.PHOTOGRAPHS = loading.PHOTOGRAPHS, 5
    yield
    loading.PHOTOGRAPHS = before
    pictures.encoded.cache_clear()


def feeding(device: str = "cpu", *, seed: int = 0, images: str = "generated", **tuning: Any) -> Any:
    params = {"image": 24, "batches": BATCHES, "images": images}
    workload = catalog.load("data_loading")
    values, tuned = workload.values(params), tuning_of(workload, {"loaders": 0, **tuning})
    return prepared(
        Case("data_loading", device, "torch", "fp32", None, 1, 4, values, None, tuned), seed
    )


def preprocessing(
    backend: str,
    mode: str | None,
    device: str = "cpu",
    *,
    image: int = 32,
    threads: int = 1,
    batch: int = 2,
) -> Any:
    workload = catalog.load("preprocessing")
    values = workload.values({"width": 90, "height": 70, "image": image})
    case = Case("preprocessing", device, backend, "fp32", None, threads, batch, values, mode)
    return workload.prepare(case, Setup(seed=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Five small pictures."""
    rng = np.random.default_rng(0)
    for index in range(5):
        Image.fromarray(pictures.photograph(rng, 64, 48)).save(tmp_path / f"{index}.jpg")
    return tmp_path


def refusal(folder: Path | str) -> WorkloadError:
    with pytest.raises(WorkloadError) as caught:
        feeding(images=str(folder))
    error = caught.value
    assert error.code == "bad_input"
    assert "\n" not in str(error)
    assert error.hint and "images=" in error.hint
    return error


def stream(**tuning: Any) -> list[Any]:
    """All pixels and labels of two epochs."""
    task = feeding(**tuning)
    found: list[Any] = []
    with closing(task):
        inputs = task._inputs

        def noted(pixels: Any, labels: Any) -> Any:
            found.append((pixels.numpy(), labels.tolist()))
            return inputs(pixels, labels)

        task._inputs = noted
        task.step()
        task.step()
    assert multiprocessing.active_children() == []
    return found


def test_the_stream_is_the_same_for_every_way_of_loading() -> None:
    alone = stream(loaders=0)
    assert len(alone) == 2 * BATCHES
    assert not any(np.array_equal(alone[0][0], later) for later, _ in alone[1:])
    for tuning in ({"loaders": 2, "prefetch": 1}, {"loaders": 1, "persistent": "no"}):
        for (pixels, labels), (expected, due) in zip(stream(**tuning), alone, strict=True):
            assert np.array_equal(pixels, expected)
            assert labels == due


def test_another_seed_cuts_other_pictures() -> None:
    first, again, other = (feeding(seed=seed).pictures[range(2)][0] for seed in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_cuts_lie_within_their_picture_and_half_of_them_are_flipped() -> None:
    crops = pictures.RandomCrops([], 8, seed=0)
    flips = []
    for sample in range(300):
        (left, top, right, bottom), flip = crops.cut(sample, 40, 11)
        assert 0 <= left < right <= 40
        assert 0 <= top < bottom <= 11
        flips.append(flip)
    assert 0.4 < np.mean(flips) < 0.6
    whole, _ = crops.cut(0, 1000, 1)  # no cut of this shape is near enough to a square
    assert whole == (0, 0, 1000, 1)


def test_a_picture_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = pictures.RandomCrops.picture

    def wrong(crops: pictures.RandomCrops, sample: int, *, exact: bool = False) -> Any:
        pixels = right(crops, sample, exact=exact)
        return pixels if exact else pixels // 64 * 64

    monkeypatch.setattr(pictures.RandomCrops, "picture", wrong)
    assert not feeding().check().passed


def test_pictures_in_another_order_are_found() -> None:
    task = feeding()
    task.epoch.number = 1
    assert not task.check().passed


@pytest.mark.parametrize("factor", [1.01, float("nan")])
def test_a_loss_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch, factor: float) -> None:
    task = feeding()
    right = torch.nn.functional.cross_entropy

    def wrong(logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return right(logits, labels) * (factor if logits.dtype == torch.float32 else 1.0)

    monkeypatch.setattr(torch.nn.functional, "cross_entropy", wrong)
    assert not task.check().passed


def test_training_changes_the_weights_and_the_check_does_not() -> None:
    with closing(feeding(loaders=1)) as task:
        initial = task.network[0].weight.detach().clone()
        assert task.check().passed
        assert task.network[0].weight.equal(initial)
        task.step()
        assert not task.network[0].weight.equal(initial)


def test_loaders_that_were_frozen_go_on() -> None:
    with closing(feeding(loaders=2)) as task:
        task.step()
        loaders = [child.pid for child in multiprocessing.active_children()]
        assert len(loaders) == 2
        stop(loaders)
        go_on(loaders)
        task.step()
        assert task.loss() is not None
    assert multiprocessing.active_children() == []


def test_loaders_that_are_not_persistent_end_with_their_epoch() -> None:
    task = feeding(loaders=1, persistent="no")
    task.step()
    assert multiprocessing.active_children() == []
    task.close()


def test_the_waiting_fraction_is_that_of_the_block() -> None:
    task = feeding()
    assert task.metrics() == {}
    task.marks = [[0.0, 3.0, 4.0, 5.0, 7.0, 8.0]]  # works from 3 to 4 and from 5 to 7
    assert task.metrics() == {"waiting_fraction": 5 / 8}
    task.activate()
    assert task.metrics() == {}
    task.step()
    task.step()
    assert 0 < task.metrics()["waiting_fraction"] < 1
    assert [len(marks) for marks in task.marks] == [2 * BATCHES + 2] * 2


def test_few_settings_are_proposed() -> None:
    workload = catalog.load("data_loading")
    assert workload.tuning_values("loaders", Host(16, 0), "cpu") == [0, 1, 8, 16]
    assert workload.tuning_values("loaders", Host(2, 0), "cpu") == [0, 1, 2]
    assert workload.tuning_values("loaders", Host(192, 1), "gpu") == [0, 1, 64]
    assert workload.tuning_values("pinned", Host(16, 1), "cpu") == ["no"]
    assert workload.tuning_values("pinned", Host(16, 1), "gpu") == ["yes", "no"]
    assert workload.tuning_values("prefetch", Host(16, 1), "gpu") == [2]


def test_pinning_without_a_gpu_is_refused() -> None:
    with fails_with("unsupported", "GPU"):
        feeding(pinned="yes")
    assert feeding("fake:0", pinned="yes").check().passed


def test_too_little_shared_memory_is_refused_beforehand(monkeypatch: pytest.MonkeyPatch) -> None:
    if not Path(SHARED_MEMORY).is_dir():
        pytest.skip("this system has another kind of shared memory")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4096))
    with fails_with("shared_memory", "shared memory", hint="--shm-size"):
        feeding(loaders=2)
    feeding(loaders=0)


def test_a_training_whose_batches_do_not_fit_into_shared_memory_is_refused(monkeypatch) -> None:
    monkeypatch.setattr(os.path, "isdir", lambda _: True)
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_bavail=1, f_frsize=4096))
    params = catalog.load("train_cnn").values({"image": 16})
    case = Case("train_cnn", "cpu", "torch", "fp32", None, 1, 8, params, None, {"loaders": 2})
    with fails_with("shared_memory", "2 loaders need "):
        catalog.load("train_cnn").prepare(case, Setup())


def test_a_users_folder_is_used_with_its_subfolders(folder: Path) -> None:
    grey = Image.fromarray(np.arange(6000, dtype=np.uint8).reshape(60, 100))
    (folder / "more").mkdir()
    grey.save(folder / "more" / "grey.png")
    grey.convert("P").save(folder / "more" / "palette.gif")
    grey.convert("RGBA").save(folder / "more" / "alpha.png")
    (folder / ".DS_Store").write_bytes(b"not a picture")
    task = feeding(images=str(folder))
    assert len(task.pictures.sources) == 8
    assert task.check().passed
    task.step()


def test_empty_and_missing_folders_are_refused(tmp_path: Path) -> None:
    assert "no files" in str(refusal(tmp_path))
    assert "No such file" in str(refusal(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("x")
    assert "Not a directory" in str(refusal(tmp_path / "file"))


def test_a_file_that_is_not_a_picture_is_named(folder: Path) -> None:
    (folder / "notes.txt").write_text("no picture\n")
    assert "notes.txt" in str(refusal(folder))


@pytest.mark.parametrize("suffix", ["jpg", "png"])
def test_a_truncated_picture_is_named(folder: Path, suffix: str) -> None:
    with Image.open(folder / "0.jpg") as whole:
        whole.save(folder / f"short.{suffix}")
    cut_in_half(folder / f"short.{suffix}")
    assert f"short.{suffix} cannot be decoded" in str(refusal(folder))


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_may_not_be_read_is_named(folder: Path) -> None:
    (folder / "closed").mkdir(mode=0)
    assert "closed: Permission denied" in str(refusal(folder))
    (folder / "closed").rmdir()
    (folder / "3.jpg").chmod(0)
    assert "3.jpg" in str(refusal(folder))


@pytest.mark.parametrize("loaders", [0, 1])
def test_a_picture_that_breaks_later_ends_the_case_with_its_name(folder, loaders) -> None:
    with closing(feeding(images=str(folder), loaders=loaders)) as task:
        task.step()
        for picture in folder.iterdir():
            cut_in_half(picture)
        with fails_with("bad_input", r"\d\.jpg cannot be decoded"):
            task.step()
    assert multiprocessing.active_children() == []


def cut_in_half(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def test_photographs_compress_like_photographs() -> None:
    files = pictures.encoded(4, "jpeg", 0)
    for file in files:
        with Image.open(io.BytesIO(file)) as image:
            bits = 8 * len(file) / (image.width * image.height)
            assert image.format == "JPEG"
        assert 1 < bits < 4
    pictures.encoded.cache_clear()
    assert pictures.encoded(4, "jpeg", 0) == files
    assert pictures.encoded(4, "jpeg", 1) != files


def test_a_png_decodes_to_what_was_encoded() -> None:
    (file,) = pictures.encoded(1, "png", 3)
    image = pictures.decode(file)
    rng = np.random.default_rng(3)
    rng.integers(*pictures.LONG_SIDES, endpoint=True), rng.random()  # its size
    assert np.array_equal(np.asarray(image), pictures.photograph(rng, *image.size))


@pytest.mark.parametrize("target", [(20, 30), (50, 70), (90, 70), (7, 200)])
def test_the_reference_resizes_as_pillow_does_but_for_rounding(target: tuple[int, int]) -> None:
    pixels = pictures.photograph(np.random.default_rng(0), 70, 50)
    found = pictures.resample(pixels, *target)
    by_pillow = Image.fromarray(pixels).resize(target[::-1], Image.Resampling.BILINEAR)
    assert found.shape == (*target, 3)
    assert np.abs(found - np.asarray(by_pillow)).max() < 1.01
    assert np.allclose(pictures.resample(np.full((9, 8, 3), 7), *target), 7), "flat stays flat"
    assert np.array_equal(pictures.resample(pixels, 50, 70), pixels), "the same size is the same"


CANDIDATES = [(v.backend, v.mode, v.device_kind) for v in catalog.load("preprocessing").variants]


@pytest.mark.parametrize(("backend", "mode", "kind"), CANDIDATES)
@pytest.mark.parametrize("image", [24, 120])  # smaller and larger than the photographs
def test_every_candidate_makes_the_same_input(backend, mode, kind, image) -> None:
    device = "cpu" if kind == "cpu" else "fake:0"
    with closing(preprocessing(backend, mode, device, image=image)) as task:
        assert task.check().passed
        made = task.inputs(0)
        assert made.shape == (2, 3, image, image)
        assert made.dtype == np.float32
        assert made.flags.c_contiguous
        assert abs(float(made.mean())) < 1.5


@pytest.mark.parametrize("mode", [None, "uint8"])
def test_resizing_without_antialiasing_is_found(mode: str | None, monkeypatch) -> None:
    right = torch.nn.functional.interpolate
    monkeypatch.setattr(
        torch.nn.functional,
        "interpolate",
        lambda *arguments, **options: right(*arguments, **{**options, "antialias": False}),
    )
    assert not preprocessing("torch", mode).check().passed


def test_colours_in_the_wrong_order_are_found() -> None:
    task = preprocessing("numpy", "pillow")
    right = task.inputs
    task.inputs = lambda which: right(which)[:, ::-1]
    assert not task.check().passed
    task.close()


def test_a_last_photograph_that_is_wrong_is_found() -> None:
    with closing(preprocessing("numpy", "pillow", batch=3)) as task:
        right = task.inputs
        task.inputs = lambda which: (
            right(which) * np.reshape([1, 1, -1 if which else 1], (3, 1, 1, 1))
        )
        assert not task.check().passed


def test_pixels_that_were_never_written_are_found() -> None:
    task = preprocessing("numpy", "pillow")
    task._one = lambda *_: None
    assert not task.check().passed
    task.close()


def test_pillows_threads_share_a_batch() -> None:
    made = []
    for threads in (1, 3):
        with closing(preprocessing("numpy", "pillow", threads=threads, batch=5)) as task:
            assert task.check().passed
            made.append(task.inputs(0).copy())
    assert np.array_equal(*made)


def test_memory_grows_with_the_pictures_and_the_loaders() -> None:
    large = {"width": 8192, "height": 8192, "image": 224}
    case = Case("preprocessing", "cpu", "torch", "fp32", batch=8, params=large)
    assert resizing.WORKLOAD.work(case).memory_bytes > 8 * 4 * 3 * 8192**2
    work = resizing.WORKLOAD.work
    resident, copied = (work(replace(case, device="cuda:0", mode=m)) for m in ("resident", None))
    photos = 4 * 8 * 3 * 8192**2
    assert resident.memory_bytes - copied.memory_bytes == photos
    assert copied.host_bytes == resident.host_bytes > photos
    few, many = (replace(feeding().case, tuning={"loaders": n, "prefetch": 2}) for n in (0, 64))
    work = loading.WORKLOAD.work
    assert work(many).memory_bytes > 10 * work(few).memory_bytes
    few, many = (work(replace(case, device="cuda:0")) for case in (few, many))
    assert few.memory_bytes == many.memory_bytes, "loaders take none of a GPU's memory"
    assert many.host_bytes > 10 * few.host_bytes
