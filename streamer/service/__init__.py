"""Events in, matches out, without losses: the service behind `streamer serve` (docs/service.md).

```
connectors/*/source ──► formats ──► the engine ──► messages ──► connectors/*/sink
     ▲                                                             │ durable
     └──────────────── acknowledged ◄── store/ ◄───────────────────┘
                                          └──► the spool ──► endpoints
```

Each folder owns one subject, and imports only those after it:

- `run`: a configuration, its signals and its reloads around a pipeline.
- `console`, `api`: pages for a browser, and the HTTP API that they use.
- `tenants`: subscriptions, gateways, quotas.
- `delivery`: the pipeline, from read to acknowledge, and the spool: messages that wait for endpoints, which may be slow or down.
- `observed`: samples that a service keeps of itself.
- `store`: positions, subscriptions, the spool and dead letters.
- `connectors`: sources and sinks, one folder for each kind, and their protocols.
"""
