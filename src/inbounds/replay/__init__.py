"""Replay buffers on the device, and batches mixed from several of them."""
