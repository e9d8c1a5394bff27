"""Options shared by all Python tests: the long ones run only when BATON_LONG is set."""
import os

import pytest


def pytest_configure(config):
    config.addinivalue_line("markers", "long: takes minutes; runs with tools/test --long")


def pytest_collection_modifyitems(items):
    if os.environ.get("BATON_LONG"):
        return
    for item in items:
        if "long" in item.keywords:
            item.add_marker(pytest.mark.skip(reason="a long run: tools/test --long"))
