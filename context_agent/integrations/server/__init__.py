"""The agent over HTTP: `ctx1 serve`, or `application(agent)` in a server of your own. Needs the extra `serve`.

| module | content |
|---|---|
| `app` | the application: paths, endpoints, and the OpenAPI document |
| `endpoints` | the function of each endpoint |
| `middleware` | the layer that every request passes: id, host, origin, token, log line, metrics |
| `schema` | requests and answers as models |
| `bodies` | bodies of requests, read within limits and validated |
| `body_room` | the bytes that the bodies of all requests may have together |
| `compressed_bodies` | bodies in gzip and other encodings, decoded within a limit |
| `errors` | the errors that a client gets |
| `answers`, `completions`, `streams` | the answer to a search: as JSON, as a chat completion, as events |
| `json_encoding` | JSON for clients |
| `pages`, `episodes` | the page at `/`, and the recorded episodes that it shows |
| `prune_requests` | pruning of a conversation that a client sent |
| `limited_service` | the base of every server, with its queue and its shutdown |
| `settings` | the limits of a server |
| `admission` | the queue that admits requests |
| `service` | the handling of a search |
| `live_index` | the agent on an index that changes |
| `disconnects` | work that ends when its client disconnects |
| `connections`, `process` | bounded connections, and the process that listens and drains |
| `supervisor`, `worker_calls` | several processes behind one address, and the calls between them |
| `health` | the answer to a health check |
| `logs`, `metrics` | logs as JSON lines, metrics for Prometheus |
| `origins` | the web pages that may call a server |
| `proxy` | the proxy before a model server, which prunes the conversations that pass it |
| `upstream` | the model server behind the proxy: its address, its connections and its answers |
| `request_targets`, `headers` | the paths and the header fields that the proxy passes on |
| `pruned_bodies`, `conversation_paths` | bodies with a pruned conversation, and the paths of model APIs that have one |
| `savings` | the tokens and the money that the proxy saved |
| `price_table` | the prices of models, for that money |
"""
