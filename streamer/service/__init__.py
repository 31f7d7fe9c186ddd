"""Events in, matches out, nothing lost: what `streamer serve` runs (docs/service.md).

```
sources/ ──► formats ──► the engine ──► messages ──► sinks/
    ▲                                                  │ held
    └───────────── acknowledged ◄── store/ ◄───────────┘
```

- `protocols`: what a source and a sink are.
- `pipeline`: from read to acknowledge, on one screen.
- `serve`: a configuration, its signals and its reloads around a pipeline.
- `store`: subscriptions, positions and dead letters.
"""
