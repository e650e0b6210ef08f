"""Recorders: CUDA graphs on a GPU, the tape on a CPU; `base.py` says what each promises."""
