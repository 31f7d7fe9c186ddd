"""The HTTP API of a service (docs/api.md): subscriptions, trial matches, and the state of the service.

```
connections.py   bytes to requests, with a deadline for each part, and a bound on their number
app.py           authentication, authorization, quotas: then a handler, in a thread of a pool
routes.py        the table of routes: paths, methods, scopes, parameters ──► openapi.py, the document
handlers.py      the handler of each route
streams.py       server-sent events: matches of gateways without a URL
problems.py      responses to requests that cannot be done (RFC 9457)
tokens.py        tokens and their rights
server.py        a socket, TLS, and a thread around them
```

starlette and uvicorn are imported when the API is served: the extra `service`.
"""
