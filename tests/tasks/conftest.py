from tests.tasks.heads import load, runs_of  # noqa: F401 - fixtures
