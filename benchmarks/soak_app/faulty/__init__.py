"""A Flower app whose clients misbehave on schedule."""
