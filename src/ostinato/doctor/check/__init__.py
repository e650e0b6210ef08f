"""Prove without a GPU whether a call can be captured as a CUDA graph.

`run.check` runs the call on pretended tensors under the observers of the runtime; `verdict.Checked`
is what it says, and `render.as_text` prints that. Import those modules: this package imports
nothing by itself, so that naming it costs no torch.
"""
