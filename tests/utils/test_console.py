import io
import logging
import sys

import pytest

from glassformer.utils import console

logger = logging.getLogger("glassformer.training")


def test_log_messages_and_errors_go_to_stderr_and_results_to_stdout(capsys):
    logger.info("one [PAD]")
    logger.warning("two")
    logger.debug("not shown")
    console.write_error("three", "four")
    console.write("five")
    captured = capsys.readouterr()
    assert captured.err == "one [PAD]\nwarning: two\nerror: three\nhint: four\n"
    assert captured.out == "five\n"


@pytest.fixture
def package_logger(monkeypatch: pytest.MonkeyPatch) -> logging.Logger:
    """The logger "glassformer" as it is before anyone configured it, outside of every block that shows messages."""
    package = logging.getLogger("glassformer")
    for name, value in (("handlers", []), ("level", logging.NOTSET), ("propagate", True)):
        monkeypatch.setattr(package, name, value)
    monkeypatch.setattr(logging.root, "level", logging.root.level)
    logging.Logger.manager._clear_cache()  # pyright: ignore[reportAttributeAccessIssue] - of what each logger shows
    return package


@pytest.mark.parametrize("configure", ["", "handler", "level", "root"])
def test_log_to_stderr_leaves_configured_logging_alone_and_undoes_its_own(configure, package_logger, capsys):
    stream = io.StringIO()
    if configure == "handler":
        package_logger.addHandler(logging.StreamHandler(stream))
    elif configure:
        (package_logger if configure == "level" else logging.root).setLevel(logging.ERROR)
    before = package_logger.handlers[:], package_logger.level
    with console.log_to_stderr(), console.log_to_stderr():
        logger.warning("two")
        assert (package_logger.level == logging.INFO) == (configure == "")
    assert (package_logger.handlers, package_logger.level) == before
    assert capsys.readouterr().err == ("" if configure else "warning: two\n")
    assert stream.getvalue() == ("two\n" if configure == "handler" else "")


@pytest.mark.parametrize(
    ("variables", "colour"),
    [({"TERM": "xterm-256color"}, True), ({"TERM": "xterm", "NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=str,
)
def test_colour_is_for_terminals_that_want_it(variables, colour, monkeypatch):
    monkeypatch.setattr(sys, "stderr", terminal := io.StringIO())
    terminal.isatty = lambda: True
    for name in ("NO_COLOR", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    console.write_error("broken [b]")
    message = terminal.getvalue()
    assert "broken [b]" in message and ("\x1b[1;31m" in message) == colour
    monkeypatch.setattr(sys, "stderr", None)
    logger.warning("nowhere to go")
    closed = io.StringIO()
    closed.close()
    assert not console.is_terminal(closed) and not console.is_terminal(None)


def test_tables_align_wide_and_combining_characters():
    table = console.plain_table(("a", "b"), [("日本", 1), ("e\u0301", 22)])
    assert table == "a     b\n----  --\n日本  1\ne\u0301     22"
