"""Clients that harm (docs/robustness.md)."""
