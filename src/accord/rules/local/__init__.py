"""What a client does on its own data."""
