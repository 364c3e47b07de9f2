"""What a person sees in a terminal: progress and tables."""
