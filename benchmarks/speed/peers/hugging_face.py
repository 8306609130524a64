"""Hugging Face transformers: BERT, Marian and GPT-2 from a configuration, with random weights, in the plain loop."""

from __future__ import annotations

import torch
from benchmarks.speed.peers.serving import Spec, serve
from benchmarks.speed.peers.training import Batch, build, mean_pool
from benchmarks.speed.workloads import BOS, EOS, PAD
from torch import Tensor, nn
from transformers import BertConfig, BertModel, GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel


class Bert(nn.Module):
    """`BertModel` without its pooler, mean pooling."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        config = BertConfig(
            vocab_size=w.vocab_size,
            hidden_size=w.d_model,
            num_hidden_layers=w.n_layers,
            num_attention_heads=w.n_heads,
            intermediate_size=w.d_ff,
            hidden_dropout_prob=w.dropout,
            attention_probs_dropout_prob=0.0,
            max_position_embeddings=w.max_len,
            pad_token_id=PAD,
        )
        self.bert, self.head = BertModel(config, add_pooling_layer=False), nn.Linear(w.d_model, 2)

    def forward(self, batch: Batch) -> Tensor:
        mask = None if batch.mask is None else batch.mask.long()
        x = self.bert(input_ids=batch.ids, attention_mask=mask).last_hidden_state
        return self.head(mean_pool(x, batch.mask))


class Marian(nn.Module):
    """`MarianMTModel` with one tied embedding."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        config = MarianConfig(
            vocab_size=w.vocab_size,
            d_model=w.d_model,
            encoder_layers=w.n_layers,
            decoder_layers=w.n_layers,
            encoder_attention_heads=w.n_heads,
            decoder_attention_heads=w.n_heads,
            encoder_ffn_dim=w.d_ff,
            decoder_ffn_dim=w.d_ff,
            dropout=w.dropout,
            attention_dropout=0.0,
            activation_dropout=0.0,
            activation_function="relu",
            scale_embedding=True,
            max_position_embeddings=w.max_len + 1,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            forced_eos_token_id=None,
            tie_word_embeddings=True,
            use_cache=False,
        )
        self.model = MarianMTModel(config)

    def forward(self, batch: Batch) -> Tensor:
        mask = None if batch.mask is None else batch.mask.long()
        return self.model(input_ids=batch.ids, attention_mask=mask, decoder_input_ids=batch.tgt_in).logits


class GPT2(nn.Module):
    """`GPT2LMHeadModel`, with the exact GELU that all have here."""

    def __init__(self, spec: Spec) -> None:
        super().__init__()
        w = spec.workload
        config = GPT2Config(
            vocab_size=w.vocab_size,
            n_positions=w.max_len,
            n_embd=w.d_model,
            n_layer=w.n_layers,
            n_head=w.n_heads,
            n_inner=w.d_ff,
            resid_pdrop=w.dropout,
            embd_pdrop=w.dropout,
            attn_pdrop=0.0,
            activation_function="gelu",
            bos_token_id=BOS,
            eos_token_id=EOS,
            use_cache=False,
        )
        self.model = GPT2LMHeadModel(config)

    def forward(self, batch: Batch) -> Tensor:
        return self.model(input_ids=batch.ids).logits


if __name__ == "__main__":
    torch.manual_seed(0)
    serve(build({"classify": Bert, "translate": Marian, "lm": GPT2}))
