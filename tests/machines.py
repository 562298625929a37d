"""Two machines as `HardwareDetected` describes them: a plain server, and one with an H200."""

from msgspec.structs import replace

from workbench.records.machine import (
    Cache,
    CoreLimit,
    Cpu,
    CudaDriver,
    Gpu,
    GpuProcess,
    Isa,
    Machine,
    Memory,
    Nvml,
    Os,
    Package,
    Pcie,
    Software,
)
from workbench.records.reason import Reason

GIB = 2**30
CGROUP = "/sys/fs/cgroup/cpu.max"


def epyc() -> Cpu:
    return Cpu(
        model="AMD EPYC 9654 96-Core Processor",
        vendor="AuthenticAMD",
        architecture="x86_64",
        sockets=1,
        physical_cores=96,
        logical_cores=192,
        affinity_cores=192,
        cgroup_quota_cores=16.0,
        effective_cores=16,
        limited_by="cgroup",
        limits=[
            CoreLimit("logical", 192.0, "os.cpu_count"),
            CoreLimit("affinity", 192.0, "sched_getaffinity"),
            CoreLimit("cgroup", 16.0, CGROUP),
        ],
        isa=Isa(
            avx2=True,
            avx512f=True,
            avx512_vnni=True,
            avx_vnni=False,
            avx512_bf16=True,
            avx512_fp16=False,
            amx_tile=False,
            amx_int8=False,
            amx_bf16=False,
        ),
        caches=[
            Cache(1, "data", 32 * 1024, 96),
            Cache(1, "instruction", 32 * 1024, 96),
            Cache(2, "unified", 2**20, 96),
            Cache(3, "unified", 32 * 2**20, 12),
        ],
        max_frequency_mhz=3707.0,
    )


def xeon() -> Cpu:
    return Cpu(
        model="Intel(R) Xeon(R) Processor @ 2.80GHz",
        vendor="GenuineIntel",
        architecture="x86_64",
        sockets=1,
        physical_cores=1,
        logical_cores=2,
        affinity_cores=2,
        cgroup_quota_cores=None,
        effective_cores=2,
        limited_by="logical",
        limits=[
            CoreLimit("logical", 2.0, "os.cpu_count"),
            CoreLimit("affinity", 2.0, "sched_getaffinity"),
        ],
        isa=Isa(
            avx2=True,
            avx512f=True,
            avx512_vnni=True,
            avx_vnni=None,
            avx512_bf16=True,
            avx512_fp16=True,
            amx_tile=True,
            amx_int8=True,
            amx_bf16=True,
        ),
        caches=[Cache(1, "data", 48 * 1024, 1), Cache(2, "unified", 2 * 2**20, 1)],
        max_frequency_mhz=None,
        unavailable={"max_frequency_mhz": "the hypervisor does not say"},
    )


def h200() -> Gpu:
    return Gpu(
        index=0,
        device="cuda:0",
        uuid="GPU-6e4f0f5e-8f2c-4a0a-9b53-0d2f8a4c9b11",
        pci_bus_id="00000000:19:00.0",
        name="NVIDIA H200",
        memory_total_bytes=150_754_820_096,
        memory_used_bytes=1_287_651_328,
        compute_capability="9.0",
        driver_version="580.65.06",
        pcie=Pcie(5, 16, 5, 16),
        power_w=118.0,
        power_limit_w=700.0,
        temperature_c=34.0,
        utilization_percent=3.0,
        sm_clock_mhz=1980.0,
        max_sm_clock_mhz=1980.0,
        clock_event_reasons=["sw_power_cap"],
        ecc=True,
        mig=False,
        persistence=True,
        processes=[GpuProcess(4711, 1_287_651_328)],
    )


def hidden_gpu() -> Gpu:
    """A second card that CUDA does not see, with readings its driver refuses."""
    refused = "not supported by this device (NVML error 3)"
    return Gpu(
        index=1,
        device=None,
        uuid="GPU-0b7e2a54-1111-4222-8333-944455556666",
        pci_bus_id="00000000:3b:00.0",
        name="Tesla P4",
        memory_total_bytes=8_053_063_680,
        memory_used_bytes=0,
        compute_capability="6.1",
        driver_version="580.65.06",
        pcie=Pcie(1, 16, 3, 16),
        power_w=None,
        utilization_percent=0.0,
        temperature_c=41.0,
        visible=False,
        unavailable={
            "device": "hidden by CUDA_VISIBLE_DEVICES=0",
            "power_w": refused,
            "power_limit_w": refused,
            "ecc": refused,
            "clock_event_reasons": "this driver does not know the call",
        },
    )


def _software(torch: str, environment: dict[str, str]) -> Software:
    return Software(
        python="3.11.7",
        executable="~/workbench/.venv/bin/python",
        packages={
            "torch": Package("2.13.0", torch),
            "onnxruntime": Package("1.31.1"),
            "onnxruntime-gpu": Package(None),
            "numpy": Package("2.4.6", "OpenBLAS 0.3.30"),
            "nvidia-ml-py": Package("13.615.71"),
        },
        environment=environment,
    )


def gpu_server() -> tuple[Machine, Software]:
    machine = Machine(
        hostname="node17",
        os=Os("Linux", "6.8.0-79-generic", "Ubuntu 24.04.3 LTS", "kubernetes"),
        cpu=epyc(),
        memory=Memory(128 * GIB, 103 * GIB, 128 * GIB, 0, 0),
        gpus=[h200(), hidden_gpu()],
        nvml=Nvml(True, None, "580.65.06", "13.580.65.06"),
        cuda=CudaDriver(True, 1, None, "13.0"),
    )
    return machine, _software("CUDA 13.0", {"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "16"})


def eight_gpus() -> tuple[Machine, Software]:
    machine, software = gpu_server()
    cards = [
        replace(
            h200(),
            index=number,
            device=f"cuda:{number}",
            pci_bus_id=f"00000000:{number + 16:x}:00.0",
        )
        for number in range(8)
    ]
    cuda = CudaDriver(True, 8, None, "13.0")
    return replace(machine, gpus=cards, cuda=cuda), software


def cpu_server() -> tuple[Machine, Software]:
    machine = Machine(
        hostname="lab-07",
        os=Os("Linux", "6.1.0-28-amd64", "Debian GNU/Linux 12", None),
        cpu=xeon(),
        memory=Memory(8 * GIB, 6 * GIB + GIB // 2, None, 2 * GIB, 0),
        gpus=[],
        nvml=Nvml(
            False,
            Reason(
                "library_missing",
                "libnvidia-ml.so.1 was not found",
                "install the NVIDIA driver, or pass the GPU through to this container",
            ),
        ),
        cuda=CudaDriver(False, 0, Reason("library_missing", "libcuda.so.1 was not found")),
    )
    return machine, _software("CPU build", {})
