"""From a file of settings to runs."""
