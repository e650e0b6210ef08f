"""The engine: continuous batching over a decode state that lives on the device.

A request (`request`) waits in the scheduler (`scheduler`), is granted pages of keys and values
(`kv`), is prefilled in chunks and then runs in a row of the resident state until it stops.
"""
