"""The four families of models with their loss and its gradients in numpy and double precision, written by hand.

Forward passes follow the formulas of the papers; each gradient is the Jacobian of a formula times the gradient of its
result. Nothing here calls the package or torch, and where there is a choice the formula is another than the package's:
Jacobian matrices, one-hot matrices, complex numbers for rotary positions, sums over heads one at a time. Values and
gradients are kept by the ids of the package: "encoder.0.self.weights", "encoder.0.self.weights.grad", and
"x.grad.q_proj" for what the use "q_proj" of x passes back.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Allowed = NDArray[np.bool_]
"""Which keys each query may attend to."""
Labels = Sequence[int | None]
_erf: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[np.float64])


def sinusoids(n: int, d: int) -> Array:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d)), PE(pos, 2i+1) = cos(same) (Vaswani et al. 2017, 3.5)."""
    waves = (math.sin, math.cos)
    return np.array([[waves[j % 2](pos / 10000 ** ((j - j % 2) / d)) for j in range(d)] for pos in range(n)])


def angles(n: int, d_head: int, base: float) -> Array:
    """The angle of each position and pair of features (Su et al. 2021, 3.2.2)."""
    return np.array([[pos * base ** (-2 * j / d_head) for j in range(d_head // 2)] for pos in range(n)])


def sigmoid(x: Array) -> Array:
    """1 / (1 + e^-x)."""
    return 1 / (1 + np.exp(-x))


def gelu(x: Array) -> tuple[Array, Array]:
    """x Φ(x) (Hendrycks and Gimpel 2016), and its derivative."""
    phi = (1 + _erf(x / math.sqrt(2))) / 2
    return x * phi, phi + x * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)


def gelu_tanh(x: Array) -> tuple[Array, Array]:
    """x σ(2u), u = √(2/π) (x + 0.044715 x³), which is x (1 + tanh u) / 2; and its derivative."""
    u = math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)
    slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
    s = sigmoid(2 * u)
    return x * s, s + 2 * x * s * (1 - s) * slope


def silu(x: Array) -> tuple[Array, Array]:
    """x σ(x), and its derivative."""
    s = sigmoid(x)
    return x * s, s + x * s * (1 - s)


ACTIVATIONS: dict[str, Callable[[Array], tuple[Array, Array]]] = {
    "relu": lambda x: (np.maximum(x, 0), (x > 0).astype(float)),
    "tanh": lambda x: (np.tanh(x), 1 / np.cosh(x) ** 2),
    "gelu": gelu,
    "gelu-tanh": gelu_tanh,
    "silu": silu,
}
"""Each activation: its value and its derivative, element by element."""


class NumpyModel:
    """The gradients of the loss of one text with respect to every step and every parameter.

    Args:
        config: the sizes and choices, a `ModelConfig`.
        weights: the parameters by name; tied ones have the name of the first.

    Attributes:
        values: the value of each step by id.
        gradients: the gradient of each step and parameter, and what each of its uses passes back.
    """

    def __init__(self, config: Any, weights: Mapping[str, Array]) -> None:
        self.config, self.weights = config, weights
        self.values: dict[str, Array] = {}
        self.gradients: dict[str, Array] = {}
        self._backwards: list[Callable[[], None]] = []
        """What computes the gradients of each operation, in the order of the forward pass."""

    # One operation each: its value, and below it what it passes back.

    def _give(self, to: str, by: str, gradient: Array) -> None:
        """Add what the use `by` of a step or parameter passes back to it."""
        part = f"{to}.grad.{by.removeprefix(to.rpartition('.')[0] + '.')}"
        self.gradients[part] = gradient
        self.gradients[f"{to}.grad"] = self.gradients.get(f"{to}.grad", 0.0) + gradient

    def _step(self, id: str, value: Array, back: Callable[[Array], None]) -> str:
        self.values[id] = value
        self._backwards.append(lambda: back(self.gradients[f"{id}.grad"]))
        return id

    def _linear(self, id: str, x: str, weight: str, bias: str | None = None) -> str:
        inputs, w = np.atleast_2d(self.values[x]), self.weights[weight]
        value = np.einsum("ti,oi->to", inputs, w) + (0.0 if bias is None else self.weights[bias])

        def back(g: Array) -> None:
            g = np.atleast_2d(g)
            self._give(x, id, np.einsum("to,oi->ti", g, w).reshape(self.values[x].shape))
            self._give(weight, id, sum(np.outer(g[t], inputs[t]) for t in range(len(g))))
            if bias is not None:
                self._give(bias, id, np.ones(len(g)) @ g)

        return self._step(id, value.reshape(*self.values[x].shape[:-1], -1), back)

    def _dense(self, id: str, x: str, path: str) -> str:
        """A linear layer with a bias, where the model has one."""
        bias = f"{path}.bias"
        return self._linear(id, x, f"{path}.weight", bias if bias in self.weights else None)

    def _norm(self, id: str, x: str, path: str) -> str:
        """Ba et al. 2016, or Zhang and Sennrich 2019; the Jacobian of x̂ = C x / σ is (C - x̂ x̂ᵀ / D) / σ."""
        inputs, w = self.values[x], self.weights[f"{path}.weight"]
        d, is_rms = inputs.shape[-1], self.config.norm == "rms"
        centre = np.eye(d) if is_rms else np.eye(d) - np.ones((d, d)) / d
        eps = self.config.norm_eps or (1e-6 if is_rms else 1e-5)
        sigma = np.sqrt(np.mean((inputs @ centre) ** 2, axis=-1) + eps)
        unit = inputs @ centre / sigma[:, None]

        def back(g: Array) -> None:
            jacobians = [(centre - np.outer(u, u) / d) / s for u, s in zip(unit, sigma, strict=True)]
            self._give(x, id, np.array([(row * w) @ j for row, j in zip(g, jacobians, strict=True)]))
            self._give(f"{path}.weight", id, np.einsum("td,td->d", g, unit))
            if not is_rms:
                self._give(f"{path}.bias", id, np.ones(len(g)) @ g)

        return self._step(id, unit * w + (0.0 if is_rms else self.weights[f"{path}.bias"]), back)

    def _add(self, id: str, a: str, b: str) -> str:
        def back(g: Array) -> None:
            self._give(a, id, g)
            self._give(b, id, g)

        return self._step(id, self.values[a] + self.values[b], back)

    def _scale(self, id: str, x: str, factor: float) -> str:
        return self._step(id, factor * self.values[x], lambda g: self._give(x, id, factor * g))

    def _activate(self, id: str, x: str, name: str) -> str:
        value, slope = ACTIVATIONS[name](self.values[x])
        return self._step(id, value, lambda g: self._give(x, id, slope * g))

    def _gated(self, id: str, gate: str, x: str) -> str:
        """silu(gate) ⊙ x (Shazeer 2020)."""
        value, slope = silu(self.values[gate])

        def back(g: Array) -> None:
            self._give(gate, id, g * slope * self.values[x])
            self._give(x, id, g * value)

        return self._step(id, value * self.values[x], back)

    def _heads(self, id: str, x: str) -> str:
        """(L, H·E) as (H, L, E)."""
        n, inputs = self.config.n_heads, self.values[x]
        return self._step(
            id, np.array(np.split(inputs, n, axis=1)), lambda g: self._give(x, id, np.concatenate(list(g), axis=1))
        )

    def _rotate(self, id: str, x: str) -> str:
        """Features j and j + E/2 as one complex number times e^(iθ); the gradient is turned back by e^(-iθ)."""
        inputs, half = self.values[x], self.values[x].shape[-1] // 2
        turn = np.exp(1j * angles(inputs.shape[1], 2 * half, self.config.rope_base))

        def turned(y: Array, by: NDArray[np.complex128]) -> Array:
            z = (y[..., :half] + 1j * y[..., half:]) * by
            return np.concatenate([z.real, z.imag], axis=-1)

        return self._step(id, turned(inputs, turn), lambda g: self._give(x, id, turned(g, turn.conj())))

    def _attention(self, id: str, x: str, memory: str, path: str, allowed: Allowed, rotary: bool) -> str:
        """softmax(q kᵀ / √E) v of each head (Vaswani et al. 2017, 3.2)."""
        sources = {"q": x, "k": memory, "v": memory}
        q, k, v = (self._dense(f"{id}.{n}_proj", source, f"{path}.{n}_proj") for n, source in sources.items())
        if rotary:
            q, k = (self._rotate(f"{id}.{n}", self._heads(f"{id}.{n}_heads", y)) for n, y in (("q", q), ("k", k)))
        else:
            q, k = self._heads(f"{id}.q", q), self._heads(f"{id}.k", k)
        v = self._heads(f"{id}.v", v)
        keys, queries = self.values[k], self.values[q]

        def products_back(g: Array) -> None:
            self._give(q, f"{id}.products", np.array([g[h] @ keys[h] for h in range(len(g))]))
            self._give(k, f"{id}.products", np.array([g[h].T @ queries[h] for h in range(len(g))]))

        products = np.array([queries[h] @ keys[h].T for h in range(len(keys))])
        products = self._step(f"{id}.products", products, products_back)
        scores = self._scale(f"{id}.scores", products, 1 / math.sqrt(queries.shape[-1]))
        weights = self._softmax(f"{id}.weights", scores, allowed)

        def context_back(g: Array) -> None:
            w = self.values[weights]
            self._give(weights, f"{id}.context", np.array([g[h] @ self.values[v][h].T for h in range(len(g))]))
            self._give(v, f"{id}.context", np.array([w[h].T @ g[h] for h in range(len(g))]))

        context = np.array([self.values[weights][h] @ self.values[v][h] for h in range(len(keys))])
        context = self._step(f"{id}.context", context, context_back)
        concat = np.concatenate(list(self.values[context]), axis=1)
        n = self.config.n_heads
        concat = self._step(
            f"{id}.concat", concat, lambda g: self._give(context, f"{id}.concat", np.array(np.split(g, n, axis=1)))
        )
        return self._dense(f"{id}.out", concat, f"{path}.o_proj")

    def _softmax(self, id: str, x: str, allowed: Allowed) -> str:
        """The softmax of each row over the allowed keys; its Jacobian is diag(y) - y yᵀ."""
        powers = np.where(allowed, np.exp(self.values[x]), 0.0)
        y = powers / powers.sum(axis=-1, keepdims=True)

        def back(g: Array) -> None:
            jacobian = y[..., :, None] * np.eye(y.shape[-1]) - y[..., :, None] * y[..., None, :]
            self._give(x, id, np.einsum("...ij,...j->...i", jacobian, g))

        return self._step(id, y, back)

    # Blocks and models.

    def _embed(self, id: str, ids: Sequence[int], weights: str) -> str:
        """Rows of the table times √D plus positions (Vaswani et al. 2017, 3.4 and 3.5); of BERT with a norm."""
        c, table = self.config, self.weights[f"{weights}.weight"]
        one_hot = np.eye(len(table))[list(ids)]
        rows = f"{id}.rows"
        x = self._step(rows, one_hot @ table, lambda g: self._give(f"{weights}.weight", rows, one_hot.T @ g))
        if c.embedding_init_std is None:
            x = self._scale(f"{id}.scaled", x, math.sqrt(c.d_model))
        if c.positions in ("sinusoidal", "learned"):
            positions = f"{id}.positions"
            if c.positions == "sinusoidal":
                self.values[positions] = sinusoids(len(ids), c.d_model) * (c.embedding_init_std or 1.0)
            else:
                name = f"{weights}.positions.weight"
                first = np.eye(len(ids), len(self.weights[name]))
                self._step(positions, first @ self.weights[name], lambda g: self._give(name, positions, first.T @ g))
            x = self._add(f"{id}.sum", x, positions)
        return self._norm(f"{id}.norm", x, f"{weights}.norm") if c.embedding_norm else x

    def _residual(self, id: str, x: str, path: str, block: Callable[[str], str]) -> str:
        """x + f(norm(x)) or norm(x + f(x)) (Xiong et al. 2020, figure 1)."""
        if self.config.pre_norm:
            return self._add(f"{id}.residual", x, block(self._norm(f"{id}.norm", x, f"{path}.norm")))
        return self._norm(f"{id}.norm", self._add(f"{id}.residual", x, block(x)), f"{path}.norm")

    def _feed_forward(self, id: str, x: str, path: str) -> str:
        if self.config.activation == "swiglu":
            gate = self._dense(f"{id}.w_gate", x, f"{path}.gate_proj")
            hidden = self._gated(f"{id}.hidden", gate, self._dense(f"{id}.w_in", x, f"{path}.up_proj"))
        else:
            inner = self._dense(f"{id}.w_in", x, f"{path}.up_proj")
            hidden = self._activate(f"{id}.hidden", inner, self.config.activation)
        return self._dense(f"{id}.out", hidden, f"{path}.down_proj")

    def _stack(self, name: str, x: str, allowed: Allowed, memory: str = "", visible: Allowed | None = None) -> str:
        """Encoder or decoder (Vaswani et al. 2017, figure 1)."""
        for i in range(self.config.n_layers):
            x = self._layer(f"{name}.{i}", x, f"{name}.layers.{i}", allowed, memory, visible)
        return self._norm(f"{name}.norm", x, f"{name}.norm") if self.config.pre_norm else x

    def _layer(self, id: str, x: str, path: str, allowed: Allowed, memory: str, visible: Allowed | None) -> str:
        own, cross, rotary = f"{path}.self_attention", f"{path}.cross_attention", self.config.positions == "rotary"
        x = self._residual(
            f"{id}.self",
            x,
            f"{path}.self_residual",
            lambda y: self._attention(f"{id}.self", y, y, own, allowed, rotary),
        )
        if visible is not None:
            x = self._residual(
                f"{id}.cross",
                x,
                f"{path}.cross_residual",
                lambda y: self._attention(f"{id}.cross", y, memory, cross, visible, False),
            )
        return self._residual(
            f"{id}.ff",
            x,
            f"{path}.feed_forward_residual",
            lambda y: self._feed_forward(f"{id}.ff", y, f"{path}.feed_forward"),
        )

    def classifier(self, ids: Sequence[int], real: Sequence[bool], pinned: bool = True) -> None:
        """A text classifier; two classes share one logit, unless it is the number of a regressor."""
        c, mask = self.config, np.array(real)
        x = self._stack("encoder", self._embed("embedding", ids, "embedding"), mask[None])
        vectors, d = self.values[x], c.d_model
        mean, highest = mask / mask.sum(), vectors[mask].max(axis=0)
        largest = (mask[:, None] & (highest - vectors < 1e-12)).astype(float)  # equal tokens share
        shares = {
            "mean": np.tile(mean[:, None], d),
            "max": largest / largest.sum(axis=0),
            "first": np.tile((np.arange(len(mask)) == 0)[:, None], d).astype(float),
        }
        used = [shares[how] for how in c.pooling.split("+")]
        pooled = np.concatenate([(share * vectors).sum(axis=0) for share in used])

        def back(g: Array) -> None:
            self._give(x, "pooled", sum(share * part for share, part in zip(used, np.split(g, len(used)), strict=True)))

        end = self._step("pooled", pooled, back)
        if c.pooler != "none":
            end = self._activate("pooler_hidden", self._dense("pooler", end, "pooler.dense"), c.pooler)
        if len(self.weights["head.bias"]) > 1 or not pinned:
            self._dense("logits", end, "head")
        else:
            head = self._dense("head", end, "head")
            self._step("logits", np.append(0.0, self.values[head]), lambda g: self._give(head, "logits", g[1:]))

    def masked_language_model(self, ids: Sequence[int], real: Sequence[bool]) -> None:
        """BERT's head on an encoder (Devlin et al. 2019)."""
        x = self._stack("encoder", self._embed("embedding", ids, "embedding"), np.array(real)[None])
        x = self._activate("mlm_hidden", self._dense("mlm_transform", x, "mlm_transform"), "gelu")
        self._project(self._norm("mlm_norm", x, "mlm_norm"), "embedding")

    def language_model(self, ids: Sequence[int]) -> None:
        """A decoder without an encoder."""
        x = self._embed("embedding", ids, "embedding")
        self._project(self._stack("decoder", x, _causal(len(ids))), "embedding")

    def translator(self, source: Sequence[int], target: Sequence[int], real: Sequence[bool]) -> None:
        """Encoder and decoder, with tied or separate embeddings."""
        tied, visible = self.config.tie_embeddings, np.array(real)[None]
        table = "tgt_embedding" if tied else "src_embedding"
        memory = self._stack("encoder", self._embed("src_embedding", source, table), visible)
        x = self._embed("tgt_embedding", target, "tgt_embedding")
        self._project(self._stack("decoder", x, _causal(len(target)), memory, visible), "tgt_embedding")

    def _project(self, x: str, table: str) -> None:
        weight = f"{table}.weight" if self.config.tie_embeddings else "output.weight"
        self._linear("logits", x, weight, "output_bias" if "output_bias" in self.weights else None)

    def loss(self, labels: Labels, smoothing: float) -> float:
        """Cross-entropy with label smoothing (Szegedy et al. 2016), the mean over all labels."""
        z = np.atleast_2d(self.values["logits"])
        p = np.exp(z) / np.exp(z).sum(axis=-1, keepdims=True)
        n_classes, scored = z.shape[-1], [label is not None for label in labels]
        q = np.zeros_like(z)
        for row, label in zip(q, labels, strict=True):
            if label is not None:
                row[:] = smoothing / n_classes + (1 - smoothing) * np.eye(n_classes)[label]
        each = -(q * np.log(p)).sum(axis=-1)
        self.values |= {"loss.each": each, "loss": np.array([each.sum() / sum(scored)])}

        def each_back(g: Array) -> None:
            jacobian = -q[:, :, None] * (np.eye(n_classes)[None] - p[:, None, :])  # of -q log p by the logits
            gradient = np.einsum("t,tij->tj", g, jacobian)
            self._give("logits", "loss.each", gradient.reshape(self.values["logits"].shape))

        self._backwards += [
            lambda: each_back(self.gradients["loss.each.grad"]),
            lambda: self._give("loss.each", "loss", np.array(scored) / sum(scored)),
        ]
        return float(self.values["loss"][0])

    def squared_error(self, target: float) -> float:
        """The loss of a number: the square of the output minus what it should be."""
        error = self.values["logits"] - target
        self.values |= {"loss.error": error, "loss": error**2}
        self._backwards += [
            lambda: self._give("logits", "loss.error", self.gradients["loss.error.grad"]),
            lambda: self._give("loss.error", "loss", 2 * error * self.gradients["loss.grad"]),
        ]
        return float(self.values["loss"][0])

    def backward(self) -> None:
        """Compute all gradients, from the loss to the first step."""
        self.gradients["loss.grad"] = np.ones(1)
        for back in reversed(self._backwards):
            back()


def _causal(n: int) -> Allowed:
    return np.array([[key <= query for key in range(n)] for query in range(n)])
