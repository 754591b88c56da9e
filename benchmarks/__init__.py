"""Measurements of this library, each beside the alternatives, each stored with what it was measured on."""
