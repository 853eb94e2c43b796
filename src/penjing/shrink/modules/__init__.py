"""Shrinking any `torch.nn.Module`: nothing is known of it but what a run shows."""
