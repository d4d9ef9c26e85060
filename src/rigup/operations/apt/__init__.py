"""apt on hosts: packages, holds, repositories and their keys."""
