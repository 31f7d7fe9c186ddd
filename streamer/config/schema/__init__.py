"""The content of a configuration: the one tree of sections, each field with its unit, default and bounds.

```
Config ─┬─ matching ─┬─ bloom    phase 1
        │            ├─ cel      phase 2b
        │            └─ limits   what subscriptions and events may cost
        ├─ subscriptions
        ├─ sources ─── NAME: what `type` makes of it ─┐
        ├─ sinks ───── NAME: what `type` makes of it ─┤
        ├─ routes      which sink gets what           ├─ the service
        ├─ delivery                                   │
        ├─ service                                    │
        ├─ api ───── tokens, tls, limits, quotas ─────┘
        ├─ metrics
        └─ logging
```

A section under a name that the user chose is one of several kinds; its `type` selects the kind. A kind is here once it exists.

The docstring of a field is its text in docs/configuration.md, in the JSON Schema and so in editors. What the engine checks
itself is checked by the engine's own types (`EventLayout`, `Limits`, `BloomOptions`): a configuration that loads is one that an
engine takes.
"""
