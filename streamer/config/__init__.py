"""One YAML file and the environment → one frozen `Config` → an engine.

- `yaml`: YAML in bounded work, each value with its place.
- `units`: durations and sizes.
- `schema`: the sections and fields, their defaults and bounds.
- `loader`: combines file and environment; reports all faults at once.
- `live`: the settings that may change while an engine runs.
- `show`: the current configuration, the table of fields, the JSON Schema.
"""

from streamer.config.schema.config import Config

__all__ = ["Config"]
