"""What the five source documents describe, and what they get wrong, one test a row.

The sources: 1 "Transformers from Scratch" (notebook), 2 "Transformer Core Math Tutorial" (IMDB), 3 "Transformers
explained", 4 the self-attention notebook, 5 "Transformer: Concept and code from scratch". Here are the rows about
the models and the words around them; scores and speed are measured by the recipes. One file, longer than
others, so that it can be read beside the list.
"""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from tests.helpers.copying import randomise
from torch import Tensor, nn
from torch.nn import functional as F

from glassformer.config import DecodeConfig, ModelConfig
from glassformer.config.recipes import load_recipe
from glassformer.decode.jobs import translate_ids
from glassformer.models import TextClassifier, Translator
from glassformer.models.decoder_models import BASE
from glassformer.nn.attention import Mask, MultiHeadAttention, attention, causal_mask
from glassformer.nn.embeddings import SinusoidalPositions, TokenEmbedding, sinusoidal
from glassformer.nn.layers import FeedForward, Layer, LayerNorm, Residual, activate
from glassformer.nn.steps import report_to

BOS, EOS, PAD = 2, 3, 0


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)


class Seen(dict[str, Tensor]):
    """A tap: the steps of one attention by name."""

    def __call__(self, name: str, tensor: Tensor, *_: object, **__: object) -> Tensor:
        self[name] = tensor
        return tensor

    def listen(self, _: nn.Module, name: str, tensor: Tensor, *__: object) -> Tensor:
        return self(name, tensor)


def one_head(x: Tensor) -> Tensor:
    """(B, L, D) seen as one head: (B, 1, L, D)."""
    return x[:, None]


def encoder_layer(pre_norm: bool = False, dropout: float = 0.0) -> Layer:
    first, second = (Residual(LayerNorm(8), dropout, pre_norm) for _ in range(2))
    parts = MultiHeadAttention(8, 2, bias=False), FeedForward(8, 32)
    return Layer(*parts, self_residual=first, feed_forward_residual=second)


def translator(**changes: object) -> Translator:
    config = ModelConfig(n_layers=2, d_model=16, n_heads=4, dropout=0.0, **changes)
    model = Translator(config, 20, 30)
    randomise(model)
    return model


# 1. Transformers from Scratch


@pytest.mark.row("1.1")
def test_source_1_basic_self_attention() -> None:
    """Row: attention without parameters: raw weights X·Xᵀ, row softmax, weighted mean."""
    x = torch.randn(2, 5, 8)
    raw = torch.bmm(x, x.transpose(1, 2))
    expected = torch.bmm(raw.softmax(dim=2), x)
    torch.testing.assert_close(attention(one_head(x), one_head(x), one_head(x), scale=1.0)[0][:, 0], expected)


@pytest.mark.row("1.3", "4.3")
def test_source_1_block_is_post_norm() -> None:
    """Row: attention, residual, norm, position-wise MLP, residual, norm."""
    layer, x = encoder_layer(), torch.randn(2, 5, 8)
    attended = layer.self_residual.norm(x + layer.self_attention(x))
    expected = layer.feed_forward_residual.norm(attended + layer.feed_forward(attended))
    torch.testing.assert_close(layer(x), expected)


@pytest.mark.row("1b")
def test_source_1_error_the_mask_is_honoured() -> None:
    """Wrong there: the `mask` argument is ignored."""
    m, x = MultiHeadAttention(8, 2), torch.randn(1, 5, 8)
    changed = x.clone()
    changed[:, 4] += 1
    mask = Mask.of(causal=(5, 5))
    torch.testing.assert_close(m(x, mask=mask)[:, :4], m(changed, mask=mask)[:, :4])
    assert not torch.allclose(m(x)[:, :4], m(changed)[:, :4])


@pytest.mark.row("1c")
@pytest.mark.parametrize("k", [4, 24])
def test_source_1_error_the_mlp_is_wide(k: int) -> None:
    """Wrong there: the MLP's inner width is written 4·4, not 4·k. This was said to keep the block from running
    at all; beside a width of 4·k it runs at k = 4, the size of its own example, and nowhere else.
    """
    as_written = nn.Sequential(nn.Linear(k, 4 * 4), nn.ReLU(), nn.Linear(4 * k, k))
    if k == 4:
        assert as_written(torch.zeros(1, 5, k)).shape == (1, 5, k)
    else:
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            as_written(torch.zeros(1, 5, k))
    model = TextClassifier(ModelConfig(n_layers=1, d_model=k, n_heads=2), 10, 2, 5)
    block = model.encoder.layers[0].feed_forward
    assert block.up_proj.out_features == block.down_proj.in_features == 4 * k
    assert model(torch.zeros(1, 5, dtype=torch.long)).shape == (1, 2)


# 2. Transformer Core Math Tutorial


@pytest.mark.row("2.2", "3.1")
def test_source_2_positions_are_added_and_not_concatenated() -> None:
    """Row: token embedding plus sinusoidal positions; added, so the width stays d_model."""
    embedding = TokenEmbedding(10, 16, SinusoidalPositions(7, 16), 0.0)
    ids, positions = torch.tensor([[1, 2, 1]]), torch.arange(3)[None]
    out = embedding(ids, positions)
    assert out.shape == (1, 3, 16)
    torch.testing.assert_close(out[0, 2] - out[0, 0], sinusoidal(3, 16)[2] - sinusoidal(3, 16)[0])


@pytest.mark.row("3.4")
def test_source_2_heads_are_split_and_combined() -> None:
    """Row: split_heads and combine_heads undo each other; head h has features h·d_head … of each token."""
    m, x = MultiHeadAttention(12, 3), torch.randn(2, 5, 12)
    heads = m._split_heads(x)
    assert heads.shape == (2, 3, 5, 4)
    assert torch.equal(heads[:, 1], x[:, :, 4:8])
    assert torch.equal(m._combine_heads(heads), x)


@pytest.mark.row("2.3", "3.4")
def test_source_2_what_the_last_linear_layer_is_for() -> None:
    """Row: without W^O a head's values could only reach that head's own features."""
    m, x = MultiHeadAttention(8, 2, bias=False), torch.randn(1, 5, 8)
    before = m(x)
    with torch.no_grad():
        m.v_proj.weight[:4] += 1  # the first head's values
    assert ((m(x) - before).abs() > 1e-6).any(dim=1).all()
    with torch.no_grad():
        m.o_proj.weight.copy_(torch.eye(8))
        before = m(x)
        m.v_proj.weight[:4] += 1
    changed = ((m(x) - before).abs() > 1e-6).any(dim=1)[0]
    assert changed.tolist() == [True] * 4 + [False] * 4


@pytest.mark.row("2.3")
def test_source_2_attention_is_not_a_dense_layer() -> None:
    """Row: what Q, K and V are for, against a dense layer: the mixing depends on the text, at any length."""
    m, x, y = MultiHeadAttention(8, 2, bias=False), torch.randn(1, 5, 8), torch.randn(1, 5, 8)
    assert not torch.allclose(m(x) + m(y), m(x + y), atol=1e-3)  # a dense layer over positions is linear
    assert m(torch.randn(1, 9, 8)).shape == (1, 9, 8)


@pytest.mark.row("2.4")
def test_source_2_its_model() -> None:
    """Row: block d 128, 8 heads, d_ff 2048, dropout .1; mean pooling; one logit; Adam 1e-4, batch 16, 10 epochs."""
    config = load_recipe("imdb-tutorial")
    model, text, train = config.model, config.text, config.train
    assert (model.n_layers, model.d_model, model.n_heads, model.d_ff, model.dropout) == (1, 128, 8, 2048, 0.1)
    assert (model.pooling, model.positions, model.pre_norm) == ("mean", "sinusoidal", False)
    assert (text.tokenizer, text.vocab_size, text.max_len, text.truncate) == ("word", 20_000, 200, "head")
    assert (train.optimizer, train.lr, train.batch_size, train.epochs) == ("adam", 1e-4, 16, 10)
    assert config.data.use_test_as_validation
    classifier = TextClassifier(model, text.vocab_size, 2, text.max_len)
    assert classifier.head.out_features == 1
    logits, labels = classifier(torch.randint(20_000, (4, 9))), torch.tensor([0, 1, 1, 0])
    bce = F.binary_cross_entropy_with_logits(logits[:, 1], labels.float())
    torch.testing.assert_close(F.cross_entropy(logits, labels), bce)


@pytest.mark.row("2a")
def test_source_2_error_padding_is_neither_attended_to_nor_pooled() -> None:
    """Wrong there: padding is attended to and pooled."""
    config = ModelConfig(n_layers=2, d_model=16, n_heads=4, dropout=0.0)
    model, text = TextClassifier(config, 20, 3, 12), torch.tensor([[5, 6, 7]])
    padded = torch.tensor([[5, 6, 7, PAD, PAD, PAD]])
    real = padded != PAD
    torch.testing.assert_close(model(padded, real), model(text), atol=1e-6, rtol=1e-5)
    assert not torch.allclose(model(padded), model(text), atol=1e-3)


@pytest.mark.row("2c")
def test_source_2_error_learned_and_sinusoidal_positions_are_said_apart() -> None:
    """Wrong there: the prose shows learned positions beside code with sinusoidal ones. Here a field says which."""
    for positions, trained in (("sinusoidal", False), ("learned", True)):
        model = TextClassifier(ModelConfig(n_layers=1, positions=positions), 20, 2, 12)
        assert any("positions" in name for name, _ in model.named_parameters()) == trained


# 3. Transformers explained


@pytest.mark.row("3.2")
def test_source_3_queries_and_keys_as_retrieval() -> None:
    """Row: query/key/value as retrieval: a query that matches one key sharply returns that key's value."""
    keys, values = F.normalize(torch.randn(1, 1, 6, 16), dim=-1), torch.randn(1, 1, 6, 4)
    found, _ = attention(keys[:, :, [4]], keys, values, scale=100.0)
    torch.testing.assert_close(found, values[:, :, [4]], atol=1e-4, rtol=0)


@pytest.mark.row("3.5", "3.7")
def test_source_3_the_papers_model() -> None:
    """Row: encoder of six, decoder of six, 512 wide, 8 heads of 64, feed-forward of 2048 (×4), a W^O."""
    with torch.device("meta"):
        model = Translator(BASE, 37_000, 1024)
    assert BASE.d_ff == 4 * BASE.d_model == 2048
    assert (len(model.encoder.layers), len(model.decoder.layers)) == (6, 6)
    m = model.decoder.layers[5].cross_attention
    assert (m.n_heads, m.d_head, m.o_proj.in_features, m.o_proj.out_features) == (8, 64, 512, 512)


@pytest.mark.row("3.7")
def test_source_3_greedy_chooses_the_most_probable_word() -> None:
    """Row: translation by greedy choice of the most probable word."""
    model, source = translator(), [5, 6, 7, EOS]
    written: list[int] = []
    while len(written) < 10 and (not written or written[-1] != EOS):
        logits = model(torch.tensor([source]), torch.tensor([[BOS, *written]]))[0, -1]
        logits[[BOS, PAD]] = -math.inf
        written.append(int(logits.argmax()))
    config = DecodeConfig(beam_size=1, max_new_tokens=10)
    best = translate_ids(model, [source], config, (PAD, BOS, EOS))[0][0]
    assert best.ids == [token for token in written if token != EOS]


@pytest.mark.row("3a")
def test_source_3_error_the_activation_is_applied() -> None:
    """Wrong there: `nn.ReLU` passed as a class. This was said to compute nothing; torch refuses it, as we do."""
    with pytest.raises(TypeError, match="ReLU"):
        nn.Sequential(nn.Linear(4, 8), nn.ReLU, nn.Linear(8, 4))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no activation"):
        activate(nn.ReLU, torch.zeros(1))
    block = FeedForward(4, 8)
    with torch.no_grad():
        block.up_proj.bias.fill_(-1e6)  # everything below zero: ReLU lets nothing through
    torch.testing.assert_close(block(torch.randn(3, 4)), block.down_proj.bias.expand(3, 4))


@pytest.mark.row("3.2")
def test_source_3_scaling_keeps_scores_of_unit_size() -> None:
    """Why the scale: a dot product of d_k independent numbers varies with √d_k."""
    for e in (4, 64, 512):
        q, k, seen = torch.randn(1, 1, 200, e), torch.randn(1, 1, 200, e), Seen()
        attention(q, k, k, tap=seen)
        assert seen["scores"].std().item() == pytest.approx(1.0, abs=0.1)


@pytest.mark.row("3.3", "3d")
def test_source_3_error_layer_norm_is_per_token_over_features() -> None:
    """Wrong there: layer norm over "channels and spatial dims". No other token or text takes part."""
    x = torch.randn(2, 3, 8) * torch.tensor([1.0, 10.0, 100.0])[None, :, None] + 5
    out = LayerNorm(8)(x)
    torch.testing.assert_close(out.mean(-1), torch.zeros(2, 3), atol=1e-5, rtol=0)
    torch.testing.assert_close(out.std(-1, unbiased=False), torch.ones(2, 3), atol=1e-3, rtol=0)
    torch.testing.assert_close(LayerNorm(8)(x[1:, 1:2]), out[1:, 1:2])


# 4. The self-attention notebook


@pytest.mark.row("4.1")
def test_source_4_with_printed_numbers() -> None:
    """Row: the same attention with numbers: x, its transpose, raw weights, softmax, output."""
    x = torch.tensor([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    raw = [[1.0, 0.0, 1.0], [0.0, 4.0, 2.0], [1.0, 2.0, 2.0]]
    weights = [[math.exp(w) / sum(map(math.exp, row)) for w in row] for row in raw]
    output = [[row[0] + row[2], 2 * row[1] + row[2]] for row in weights]
    seen, x4 = Seen(), x[None, None]
    attention(x4, x4, x4, scale=1.0, tap=seen)
    for name, expected in (("scores", raw), ("weights", weights), ("context", output)):
        torch.testing.assert_close(seen[name][0, 0], torch.tensor(expected))


@pytest.mark.row("1.2", "3c", "4.2", "4a")
@pytest.mark.parametrize("d_head", [None, 8], ids=["narrow", "wide"])
@pytest.mark.parametrize("n_heads", [1, 2, 8])
def test_source_4_error_heads_of_any_number_and_width(n_heads: int, d_head: int | None) -> None:
    """Row: keys, queries, values without bias, heads folded into the batch, scaled, softmax, mixed, unified; wide
    heads, each of the full width. Wrong there: they cannot run with more than one head, and are larger than d_model.
    """
    m, x, e = MultiHeadAttention(8, n_heads, d_head=d_head, bias=False), torch.randn(2, 5, 8), d_head or 8 // n_heads
    assert m.d_head == e and m.q_proj.weight.shape == (e * n_heads, 8)
    q, k, v = (p(x).view(2, 5, n_heads, e).transpose(1, 2) for p in (m.q_proj, m.k_proj, m.v_proj))
    heads = (q @ k.mT / math.sqrt(e)).softmax(-1) @ v
    torch.testing.assert_close(m(x), m.o_proj(torch.cat(heads.unbind(1), dim=-1)))


@pytest.mark.row("1a", "3b", "4b")
@pytest.mark.parametrize("n_words", [1, 50])
@pytest.mark.parametrize(("d_head", "right"), [(8, True), (2, False)], ids=["wide", "narrow"])
def test_source_4_error_the_scale_is_of_a_head(d_head: int, right: bool, n_words: int) -> None:
    """Wrong there: scores are divided by √k, k the width of the embedding, or by the number of words. In its own wide
    heads a head is k wide, so there √k is the scale of a head.
    """
    m, x, seen = MultiHeadAttention(8, 4, d_head), torch.randn(1, n_words, 8), Seen()
    with report_to(seen.listen):
        m(x)
    torch.testing.assert_close(seen["scores"], seen["products"] / math.sqrt(d_head))
    assert torch.allclose(seen["scores"], seen["products"] / math.sqrt(8)) == right


@pytest.mark.row("4.4", "4c")
@pytest.mark.parametrize("depth", [1, 3])
def test_source_4_classifier(depth: int) -> None:
    """Row: learned positions, depth, mean pooling, log-probabilities. Wrong there: it does not even parse."""
    config = ModelConfig(n_layers=depth, d_model=16, n_heads=2, positions="learned", pooling="mean", dropout=0.0)
    model = TextClassifier(config, 30, 4, 12)
    assert len(model.encoder.layers) == depth
    log_p = model(torch.randint(30, (3, 7))).log_softmax(dim=1)
    torch.testing.assert_close(log_p.exp().sum(1), torch.ones(3))


# 5. Transformer: Concept and code from scratch


@pytest.mark.row("5.1")
def test_source_5_encode_decode_generate() -> None:
    """Row: encoder–decoder: encode, decode, a generator with log-softmax (logits here, always)."""
    model, src, tgt = translator(), torch.randint(20, (2, 5)), torch.randint(20, (2, 4))
    memory = model.encode(src)
    assert memory.shape == (2, 5, 16)
    logits = model.decode(tgt, memory)
    assert torch.equal(logits, model(src, tgt))
    torch.testing.assert_close(logits.log_softmax(-1).exp().sum(-1), torch.ones(2, 4))


@pytest.mark.row("5.2")
def test_source_5_why_pre_norm_trains_more_stably() -> None:
    """Row: post-norm against pre-norm: at the start of a deep post-norm stack the gradient that reaches the
    first layer has shrunk beside the last layer's; in a pre-norm stack it has not (Xiong et al. 2020).
    """
    shares = {True: 1.0, False: 1.0}
    for seed, pre_norm in itertools.product(range(5), (True, False)):
        torch.manual_seed(seed)
        config = ModelConfig(n_layers=12, d_model=32, n_heads=2, dropout=0.0, pre_norm=pre_norm)
        model = TextClassifier(config, 50, 3, 9)
        for module in model.modules():
            if isinstance(module, torch.nn.Linear):
                torch.nn.init.xavier_uniform_(module.weight)  # as the paper's authors, with no care for depth
        model(torch.randint(50, (64, 9))).log_softmax(-1)[:, 0].mean().backward()
        first, *_, last = (layer.feed_forward.up_proj.weight.grad.norm() for layer in model.encoder.layers)
        shares[pre_norm] *= (first / last).item() ** (1 / 5)
    assert shares[True] > 1 > shares[False]
    assert shares[True] > 2 * shares[False]


@pytest.mark.row("5.3")
def test_source_5_what_sinusoids_must_satisfy() -> None:
    """Row: bounded, a different vector each position, the same steps at any place, any length."""
    table = sinusoidal(500, 32)
    assert table.abs().max() <= 1
    assert torch.unique(table, dim=0).shape[0] == 500
    steps = (table[1:] - table[:-1]).norm(dim=-1)
    torch.testing.assert_close(steps, steps[:1].expand(499), atol=1e-4, rtol=0)
    torch.testing.assert_close(sinusoidal(1000, 32)[:500], table)


@pytest.mark.row("2.3", "5.4")
def test_source_5_attention_with_mask_returns_its_weights() -> None:
    """Row: attention with an optional mask and dropout, returning context and weights. Like the paper's, ours has no
    dropout on weights.
    """
    q, k, v = torch.randn(3, 1, 2, 6, 4).unbind()
    mask = causal_mask(6, 6)[None, None]
    context, weights = attention(q, k, v, mask)
    torch.testing.assert_close(weights.sum(dim=-1), torch.ones(1, 2, 6))
    assert weights.masked_select(~mask).count_nonzero() == 0
    torch.testing.assert_close(context, weights @ v)


@pytest.mark.row("5.5", "5b")
def test_source_5_look_ahead_mask_and_error_it_masks_query_by_query() -> None:
    """Row: look-ahead mask. Wrong there: said to mask "key-by-key"; each query has keys of its own that it may
    not see. Its triangles were called exchanged here: added to the scores, zero for the past (and itself) and −∞
    for the future is right, and means what our boolean triangle does.
    """
    seen = Seen()
    x = torch.randn(1, 1, 4, 8)
    attention(x, x, x, causal_mask(4, 4)[None, None], tap=seen)
    assert torch.equal(seen["weights"][0, 0] > 0, torch.ones(4, 4).tril().bool())
    assert torch.equal(causal_mask(4, 4), torch.ones(4, 4).tril().bool())
    added = torch.full((4, 4), -math.inf).triu(1)  # zero on and below the diagonal, −∞ above
    torch.testing.assert_close(seen["weights"], (seen["scores"] + added).softmax(-1))
    hidden_keys = (~causal_mask(4, 4)).sum(dim=1)
    assert hidden_keys.tolist() == [3, 2, 1, 0]  # of each query


@pytest.mark.row("3.6", "5.6")
def test_source_5_decoder_layer_has_three_sublayers() -> None:
    """Row: decoder layer with three sublayers, each in its residual, in the paper's order."""
    layer = translator(pre_norm=False).decoder.layers[0]
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    mask = Mask.of(causal=(4, 4))
    a = layer.self_residual.norm(x + layer.self_attention(x, mask=mask))
    b = layer.cross_residual.norm(a + layer.cross_attention(a, memory))
    c = layer.feed_forward_residual.norm(b + layer.feed_forward(b))
    torch.testing.assert_close(layer(x, mask, memory=memory), c)


@pytest.mark.row("5a")
def test_source_5_error_keys_and_values_come_from_the_encoder() -> None:
    """Wrong there: encoder outputs are called "queries and keys" of cross-attention; they are keys and values."""
    m = translator().decoder.layers[0].cross_attention
    inputs: dict[str, Tensor] = {}
    for name in ("q_proj", "k_proj", "v_proj"):
        m.get_submodule(name).register_forward_pre_hook(lambda _, args, name=name: inputs.update({name: args[0]}))
    x, memory = torch.randn(2, 4, 16), torch.randn(2, 5, 16)
    assert m(x, memory).shape == x.shape  # a position out for each query
    assert inputs["q_proj"] is x
    assert inputs["k_proj"] is memory
    assert inputs["v_proj"] is memory


@pytest.mark.row("5.7", "5c")
@pytest.mark.parametrize("beam_size", [1, 3])
@pytest.mark.parametrize("ends", [True, False])
def test_source_5_error_generation_stops_at_the_end_token_or_is_cut_and_says_so(beam_size: int, ends: bool) -> None:
    """Row: generation from a start token until an end token. Wrong there: "stops when it generates a token"."""
    model, follows = translator(), {BOS: 7, 7: 8, 8: 9, 9: EOS if ends else 7}

    def decode(tgt_in: Tensor, *args: object, **kwargs: object) -> Tensor:
        wanted = torch.tensor([[follows.get(token, 11) for token in row] for row in tgt_in.tolist()])
        return F.one_hot(wanted, 20).float() * 50

    model.decode = decode
    config = DecodeConfig(beam_size=beam_size, max_new_tokens=12)
    best = translate_ids(model, [[5, 6, EOS]], config, (PAD, BOS, EOS))[0][0]
    assert (best.ids, best.finished) == ([7, 8, 9] * (1 if ends else 4), ends)
