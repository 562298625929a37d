"""ONNX Runtime on NVIDIA GPUs, by a stand-in that prints and fails as its releases do."""

import dataclasses
import os
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from workbench.contract import Case
from workbench.worker import onnx_gpu
from workbench.worker.onnx_gpu import CPU, CUDA, TENSORRT, Unusable, open_session, providers
from workbench.worker.worker import Worker

# As releases 1.26 and 1.31 print them.
UNLOADED = (
    "\x1b[1;31m[E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator()] onnxruntime::"
    "Provider& onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load"
    " library /home/me/onnxruntime/capi/libonnxruntime_providers_{}.so with error: {}: cannot open"
    " shared object file: No such file or directory\n\x1b[m\n"
)
OLD_DRIVER = (
    "/onnxruntime_src/onnxruntime/core/providers/cuda/cuda_call.cc:122 [with bool THRW = true] CUDA"
    " failure 35: CUDA driver version is insufficient for CUDA runtime version ; GPU=-1 ;"
    " hostname=secret ; expr=cudaSetDevice(info_.device_id);"
)
NO_CODE = "CUDA failure 209: no kernel image is available for execution on the device ; GPU=0"
LEFT_TO_CPU = (
    "[ONNXRuntimeError] : 1 : FAIL : This session contains graph nodes that are assigned to the"
    " default CPU EP, but fallback to CPU EP has been explicitly disabled by the user."
)


class Runtime:
    """As much of the module `onnxruntime` as a session takes."""

    __version__ = "1.31.1"

    def __init__(
        self,
        *,
        there: tuple[str, ...] = (TENSORRT, CUDA, CPU),
        cuda_version: str = "13.0",
        preload: Any = None,
        prints: str = "",
        raises: str = "",
        uses: tuple[str, ...] | None = None,
    ) -> None:
        self.there, self.cuda_version, self.calls = [*there], cuda_version, []
        self._prints, self._raises, self._uses = prints, raises, uses
        self._preload = preload
        if preload is not False:
            self.preload_dlls = self._preload_dlls

    def _preload_dlls(self) -> None:
        self.calls.append("preload")
        if self._preload is not None:
            self._preload(self)

    def get_available_providers(self) -> list[str]:
        return list(self.there)

    def InferenceSession(  # noqa: N802
        self, model: Any, options: Any, *, providers: list[Any], enable_fallback: int = 1
    ) -> Any:
        self.calls.append(("session", providers, enable_fallback))
        os.write(2, self._prints.encode())  # as C++ does
        if self._raises:
            raise RuntimeError(self._raises)
        used = self._uses or [name for name, _ in providers]
        return SimpleNamespace(get_providers=lambda: list(used))


def case(precision: str = "fp32", device: str = "cuda:0", mode: str | None = None) -> Case:
    return Case("infer_cnn", device, "onnxruntime", precision, mode=mode)


def opened(runtime: Runtime, provider: str = CUDA) -> Any:
    return open_session(runtime, b"", None, providers(provider, case(), shared=True))


def refused(runtime: Runtime, provider: str = CUDA) -> Unusable:
    with pytest.raises(Unusable) as caught:
        opened(runtime, provider)
    return caught.value


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The distributions that are installed, by name."""
    names: set[str] = set()

    def distributions() -> Iterator[Any]:
        return (SimpleNamespace(metadata={"Name": name}) for name in names)

    monkeypatch.setattr(onnx_gpu.importlib.metadata, "distributions", distributions)
    return names


def test_the_libraries_are_loaded_before_the_session() -> None:
    runtime = Runtime()
    assert opened(runtime).get_providers()[0] == CUDA
    assert [call if isinstance(call, str) else call[0] for call in runtime.calls] == [
        "preload",
        "session",
    ]


def test_releases_that_load_none_have_torch_do_it(monkeypatch: pytest.MonkeyPatch) -> None:
    imported: list[str] = []
    monkeypatch.setattr(onnx_gpu.importlib, "import_module", imported.append)
    runtime = Runtime(preload=False)
    opened(runtime)
    assert imported == ["torch"]
    opened(runtime, TENSORRT)
    assert imported == ["torch", "torch", "tensorrt"]


def test_a_plug_in_that_registers_with_its_libraries_is_used() -> None:
    runtime = Runtime(there=(CPU,), preload=lambda self: self.there.insert(0, CUDA))
    assert opened(runtime).get_providers()[0] == CUDA


def test_on_the_cpu_nothing_is_loaded() -> None:
    runtime = Runtime()
    opened(runtime, CPU)
    assert "preload" not in runtime.calls


def test_a_worker_loads_them_in_its_hello(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = Runtime()
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", runtime)
    assert Worker("onnxruntime", "cuda:1").hello()["versions"]["onnxruntime"] == "1.31.1"
    (loaded, (_, wanted, _)) = runtime.calls
    assert loaded == "preload"
    assert wanted[0] == (CUDA, {"device_id": "1", "use_tf32": "0"})
    broken = Runtime(raises=OLD_DRIVER)
    monkeypatch.setitem(__import__("sys").modules, "onnxruntime", broken)
    assert Worker("onnxruntime", "cuda:1").hello(), "the case says why"


def test_nothing_reaches_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    def preload(_: Runtime) -> None:
        print("Failed to load libcublasLt.so.13: no such file")
        os.write(1, b"from C\n")

    refused(Runtime(preload=preload, prints="cause\n", raises="x"))
    stdout, stderr = capfd.readouterr()
    assert stdout == ""
    for line in ("libcublasLt.so.13", "from C", "cause"):
        assert line in stderr, "the log keeps it"


def test_output_is_as_before_afterwards(capfd: pytest.CaptureFixture[str]) -> None:
    refused(Runtime(raises="x"))
    print("mine")
    os.write(1, b"and C's\n")
    assert capfd.readouterr().out in ("mine\nand C's\n", "and C's\nmine\n")


def test_onnx_runtime_does_not_fall_back_by_itself() -> None:
    runtime = Runtime()
    opened(runtime)
    assert runtime.calls[1][2] == 0, "it would print to standard output, and go on with the CPU"


@pytest.mark.parametrize(
    ("runtime", "provider", "why", "hint"),
    [
        (
            Runtime(prints=UNLOADED.format("cuda", "libcublasLt.so.13"), uses=(CPU,)),
            CUDA,
            "libcublasLt.so.13: cannot open shared object file",
            "'onnxruntime-gpu[cuda,cudnn]==1.31.1'",
        ),
        (
            Runtime(prints=UNLOADED.format("cuda", "libcublasLt.so.13"), raises=LEFT_TO_CPU),
            CUDA,
            "libcublasLt.so.13: cannot open shared object file",
            "'onnxruntime-gpu[cuda,cudnn]==1.31.1'",
        ),
        (
            Runtime(raises="cuDNN is unavailable for CUDA Execution Provider: no library"),
            CUDA,
            "cuDNN is unavailable",
            "'onnxruntime-gpu[cuda,cudnn]==1.31.1'",
        ),
        (
            Runtime(prints=UNLOADED.format("tensorrt", "libnvinfer.so.10"), raises="Please ..."),
            TENSORRT,
            "libnvinfer.so.10",
            "'tensorrt-cu13==10.*'",
        ),
        (
            Runtime(prints=UNLOADED.format("cuda", "libcuda.so.1"), uses=(CPU,)),
            CUDA,
            "libcuda.so.1",
            "NVIDIA driver to 580 or later",
        ),
        (Runtime(raises=OLD_DRIVER), CUDA, "CUDA failure 35", "driver to 580 or later, or install"),
        (Runtime(raises=OLD_DRIVER), CUDA, "CUDA failure 35", ">=1.21,<1.27"),
        (
            Runtime(raises=OLD_DRIVER, cuda_version="12.8"),
            CUDA,
            "insufficient",
            "driver to 525 or later",
        ),
        (Runtime(raises=NO_CODE), CUDA, "no kernel image", ">=1.21,<1.27"),
        (
            Runtime(there=(CPU,), cuda_version=""),
            CUDA,
            "it is not built in",
            "uninstall onnxruntime and install 'onnxruntime-gpu[cuda,cudnn]'",
        ),
        (Runtime(raises=LEFT_TO_CPU), CUDA, "assigned to the default CPU EP", "another precision"),
        (Runtime(uses=(CPU,)), CUDA, "it is not used", "workbench doctor"),
        (
            Runtime(raises="[ONNXRuntimeError] : 9 : NOT_IMPLEMENTED : no ConvInteger\nmore"),
            CUDA,
            "no ConvInteger",
            "another precision",
        ),
    ],
)
def test_the_cause_in_its_own_words_and_its_remedy(installed, runtime, provider, why, hint) -> None:
    found = refused(runtime, provider)
    assert why in str(found)
    assert str(found).startswith(f"onnxruntime 1.31.1 has no working {provider}: ")
    assert hint in found.hint
    assert "\n" not in str(found) and "secret" not in str(found) and "/home" not in str(found)


def test_what_preloading_printed_is_the_cause_where_the_provider_is_not_there() -> None:
    runtime = Runtime(
        there=(CPU,), preload=lambda _: print("Failed to load libcublas.so.13: no such file")
    )
    found = refused(runtime)
    assert "Failed to load libcublas.so.13" in str(found)


@pytest.mark.parametrize(
    ("built", "beside", "hint"),
    [
        ("13.0", {"nvidia-cudnn-cu12"}, "install 'onnxruntime-gpu[cuda,cudnn]>=1.21,<1.27'"),
        ("12.8", {"nvidia-cudnn-cu13"}, "install 'onnxruntime-gpu[cuda,cudnn]>=1.28'"),
        ("13.0", {"nvidia-cudnn-cu12", "nvidia-cudnn-cu13"}, "==1.31.1'"),
        ("13.0", set(), "==1.31.1'"),
    ],
)
def test_libraries_of_another_cuda_name_the_release_for_them(
    installed: set[str], built: str, beside: set[str], hint: str
) -> None:
    installed |= beside
    runtime = Runtime(
        cuda_version=built, prints=UNLOADED.format("cuda", "libcublasLt.so"), uses=(CPU,)
    )
    assert hint in refused(runtime).hint


def test_preloading_that_fails_leaves_the_cause_to_the_session() -> None:
    def preload(_: Runtime) -> None:
        raise RuntimeError("Invalid parameter of directory")

    assert opened(Runtime(preload=preload)).get_providers()[0] == CUDA


def test_memory_that_runs_out_is_no_fault_of_the_provider() -> None:
    with pytest.raises(RuntimeError, match="out of memory"):
        opened(Runtime(raises="CUDA failure 2: out of memory ; GPU=0"))


@pytest.mark.parametrize(
    ("provider", "precision", "mode", "expected"),
    [
        (CUDA, "fp32", None, [(CUDA, {"use_tf32": "0"})]),
        (CUDA, "tf32", None, [(CUDA, {"use_tf32": "1"})]),
        (CUDA, "fp32", "tf32", [(CUDA, {"use_tf32": "1"})]),
        (CUDA, "fp16", None, [(CUDA, {"use_tf32": "0"})]),
        (
            TENSORRT,
            "fp16",
            "tensorrt",
            [
                (TENSORRT, {"trt_fp16_enable": "1", "trt_int8_enable": "0"}),
                (CUDA, {"use_tf32": "0"}),
            ],
        ),
        (
            TENSORRT,
            "int8",
            "tensorrt",
            [
                (TENSORRT, {"trt_fp16_enable": "1", "trt_int8_enable": "1"}),
                (CUDA, {"use_tf32": "0"}),
            ],
        ),
    ],
)
def test_options_follow_the_case(provider, precision, mode, expected) -> None:
    wanted = case(precision, "cuda:2", mode)
    expected = [(name, {"device_id": "2", **options}) for name, options in expected]
    assert providers(provider, wanted, shared=False) == expected
    assert providers(provider, wanted, shared=True) == [*expected, (CPU, {})]


def test_tensorrt_keeps_its_engines_where_it_may() -> None:
    (_, options), *_ = providers(TENSORRT, case("fp16"), "/cache/a", shared=False)
    assert options["trt_engine_cache_enable"] == "1"
    assert options["trt_engine_cache_path"] == "/cache/a"


def test_openvinos_provider_has_the_threads_of_its_case() -> None:
    for threads in (1, 4):
        one = dataclasses.replace(case(device="cpu", mode="openvino"), threads=threads)
        expected = ("OpenVINOExecutionProvider", {"num_of_threads": str(threads)})
        assert providers(expected[0], one, shared=True) == [expected, (CPU, {})]


def test_other_providers_take_no_options_of_cuda() -> None:
    name = "DnnlExecutionProvider"
    assert providers(name, case(device="cpu"), shared=True) == [(name, {}), (CPU, {})]
    assert providers(CPU, case(device="cpu"), shared=True) == [(CPU, {})]
