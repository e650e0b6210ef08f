"""What touches the watched program: each collector records one kind of evidence.

A collector is started, stopped, and then asked for the fields of `Evidence` that it can fill.
None of them judges, and none may change what the program computes or raise into it.
"""
