"""What all tests share."""

import signal

import hypothesis
import torch

from tests.brokers.fixtures import broker, cluster, kafka, name  # noqa: F401

# Small tensors: a second thread costs more than it brings, and all of it where tests run side by side.
torch.set_num_threads(1)

# How long an example takes says something about what else runs on the machine.
hypothesis.settings.register_profile("no deadline", deadline=None)
hypothesis.settings.load_profile("no deadline")

# A shell that runs the tests in its background has them ignore Ctrl-C, and with them the programs that they start and interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
