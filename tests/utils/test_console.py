from __future__ import annotations

import io
import json
import sys

import pytest

from glassformer.utils import console


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_messages_go_to_stderr_and_answers_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    console.say("one [PAD]")
    console.warn("two")
    console.fail("three", "four")
    console.write("five")
    captured = capsys.readouterr()
    assert captured.err == "one [PAD]\nwarning: two\nerror: three\nhint: four\n"
    assert captured.out == "five\n"


@pytest.mark.parametrize("no_color", [False, True])
def test_colour_is_for_terminals_that_want_it(no_color: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    console.fail("broken [b]")
    told = sys.stderr.getvalue()  # type: ignore[attr-defined]
    assert "broken [b]" in told
    assert ("\x1b[1;31m" in told) == (not no_color)


def test_a_dumb_or_missing_terminal_gets_plain_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal())
    monkeypatch.setenv("TERM", "dumb")
    console.warn("plain")
    assert sys.stderr.getvalue() == "warning: plain\n"  # type: ignore[attr-defined]
    monkeypatch.setattr(sys, "stderr", None)
    console.warn("nowhere to go")
    closed = io.StringIO()
    closed.close()
    assert not console.is_terminal(closed) and not console.is_terminal(None)


def test_tables_align_wide_and_combining_characters() -> None:
    table = console.plain_table(("a", "b"), [("日本", 1), ("e\u0301", 22)])
    assert table == "a     b\n----  --\n日本  1\ne\u0301     22"


def test_tables_are_drawn_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", Terminal())
    monkeypatch.setenv("TERM", "xterm")
    console.write_table(("score",), [("[red]1",)])
    told = sys.stdout.getvalue()  # type: ignore[attr-defined]
    assert "[red]1" in told and "━" in told


def test_json_has_no_nan(capsys: pytest.CaptureFixture[str]) -> None:
    console.write_json({"a": float("nan"), "b": [1.5, float("inf")], "c": {"ü": (1, True, None)}})
    out = capsys.readouterr().out
    assert out == '{"a": null, "b": [1.5, null], "c": {"ü": [1, true, null]}}\n'
    assert json.loads(out)["c"]["ü"] == [1, True, None]
