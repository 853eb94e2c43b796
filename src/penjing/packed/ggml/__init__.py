"""GGML's block formats: sizes, and how they are decoded."""
