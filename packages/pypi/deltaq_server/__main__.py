"""`python -m deltaq_server serve` is `deltaq serve`."""

import os
import sys

from deltaq_server import find_deltaq

if __name__ == "__main__":
    program = find_deltaq()
    os.execv(program, ["deltaq", *sys.argv[1:]])
