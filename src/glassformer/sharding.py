"""A model cut into shards: every process keeps a share of each weight, of its gradient and of its optimizer's state.

torch's FSDP2 (Zhao et al. 2023, as rewritten for DTensor) gathers the weights of a layer when its turn comes and lets
go of them afterwards. A checkpoint knows nothing of it: here are the three steps between shards and whole tensors,
which leave a tensor in one piece as it is, so that whoever calls them need not ask which it has.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import torch.distributed as dist
from torch import Tensor, nn


def cut(module: nn.Module, group: dist.ProcessGroup | None, kind: str) -> nn.Module:
    """The module with its weights in shards: those of each layer of a stack travel together, the others as one more.

    Args:
        module: whole, the same in all processes; its forward pass is the only way in from now on.
        group: how they talk; None for the group that they joined. kind: of the device, "cpu" or "cuda".
    """
    from torch.distributed.device_mesh import DeviceMesh  # imported here: a second's work
    from torch.distributed.fsdp import fully_shard

    mesh = DeviceMesh.from_group(group or dist.group.WORLD, kind)  # pyright: ignore[reportArgumentType]
    stacks = [stack for stack in module.modules() if isinstance(stack, nn.ModuleList)]
    for stack in reversed(stacks):  # from within: a member of an ensemble holds a stack of its own
        for layer in stack:
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    return module


def is_cut(tensor: Tensor) -> bool:
    """Whether a process has only a share of it: whether it is a DTensor, whose module costs a second to import."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Tensor) -> Tensor:
    """All of a tensor; where it is in shards, every process must ask for it at the same point, and all get it."""
    return tensor.full_tensor() if is_cut(tensor) else tensor  # pyright: ignore[reportAttributeAccessIssue]


def like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor, which every process has, where `other` is and cut as it is; one of another shape stays whole."""
    tensor = tensor.to(other.device)
    if not is_cut(other) or tensor.shape != other.shape:
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    return distribute_tensor(tensor, other.device_mesh, other.placements, src_data_rank=None)


def without_weights(model: nn.Module) -> nn.Module:
    """A copy of a whole model whose parameters have shapes and no memory, to be lent weights (`lend`)."""
    empty = {
        id(p): nn.Parameter(p.new_zeros(()).expand(p.shape), requires_grad=p.requires_grad)
        for p in model.parameters()
    }
    return copy.deepcopy(model, dict(empty) | {id(b): b for b in model.buffers()})


def give(model: nn.Module, weights: Mapping[str, Tensor]) -> None:
    """Have a whole model compute with these weights, by name, gathered where they are in shards and never copied."""
    for name, parameter in model.named_parameters():
        parameter.data = whole(weights[name])


@contextmanager
def lent(model: nn.Module, weights: Mapping[str, Tensor]) -> Iterator[None]:
    """As `give`, within the block; afterwards the model has its own again."""
    own = {name: p.data for name, p in model.named_parameters()}
    try:
        give(model, weights)
        yield
    finally:
        give(model, own)
