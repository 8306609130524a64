"""Make runs of classifiers with n-grams, bigrams or several members, and random weights that react to the text."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from tests.helpers.small import CPU, config_of

from glassformer.data.splits import Split, TextData
from glassformer.run import Run
from glassformer.tasks import TASKS

WORDS = "refund refunded funding money moneys card cards lost losing wonderful wonderfully awful".split()


def data(common_pairs: bool = False) -> TextData:
    """Return short texts of words that share n-grams, every other one three times for common pairs."""
    texts = [f"{a} {b}" for a in WORDS for b in WORDS if a != b]
    texts += texts[::2] * 2 if common_pairs else []
    labels = [("bad", "good", "odd")[i % 3] for i in range(len(texts))]
    return TextData(*(Split(texts, labels, name) for name in ("train", "valid", "test")))


def ngram_run(path: Path = Path("runs/spelled"), members: int = 1, **changes: Any) -> Run:
    """Return a run with changed fields of its model, text (`bigrams`) or training (`word_mask_prob`)."""
    config = config_of("classify", word_mask_prob=changes.pop("word_mask_prob", 0.05))
    bigrams = changes.pop("bigrams", 0)
    model = {"n_layers": 2, "d_model": 16, "d_ff": 24, "dropout": 0.0, "embedding_init_std": 0.05} | changes
    config = replace(
        config,
        model=replace(config.model, ensemble_size=members, **model),
        text=replace(config.text, ngrams=200, bigrams=bigrams, vocab_size=12),
    )
    task = TASKS["classify"].from_data(config, data(common_pairs=bigrams > 0))
    torch.manual_seed(2)
    network = task.build_model()
    with torch.no_grad():
        for name, p in network.named_parameters():
            small = "grams" in name or "embedding" in name
            p.mul_(10.0 if small else 2.0) if p.ndim > 1 else p.add_(0.3 * torch.randn_like(p))
    return Run(path, task, network.eval(), CPU)
