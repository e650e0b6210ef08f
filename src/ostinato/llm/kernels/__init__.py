"""Kernels in Triton, one idea a file; importing one needs triton, importing this package does not.

Each has an oracle in plain torch, and runs in Triton's interpreter where there is no GPU.
"""
