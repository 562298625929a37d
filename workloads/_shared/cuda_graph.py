"""A call captured once as a CUDA graph: replaying it costs one launch for all of its kernels."""

from collections.abc import Callable, Iterable
from typing import Any

from workbench.worker.libraries import torch

WARM_UPS = 3  # on a side stream, as torch's documentation of CUDA graphs asks


def graphed(call: Callable[[], Any], inside: Iterable[Any] = ()) -> Callable[..., Any]:
    """A function that copies its arguments into the tensors `inside`, from which `call` reads, and
    replays `call`.  It returns the same output, overwritten, each time.

    Source: torch's documentation, "CUDA Graphs".
    """
    targets = list(inside)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Not on torch's one stream for captures: the end of a graph frees the memory that cuBLAS has
    # for its stream, and other graphs that were captured there still use it (pytorch#193402).
    with torch.cuda.graph(graph, stream=torch.cuda.Stream()):
        output = call()

    def replay(*given: Any) -> Any:
        for target, source in zip(targets, given, strict=True):
            target.copy_(source)
        graph.replay()
        return output

    return replay
