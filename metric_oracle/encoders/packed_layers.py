"""BERT, RoBERTa and MPNet on a CPU: the states of transformers up to rounding, from fewer and faster operations.

oneDNN gets each matrix once, in its own order and type, not with each product; queries, keys and values are one
product, and GELU is applied as a product is written. In bfloat16, sums between layers and norms stay in float32. All
tokens of a batch are rows of one product, whatever the lengths of their texts; only attention runs length by length.
"""

from collections.abc import Sequence
from typing import Any

from metric_oracle.base.operating_system import processor_family
from metric_oracle.encoders.libraries import has_bf16

BATCH_TOKENS = 1 << 8  # tokens per batch; more are hardly faster
FAMILIES = ("bert", "camembert", "mpnet", "roberta", "xlm-roberta")  # types of models that are packed
# The rows of a float32 product are padded to a multiple of this, because oneDNN compiles code for each shape.
_ROWS = 16


def can_pack(device: str, dtype: str) -> bool:
    """Return whether models that compute in `dtype` can be packed on a device."""
    import torch

    is_built = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    is_x86 = processor_family() == "x86_64"  # where the bits were tested, see `batches`
    # With AVX and without AVX2, sums depended on the number of rows.
    has_avx2 = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return device == "cpu" and is_x86 and has_avx2 and is_built and (dtype == "float32" or has_bf16(device))


def pack(model: Any, device: str, dtype: str = "float32") -> Any:
    """Return what to call instead of a model of transformers; the model itself if it is none that can be packed."""
    import torch

    config = model.config
    if (
        config.model_type in FAMILIES
        and config.hidden_act == "gelu"
        # MPNet has no other attention.
        and config._attn_implementation == ("eager" if config.model_type == "mpnet" else "sdpa")
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not getattr(config, "is_decoder", False)
        and can_pack(device, dtype)
    ):
        return Packed(model, getattr(torch, dtype))
    return model


class Packed:
    """A model whose products compute in a type of torch."""

    def __init__(self, model: Any, dtype: Any) -> None:
        self.config, self.device = model.config, model.device
        self._embeddings, self._is_float32 = model.embeddings, dtype.itemsize == 4
        self._layers = [_Layer(layer, model.config.num_attention_heads, dtype) for layer in model.encoder.layer]
        # MPNet adds a bias to the scores of attention, which depends on the distance of two tokens.
        self._bias = getattr(model.encoder, "compute_position_bias", lambda block: None)

    def run(self, blocks: Sequence[Any]) -> Any:
        """Return the last states of all tokens, float32[T, d], of blocks of texts of one length, each int64[B, L].

        In float32, a state did not depend on the number of rows of the products (see `batches`). In bfloat16 it does:
        a batch that is not full gets the rows of a full one.
        """
        import torch

        states = torch.cat([self._embeddings(input_ids=block).flatten(0, 1) for block in blocks])
        n_tokens = len(states)
        n_more = -n_tokens % _ROWS if self._is_float32 else max(BATCH_TOKENS - n_tokens, 0)
        states = torch.nn.functional.pad(states, (0, 0, 0, n_more))
        shapes = [(*block.shape, self._bias(block[:1])) for block in blocks]
        for layer in self._layers:
            states = layer.run(states, shapes)
        return states[:n_tokens]


class _Layer:
    """A layer of a model: attention, then two products, the sum of each part and its input normalised."""

    def __init__(self, layer: Any, n_heads: int, dtype: Any) -> None:
        attention = layer.attention
        self._n_heads, self._dtype = n_heads, dtype
        if hasattr(attention, "attn"):  # MPNet
            parts, mixed = (attention.attn.q, attention.attn.k, attention.attn.v), attention.attn.o
            self._mixed_norm = attention.LayerNorm
        else:
            parts = attention.self.query, attention.self.key, attention.self.value
            mixed, self._mixed_norm = attention.output.dense, attention.output.LayerNorm
        self._parts, self._mixed = self._matrix(*parts), self._matrix(mixed)
        self._inner, self._outer = self._matrix(layer.intermediate.dense), self._matrix(layer.output.dense)
        self._norm = layer.output.LayerNorm

    def run(self, states: Any, shapes: Sequence[tuple[int, int, Any]]) -> Any:
        """Return the states after this layer, float32[rows, d], from those before it.

        `shapes` are number and length of the texts of each block, and what is added to the scores of their attention,
        float32[1, heads, length, length] or None; rows after them are no token's.
        """
        from torch.nn.functional import scaled_dot_product_attention

        parts = self._product(states, self._parts)
        mixed = parts.new_zeros(states.shape)
        first = 0
        for n_texts, n_ids, bias in shapes:
            last = first + n_texts * n_ids
            query, key, value = parts[first:last].view(n_texts, n_ids, 3, self._n_heads, -1).permute(2, 0, 3, 1, 4)
            of_block = scaled_dot_product_attention(query, key, value, bias)
            mixed[first:last] = of_block.transpose(1, 2).reshape(last - first, -1)
            first = last
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
