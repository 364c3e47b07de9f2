"""Runs as a page: one file that opens offline, or a server on this machine while they go on."""

from accord.report.data import gather, look
from accord.report.page import page

__all__ = ["gather", "look", "page"]
