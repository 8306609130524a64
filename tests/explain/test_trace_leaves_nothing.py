"""Tracing changes nothing that it does not put back: hooks, modes, precision; and threads do not mix."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.helpers.copying import randomise
from torch import Tensor, nn

from glassformer.config import ModelConfig
from glassformer.errors import UsageError
from glassformer.explain import trace
from glassformer.models import LanguageModel, TextClassifier
from glassformer.nn.attention import attention

SMALL = ModelConfig(n_layers=2, d_model=8, n_heads=2, dropout=0.5)
N_STEPS = 47
"""Records of `language_model()`."""


def language_model() -> LanguageModel:
    return randomise(LanguageModel(SMALL, 20, 40))


def ids(n: int, seed: int = 0) -> Tensor:
    return torch.randint(20, (1, n), generator=torch.Generator().manual_seed(seed))


def n_hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


def test_hooks_modes_and_precision_are_put_back_even_after_an_error() -> None:
    model = language_model().train()
    model.decoder.layers[0].eval()  # a mixed state is restored as it was
    modes = [m.training for m in model.modules()]
    torch.set_float32_matmul_precision("medium")
    try:
        with pytest.raises(ZeroDivisionError), trace(model) as t:
            assert n_hooks(model) > 0
            assert not any(m.training for m in model.modules())
            assert torch.get_float32_matmul_precision() == "highest"
            with pytest.raises(UsageError, match="already open"), trace(TextClassifier(SMALL, 20, 2, 10)):
                pass  # traces do not nest
            model(ids(3))
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_float32_matmul_precision("highest")
    assert n_hooks(model) == 0
    assert [m.training for m in model.modules()] == modes
    assert len(t) == N_STEPS
    model(ids(3))
    attention(*torch.randn(3, 1, 2, 3, 4))
    assert len(t) == N_STEPS


def test_dropout_is_off_and_gradients_still_flow() -> None:
    model = language_model().train()
    with trace(model) as t:
        model(ids(5)).sum().backward()
    assert model.embedding.weight.grad is not None
    with torch.inference_mode(), trace(model) as again:
        model(ids(5))
    assert all(torch.equal(t[id].value, again[id].value) for id in t)
    assert not any(record.value.requires_grad for record in t.values())


def test_autocast_is_off_within_and_a_bf16_model_is_shown_in_fp32() -> None:
    model = language_model()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        with trace(model) as t:
            model(ids(4))
        assert model(ids(4)).dtype == torch.bfloat16
    assert t["decoder.1.ff.hidden"].dtype == torch.float32
    assert t.checks[0].value < 1e-5
    with torch.no_grad(), trace(model.bfloat16()) as t:
        output = model(ids(4))
    assert output.dtype == torch.bfloat16
    assert {r.dtype for r in t.values()} == {torch.float32, torch.int64, torch.bool}
    assert torch.equal(t["logits"].value, output[0].float())
    assert t.checks[0].ok


def test_calls_of_other_threads_are_not_recorded_and_compute_what_they_do_untraced() -> None:
    """To the bit: they take the fast path, whose products are scaled elsewhere, and not the one that is tapped."""
    model, x, found = language_model().eval(), ids(9), []
    with torch.no_grad():
        plain = model(x)
    with torch.no_grad(), trace(model) as t:
        other = threading.Thread(target=lambda: found.append(model(x).detach()))
        other.start()
        other.join()
        assert len(t) == 0
        model(ids(3))
    assert len(t) == N_STEPS and t["embedding.ids"].shape == (3,)
    assert torch.equal(found[0], plain)


def test_many_threads_trace_one_model_at_once() -> None:
    """Each sees its own call alone, whatever hooks come and go, and the last one restores the modes."""
    model = language_model().train()
    expected = {}
    with torch.no_grad():
        for n in range(2, 6):
            with trace(model) as t:
                model(ids(n, n))
            expected[n] = t
    together = threading.Barrier(4)

    def look(n: int) -> list[str]:
        together.wait()
        wrong = []
        for _ in range(4):
            with torch.no_grad(), trace(model) as t:
                model(ids(n, n))
            wrong += [id for id in expected[n] if not torch.equal(expected[n][id].value, t[id].value)]
            wrong += [] if list(t) == list(expected[n]) else ["order"]
        return wrong

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(look, range(2, 6))) == [[]] * 4
    finally:
        sys.setswitchinterval(interval)
    assert n_hooks(model) == 0
    assert all(m.training for m in model.modules())


COMPILED = """
import torch
from glassformer.config import ModelConfig
from glassformer.explain import trace
from glassformer.models import LanguageModel

graphs = []
def backend(graph, inputs):
    graphs.append(graph)
    return graph.forward

model = LanguageModel(ModelConfig(n_layers=1, d_model=8, n_heads=2), 20, 40).eval()
compiled = torch.compile(model, backend=backend)
with torch.no_grad():
    plain = compiled(torch.arange(4)[None])
    n = len(graphs)
    with trace(compiled) as t:
        traced = compiled(torch.arange(4)[None])
        compiled(torch.arange(6)[None])
    assert 0 < n == len(graphs), "nothing is compiled while tracing"
    assert t["decoder.0.self.weights@2"].shape == (2, 6, 6)
    assert t.checks[0].ok
    torch.testing.assert_close(traced, plain)
    torch.compiler.reset()
    compiled(torch.arange(4)[None])
    assert len(graphs) > n, "compiling is on again"
"""


def test_a_compiled_model_is_traced_uncompiled() -> None:
    """In a process of its own: torch cannot compile functions whose shapes are checked."""
    message = subprocess.run([sys.executable, "-c", COMPILED], capture_output=True, text=True)
    assert message.returncode == 0, message.stderr
