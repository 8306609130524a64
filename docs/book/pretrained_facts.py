"""What the chapter on a real pretrained model shows of all-MiniLM-L6-v2, written to results/plain/minilm.json.

    glassformer import FOLDER --out minilm --labels anger,joy,optimism,sadness
    glassformer train classify --init-from minilm --train-file … --out tuned
    python docs/book/pretrained_facts.py minilm tuned

The weights of the model are not part of this repository, so its numbers are recorded, and no cell can run it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

import glassformer
from glassformer import Run
from glassformer.explain.explanation import Explanation

RECORD = Path(__file__).parent / "results" / "plain" / "minilm.json"
SETTINGS = (
    "n_layers",
    "d_model",
    "n_heads",
    "d_ff",
    "pre_norm",
    "activation",
    "positions",
    "embedding_norm",
    "n_segments",
)
SENTENCES = """\
The old man walked to the harbour before sunrise.
She bought a red bicycle because the blue bicycle was too small.
If it rains tomorrow, the match will be played on Sunday.
Our neighbours have two dogs and our dogs like their garden.
He said that he would call, but he never did.
The train from the north was late again this morning.
You should read the letter twice before you answer the letter.
A small child asked me why the sky is blue.
The committee will publish its report at the end of May.
Nobody knew where the key to the cellar was kept.
After the concert we took the last bus back to the city.
The doctor told her that the wound would heal in a week.
They sold the house, and a month later the house burned down.
I have never seen so many birds over the lake.
The teacher wrote a word on the board and we copied the word.
Most of the apples in that basket came from one tree.
""".splitlines()
"""Our own, of ten to sixteen words; some repeat a word."""
BANKS = {
    "money": ("the bank lends money to small firms", "she opened an account at the bank in town"),
    "river": ("the bank of the river was covered in reeds", "we sat on the grassy bank and watched the boats"),
}
"""Two sentences for each meaning of a word."""


def looks_at(weights: Tensor, tokens: list[str]) -> dict[str, Tensor]:
    """Return, for each kind of token that a head may attend to, its mean weight of each head.

    Args:
        weights: attention (H, L, L) of one text, [CLS] first and [SEP] last.
        tokens: the L tokens.
    """
    inner = range(1, len(tokens) - 1)  # queries and keys that are words
    same = [(i, j) for i in inner for j in inner if i != j and tokens[i].lower() == tokens[j].lower()]
    found = {
        "previous token": torch.stack([weights[:, i, i - 1] for i in inner if i > 1]).mean(0),
        "next token": torch.stack([weights[:, i, i + 1] for i in inner if i + 2 < len(tokens)]).mean(0),
        "itself": torch.stack([weights[:, i, i] for i in inner]).mean(0),
        "[CLS]": weights[:, 1:-1, 0].mean(1),
        "[SEP]": weights[:, 1:-1, -1].mean(1),
    }
    return found | ({"same word": torch.stack([weights[:, i, j] for i, j in same]).mean(0)} if same else {})


def heads(run: Run) -> dict[str, list[list[float]]]:
    """Return the mean weight of each head on each kind of token, (layers, heads), over the sentences."""
    n_layers = run.config.model.n_layers
    sums: dict[str, list[Tensor]] = {}
    for text in SENTENCES:
        e = run.explain(text)
        tokens = list(e.streams[0].pieces)
        layers = [looks_at(torch.from_numpy(e[f"encoder.{i}.self.weights"]), tokens) for i in range(n_layers)]
        for kind in layers[0]:
            sums.setdefault(kind, []).append(torch.stack([layer[kind] for layer in layers]))
    means = {kind: torch.stack(found).mean(0).tolist() for kind, found in sums.items()}
    return {kind: [[round(weight, 3) for weight in row] for row in rows] for kind, rows in means.items()}


def state_of(e: Explanation, word: str, step: str) -> Tensor:
    """Return the vector of a word after a step."""
    return torch.from_numpy(e[step])[[piece.lower().strip() for piece in e.streams[0].pieces].index(word)]


def meanings(run: Run) -> dict[str, list[float]]:
    """Return the cosine of the vectors of "bank" in two sentences, of one meaning and of two, by layer."""
    steps = ["embedding.norm", *(f"encoder.{i}.ff.norm" for i in range(run.config.model.n_layers))]
    texts = {text: run.explain(text) for pair in BANKS.values() for text in pair}

    def cosines(pairs: list[tuple[str, str]]) -> list[float]:
        means = [
            torch.stack([cosine_similarity(*(state_of(texts[t], "bank", step) for t in pair), dim=0) for pair in pairs])
            for step in steps
        ]
        return [round(mean.mean().item(), 3) for mean in means]

    same = list(BANKS.values())
    different = [(a, b) for a in BANKS["money"] for b in BANKS["river"]]
    return {"steps": steps, "same meaning": cosines(same), "other meaning": cosines(different)}


def moved(before: Run, after: Run) -> dict[str, float]:
    """Return how far each matrix moved in fine-tuning: the norm of the difference, as a share of the norm."""
    old = dict(before.model.named_parameters())
    return {
        name: round(((p - old[name]).norm() / old[name].norm()).item(), 4)
        for name, p in after.model.named_parameters()
        if name in old and p.dim() == 2 and not name.startswith("head")
    }


if __name__ == "__main__":
    run, tuned = (glassformer.load(path) for path in sys.argv[1:3])
    config = run.config.model
    record = {
        "model": {name: getattr(config, name) for name in SETTINGS},
        "sentences": len(SENTENCES),
        "heads": heads(run),
        "meanings": meanings(run),
        "moved": moved(run, tuned),
    }
    RECORD.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
