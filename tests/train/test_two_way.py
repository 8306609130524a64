"""Training on pairs in both directions: what is read, that validation is not, and that one direction goes on from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.small import config_of, data_of, small_run

import glassformer
from glassformer.data.splits import Split
from glassformer.errors import UsageError
from glassformer.tasks import TASKS


def ids_of(corpus: Any) -> list[tuple[list[int], list[int]]]:
    """Each example's source, without its end token, and target."""
    return [(corpus.ids[i].tolist()[:-1], corpus.targets[i].tolist()) for i in range(len(corpus))]


def test_each_pair_is_followed_by_itself_the_other_way_round(tmp_path: Path) -> None:
    data = data_of("translate")
    one, both = (TASKS["translate"].fit(config_of("translate", two_way=on), data) for on in (False, True))
    pairs = ids_of(one.encode(data.train, training=True, cache=tmp_path))
    found = ids_of(both.encode(data.train, training=True, cache=tmp_path))  # the cache tells the two apart
    assert found[::2] == pairs
    assert found[1::2] == [(target, source) for source, target in pairs]
    valid = [ids_of(task.encode(data.valid, training=False, cache=tmp_path)) for task in (one, both)]
    assert valid[0] == valid[1]


def test_a_pair_that_is_left_out_is_left_out_both_ways() -> None:
    split = Split(["ab", "", "a" * 30, "ba"], ["ba", "ab", "b", "ab"], "pairs")
    data = replace(data_of("translate"), train=split)
    task = TASKS["translate"].fit(config_of("translate", two_way=True), data)
    corpus = task.encode(split, training=True)
    assert len(corpus) == 4
    assert (corpus.stats["n_empty"], corpus.stats["n_dropped"]) == (1, 1)


def test_pieces_vary_both_ways() -> None:
    config = config_of("translate", two_way=True, bpe_dropout=0.5)
    config = replace(config, text=replace(config.text, tokenizer="bpe", vocab_size=300))
    run = small_run(config, data_of("translate"))
    corpus, decode = run.context.train, run.context.task.tokenizer.decode
    of_epoch = run.context.task.varied(corpus)(1)
    usual, varied = ids_of(corpus), ids_of(of_epoch)
    assert varied != usual
    assert [[decode(side) for side in pair] for pair in varied] == [
        [decode(side) for side in pair] for pair in usual
    ]


def test_one_direction_goes_on_from_both(tmp_path: Path, capsys) -> None:
    """With weights that agree in every name and shape; and what is none of a task's business is refused."""
    lines = [f"{'abcdef'[i % 6]} {'uvwxyz'[i % 5]} {i}\n" for i in range(60)]
    (tmp_path / "s.txt").write_text("".join(lines), encoding="utf-8")
    (tmp_path / "t.txt").write_text("".join(line.upper() for line in lines), encoding="utf-8")
    files = {"src_file": tmp_path / "s.txt", "tgt_file": tmp_path / "t.txt"}
    back = {"src_file": tmp_path / "t.txt", "tgt_file": tmp_path / "s.txt"}
    small: dict[str, Any] = {"steps": 3, "device": "cpu", "precision": "fp32", "n_layers": 1, "d_model": 32}
    glassformer.train("translate", out=tmp_path / "both", two_way=True, **files, **small)
    assert "108 examples" in capsys.readouterr().err  # 54 pairs of 60 are trained on
    for name, given in (("there", files), ("back", back)):
        own = {"steps": 3, "device": "cpu", "precision": "fp32"}
        glassformer.train("translate", out=tmp_path / name, init_from=tmp_path / "both", **given, **own)
        said = capsys.readouterr().err
        assert "begins from" in said and "new:" not in said and "54 examples" in said, said
    with pytest.raises(UsageError, match="two_way"):
        glassformer.train("lm", out=tmp_path / "lm", train_file=tmp_path / "s.txt", two_way=True)
