"""The grids that weights are rounded to: what scales a layout can store, and which of them fit."""
