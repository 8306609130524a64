"""Keras on the torch backend: its own layers, optimizer and `train_on_batch`, as its guides write an encoder."""

from __future__ import annotations

import os

os.environ["KERAS_BACKEND"] = "torch"  # before keras is imported

import keras
import numpy as np
from benchmarks.speed.peers.serving import ArrayBatch, Spec, serve
from benchmarks.speed.peers.training import WARM_UP_UPDATES
from benchmarks.speed.workloads import PAD
from keras import layers, ops


def classifier(spec: Spec) -> keras.Model:
    """Make a classifier: learned positions, post-norm blocks, mean pooling over real tokens."""
    w, std = spec.workload, keras.initializers.RandomNormal(stddev=0.02)
    ids, real = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="bool")
    x = layers.Embedding(w.vocab_size, w.d_model, embeddings_initializer=std)(ids)
    x = layers.Dropout(w.dropout)(Positions(w.max_len, w.d_model)(x))
    for _ in range(w.n_layers):
        attention = layers.MultiHeadAttention(w.n_heads, w.d_model // w.n_heads)
        attended = attention(x, x, attention_mask=ops.expand_dims(real, 1))
        x = layers.LayerNormalization(epsilon=1e-5)(x + layers.Dropout(w.dropout)(attended))
        hidden = layers.Dense(w.d_model)(layers.Activation(_gelu)(layers.Dense(w.d_ff)(x)))
        x = layers.LayerNormalization(epsilon=1e-5)(x + layers.Dropout(w.dropout)(hidden))
    logits = layers.Dense(2, dtype="float32")(layers.GlobalAveragePooling1D()(x, mask=real))
    return keras.Model([ids, real], logits)


class Positions(layers.Layer):
    """x plus one trained vector a position."""

    def __init__(self, max_len: int, d_model: int) -> None:
        super().__init__()
        std = keras.initializers.RandomNormal(stddev=0.02)
        self.table = self.add_weight(shape=(max_len, d_model), initializer=std, name="table")

    def compute_output_spec(self, x: keras.KerasTensor) -> keras.KerasTensor:
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype)

    def call(self, x: keras.KerasTensor) -> keras.KerasTensor:
        return x + ops.cast(self.table[: ops.shape(x)[1]], x.dtype)


def _gelu(x: keras.KerasTensor) -> keras.KerasTensor:
    return keras.activations.gelu(x, approximate=False)


class KerasTrainer:
    """A compiled model, one `train_on_batch` an update."""

    def __init__(self, spec: Spec) -> None:
        if spec.workload.kind != "classify":
            raise SystemExit(f"it has no model for workload {spec.workload.name}")
        keras.utils.set_random_seed(spec.seed)
        if spec.settings.medium:
            import torch

            torch.set_float32_matmul_precision("medium")
        if spec.settings.precision == "bf16":
            keras.mixed_precision.set_global_policy("mixed_bfloat16")
        self.model, self.lr = classifier(spec), spec.workload.lr
        self.step, self.n_parameters = 0, self.model.count_params()
        self.model.compile(
            keras.optimizers.AdamW(
                self.lr, weight_decay=0.01, beta_1=0.9, beta_2=0.98, epsilon=1e-9, global_clipnorm=spec.workload.clip
            ),
            keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        )

    def prepare(self, batch: ArrayBatch) -> tuple[list[np.ndarray], np.ndarray]:
        """Return ids with their mask, and classes."""
        return [batch.ids.astype(np.int32), batch.ids != PAD], batch.labels

    def update(self, prepared: tuple[list[np.ndarray], np.ndarray]) -> float:
        """Train on a batch; return its loss. `train_on_batch` returns a running mean, from which it is computed."""
        self.step += 1
        self.model.optimizer.learning_rate = self.lr * min(1.0, self.step / WARM_UP_UPDATES)
        self.model.reset_metrics()
        return float(self.model.train_on_batch(*prepared))


if __name__ == "__main__":
    serve(KerasTrainer)
