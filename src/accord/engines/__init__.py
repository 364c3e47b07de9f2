"""Engines: ways to run the same cohort. `sequential` is the readable reference."""
