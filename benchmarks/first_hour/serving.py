"""The network of the real-time row, served in the ways that a practitioner would try:
`python -m benchmarks.first_hour.serving`.
"""

import time
from collections.abc import Callable
from typing import Any

from . import truth
from .truth import Step, first_line, quantiles, say, wall

WARM_STEPS = 50


def net() -> None:
    import torch

    from workloads._shared.network import trained_convnet
    from workloads._shared.torch_task import module

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    hosted = torch.randn(1, 3, 64, 64)  # pageable, like the inputs of workbench
    for kind in (torch.float32, torch.float16):
        model = module(trained_convnet()).to("cuda", kind).eval().requires_grad_(False)

        def serve(run: Callable[[Any], Any], within: Any, kind: Any = kind) -> Step:
            def answer() -> None:
                with within():
                    run(hosted.to("cuda", non_blocking=True).to(kind)).float().cpu()

            return answer

        def compiled(mode: str | None, model: Any = model) -> Callable[[], Step]:
            # CUDA graphs of torch.compile fail in inference mode (pytorch#135892).
            return lambda: serve(torch.compile(model, mode=mode, dynamic=False), torch.no_grad)

        ways: dict[str, Callable[[], Step]] = {
            "eager": lambda m=model: serve(m, torch.inference_mode),
            "graph": lambda m=model, k=kind: captured(m, k, hosted),
            "compile": compiled(None),
            "reduce-overhead": compiled("reduce-overhead"),
        }
        for way, make in ways.items():
            named = {"way": way, "kind": str(kind).removeprefix("torch.")}
            try:
                began = time.perf_counter()
                step = make()
                wall(step, WARM_STEPS)
                prepared_s = time.perf_counter() - began
                say("net", **named, prepared_s=prepared_s, **quantiles(wall(step, truth.STEPS)))
            except Exception as error:
                say("net", **named, error=first_line(error))


def captured(model: Any, kind: Any, hosted: Any) -> Step:
    """The whole answer, copies included, as one CUDA graph."""
    import torch

    given, answer = torch.zeros(hosted.shape, device="cuda"), torch.zeros(1, 10).pin_memory()
    pinned = hosted.pin_memory()
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.inference_mode(), torch.cuda.stream(side):
        for _ in range(3):
            model(given.to(kind)).float()
    torch.cuda.synchronize()
    # Inside the capture: one that begins in inference mode spoils later ones (pytorch#166792).
    with torch.cuda.graph(graph), torch.inference_mode():
        given.copy_(pinned, non_blocking=True)
        answer.copy_(model(given.to(kind)).float(), non_blocking=True)
    stream = torch.cuda.current_stream()
    return lambda: (pinned.copy_(hosted), graph.replay(), stream.synchronize())


if __name__ == "__main__":
    net()
