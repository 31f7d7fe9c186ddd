"""One YAML file and the environment → one frozen `Config` → an engine.

- `yaml`: YAML in bounded work, each value with its place.
- `units`: durations and sizes.
- `schema`: the sections and fields, their defaults and bounds.
- `loader`: file and environment put together; all that is wrong at once.
- `live`: what of a configuration may change while an engine runs.
- `show`: the configuration in force, the table of fields, the JSON Schema.
"""

from streamer.config.schema.config import Config

__all__ = ["Config"]
