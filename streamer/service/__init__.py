"""Events in, matches out, nothing lost: what `streamer serve` runs (docs/service.md).

```
sources/ ──► formats ──► the engine ──► messages ──► sinks/
    ▲                                                  │ held
    └───────────── acknowledged ◄── store/ ◄───────────┘
                                       └──► the spool ──► endpoints
```

- `protocols`: what a source and a sink are.
- `pipeline`: from read to acknowledge, on one screen.
- `spool`: what waits for endpoints that may be slow, or down.
- `serve`: a configuration, its signals and its reloads around a pipeline.
- `store`: subscriptions, positions, the spool and dead letters.
"""
