"""The small run as a config file, for tests that start it by its command."""

from tests.small import config as get_config  # noqa: F401
