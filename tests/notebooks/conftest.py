"""The browser that opens the pages which notebooks save."""

from e2e.conftest import browser, playwright

__all__ = ["browser", "playwright"]
