"""How quantised weights lie in memory, and how floats come out of them again."""
