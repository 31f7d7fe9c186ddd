"""The HTTP API of a service (docs/api.md): subscriptions, questions, and what the service is doing.

```
connections.py   bytes to requests, with a deadline for each part, and a bound on how many there are
app.py           whose is it, may it be, how much: then a handler, in a thread of a pool
routes.py        the one table: paths, methods, scopes, parameters ──► openapi.py, the document
handlers.py      what each route does
streams.py       server-sent events: matches of gateways without a URL
problems.py      what is said where it cannot be done (RFC 9457)
tokens.py        who may do what
server.py        a socket, TLS, and a thread around them
```

starlette and uvicorn are imported when the API is served: the extra `service`.
"""
