"""Makes assets/digits/convnet.npz, in minutes on 2 cores: `python -m benchmarks.convnet_training`.

It trains the conv net on coloured pictures of the training digits, in changing sizes, and stores
the weights as float16.
"""

from workbench import assets
from workloads._shared import optdigits as digits
from workloads._shared.network import forward, trained_convnet, untrained_convnet
from workloads._shared.torch_task import module
from workloads._shared.training import train_step

EPOCHS = 60
RATE = 1e-3
SIZES = (32, 48, 64)
BATCH = 64
SEED = 1


def main() -> None:
    import numpy as np
    import torch

    torch.manual_seed(SEED)
    rng = np.random.default_rng(SEED)
    images, labels = digits.load()
    network = module(untrained_convnet(SEED))
    optimiser = torch.optim.AdamW(network.parameters(), lr=RATE, weight_decay=5e-2)
    steps = EPOCHS * (digits.TRAINING // BATCH)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, RATE, total_steps=steps)
    for step in range(steps):
        chosen = rng.integers(0, digits.TRAINING, BATCH)
        pictures = digits.coloured(images[chosen], int(rng.choice(SIZES)), rng)
        loss = train_step(network, optimiser, *map(torch.from_numpy, (pictures, labels[chosen])))
        schedule.step()
        if step % 50 == 0:
            print(f"step {step} of {steps}: loss {loss.item():.3f}", flush=True)

    arrays = [tensor.detach().numpy().astype(np.float16) for tensor in network.parameters()]
    np.savez_compressed(assets.path("digits") / "convnet.npz", *arrays)

    for side in SIZES:
        pictures = digits.coloured(images[digits.TRAINING :], side, np.random.default_rng(0))
        answers = forward(trained_convnet(), pictures).argmax(axis=1)
        accuracy = float((answers == labels[digits.TRAINING :]).mean())
        print(f"test accuracy at {side}x{side}: {accuracy:.4f}")


if __name__ == "__main__":
    main()
