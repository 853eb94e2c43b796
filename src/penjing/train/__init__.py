"""Training: losses, and later the loop around them."""
