"""CTranslate2: our weights written in its format, in fp32 or int8."""

from __future__ import annotations

import os
import tempfile
from typing import Any

import ctranslate2
import numpy as np
from benchmarks.speed.peers.translating import Checkpoint, serve_translator
from benchmarks.speed.workloads import BOS, EOS
from ctranslate2.specs import TransformerSpec
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec

CORES = int(os.environ.get("OMP_NUM_THREADS", os.cpu_count() or 1))


class CTranslate2:
    """Translators over one converted model.

    In bulk its documentation's advice is taken where the row says so: as many workers as cores with a thread each.
    """

    def __init__(self, checkpoint: Checkpoint, settings: dict[str, Any]) -> None:
        self.most, self.max_batch = checkpoint.most_tokens, settings["batch_tokens"]
        self.words = [f"{i}" for i in range(checkpoint.sizes["vocab_size"])]
        self.words[BOS], self.words[EOS] = "<s>", "</s>"
        self.sources = [[self.words[i] for i in ids] for ids in checkpoint.sources]
        folder = tempfile.mkdtemp(prefix="bench-ct2-")
        convert(checkpoint, self.words).save(folder)
        compute = {"device": "cpu", "compute_type": settings["compute_type"]}
        self.alone = ctranslate2.Translator(folder, intra_threads=CORES, **compute)
        workers = {"inter_threads": CORES, "intra_threads": 1} if settings["workers"] else {"intra_threads": CORES}
        self.many = ctranslate2.Translator(folder, **workers, **compute)

    def bulk(self, which: list[int], beam: int) -> list[list[int]]:
        """Translate all at once; the library sorts by length and makes batches itself."""
        sources = [self.sources[i] for i in which]
        return self._ids(
            self.many.translate_batch(
                sources,
                beam_size=beam,
                max_decoding_length=self.most,
                max_batch_size=self.max_batch,
                batch_type="tokens",
                length_penalty=1,
            )
        )

    def one(self, which: int, beam: int) -> list[int]:
        """Translate one sentence with all cores."""
        source = [self.sources[which]]
        found = self.alone.translate_batch(source, beam_size=beam, max_decoding_length=self.most, length_penalty=1)
        return self._ids(found)[0]

    def _ids(self, found: list[Any]) -> list[list[int]]:
        return [[int(word) for word in result.hypotheses[0] if word.isdigit()] for result in found]


def convert(checkpoint: Checkpoint, words: list[str]) -> TransformerSpec:
    """Convert our weights to CTranslate2's specification."""
    w, sizes = checkpoint.weights, checkpoint.sizes
    layers = sizes["n_layers"], sizes["n_layers"]
    spec = TransformerSpec.from_config(
        layers, sizes["n_heads"], pre_norm=sizes["pre_norm"], activation=Activation[sizes["activation"].upper()]
    )
    for side, name in ((spec.encoder, "encoder"), (spec.decoder, "decoder")):
        table = w["tgt_embedding.weight"]
        embeddings = side.embeddings[0] if name == "encoder" else side.embeddings
        embeddings.weight, side.position_encodings.encodings = table, w["positions"]
        if sizes["pre_norm"]:
            _norm(side.layer_norm, w, f"{name}.norm")
        for i, layer in enumerate(side.layer):
            at = f"{name}.layers.{i}"
            _attention(layer.self_attention, w, f"{at}.self_attention", f"{at}.self_residual.norm")
            if name == "decoder":
                _attention(layer.attention, w, f"{at}.cross_attention", f"{at}.cross_residual.norm")
            _linear(layer.ffn.linear_0, w, f"{at}.feed_forward.up_proj")
            _linear(layer.ffn.linear_1, w, f"{at}.feed_forward.down_proj")
            _norm(layer.ffn.layer_norm, w, f"{at}.feed_forward_residual.norm")
    spec.decoder.projection.weight = w["tgt_embedding.weight"]
    spec.register_source_vocabulary(words)
    spec.register_target_vocabulary(words)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", words[1]
    spec.config.decoder_start_token = "<s>"
    spec.validate()
    return spec


def _linear(spec: LinearSpec, w: dict[str, np.ndarray], *names: str) -> None:
    """Set one layer, or several concatenated into one."""
    spec.weight = np.concatenate([w[f"{name}.weight"] for name in names])
    spec.bias = np.concatenate([w[f"{name}.bias"] for name in names])


def _norm(spec: LayerNormSpec, w: dict[str, np.ndarray], name: str) -> None:
    spec.gamma, spec.beta = w[f"{name}.weight"], w[f"{name}.bias"]


def _attention(spec: Any, w: dict[str, np.ndarray], name: str, norm: str) -> None:
    """Set an attention.

    Self attention has its three projections in one matrix, cross attention those of keys and values.
    """
    q, k, v, out = (f"{name}.{part}_proj" for part in "qkvo")
    for linear, names in zip(
        spec.linear, [[q, k, v], [out]] if len(spec.linear) == 2 else [[q], [k, v], [out]], strict=True
    ):
        _linear(linear, w, *names)
    _norm(spec.layer_norm, w, norm)


if __name__ == "__main__":
    serve_translator(CTranslate2)
