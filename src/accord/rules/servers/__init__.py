"""What the server does with the averaged update."""
