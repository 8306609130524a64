"""The GPU's ladder: its arithmetic, and that it runs from end to end on a CPU and in shapes alone."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from benchmarks import documents, gpu


def test_every_row_of_the_ladder_trains_on_the_same_labels_in_batches_of_one_shape() -> None:
    for rung in gpu.LADDER:
        for size in (gpu.TINY, gpu.Size(n_documents=32, vocab_size=300)):
            batches = list(documents.batches_of(size, rung.pieces, rung.packed, step=3))
            assert len(batches) == rung.pieces and len({batch.ids.shape for batch in batches}) == 1
            labels = np.sort(np.concatenate([b.labels[b.labels >= 0].numpy() for b in batches]))
            padded = documents.batches_of(size, 1, False, step=3)
            assert np.array_equal(
                labels, np.sort(np.concatenate([b.labels[b.labels >= 0].numpy() for b in padded]))
            )
            assert (
                len(labels)
                == sum(b.n_labels for b in batches)
                == sum(b.n_tokens for b in batches) - size.n_documents
            )


def test_packing_needs_fewer_rows() -> None:
    lengths = documents.lengths_of(gpu.Size())
    rows = documents.rows_of(lengths, 1024, packed=True)
    assert sorted(i for row in rows for i in row) == list(range(128))
    assert all(lengths[row].sum() <= 1024 for row in rows) and len(rows) < 80


def test_flops_are_those_of_the_formula() -> None:
    size = gpu.Size()
    full, exact = gpu.flops_per_token(size)
    matrices = 12 * size.n_layers * size.d_model**2 + size.vocab_size * size.d_model
    assert full == 6 * matrices + 12 * size.n_layers * size.d_model * size.max_len
    assert 6 * matrices < exact < 6 * matrices + 6 * size.n_layers * size.d_model * size.max_len


def test_from_end_to_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is compiled here, which takes minutes; that compiled layers keep the numbers is another test."""
    monkeypatch.setattr("torch.nn.Module.compile", lambda layer: None)
    out = tmp_path / "gpu.json"
    flags = ["--device", "cpu", "--tiny", "--updates", "2", "--warm-up", "1", "--documents", "8"]
    assert gpu.main([*flags, "--json", str(out)]) == 0
    told = capsys.readouterr().out
    assert all(f"| {rung.name} |" in told for rung in gpu.LADDER) and "apart by more than" in told
    assert [len(row["ms"]) for row in json.loads(out.read_text())["rows"]] == [2] * len(gpu.LADDER)
    assert gpu.main(["--device", "meta", "--documents", "8"]) == 0
    assert "GB of logits" in capsys.readouterr().out
