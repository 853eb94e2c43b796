"""The command line. Nothing here imports torch until a verb has read its options and needs it."""

from penjing.cli.app import main

__all__ = ["main"]
