"""The content of a configuration: the one tree of sections, each field with its unit, default and bounds.

```
Config ─┬─ matching ─┬─ bloom    phase 1
        │            ├─ cel      phase 2b
        │            └─ limits   limits of subscriptions and events
        ├─ subscriptions
        ├─ sources ─── NAME: a section by its `type` ─┐
        ├─ sinks ───── NAME: a section by its `type` ─┤
        ├─ routes      the sink of each gateway       ├─ the service
        ├─ delivery                                   │
        ├─ service                                    │
        ├─ api ───── tokens, tls, limits, quotas ─────┘
        ├─ metrics
        └─ logging
```

A section under a name that the user chose is one of several kinds; its `type` selects the kind.

The docstring of a field is its text in docs/configuration.md, in the JSON Schema and so in editors. The engine's own types
(`EventLayout`, `Limits`, `BloomOptions`) check its options, so the engine accepts any configuration that loads.
"""
