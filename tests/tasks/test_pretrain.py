"""Pretraining and beginning from it; and what is recorded of running text and translations."""

import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.helpers.for_each import for_each
from tests.helpers.reading import read, written
from tests.helpers.small import MODEL, config_of, small, small_run
from tests.helpers.small_runs import Killed, kill_at
from torch import Tensor, nn

import glassformer
from glassformer.config import TextConfig
from glassformer.config.recipes import override
from glassformer.data.splits import Split, TextData
from glassformer.errors import CheckpointError, UsageError
from glassformer.models import MaskedLanguageModel
from glassformer.nn.cross_entropy import IGNORE_INDEX
from glassformer.nn.ngram_embeddings import NgramBatch
from glassformer.runs.folder import RunFolder
from glassformer.runs.model_folder import load_checkpoint, step_folders
from glassformer.runs.records import Evaluation
from glassformer.tasks.lm import LEAST_CHARS, MOST_BLOCKS, by_block, nats_by_token, token_starts
from glassformer.tasks.pretrain import mask_tokens, without_previews
from glassformer.tasks.translate import REPORT
from glassformer.text.tokenizer import Tokenizer
from glassformer.training.finetune import PretrainedModel, check_compatible, copy_pretrained_weights, load_pretrained

MASK, SPECIAL = 4, range(5)
TINY: dict[str, Any] = {"max_tokens": 512, "lr": 3e-3, "device": "cpu", "precision": "fp32"}
TOPICS = [[f"{letter}{n}" for n in "abcdefghijklmnopqrst"] for letter in ("sun", "rain")]
"""Two times twenty words; those of one topic stand together."""


def texts(n: int, seed: int) -> tuple[list[str], list[str]]:
    """Six words of one topic each, and which topic."""
    rng = np.random.default_rng(seed)
    topics = rng.integers(0, 2, n)
    return [" ".join(rng.choice(TOPICS[t], 6)) for t in topics], [("dry", "wet")[t] for t in topics]


def table(path: Path, n: int, seed: int) -> Path:
    path.write_text(written([("text", "label"), *zip(*texts(n, seed), strict=True)]), encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pretrained model of the two topics."""
    folder = tmp_path_factory.mktemp("base")
    lines, _ = texts(1500, seed=0)
    (folder / "texts.txt").write_text("\n\n".join(lines), "utf-8")
    small = {"n_layers": 1, "d_model": 32, "n_heads": 2, "d_ff": 64, "ngrams": 0}
    glassformer.train("pretrain", out=folder / "run", train_file=folder / "texts.txt", steps=200, **small, **TINY)
    return folder / "run"


def tune(base: Path, place: Path, out: str, **more: Any) -> Path:
    """Fine-tune on eight texts a topic."""
    if not (place / "train.csv").exists():
        table(place / "train.csv", 16, seed=1)
        table(place / "valid.csv", 200, seed=2)
    files = {"train_file": place / "train.csv", "valid_file": place / "valid.csv"}
    given = {"init_from": base, "steps": 12, "snapshots": True, **files} | more
    named = {"batch_size": 8, "lr": 3e-3, "ensemble_size": 1, "dropout": 0.1, "embedding_dropout": 0.1}  # not by rule
    config: Any = {"device": "cpu", "precision": "fp32"} | named | given
    glassformer.train("classify", out=place / out, **config)
    return place / out


# What is hidden


def test_a_share_of_every_text_is_to_be_guessed_and_most_of_it_hidden():
    torch.manual_seed(0)
    ids = torch.randint(5, 1000, (200, 40))
    ids[:, 30:] = 0  # padding
    ids[:, 0] = 1  # unknown
    seen, _, labels = mask_tokens(ids, None, MASK, SPECIAL)
    guessed = labels != IGNORE_INDEX
    assert (guessed.sum(dim=1) == round(0.15 * 29)).all()
    assert torch.equal(labels[guessed], ids[guessed]) and torch.equal(seen[~guessed], ids[~guessed])
    assert not guessed[:, 30:].any() and not guessed[:, 0].any()
    hidden, kept = (seen == MASK)[guessed].float().mean(), (seen == ids)[guessed].float().mean()
    assert abs(hidden - 0.8) < 0.05 and abs(kept - 0.1) < 0.04
    assert torch.isin(seen[guessed & (seen != MASK)], ids[ids > MASK]).all()


def test_a_text_of_one_token_is_guessed_and_masking_follows_its_generator():
    assert (mask_tokens(torch.tensor([[7], [8]]), None, MASK, SPECIAL)[2] == torch.tensor([[7], [8]])).all()
    ids = torch.randint(5, 100, (8, 20))
    torch.manual_seed(3)
    before = torch.get_rng_state()
    first, again = (mask_tokens(ids, None, MASK, SPECIAL, torch.Generator().manual_seed(1)) for _ in range(2))
    assert torch.equal(first[0], again[0]) and torch.equal(first[2], again[2])
    assert torch.equal(before, torch.get_rng_state())
    assert not torch.equal(mask_tokens(ids, None, MASK, SPECIAL)[2], mask_tokens(ids, None, MASK, SPECIAL)[2])


def test_a_hidden_word_hides_its_spelling_and_an_exchanged_one_brings_its_own():
    torch.manual_seed(0)
    ids = torch.randint(5, 50, (64, 20))
    ngram_batch = NgramBatch(ids - 4, torch.arange(50)[:, None])  # each word is spelled by its own number
    seen, spelled, _ = mask_tokens(ids, ngram_batch, MASK, SPECIAL)
    assert spelled is not None
    assert torch.equal(spelled.index, (seen - 4).clamp(min=0))


def test_what_stands_before_a_hidden_character_does_not_spell_it():
    """In a script without spaces a token's n-grams hold the next two characters."""
    ahead = torch.tensor([False, True, False])
    ngram_batch = NgramBatch(torch.tensor([[1, 1, 1, 2, 1, 1]]), torch.tensor([[0], [1], [2]]))
    guessed = torch.tensor([[False, False, False, False, True, False]])
    assert without_previews(ngram_batch, ahead, guessed).index.tolist() == [[1, 1, 0, 2, 1, 1]]


# The model


@for_each("tied", [True, False])
def test_logits_of_what_is_wanted_are_those_of_all(tied):
    torch.manual_seed(0)
    model = MaskedLanguageModel(replace(MODEL, tie_embeddings=tied), 30, 12).eval()
    ids, wanted = torch.randint(5, 30, (3, 7)), torch.rand(3, 7) < 0.4
    real = torch.arange(7) < torch.tensor([[7], [4], [5]])
    whole = model(ids, real).view(3, 7, 30)
    torch.testing.assert_close(model(ids, real, None, wanted), whole[wanted])
    other = ids.masked_fill(~real, 0)
    torch.testing.assert_close(model(other, real).view(3, 7, 30)[real], whole[real])
    assert (model.output is None) == tied


# The task


def test_validation_hides_the_same_tokens_and_draws_nothing_from_training():
    run = small("pretrain")
    state, (task, context) = run.new_state(), (run.task, run.context)
    before = torch.get_rng_state()
    first, again = (task.validate(state.model, context.valid, context.data.valid) for _ in range(2))
    assert first == again and torch.equal(before, torch.get_rng_state())
    assert first["loss"] == pytest.approx(task.mean_loss(state.model, context.valid))
    index = run.batches()[0]
    assert not torch.equal(run.batch(index).labels, run.batch(index).labels)


def test_long_texts_are_read_whole_and_empty_ones_left_out():
    data = TextData(Split(["abcabc" * 9, "", "a"]), Split(["abc" * 3]))
    config = config_of("pretrain")
    run = small_run(replace(config, text=replace(config.text, max_len=24)), data)
    assert run.context.train.lengths.tolist() == [24, 24, 6, 1]
    assert run.context.train.stats["n_truncated"] == 0 and run.context.train.stats["n"] == 3


def test_ngrams_go_the_whole_way():
    lines, _ = texts(80, seed=0)
    data = TextData(Split(lines[:60]), Split(lines[60:]))
    text = TextConfig(tokenizer="word", vocab_size=30, max_len=24, ngrams=40)
    run = small_run(replace(config_of("pretrain"), text=text), data)
    state = run.new_state()
    ngrams = dict(state.model.named_parameters())["ngrams.weight"].detach().clone()
    run.run(state, most=3)
    assert not torch.equal(ngrams, dict(state.model.named_parameters())["ngrams.weight"])
    (answer,) = run.task.predict(state.model, ["suna [MASK] raina"], run.config.decode)
    assert len(answer["guesses"]) == 1 and "[MASK]" not in answer["filled"]
    assert run.task.evaluate(state.model, data.valid, run.config.decode)["n"] > 0
    assert run.task.predict(state.model, ["a [MASK]"], run.config.decode)[0]["guesses"]


def test_masks_in_a_text_are_filled_in(base, capsys):
    run = glassformer.load(base)
    text = "suna sunb [MASK] sunc [MASK] sund"
    answer = run.predict(text, top_k=3)
    assert [len(guesses) for guesses in answer["guesses"]] == [3, 3]
    assert all(guess["token"].startswith("sun") for guesses in answer["guesses"] for guess in guesses)
    first = [guesses[0]["token"] for guesses in answer["guesses"]]
    assert answer["filled"] == f"suna sunb {first[0]} sunc {first[1]} sund"
    longer = run.predict("rainb " * 300 + "[MASK]")  # longer than the model reads at a time
    assert longer["guesses"][0][0]["token"].startswith("rain")
    assert run.predict(["", "suna"]) == [{"text": t, "filled": t, "guesses": []} for t in ("", "suna")]
    assert "hold no [MASK]" in capsys.readouterr().err
    assert run.explain(text).answer["headline"] == answer["filled"]
    assert run.evaluate("valid")["nats_per_masked_token"] < np.log(40) - 0.4  # the topic is worth log 2
    report = (base / "report.md").read_text("utf-8")
    assert "A masked language model" in report and "Nats per masked token" in report


@for_each(
    ("name", "content"),
    [
        ("a.csv", "id,review,stars\n1,so good,5\n2,so bad,1\n3,so so,3\n"),
        ("a.csv", "what people said\nso good\nso bad\nso so\n"),
        ("a.jsonl", '{"id": "1", "text": "so good"}\n{"text": "so bad", "id": "2"}\n{"id": "3", "text": "so so"}\n'),
        ("a.txt", "so good\n\nso bad\r\n   \nso so"),
    ],
)
def test_texts_alone_are_read_from_anything(tmp_path, name, content):
    found = read(tmp_path, content, name, "pretrain")
    assert {text for text, _ in found.examples} - {"what people said"} == {"so good", "so bad", "so so"}


# Beginning from it


def weights_of(folder: Path) -> dict[str, Tensor]:
    return load_pretrained(str(folder)).weights


def test_an_ensemble_begins_with_the_weights_of_its_base(base, tmp_path, capsys):
    run = tune(base, tmp_path, "run", ensemble_size=2, dropout=0.3, pooling="max", max_len=300)
    printed = capsys.readouterr().err
    assert f"taken from {base}: model.d_model 32" in printed
    assert f"initialised from {base}: " in printed and "new: members.0.head.weight, members.0.head.bias" in printed
    step, path = next(iter(step_folders(RunFolder(run).snapshots).items()))
    start, before = load_checkpoint(path)[0], weights_of(base)
    assert step == 0 and not torch.equal(start["members.0.head.weight"], start["members.1.head.weight"])
    for member in ("members.0.", "members.1."):
        own = {name.removeprefix(member): tensor for name, tensor in start.items() if name.startswith(member)}
        assert own.keys() - before.keys() == {"head.weight", "head.bias"}
        assert all(torch.equal(own[name], before[name]) for name in own.keys() & before.keys())
    assert (run / "tokenizer.json").read_bytes() == (base / "tokenizer.json").read_bytes()
    config, facts = RunFolder(run).read_config(), RunFolder(run).read_data().base
    assert (config.model.dropout, config.model.pooling, config.text.max_len) == (0.3, "max", 300)
    assert (config.model.d_model, config.train.init_from) == (32, str(base))
    assert config.text.bigrams == len(RunFolder(run).read_tokenizer().bigrams) == 0  # of the base, and by no rule
    assert facts == {"path": str(base), "sha256": load_pretrained(str(base)).sha256}
    assert "fine-tuned with Glassformer from the weights of" in (run / "report.md").read_text("utf-8")


def test_a_run_needs_its_base_until_there_is_a_checkpoint_and_then_only_the_same(base, tmp_path):
    away = tmp_path / "away"
    shutil.copytree(base, away)
    whole = tune(away, tmp_path, "whole", save_every=4)
    expected = weights_of(whole)

    for name, at in (("cut", 6), ("begun", 1), ("changed", 1)):
        with pytest.raises(Killed):
            tune(away, tmp_path, name, save_every=4, on_step=kill_at(at))
        if at == 1:
            shutil.rmtree(tmp_path / name / "checkpoints" / "step-00000000")  # as where the disk was full
    glassformer.resume(tmp_path / "begun")
    shutil.rmtree(away)
    assert glassformer.load(whole).predict("suna sunb")["label"] in ("dry", "wet")
    glassformer.resume(tmp_path / "cut")
    for found in (weights_of(tmp_path / name) for name in ("begun", "cut")):
        assert all(torch.equal(found[name], expected[name]) for name in expected)
    with pytest.raises(CheckpointError, match="holds no trained model"):
        glassformer.resume(tmp_path / "changed")
    shutil.copytree(whole, away)
    with pytest.raises(CheckpointError, match="have changed since"):
        glassformer.resume(tmp_path / "changed")


@for_each(
    ("section", "name", "value", "needed"),
    [
        ("model", "d_model", 64, "32"),
        ("model", "n_layers", 2, "1"),
        ("model", "n_heads", 4, "2"),
        ("model", "activation", "gelu", "relu"),
        ("model", "positions", "learned", "sinusoidal"),
        ("text", "tokenizer", "char", "word"),
        ("text", "vocab_size", 30, "20000"),
        ("text", "ngrams", 100, "0"),
    ],
)
def test_what_does_not_fit_is_named_by_its_setting(section, name, value, needed, base):
    known = load_pretrained(str(base))
    config = known.task.config
    changed = {section: replace(getattr(config, section), **{name: value})}
    with pytest.raises(UsageError, match=rf"{section}\.{name} must be {needed}, as in .*; got {value}"):
        check_compatible(replace(config, task="classify", **changed), known)


def test_flags_are_laid_over_what_is_taken_over(base, tmp_path, cli):
    words = ["train", "classify", "--train-file", table(tmp_path / "train.csv", 16, seed=1), "--dry-run", "--init-from"]
    assert "taken from" in cli(*words, base, "--model.dropout", "0.4").ok.err
    cli(*words, base, "--model.d-model", "64").refused("model.d_model must be 32, as in", "remove the setting")
    cli(*words, tmp_path).refused("holds no trained model", code=CheckpointError.exit_code)


def test_learned_positions_bind_the_longest_text(base):
    plain = load_pretrained(str(base))
    longer = override(plain.task.config, {"max_len": 300})
    check_compatible(longer, plain)
    learned = {"positions": "learned"}
    of_learned = replace(plain, task=plain.task.with_config(override(plain.task.config, learned)))
    with pytest.raises(UsageError, match=r"text\.max_len must be"):
        check_compatible(override(longer, learned), of_learned)


def test_a_model_that_shares_nothing_is_told():
    other = PretrainedModel("runs/other", small("lm").task, {"bias": torch.zeros(3)}, "")
    with pytest.raises(UsageError, match="runs/other, a run of the task lm, shares no weights"):
        copy_pretrained_weights(nn.Linear(2, 2), other)


def test_a_translator_keeps_its_encoder(base, tmp_path, capsys):
    path = tmp_path / "s.txt"
    path.write_text("".join(f"suna sunb {i}\n" for i in range(50)), "utf-8")
    files = dict.fromkeys(("src_file", "tgt_file", "valid_src_file", "valid_tgt_file"), path)
    glassformer.train("translate", out=tmp_path / "run", init_from=base, steps=2, limit=20, **files, **TINY)
    printed = capsys.readouterr().err
    assert "initialised from" in printed and "new: tgt_embedding.weight, decoder." in printed


@for_each("tokens", [[1, 1, 1], [0, 2, 3], [4]])
def test_of_special_tokens_alone_nothing_is_masked(tokens):
    ids = torch.tensor([tokens, tokens])
    seen, _, labels = mask_tokens(ids, None, MASK, SPECIAL)
    assert torch.equal(seen, ids) and bool((labels == IGNORE_INDEX).all())
    run = small("pretrain", n=12)
    state, batch = run.new_state(), run.batch(run.batches()[0])
    batch = replace(batch, ids=torch.full_like(batch.ids, 1), labels=torch.full_like(batch.labels, -100), n_labels=0)
    loss, norm = run.update(state, [batch], 1e-3)
    assert loss == 0 and norm == 0


# What is recorded of running text and translations: nats by block, tokenizers that lose text, how it was decoded


TEXT = "To be, or not to be: that is the question.\nWhether ’tis nobler — 诗 — in the mind to suffer.\n" * 40


def test_the_nats_of_tokens_are_those_of_the_loss():
    run = small("lm")
    torch.manual_seed(0)
    model = run.task.build_model()
    nats = nats_by_token(run.task, model, run.context.train)
    mean = run.task.mean_loss(model, run.context.train)
    assert nats.sum() == pytest.approx(mean * (len(nats) - 1), rel=1e-5)
    assert len(nats) == len(run.context.train.ids.flat)
    assert nats[0] == 0 and (nats[1:] > 0).all()


@for_each("kind", ["char", "word", "byte-bpe", "bpe"])
def test_every_token_starts_where_its_text_does(kind):
    tokenizer = Tokenizer.train([TEXT], TextConfig(tokenizer=kind, vocab_size=400))  # pyright: ignore[reportArgumentType]
    documents = [TEXT, "to be", TEXT[:300]]
    starts = token_starts(tokenizer, documents)
    ids = [tokenizer.encode(document) for document in documents]
    assert len(starts) == sum(map(len, ids)) + 2
    assert (np.diff(starts) >= 0).all() and starts[-1] < sum(map(len, documents))
    tokenizer.eos_id = -1  # as where an imported tokenizer has no end token
    assert len(token_starts(tokenizer, documents)) == sum(map(len, ids))
    if kind == "char":
        assert starts[: len(TEXT)].tolist() == list(range(len(TEXT)))


def test_blocks_hold_all_nats_and_all_characters():
    rng = np.random.default_rng(0)
    for n_chars in (3, LEAST_CHARS, LEAST_CHARS + 1, 12_345, 400_000):
        nats = rng.uniform(0, 3, n_chars)
        rows = by_block(nats, np.arange(n_chars), n_chars)
        assert sum(row["chars"] for row in rows) == n_chars and len(rows) <= MOST_BLOCKS
        assert sum(row["nats"] for row in rows) == pytest.approx(nats.sum(), abs=1e-4 * len(rows))
        assert [row["block"] for row in rows] == list(range(len(rows)))


LOSSY = "The cat sat.\nA dog ran on and on.  The End " * 40
LOSES = {
    "word": (TextConfig(tokenizer="word", vocab_size=300, max_len=24), "unknown tokens (1 here)"),
    "lower case": (TextConfig(tokenizer="char", lowercase=True, max_len=24), "unknown tokens (0 here)"),
    "unknown": (TextConfig(tokenizer="char", max_len=24), "unknown tokens (2 here)"),
}


@for_each("name", [*LOSES, "nothing"])
def test_bits_per_character_are_headlined_only_where_they_compare(name):
    text, message = LOSES.get(name, (TextConfig(tokenizer="byte-bpe", vocab_size=300, max_len=24), ""))
    config = config_of("lm")
    parts = [Split([LOSSY]), Split([LOSSY[:200]]), Split([LOSSY[:200] + ("ßß" if name == "unknown" else "")])]
    run = small_run(type(config)(task="lm", text=text, model=config.model, train=config.train), TextData(*parts))
    torch.manual_seed(0)
    scores = run.task.evaluate(run.task.build_model().eval(), parts[2], config.decode)
    blocks = scores["predictions"]
    assert scores["bits_per_char"] > 0 and sum(row["chars"] for row in blocks) == len(parts[2].text[0])
    assert sum(row["nats"] for row in blocks) == pytest.approx(scores["nats"], rel=1e-5)
    if message:
        assert scores["headline"] == "nats_per_token"
        assert message in scores["notes"][0] and "do not compare" in scores["notes"][0]
    else:
        assert "headline" not in scores and "notes" not in scores


@for_each(("changes", "sentence"), [({"beam_size": 3}, "Decoding: beam 3."), ({"sample": True}, "Decoding: sampling.")])
def test_an_evaluation_records_its_decoding(changes, sentence, caplog):
    run = small("translate", n=12)
    decode = replace(run.config.decode, max_new_tokens=4, **changes)
    caplog.set_level("INFO")
    scores = run.task.evaluate(run.new_state().eval_model, run.context.data.valid, decode)
    assert scores["decode"] == asdict(decode) and "n_truncated" in scores and "truncated" not in scores
    [details] = REPORT.details(Evaluation("translate", "test", scores))
    assert sentence in details and "validations are greedy" in caplog.text


def test_a_pair_of_which_both_sides_are_cut_is_one_that_is_cut():
    made = small("translate")
    long = " ".join("abcdefgh" * made.config.text.max_len)
    corpus = made.task.encode(Split([long, "a b", "a"], [long, "a b", long], "x"), training=False)
    assert corpus.stats["n_truncated"] == 2 and corpus.stats["n"] == 3
