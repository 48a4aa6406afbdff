"""The deltaq server and its command line, as the program `deltaq`."""

import os
import sys
import sysconfig
from pathlib import Path

__all__ = ["find_deltaq"]


def find_deltaq() -> str:
    """The path of the program that this package has installed."""
    package = Path(__file__).resolve().parent
    folders = [
        sysconfig.get_path("scripts"),
        # pip install --user
        sysconfig.get_path("scripts", scheme=sysconfig.get_preferred_scheme("user")),
        # pip install --target FOLDER
        package.parent / "bin",
        # pip install --prefix FOLDER: FOLDER/lib/python3.x/site-packages/deltaq_server
        *(parent / "bin" for parent in package.parents[3:4]),
    ]
    for folder in folders:
        program = os.path.join(folder, "deltaq")
        if os.path.isfile(program):
            return program
    looked = ", ".join(map(str, folders))
    raise FileNotFoundError(f"the program deltaq is in none of these folders: {looked}. Install deltaq-server again: {sys.executable} -m pip install --force-reinstall deltaq-server")
