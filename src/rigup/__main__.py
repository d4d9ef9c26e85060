"""python -m rigup"""

import sys

from rigup.cli.main import main

sys.exit(main())
