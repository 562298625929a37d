"""Python imports this at its start where its folder is in PYTHONPATH: torch gets a GPU."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
import torch_cuda

torch_cuda.install()
