"""Run forward and backward of a batch as one CUDA graph, with one launch from the host.

For a small batch, the host may need longer to launch the kernels one by one from Python than the GPU needs to
run them. Packed layers have even more kernels. A graph computes exactly the same, bit for bit.
"""

from collections.abc import Callable

import torch
from torch import nn

WARM = 11  # runs before the capture: DDP times its first ten with events, which graphs cannot contain


class Replayed:
    """Computes the loss of a batch, and the gradients of a model's weights in their ``.grad``.

    The graph is captured here, from ``loss_of(*inputs)`` and its backward, on ``stream``. If the model is
    wrapped in DDP, this must have been done on the same stream. New inputs are copied to the place of the
    captured ones. Gradients stay where they are, so never set one to None. Capturing leaves the GPU's random
    state as it was.

    transient: bytes that the graph needs only while it runs.
    """

    def __init__(
        self,
        model: nn.Module,
        loss_of: Callable[..., torch.Tensor],
        *inputs: torch.Tensor,
        stream: torch.cuda.Stream,
    ) -> None:
        self._inputs = [each.clone() for each in inputs]
        numbers = torch.cuda.get_rng_state()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM):
                loss_of(*self._inputs).backward()
        torch.cuda.current_stream().wait_stream(stream)
        model.zero_grad(set_to_none=True)
        self._graph = torch.cuda.CUDAGraph()
        torch.cuda.reset_peak_memory_stats()
        # Other threads, such as NCCL's watchdog, may use the GPU at the same time.
        with torch.cuda.graph(self._graph, stream=stream, capture_error_mode="thread_local"):
            loss = loss_of(*self._inputs)
            loss.backward()
            self._loss = loss.detach()
        self.transient = torch.cuda.max_memory_allocated() - torch.cuda.memory_allocated()
        torch.cuda.set_rng_state(numbers)

    def __call__(self, *inputs: torch.Tensor) -> torch.Tensor:
        """Return the loss of other inputs with the same shapes."""
        for kept, new in zip(self._inputs, inputs, strict=True):
            kept.copy_(new)
        self._graph.replay()
        return self._loss.clone()
