"""One small file a family: its config and names mapped onto the one decoder."""
