"""The agent over HTTP: `ctx1 serve`, or `application(agent)` in a server of your own. Needs the extra `serve`.

| module | content |
|---|---|
| `app` | the application: its endpoints, and what every request passes through |
| `service` | searches within limits: concurrency, queue, deadlines; the agent on an index that changes |
| `schema` | requests and answers as models, and the OpenAPI document |
| `responses` | JSON, errors, answers, pruned conversations, chat completions, server-sent events |
| `proxy` | the proxy before a model server, which prunes the conversations that pass it |
| `targets`, `headers` | the paths and the header fields that the proxy passes on |
| `origins` | the web pages that may call a server |
| `workers` | several processes behind one address, and the calls between them |
| `transport` | bounded connections, and the process that listens and drains |
| `observability` | logs as JSON lines, metrics for Prometheus |
"""
