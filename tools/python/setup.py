"""The wheel: infer/ and one extension that has libinfer.a in it, found by pkg-config, whose version is the wheel's."""
import subprocess
from setuptools import setup

setup(
    version=subprocess.run(["pkg-config", "--modversion", "infer"], check=True, capture_output=True, text=True).stdout.strip(),
    cffi_modules=["declarations.py:ffi"],
    options={"bdist_wheel": {"py_limited_api": "cp39"}},
)
