"""rigup fits out multi-GPU boxes: plan offline, provision over SSH, prove the service answers."""

__version__ = "0.1.0"
