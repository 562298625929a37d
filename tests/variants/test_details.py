"""Promises of single workloads: real INT8, no silent fallback, harmless freezes."""

import multiprocessing
import sys
from contextlib import closing
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from checking import checked, fails_with
from support import go_on, stop
from tasks import losses, prepared
from torch.utils.flop_counter import FlopCounterMode

from workbench import assets
from workbench.contract import Accuracy, Case, Setup
from workloads import conv_layers
from workloads._shared import network, onnx_model, optdigits, quantisation
from workloads._shared.torch_task import TorchTask, aligned, set_tf32
from workloads.digits import WORKLOAD as DIGITS, FedDigits, pictures as digit_pictures
from workloads.forest import grow
from workloads.infer_cnn import WORKLOAD as INFER_CNN
from workloads.infer_mlp import WORKLOAD as INFER_MLP
from workloads.train_cnn import WORKLOAD as TRAIN_CNN, PictureStream
from workloads.train_mlp_deep import WORKLOAD as TRAIN_MLP_DEEP


def training_case(precision: str, batch: int, *, image: int, loaders: int = 1) -> Case:
    """Training of the conv net from a stream."""
    sizes, tuning = {"image": image}, {"loaders": loaders}
    return Case("train_cnn", "cpu", "torch", precision, None, 1, batch, sizes, None, tuning)


def inference(method: str | None, image: int = 32, *, device: str = "cpu") -> Case:
    precision = "int8" if method else "fp32"
    params = {"image": image}
    return Case("infer_cnn", device, "onnxruntime", precision, method, 2, 1, params)


@pytest.mark.parametrize("image", [32, 64])
@pytest.mark.parametrize("method", ["dynamic", "static"])
def test_int8_of_the_trained_net_stays_within_two_percent(method: str, image: int) -> None:
    found = prepared(inference(method, image)).check()
    assert 1e-4 < found.value < 0.02, "an error below 1e-4 would mean that nothing was quantised"


def test_a_layer_is_really_quantised() -> None:
    layers = network.mlp((8, 16, 4), seed=0)
    model = onnx_model.graph(layers, (1, 8))
    inputs = [np.random.default_rng(0).standard_normal((1, 8), dtype=np.float32)]
    operators = {
        method: [
            node.op_type
            for node in onnx.load_model_from_string(
                quantisation.quantise(model, method, inputs)
            ).graph.node
        ]
        for method in ("dynamic", "static")
    }
    assert operators["dynamic"].count("MatMulInteger") == 2
    assert "DequantizeLinear" in operators["static"]
    assert operators["static"][-1] == "Gemm", "the last layer stays in FP32"


def test_a_model_that_quantisation_skipped_is_refused() -> None:
    model = onnx_model.graph(network.mlp((8, 16, 4), seed=0), (1, 8))
    with fails_with("not_quantised"):
        quantisation._require_quantised(model, "static")


def test_an_execution_provider_is_never_replaced_silently() -> None:
    if "CUDAExecutionProvider" in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime was built for CUDA")
    with fails_with("provider_fallback", hint="onnxruntime-gpu"):
        prepared(inference(None, device="cuda:0"))


def test_a_session_uses_the_threads_of_its_case() -> None:
    options = prepared(inference(None)).session.get_session_options()
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)


def test_set_up_names_its_parts() -> None:
    setup = Setup()
    prepared(inference("static"), setup=setup)
    assert set(setup.seconds) == {"build", "compile"}
    setup = Setup()
    prepared(Case("matmul", "fake:0", "torch", "fp32", params={"n": 8}), setup=setup)
    assert set(setup.seconds) == {"build", "transfer"}


def test_loaders_that_were_frozen_go_on() -> None:
    case = training_case("fp32", 4, image=16, loaders=2)
    with closing(prepared(case)) as task:
        task.step()
        children = multiprocessing.active_children()
        assert len(children) == 2
        loaders = [child.pid or 0 for child in children]
        stop(loaders)
        go_on(loaders)
        for _ in range(8):  # more than what had been prefetched
            task.step()
        assert task.loss() is not None
    assert multiprocessing.active_children() == []


def test_the_stream_is_the_same_for_every_number_of_loaders() -> None:
    first, labels = PictureStream(4, 16, seed=3)[7]
    again, _ = PictureStream(4, 16, seed=3)[7]
    other, _ = PictureStream(4, 16, seed=3)[8]
    assert first.shape == (4, 3, 16, 16)
    assert labels.shape == (4,)
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_fp16_training_lowers_its_loss_scale_where_gradients_overflow() -> None:
    """The CPU computes FP16 slowly, but the same way as a GPU: through autocast and GradScaler."""
    case = training_case("fp16", 4, image=16)
    with closing(prepared(case)) as task:
        assert task.scaler.is_enabled()
        task.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**30)
        assert task.check().passed
        assert task.scaler.get_scale() < 2.0**30
        task.step()
        assert task.loss() is not None


@pytest.mark.parametrize(("place", "factor"), [(1, 1.01), (1, float("nan")), (2, float("nan"))])
def test_a_gradient_that_is_wrong_is_found(place: int, factor: float) -> None:
    case = Case("conv_layers", "cpu", "torch", "fp32", None, 1, 1, {"image": 14})
    task = prepared(case)
    assert task.check().passed
    task.leaves[place].register_hook(
        lambda gradient: gradient * factor
    )  # the gradient of one kernel is wrong
    assert not task.check().passed


def test_an_image_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    task = prepared(Case("conv_layers", "cpu", "torch", "fp32", None, 1, 3, {"image": 14}))
    right = conv_layers.both_passes

    def wrong(leaves: list[Any], **corner: bool) -> Any:
        output, gradients = right(leaves, **corner)
        if leaves is task.leaves:
            output[-1, :, -1] = 0  # the last row of the last one
        return output, gradients

    monkeypatch.setattr(conv_layers, "both_passes", wrong)
    assert not task.check().passed


def test_a_training_starts_again_after_its_epochs() -> None:
    case = Case(
        "train_mlp_deep", "cpu", "torch", "fp32", None, 1, None, {"samples": 100, "epochs": 2}
    )
    first, second, again = losses(prepared(case), 3)
    assert again == first != second


@pytest.mark.parametrize("mode", [None, "dataloader"])
def test_digits_start_again_after_their_epochs(mode: str | None, monkeypatch) -> None:
    monkeypatch.setattr("workloads.digits.EPOCHS", 2)
    case = Case("digits", "cpu", "torch", "fp32", None, 1, 700, mode=mode)  # two steps an epoch
    found = losses(prepared(case), 5)
    assert found[4] == found[0] != found[2]


def test_a_data_loader_passes_each_digit_once_an_epoch() -> None:
    task = prepared(Case("digits", "cpu", "torch", "fp32", None, 1, 700, mode="dataloader"))
    assert isinstance(task, FedDigits)
    seen, labels = zip(*(next(task.batches) for _ in range(2)), strict=True)
    found = np.concatenate(seen), np.concatenate(labels)
    both = zip(*found, strict=True)
    rows = {picture.tobytes(): label for picture, label in zip(*digit_pictures(), strict=True)}
    assert all(rows[picture.tobytes()] == label for picture, label in both)
    assert len({picture.tobytes() for picture in found[0]}) == 1400
    assert task.check().passed


def test_the_reference_convolution_agrees_with_torch() -> None:
    rng = np.random.default_rng(0)
    for stride, side in ((1, 7), (2, 7), (2, 8)):
        x, weight = rng.standard_normal((2, 3, side, side)), rng.standard_normal((4, 3, 3, 3))
        expected = torch.conv2d(*map(torch.from_numpy, (x, weight)), stride=stride, padding=1)
        assert np.allclose(network.conv3x3(x, weight, stride), expected.numpy())


def test_costs_of_the_conv_net_agree_with_torchs_own_counter() -> None:
    case = Case("infer_cnn", "cpu", "torch", "fp32", None, 1, 2, {"image": 20})
    task = prepared(case)
    with FlopCounterMode(display=False) as counter:
        task.step()
    assert counter.get_total_flops() == INFER_CNN.work(case).flops

    case = training_case("fp32", 2, image=20)
    with closing(prepared(case)) as training, FlopCounterMode(display=False) as counter:
        training.step()
    assert counter.get_total_flops() == pytest.approx(TRAIN_CNN.work(case).flops, rel=1e-6)


def test_all_digits_are_loaded_and_split_once() -> None:
    images, labels = optdigits.load()
    assert images.shape == (1797, 8, 8)
    assert (images.min(), images.max()) == (0, 1)
    assert np.bincount(labels).tolist() == [178, 182, 177, 183, 181, 182, 181, 179, 174, 180]


def test_pictures_have_whole_grey_levels() -> None:
    images, _ = optdigits.load()
    pictures = optdigits.coloured(images[:3], 70, np.random.default_rng(0))
    pixels = pictures * 64 + 128
    assert pictures.shape == (3, 3, 70, 70)
    assert pictures.dtype == np.float32
    assert np.array_equal(pixels, np.rint(pixels))
    assert 0 <= pixels.min() < pixels.max() <= 255


def test_trees_have_paths_of_different_length() -> None:
    forest = grow(trees=4, depth=6, seed=0)
    leaves = forest.children[::2] == np.arange(len(forest.feature))
    inner = ~leaves.reshape(4, -1)[:, : 2**6 - 1]
    assert leaves.reshape(4, -1)[:, 2**6 - 1 :].all()
    assert 0.7 < inner.mean() < 1
    assert inner[:, 0].all()


def test_memory_grows_with_the_job() -> None:
    small = Case("x", "cpu", "torch", "fp32", batch=1, params={"image": 32})
    large = Case("x", "cpu", "torch", "fp32", batch=64, params={"image": 256})
    for workload in (TRAIN_CNN, INFER_CNN, conv_layers.WORKLOAD):
        assert workload.work(large).memory_bytes > 10 * workload.work(small).memory_bytes
    wide = Case("x", "cpu", "torch", "fp32", batch=1, params={"width": 16_384})
    assert INFER_MLP.work(wide).memory_bytes > 2e9
    many = Case("x", "cpu", "torch", "fp32", params={"samples": 1_000_000, "epochs": 1})
    assert TRAIN_MLP_DEEP.work(many).memory_bytes > 4e9
    assert DIGITS.work(Case("x", "cpu", "torch", "fp32", batch=64)).memory_bytes < 1e8


def test_an_asset_that_is_missing_is_named_with_the_folders_searched() -> None:
    assert assets.path("digits/digits.csv.gz").is_file()
    with pytest.raises(FileNotFoundError, match=r"nothing\.bin.*reinstall"):
        assets.path("nothing.bin")


def test_an_asset_of_an_installed_wheel_comes_first(tmp_path, monkeypatch) -> None:
    (tmp_path / "x.txt").write_text("here")
    monkeypatch.setattr(assets, "_ROOTS", (tmp_path, *assets._ROOTS))
    assert assets.path("x.txt") == tmp_path / "x.txt"


def test_torchs_own_readers_work_after_tf32_was_switched() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    before = matmul.allow_tf32, cudnn.allow_tf32
    try:
        for enabled in (False, True, False, False, True, True):
            set_tf32(enabled)
            assert torch.get_float32_matmul_precision() == ("high" if enabled else "highest")
            assert matmul.allow_tf32 == cudnn.allow_tf32 == enabled
            with cudnn.flags(enabled=True, allow_tf32=not enabled):
                assert cudnn.allow_tf32 != enabled
            if hasattr(matmul, "fp32_precision"):  # since torch 2.9
                assert (matmul.fp32_precision == "tf32") == enabled
                assert (cudnn.conv.fp32_precision == "tf32") == enabled
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def test_true_fp32_holds_where_a_module_has_asked_for_tf32_by_the_new_names() -> None:
    matmul, cudnn = torch.backends.cuda.matmul, torch.backends.cudnn
    if not hasattr(matmul, "fp32_precision"):
        pytest.skip("torch has the new names since 2.9")
    before = matmul.allow_tf32, cudnn.allow_tf32
    try:
        for asked in (torch.backends, cudnn, cudnn.conv, matmul):
            asked.fp32_precision = "tf32"
            set_tf32(enabled=False)
            assert (cudnn.conv.fp32_precision, cudnn.rnn.fp32_precision) == ("none", "none")
            assert matmul.fp32_precision == "ieee" and not cudnn.allow_tf32
    finally:
        matmul.allow_tf32, cudnn.allow_tf32 = before


def test_tf32_is_switched_by_the_new_names_where_the_old_ones_are_gone(monkeypatch) -> None:
    class Modern:
        __slots__ = ("fp32_precision",)

    matmul, conv = Modern(), Modern()
    monkeypatch.setattr(torch.backends.cuda, "matmul", matmul)
    monkeypatch.setattr(torch.backends, "cudnn", SimpleNamespace(conv=conv))
    for enabled, mode in ((True, "tf32"), (False, "ieee")):
        set_tf32(enabled)
        assert matmul.fp32_precision == conv.fp32_precision == mode


def test_a_compiled_case_ends_torchs_processes_for_compiling_before_each_turn(monkeypatch) -> None:
    class Still(TorchTask):
        def step(self) -> None: ...

        def check(self) -> Accuracy: ...

    ended: list[bool] = []
    inductor = SimpleNamespace(shutdown_compile_workers=lambda: ended.append(True))
    monkeypatch.setitem(sys.modules, "torch._inductor.async_compile", inductor)
    plain = Case("work", "cpu", "torch", "fp32")
    Still(plain).activate()
    assert ended == []
    Still(replace(plain, mode="compile")).activate()
    assert ended == [True]


def test_lower_precisions_differ_from_fp32_on_the_cpu_but_not_on_the_simulated_gpu() -> None:
    errors = {}
    for device in ("cpu", "fake:0"):
        case = Case("matmul", device, "torch", "bf16", threads=1, params={"n": 32})
        errors[device] = checked(prepared(case)).value
    assert errors["cpu"] > 1e-3 > 1e-5 > errors["fake:0"]


def test_tensors_from_numpy_are_aligned_as_torch_aligns() -> None:
    raw = np.zeros(64 + 4, dtype=np.float32)
    odd = raw[1:] if raw.ctypes.data % 64 == 0 else raw
    tensor = torch.from_numpy(odd)
    assert tensor.data_ptr() % 64 != 0
    assert aligned(tensor).data_ptr() % 64 == 0
    assert aligned(tensor).equal(tensor)
    already = torch.zeros(4)
    assert aligned(already) is already
