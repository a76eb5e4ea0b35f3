"""Plays the part of torch that the container's check asks."""

import json
import os
from pathlib import Path


class cuda:
    @staticmethod
    def _wrong():
        file = Path(os.environ["TTS_STANDIN_STATE"]) / "misbehaviour.json"
        return json.loads(file.read_text()) if file.exists() else {}

    @classmethod
    def device_count(cls):
        return cls._wrong().get("visible", 4)

    @classmethod
    def get_device_capability(cls, device):
        return tuple(map(int, cls._wrong().get("inside_capability", "9.0").split(".")))

    @staticmethod
    def get_device_name(device):
        return "NVIDIA H100 80GB HBM3"
