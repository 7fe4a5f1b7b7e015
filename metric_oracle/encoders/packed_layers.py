"""BERT and RoBERTa on a CPU: the states of transformers up to rounding, from fewer and faster operations.

oneDNN gets each matrix once, in its own order and type, not with each product; queries, keys and values are one
product, and GELU is applied as a product is written. In bfloat16, sums between layers and norms stay in float32.
"""

import platform
from typing import Any

from metric_oracle.encoders.libraries import has_bf16

_FAMILIES = ("bert", "camembert", "roberta", "xlm-roberta")


def can_pack(device: str, dtype: str) -> bool:
    """Return whether models that compute in `dtype` can be packed on a device."""
    import torch

    is_built = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    is_x86 = platform.machine() in ("x86_64", "AMD64")  # where the bits were tested, see `batches`
    return device == "cpu" and is_x86 and is_built and (dtype == "float32" or has_bf16(device))


def pack(model: Any, device: str, dtype: str = "float32") -> Any:
    """Return what to call instead of a model of transformers; the model itself if it is none that can be packed."""
    import torch

    config = model.config
    if (
        config.model_type in _FAMILIES
        and config.hidden_act == "gelu"
        and config._attn_implementation == "sdpa"
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not config.is_decoder
        and can_pack(device, dtype)
    ):
        return _Packed(model, getattr(torch, dtype))
    return model


class _Packed:
    """A model whose products compute in a type of torch."""

    def __init__(self, model: Any, dtype: Any) -> None:
        self.config, self.device = model.config, model.device
        self._embeddings = model.embeddings
        self._layers = [_Layer(layer, model.config.num_attention_heads, dtype) for layer in model.encoder.layer]

    def __call__(self, *, input_ids: Any, attention_mask: Any) -> tuple[Any]:
        """Return the last states of texts of one length, int64[B, L] -> float32[B, L, d]; no token is masked."""
        states = self._embeddings(input_ids=input_ids)
        for layer in self._layers:
            states = layer.run(states)
        return (states,)


class _Layer:
    """A layer of a model: attention, then two products, the sum of each part and its input normalised."""

    def __init__(self, layer: Any, n_heads: int, dtype: Any) -> None:
        attention = layer.attention.self
        self._n_heads, self._dtype = n_heads, dtype
        self._parts = self._matrix(attention.query, attention.key, attention.value)
        self._mixed, self._mixed_norm = self._matrix(layer.attention.output.dense), layer.attention.output.LayerNorm
        self._inner, self._outer = self._matrix(layer.intermediate.dense), self._matrix(layer.output.dense)
        self._norm = layer.output.LayerNorm

    def run(self, states: Any) -> Any:
        """Return the states after this layer, float32[B, L, d], from those before it."""
        from torch.nn.functional import scaled_dot_product_attention

        parts = self._product(states, self._parts).unflatten(2, (3, self._n_heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(*parts).transpose(1, 2).flatten(2)
        states = self._mixed_norm(states + self._product(mixed, self._mixed))
        return self._norm(states + self._product(self._product(states, self._inner, "gelu"), self._outer))

    def _matrix(self, *parts: Any) -> tuple[Any, Any]:
        """Return weights and bias of linear layers with the same input as those of one."""
        import torch

        weight, bias = (torch.cat([getattr(part, name).detach() for part in parts]) for name in ("weight", "bias"))
        return torch.ops.mkldnn._reorder_linear_weight(weight.to(self._dtype)), bias.to(self._dtype)

    def _product(self, states: Any, matrix: tuple[Any, Any], activation: str = "none") -> Any:
        """Return the output of a linear layer, and of the activation after it."""
        import torch

        return torch.ops.mkldnn._linear_pointwise(states.to(self._dtype), *matrix, activation, [], "none")
