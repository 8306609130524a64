"""Hugging Face transformers: our weights in `M2M100ForConditionalGeneration`, the pre-norm translator that it has."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import numpy as np
import torch
from benchmarks.speed.peers.serving import keep_large_blocks
from benchmarks.speed.peers.translating import Checkpoint, serve_translator
from benchmarks.speed.workloads import BOS, EOS, PAD, padded
from transformers import M2M100Config, M2M100ForConditionalGeneration

BATCH_ROWS = 128
"""Sentences of a batch in bulk, sorted by length."""
NAMES = {
    "self_attention": "self_attn",
    "cross_attention": "encoder_attn",
    "o_proj": "out_proj",
    "self_residual.norm": "self_attn_layer_norm",
    "cross_residual.norm": "encoder_attn_layer_norm",
    "feed_forward.up_proj": "fc1",
    "feed_forward.down_proj": "fc2",
    "feed_forward_residual.norm": "final_layer_norm",
}
"""Our parts and theirs."""


class HuggingFace:
    """`generate`, greedy or with a beam."""

    def __init__(self, checkpoint: Checkpoint, settings: dict[str, Any]) -> None:
        if settings["ours"]:
            keep_large_blocks()
            torch.set_float32_matmul_precision("medium")
        self.bf16, self.most, self.steps = settings["bf16"], checkpoint.most_tokens, checkpoint.steps
        self.sources = [np.array(source) for source in checkpoint.sources]
        self.model = model_of(checkpoint)

    def bulk(self, which: list[int], beam: int) -> list[list[int]]:
        """Translate in batches of sentences of similar length."""
        order = sorted(which, key=lambda i: len(self.sources[i]), reverse=True)
        found: dict[int, list[int]] = {}
        for start in range(0, len(order), BATCH_ROWS):
            some = order[start : start + BATCH_ROWS]
            found |= zip(some, self._generate(some, beam), strict=True)
        return [found[i] for i in which]

    def one(self, which: int, beam: int) -> list[int]:
        """Translate one sentence."""
        return self._generate([which], beam)[0]

    def _generate(self, which: list[int], beam: int) -> list[list[int]]:
        length = np.array([len(self.sources[i]) for i in which])
        flat = np.concatenate([self.sources[i] for i in which])
        ids = torch.from_numpy(padded(flat, length.cumsum() - length, length))
        precise = torch.autocast("cpu", dtype=torch.bfloat16) if self.bf16 else nullcontext()
        with torch.inference_mode(), precise:
            out = self.model.generate(
                input_ids=ids,
                attention_mask=(ids != PAD).long(),
                num_beams=beam,
                do_sample=False,
                max_new_tokens=self.most,
                length_penalty=1.0,
                early_stopping=False,
            )
        return [[i for i in row[1:] if i not in (PAD, EOS)] for row in out.tolist()]


def model_of(checkpoint: Checkpoint) -> M2M100ForConditionalGeneration:
    """Return the model with our weights, positions included."""
    s = checkpoint.sizes
    if not s["pre_norm"]:
        raise SystemExit("M2M100 is pre-norm, and this checkpoint is not")
    model = M2M100ForConditionalGeneration(
        M2M100Config(
            vocab_size=s["vocab_size"],
            d_model=s["d_model"],
            encoder_layers=s["n_layers"],
            decoder_layers=s["n_layers"],
            encoder_attention_heads=s["n_heads"],
            decoder_attention_heads=s["n_heads"],
            encoder_ffn_dim=s["d_ff"],
            decoder_ffn_dim=s["d_ff"],
            activation_function=s["activation"],
            scale_embedding=True,
            max_position_embeddings=s["max_len"],
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            decoder_start_token_id=BOS,
            encoder_layerdrop=0.0,
            decoder_layerdrop=0.0,
            tie_word_embeddings=True,
        )
    )
    state = {"model.shared.weight": checkpoint.weights["tgt_embedding.weight"]}
    for name, array in checkpoint.weights.items():
        if name.startswith(("encoder.", "decoder.")):
            for ours, theirs in NAMES.items():
                name = name.replace(ours, theirs)
            state["model." + name.replace("coder.norm.", "coder.layer_norm.")] = array
    result = model.load_state_dict({name: torch.from_numpy(a) for name, a in state.items()}, strict=False)
    assert not result.unexpected_keys and all("embed" in n or "lm_head" in n for n in result.missing_keys), result
    model.tie_weights()
    for half in (model.model.encoder, model.model.decoder):
        table = half.embed_positions.weights
        positions = torch.from_numpy(checkpoint.weights["positions"])[: len(table) - PAD - 1]
        table[PAD + 1 : PAD + 1 + len(positions)] = positions  # the first position's row is the one after padding's
    model.generation_config.forced_eos_token_id = None
    return model.eval()


if __name__ == "__main__":
    serve_translator(HuggingFace)
