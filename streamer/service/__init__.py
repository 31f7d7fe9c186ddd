"""Events in, matches out, without losses: the service behind `streamer serve` (docs/service.md).

```
sources/ ──► formats ──► the engine ──► messages ──► sinks/
    ▲                                                  │ durable
    └───────────── acknowledged ◄── store/ ◄───────────┘
                                       └──► the spool ──► endpoints
```

- `protocols`: the protocols of sources and sinks.
- `pipeline`: from read to acknowledge, on one screen.
- `spool`: messages that wait for endpoints, which may be slow or down.
- `serve`: a configuration, its signals and its reloads around a pipeline.
- `store`: subscriptions, positions, the spool and dead letters.
"""
