# The module that python/make_abi.py writes when a wheel is built.
from typing import Any

ffi: Any
