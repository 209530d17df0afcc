"""What all tests share."""


def pytest_configure(config):
    "Tests go where releases are warned of; those that are about warnings look at them all the same."
    config.addinivalue_line("filterwarnings", "ignore::blockrr.ReleaseWarning")
