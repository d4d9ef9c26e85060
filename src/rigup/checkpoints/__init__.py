"""What a checkpoint is, read from the checkpoint itself: its tensors from the headers of its files, its configuration.

Nothing that a hub or a file says is trusted: every count, length and offset is checked before anything is made of it.
"""
