"""Keys and values in pages: who holds each page, which content can be shared, where it lies.

`pages` counts holders, `prefix` knows pages by their content; both are arithmetic only. `store`
owns the tensors.
"""
