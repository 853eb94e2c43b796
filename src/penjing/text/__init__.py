"""Text to ids and back: tokenizers, chat templates, documents, splits and passages."""
