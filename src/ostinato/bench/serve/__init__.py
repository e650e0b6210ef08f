"""A server under load, from outside: over HTTP, with streams, from processes of its own.

Closed loop (so many streams, each asking again at once) and open loop (requests at random, or as in
a trace, whether the server keeps up or not). What decides (`planning`, `replies`, `seen`,
`objective`, `rows`, `judging`) is pure; `client` is one process that sends, `clients` are all of
them, `server` is what is measured. A client process imports nothing that knows torch.
"""
