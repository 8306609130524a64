"""Toy models for the decoding tests: a decoder over a table of logits, and tiny random Transformers."""

import torch

from glassformer.config import ModelConfig
from glassformer.decode.incremental import ModelDecoder
from glassformer.models import LanguageModel, Translator

PAD, BOS, EOS = 0, 1, 2


class TableDecoder(ModelDecoder):
    """Logits looked up by (sentence, position, last token); counts what it is asked."""

    def __init__(self, table, max_len=10**6):
        self.table = table  # (B, L, V, V), the last position for all beyond
        self.max_len = max_len
        self.device = torch.device("cpu")
        self.sentence = torch.arange(len(table))
        self.past = torch.zeros(len(table), 0, dtype=torch.long)
        self.rows_seen = []  # rows of each advance

    def step(self, tokens):
        self.past = torch.cat([self.past, tokens], dim=1)
        self.rows_seen.append(len(tokens))
        sentence = self.sentence.repeat_interleave(len(tokens) // len(self.sentence))
        position = min(self.past.shape[1], self.table.shape[1]) - 1
        return self.table[sentence, position, self.past[:, -1]]

    def reorder(self, rows, sentences=None):
        self.past = self.past[rows]
        if sentences is not None:
            self.sentence = self.sentence[sentences]

    def reset(self):
        self.past = self.past[:, :0]


def random_table(seed, n, vocab_size, spread=2.0):
    """Random logits (n, 12, V, V); as positions differ, no two texts are equally probable."""
    generator = torch.Generator().manual_seed(seed)
    return spread * torch.randn(n, 12, vocab_size, vocab_size, generator=generator)


def log_probs(table, sentence, ids):
    """Log-probabilities of the token after BOS + ids, as a list."""
    return table[sentence, len(ids), [BOS, *ids][-1]].log_softmax(-1).tolist()


def translator(seed=0, vocab_size=23, max_len=32, kind=Translator, **config):
    """A random model that chooses decidedly, and ends now and then: no decision by the last digit."""
    torch.manual_seed(seed)
    numbers = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_ff": 32, "tie_embeddings": False}
    model = kind(ModelConfig(**(numbers | config)), vocab_size, max_len).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("output"):
                parameter.mul_(4.0)
                parameter[EOS].mul_(1.5)
    return model


def language_model(seed=0, **config):
    return translator(seed, 19, 16, LanguageModel, **config)


def sentences(seed, n, vocab_size=23, longest=9):
    """N random id lists of 1 … longest tokens."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, longest + 1, (n,), generator=generator).tolist()
    return [torch.randint(3, vocab_size, (length,), generator=generator).tolist() for length in lengths]
