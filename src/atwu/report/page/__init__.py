"""A report as one page that needs no network, no server and no second file."""

from __future__ import annotations

from atwu.report.page.write import render_page, write_page

__all__ = ["render_page", "write_page"]
