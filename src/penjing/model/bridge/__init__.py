"""Models of architectures without a family file, through the transformers library that is installed."""
