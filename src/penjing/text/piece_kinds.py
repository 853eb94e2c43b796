"""What a piece of a vocabulary is, as numbered by SentencePiece's ModelProto and, after it, by GGUF."""

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
