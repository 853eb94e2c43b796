"""The tokenizer that belongs to a checkpoint."""

from typing import TYPE_CHECKING

from penjing.text.folder_tokenizer import tokenizer_from_folder
from penjing.text.gguf_tokenizer import tokenizer_from_gguf
from penjing.text.tokenizer import Tokenizer

if TYPE_CHECKING:  # it imports torch, which no tokenizer needs
    from penjing.formats.checkpoint import Checkpoint


def load_tokenizer(checkpoint: "Checkpoint") -> Tokenizer:
    """Open it; InputError or UnsupportedError says why it can't be."""
    if checkpoint.kind == "gguf":
        return tokenizer_from_gguf(checkpoint.config)
    return tokenizer_from_folder(checkpoint.path)
