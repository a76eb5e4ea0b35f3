"""The kinds of server, for those who must not wait for the deployment to be imported."""

from typing import Literal

ServerKind = Literal["triton", "embedded"]
"""What runs the engines of a deployment: Triton, or the program that uses them."""
