"""BERT, RoBERTa, MPNet and DeBERTa on a CPU: the states of transformers up to rounding, from fewer, faster operations.

oneDNN gets each matrix once, in its own order and type, not with each product; queries, keys and values are one
product, and GELU is applied as a product is written. In bfloat16, sums between layers and norms stay in float32. All
tokens of a batch are rows of one product, whatever the lengths of their texts; only attention runs length by length.
What DeBERTa's attention adds for the distance of two tokens is computed for the distances within a text alone.
"""

from collections.abc import Sequence
from typing import Any

from metric_oracle.base.operating_system import processor_family
from metric_oracle.encoders.libraries import has_bf16

BATCH_TOKENS = 1 << 8  # tokens per batch; more are hardly faster
FAMILIES = ("bert", "camembert", "deberta-v2", "mpnet", "roberta", "xlm-roberta")  # types of models that are packed
_OWN_ATTENTION = ("deberta-v2", "mpnet")  # those for which transformers has no other one
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
    """Return what to call instead of a model of transformers; the model itself if it is none that can be packed.

    The model may have a linear classifier of tokens.
    """
    import torch

    config = model.config
    if (
        config.model_type in FAMILIES
        and config.hidden_act == "gelu"
        and config._attn_implementation == ("eager" if config.model_type in _OWN_ATTENTION else "sdpa")
        and getattr(config, "position_embedding_type", "absolute") == "absolute"
        and not getattr(config, "is_decoder", False)
        and (config.model_type != "deberta-v2" or _is_usual(config))
        and can_pack(device, dtype)
    ):
        return Packed(model, getattr(torch, dtype))
    return model


def _is_usual(config: Any) -> bool:
    """Return whether the attention of a DeBERTa is that of the published models of version 3."""
    kinds = {*(config.pos_att_type or ())} if config.relative_attention else None
    return kinds == {"c2p", "p2c"} and config.share_att_key and not getattr(config, "conv_kernel_size", 0)


class Packed:
    """A model whose products compute in a type of torch."""

    def __init__(self, model: Any, dtype: Any) -> None:
        base = model.base_model
        self.config, self.device = model.config, model.device
        self._embeddings, self._encoder, self._is_float32 = base.embeddings, base.encoder, dtype.itemsize == 4
        self._layers = [_Layer(layer, base, dtype) for layer in base.encoder.layer]
        self._classifier = _matrix(dtype, model.classifier) if hasattr(model, "classifier") else None

    def run(self, blocks: Sequence[Any]) -> Any:
        """Return the last states of all tokens, float32[T, d], of blocks of texts of one length, each int64[B, L].

        Of a model with a classifier, return its output for each token. In float32, a state did not depend on the number
        of rows of the products (see `batches`). In bfloat16 it does: a batch that is not full gets the rows of a full
        one.
        """
        import torch

        states = torch.cat([self._embeddings(input_ids=block).flatten(0, 1) for block in blocks])
        n_tokens = len(states)
        n_more = -n_tokens % _ROWS if self._is_float32 else max(BATCH_TOKENS - n_tokens, 0)
        states = torch.nn.functional.pad(states, (0, 0, 0, n_more))
        shapes = [(*block.shape, self._distances(block)) for block in blocks]
        for layer in self._layers:
            states = layer.run(states, shapes)
        if self._classifier is not None:
            states = _product(states, self._classifier).float()
        return states[:n_tokens]

    def _distances(self, block: Any) -> Any:
        """Return what attention needs of the distances of the tokens in texts of one length.

        MPNet's is what it adds to the scores, float32[1, heads, L, L], and DeBERTa's the numbers of the distances,
        int64[L, L]; others need None.
        """
        if self.config.model_type == "mpnet":
            return self._encoder.compute_position_bias(block[:1])
        if self.config.model_type == "deberta-v2":
            return self._encoder.get_rel_pos(block[0, :, None])[0]
        return None


class _Layer:
    """A layer of a model: attention, then two products, the sum of each part and its input normalised."""

    def __init__(self, layer: Any, model: Any, dtype: Any) -> None:
        attention = layer.attention
        self._n_heads = model.config.num_attention_heads
        # Vectors that DeBERTa multiplies keys, and queries, with, one a distance: two of [heads, d, distances].
        self._of_distances: list[Any] = []
        if model.config.model_type == "mpnet":
            parts, mixed = (attention.attn.q, attention.attn.k, attention.attn.v), attention.attn.o
            self._mixed_norm = attention.LayerNorm
        elif model.config.model_type == "deberta-v2":
            parts = attention.self.query_proj, attention.self.key_proj, attention.self.value_proj
            mixed, self._mixed_norm = attention.output.dense, attention.output.LayerNorm
            vectors = model.encoder.get_rel_embedding()
            self._of_distances = [
                part(vectors).detach().to(dtype).view(len(vectors), self._n_heads, -1).permute(1, 2, 0)
                for part in parts[:2]
            ]
        else:
            parts = attention.self.query, attention.self.key, attention.self.value
            mixed, self._mixed_norm = attention.output.dense, attention.output.LayerNorm
        self._parts, self._mixed = _matrix(dtype, *parts), _matrix(dtype, mixed)
        self._inner, self._outer = _matrix(dtype, layer.intermediate.dense), _matrix(dtype, layer.output.dense)
        self._norm = layer.output.LayerNorm

    def run(self, states: Any, shapes: Sequence[tuple[int, int, Any]]) -> Any:
        """Return the states after this layer, float32[rows, d], from those before it.

        `shapes` are number and length of the texts of each block, and what `Packed` returns for its distances; rows
        after them are no token's.
        """
        from torch.nn.functional import scaled_dot_product_attention

        parts = _product(states, self._parts)
        mixed = parts.new_zeros(states.shape)
        first, scale = 0, None
        for n_texts, n_ids, added in shapes:
            last = first + n_texts * n_ids
            query, key, value = parts[first:last].view(n_texts, n_ids, 3, self._n_heads, -1).permute(2, 0, 3, 1, 4)
            if self._of_distances:
                scale = (3 * query.shape[-1]) ** -0.5  # of a sum of three products
                added = scale * self._by_distance(query, key, added)
            of_block = scaled_dot_product_attention(query, key, value, added, scale=scale)
            mixed[first:last] = of_block.transpose(1, 2).reshape(last - first, -1)
            first = last
        states = self._mixed_norm(states + _product(mixed, self._mixed))
        return self._norm(states + _product(_product(states, self._inner, "gelu"), self._outer))

    def _by_distance(self, query: Any, key: Any, distance: Any) -> Any:
        """Return what the distance of two tokens adds to their score of attention, [B, heads, L, L].

        It is the sum of two products: of the query of the one token, and of the key of the other, with a vector of
        their distance. `query` and `key` are [B, heads, L, d], and `distance` is int64[L, L]. Only the vectors of
        distances that occur are taken, in multiples of 16, so that the matrices begin on 64-byte boundaries (see
        `run_model`).
        """
        n_places = self._of_distances[0].shape[2]
        place = (distance + n_places // 2).clamp(0, n_places - 1)
        begin, end = int(place.min()) // 16 * 16, -(-(int(place.max()) + 1) // 16) * 16
        place = (place - begin).expand(*query.shape[:2], -1, -1)
        # All matrices are contiguous: the order of a sum may depend on how they lie, and that on the number of texts.
        for_keys, for_queries = (vectors[:, :, begin:end].contiguous() for vectors in self._of_distances)
        of_queries = (query.contiguous() @ for_queries).gather(-1, place)
        of_keys = (key.contiguous() @ for_keys).gather(-1, place.transpose(2, 3))
        return of_queries + of_keys.transpose(2, 3)


def _matrix(dtype: Any, *parts: Any) -> tuple[Any, Any]:
    """Return weights and bias of linear layers with the same input as those of one."""
    import torch

    weight, bias = (torch.cat([getattr(part, name).detach() for part in parts]) for name in ("weight", "bias"))
    return torch.ops.mkldnn._reorder_linear_weight(weight.to(dtype)), bias.to(dtype)


def _product(states: Any, matrix: tuple[Any, Any], activation: str = "none") -> Any:
    """Return the output of a linear layer, and of the activation after it."""
    import torch

    return torch.ops.mkldnn._linear_pointwise(states.to(matrix[1].dtype), *matrix, activation, [], "none")
