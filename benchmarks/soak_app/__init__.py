"""The Flower app of `soak.py`."""
