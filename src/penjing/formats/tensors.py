"""Tensors over the bytes of a file."""

import torch


def uint8_tensor(data: memoryview) -> torch.Tensor:
    """The bytes themselves (n,), sharing their memory."""
    return torch.frombuffer(data, dtype=torch.uint8) if len(data) else torch.empty(0, dtype=torch.uint8)


def tensor_over(data: memoryview, shape: tuple[int, ...], dtype_name: str) -> torch.Tensor:
    """The little-endian tensor that `data` holds, of torch's dtype of that name; shares the memory where its
    alignment allows."""
    dtype = getattr(torch, dtype_name)
    raw = uint8_tensor(data)
    if raw.data_ptr() % dtype.itemsize:
        raw = raw.clone()
    return raw.view(dtype).view(shape)
