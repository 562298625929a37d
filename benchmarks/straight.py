"""Plain scripts for comparison with the workloads: the shortest code that does the same work.

Each takes the case and the prepared task, and returns a function that does one step.  From the task
it only borrows data, so that both work on the same, and networks whose definition is long.
"""

import itertools
from collections.abc import Callable
from typing import Any

from workbench.contract import Case

Step = Callable[[], Any]


def torch_of(case: Case) -> Any:
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(case.threads or 1)
    return torch


# ----------------------------------------------------- products and memory


def matmul(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    n = case.params["n"]
    a, b, c = torch.randn(n, n), torch.randn(n, n), torch.empty(n, n)
    return lambda: torch.matmul(a, b, out=c)


def gemm(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    m, n, k = (case.params[name] for name in ("m", "n", "k"))
    a, b, c = torch.randn(m, k), torch.randn(k, n), torch.empty(m, n)
    return lambda: torch.matmul(a, b, out=c)


def matmul_cold(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    n = case.params["n"]
    sets = [[torch.randn(n, n) for _ in range(3)] for _ in range(len(task.sets))]
    turns = itertools.cycle(sets)

    def step() -> None:
        a, b, c = next(turns)
        torch.matmul(a, b, out=c)

    return step


def bandwidth(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    a, b, c = (torch.randn(len(task.target)) for _ in range(3))
    return lambda: torch.add(b, c, alpha=3.0, out=a)


def transfer(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    source = torch.randn(int(case.params["mib"] * 2**18))
    target = torch.zeros_like(source)
    return lambda: target.copy_(source)


def numa(case: Case, task: Any) -> Step:
    import numpy as np

    target, b, c = (np.ones_like(task.target) for _ in range(3))
    scaled = np.empty(1 << 16, np.float32)

    def step() -> None:
        for start in range(0, len(target), len(scaled)):
            part = slice(start, start + len(scaled))
            np.multiply(c[part], 3.0, out=scaled)
            np.add(b[part], scaled, out=target[part])

    return step


def launch(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    element = torch.zeros(1)
    return lambda: element.add_(1.0)


def sequential(case: Case, task: Any) -> Step:
    import numpy as np

    start, count = np.float64(task.numbers[0]), case.params["iterations"]
    zero, two = np.float64(0.0), np.float64(2.0)

    def step() -> Any:
        x = zero
        for i in range(int(count)):
            if i % 30 == 0:
                c, low, high = start + x, zero, two
            x = (low + high) * 0.5
            if x * x * x + x > c:
                high = x
            else:
                low = x
        return x

    return step


# ---------------------------------------------------------------- training


def train(network: Any, optimiser: Any, batch: Callable[[], Any]) -> Step:
    """One step of the training loop that every tutorial shows."""
    from torch.nn.functional import cross_entropy

    def step() -> None:
        inputs, targets = batch()
        optimiser.zero_grad()
        loss = cross_entropy(network(inputs), targets)
        loss.backward()
        optimiser.step()

    return step


def conv_layers(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    x, first, second = (leaf.detach().clone().requires_grad_() for leaf in task.leaves)

    def step() -> None:
        hidden = torch.relu(torch.conv2d(x, first, padding=1))
        output = torch.relu(torch.conv2d(hidden, second, padding=1))
        torch.autograd.grad(output, (x, first, second), output.detach())

    return step


def perceptron(torch: Any, *sizes: int) -> Any:
    layers: list[Any] = []
    for inputs, outputs in itertools.pairwise(sizes):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers[:-1])


def train_mlp(case: Case, task: Any) -> Step:
    torch = torch_of(case)

    def step() -> float:
        network = perceptron(torch, 100, 50, 10)
        optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
        one = train(network, optimiser, lambda: task.hosted)
        for _ in range(int(case.params["steps"])):
            one()
        return 0.0

    return step


def train_mlp_deep(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    network = perceptron(torch, 1000, 512, 256, 2)
    optimiser = torch.optim.Adam(network.parameters())
    return train(network, optimiser, lambda: (task.data, task.labels))


def scaling(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    width = int(case.params["width"])
    network = perceptron(torch, width, width, width, 10)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)
    return train(network, optimiser, lambda: (task.data, task.labels))


def digits(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    network = perceptron(torch, 784, 128, 10)
    optimiser = torch.optim.Adam(network.parameters())
    orders: list[Any] = []

    def batch() -> Any:
        if not orders:
            orders.extend(torch.randperm(1437)[: 1437 - 1437 % case.batch].split(case.batch))
        chosen = orders.pop()
        return task.pictures[chosen], task.labels[chosen]

    return train(network, optimiser, batch)


def digits_from_loader(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    network = perceptron(torch, 784, 128, 10)
    optimiser = torch.optim.Adam(network.parameters())
    kept = torch.utils.data.TensorDataset(task.pictures[:1437], task.labels[:1437])
    loader = torch.utils.data.DataLoader(kept, case.batch, shuffle=True, drop_last=True)
    batches = (batch for _ in itertools.count() for batch in loader)
    return train(network, optimiser, lambda: next(batches))


def digits_to_accuracy(case: Case, task: Any) -> Step:
    """Trains for as many epochs as the workload did: the number depends on the initial weights."""
    torch = torch_of(case)
    task.step()
    epochs = task.epochs

    def step() -> None:
        one = digits(case, task)
        network = None
        for _ in range(epochs):
            for _ in range(1437 // case.batch):
                one()
            with torch.inference_mode():
                network = network or perceptron(torch, 784, 128, 10)
                answers = network(task.pictures[1437:]).argmax(dim=1)
                (answers == task.labels[1437:]).sum().item()

    return step


def convnet(torch: Any, *convolutions: tuple[int, int, int]) -> Any:
    """Inputs, outputs and stride of each convolution; a mean and a dense layer follow."""
    layers: list[Any] = []
    for inputs, outputs, stride in convolutions:
        layers += [torch.nn.Conv2d(inputs, outputs, 3, stride, 1), torch.nn.ReLU()]
    head = torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(outputs, 10)
    return torch.nn.Sequential(*layers, *head)


def train_cnn(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    layers = ((3, 32, 1), (32, 32, 2), (32, 64, 1), (64, 64, 2), (64, 128, 1), (128, 128, 2))
    network = convnet(torch, *layers)
    loader = torch.utils.data.DataLoader(
        task.pictures,
        batch_size=None,
        sampler=itertools.count(),
        num_workers=case.tuning.get("loaders", 1),
    )
    batches = iter(loader)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    return train(network, optimiser, lambda: next(batches))


def train_resnet(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    from workloads.train_resnet import resnet

    network = resnet(int(case.params["blocks"]), 0)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
    return train(network, optimiser, lambda: shuffled(torch, case, task.pictures, task.labels))


def shuffled(torch: Any, case: Case, *data: Any) -> Any:
    chosen = torch.randint(len(data[0]), (case.batch,))
    return tuple(part[chosen] for part in data)


def train_gpt(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    from workloads.train_gpt import gpt

    network = gpt(*task.shape)
    optimiser = torch.optim.AdamW(network.parameters())

    def batch() -> Any:
        (rows,) = shuffled(torch, case, task.sequences)
        return rows[:, :-1].contiguous(), rows[:, 1:].flatten()

    return train(network, optimiser, batch)


def data_loading(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    loader = torch.utils.data.DataLoader(
        task.pictures,
        batch_size=None,
        sampler=task.epoch,
        num_workers=case.tuning["loaders"],
        prefetch_factor=case.tuning["prefetch"],
        persistent_workers=True,
    )
    network = convnet(torch, (3, 16, 4), (16, 32, 2), (32, 64, 2))
    network = network.to(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(network.parameters(), lr=0.01)

    def step() -> None:
        for pixels, labels in loader:
            inputs = (pixels.permute(0, 3, 1, 2).float() - task.mean) / task.std
            train(network, optimiser, lambda inputs=inputs, labels=labels: (inputs, labels))()

    return step


# --------------------------------------------------------------- inference


def by_session(case: Case, task: Any) -> Step:
    """ONNX Runtime on the workload's own model, called directly."""
    feeds = itertools.cycle([{"input": batch} for batch in task.inputs])
    run = task.session.run
    return lambda: run(None, next(feeds))


def forest(case: Case, task: Any) -> Step:
    feeds = itertools.cycle([{"input": batch} for batch in task.batches])
    run = task.session.run
    return lambda: run(None, next(feeds))


def preprocessing(case: Case, task: Any) -> Step:
    torch = torch_of(case)
    mean = torch.tensor([0.485, 0.456, 0.406]).reshape(3, 1, 1) * 255
    std = torch.tensor([0.229, 0.224, 0.225]).reshape(3, 1, 1) * 255
    photos = itertools.cycle([torch.from_numpy(batch) for batch in task.photos])
    size = (case.params["image"],) * 2

    def step() -> Any:
        with torch.inference_mode():
            pixels = next(photos).permute(0, 3, 1, 2).float()
            small = torch.nn.functional.interpolate(pixels, size, mode="bilinear", antialias=True)
            return ((small - mean) / std).contiguous()

    return step


SCRIPTS: dict[str, tuple[str, str, Callable[[Case, Any], Step]]] = {
    "bandwidth": ("torch", "fp32", bandwidth),
    "conv_layers": ("torch", "fp32", conv_layers),
    "data_loading": ("torch", "fp32", data_loading),
    "digits": ("torch", "fp32", digits),
    "digits/dataloader": ("torch", "fp32", digits_from_loader),
    "digits_to_accuracy": ("torch", "fp32", digits_to_accuracy),
    "forest": ("onnxruntime", "fp32", forest),
    "gemm": ("torch", "fp32", gemm),
    "infer_cnn": ("onnxruntime", "fp32", by_session),
    "infer_encoder": ("onnxruntime", "fp32", by_session),
    "infer_mlp": ("onnxruntime", "fp32", by_session),
    "launch": ("torch", "fp32", launch),
    "matmul": ("torch", "fp32", matmul),
    "matmul_cold": ("torch", "fp32", matmul_cold),
    "numa": ("numpy", "fp32", numa),
    "preprocessing": ("torch", "fp32", preprocessing),
    "scaling": ("torch", "fp32", scaling),
    "sequential": ("numpy", "fp64", sequential),
    "train_cnn": ("torch", "fp32", train_cnn),
    "train_gpt": ("torch", "fp32", train_gpt),
    "train_mlp": ("torch", "fp32", train_mlp),
    "train_mlp_deep": ("torch", "fp32", train_mlp_deep),
    "train_resnet": ("torch", "fp32", train_resnet),
    "transfer": ("torch", "fp32", transfer),
}
