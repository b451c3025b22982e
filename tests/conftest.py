"""What all tests share."""

import torch

from tests.brokers.fixtures import broker, cluster, kafka, name  # noqa: F401

# Small tensors: a second thread costs more than it brings, and all of it where tests run side by side.
torch.set_num_threads(1)
