"""Foundations that every other package may import: axes, errors, registries, optional extras."""
