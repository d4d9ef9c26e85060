"""What reading says of a value of another kind or outside its range, wherever the value stands.

The modules that read `rig`, `services`, `gateway` and `monitoring` share these; their tests hold the rest of a message.
"""

from __future__ import annotations

KIND = "correct the type of the value"
RANGE = "choose a value in that range"
WHOLE = "must be a whole number"
NUMBER = "must be a number"
SWITCH = "must be True or False"
TABLE = "must be a table"
LIST, NAME_LIST = "must be a list", 'must be a list of names or text like "4x RTX 3090"'
ONE_OF = "must be one of"
NO_ADDRESS = "is not a host address"
ADDRESSES = 'use "127.0.0.1" for this host only, "0.0.0.0" for all networks, or one address of the host'
