"""x-transformers: its wrappers and layers in the plain loop, without its flash attention and with it.

It has no dropout on what a sublayer adds; that of the other models is put behind its layers, in place of its own.
Tied logits are not scaled down, which is its default: they are not elsewhere.
"""

from __future__ import annotations

from functools import partial

from benchmarks.speed.peers.serving import Spec, serve
from benchmarks.speed.peers.training import Batch, build, mean_pool
from torch import Tensor, nn
from x_transformers import Decoder, Encoder, TransformerWrapper
from x_transformers.x_transformers import Attention, FeedForward


def layers(kind: type[Encoder] | type[Decoder], spec: Spec, cross: bool = False) -> Encoder | Decoder:
    """Return a stack with dropout after every sublayer."""
    w = spec.workload
    made = kind(
        dim=w.d_model,
        depth=w.n_layers,
        heads=w.n_heads,
        attn_dim_head=w.d_model // w.n_heads,
        ff_mult=4,
        pre_norm=w.pre_norm,
        attn_flash=spec.settings.flash,
        cross_attend=cross,
        ff_relu_squared=False,
        **({"ff_custom_activation": nn.ReLU()} if w.kind == "translate" else {}),
    )
    for module in made.modules():
        if isinstance(module, Attention):
            module.to_out = nn.Sequential(module.to_out, nn.Dropout(w.dropout))
        elif isinstance(module, FeedForward):
            module.ff = nn.Sequential(module.ff, nn.Dropout(w.dropout))
    return made


class Classifier(nn.Module):
    """`TransformerWrapper` around an `Encoder`, mean pooling."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        self.encoder = TransformerWrapper(
            num_tokens=w.vocab_size,
            max_seq_len=w.max_len,
            emb_dropout=w.dropout,
            return_only_embed=True,
            attn_layers=layers(Encoder, spec),
        )
        self.head = nn.Linear(w.d_model, 2)

    def forward(self, batch: Batch) -> Tensor:
        return self.head(mean_pool(self.encoder(batch.ids, mask=batch.mask), batch.mask))


class Translator(nn.Module):
    """An encoder and a decoder around one tied embedding."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        wrapper = partial(
            TransformerWrapper,
            num_tokens=w.vocab_size,
            max_seq_len=w.max_len + 1,
            emb_dropout=w.dropout,
            scaled_sinu_pos_emb=True,
        )
        self.encoder = wrapper(attn_layers=layers(Encoder, spec), return_only_embed=True)
        self.decoder = wrapper(
            attn_layers=layers(Decoder, spec, cross=True),
            token_emb=self.encoder.token_emb,
            tie_embedding=True,
            tie_embedding_scale=1.0,
        )

    def forward(self, batch: Batch) -> Tensor:
        memory = self.encoder(batch.ids, mask=batch.mask, return_embeddings=True)
        return self.decoder(batch.tgt_in, context=memory, context_mask=batch.mask)


class LanguageModel(nn.Module):
    """`TransformerWrapper` around a `Decoder`, tied output."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        self.model = TransformerWrapper(
            num_tokens=w.vocab_size,
            max_seq_len=w.max_len,
            emb_dropout=w.dropout,
            tie_embedding=True,
            tie_embedding_scale=1.0,
            attn_layers=layers(Decoder, spec),
        )

    def forward(self, batch: Batch) -> Tensor:
        return self.model(batch.ids)


if __name__ == "__main__":
    serve(build({"classify": Classifier, "translate": Translator, "lm": LanguageModel}))
