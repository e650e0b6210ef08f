"""`/v1/embeddings`: an encoder in a process of its own, its texts batched and replayed.

`facts` is what a folder says of its encoder, `embedder` goes from texts to vectors, `routes` is the
way in; `factory` is what the encoder's process serves, by `serve.callable`.
"""

from ostinato.serve.embeddings.embedder import Embedder, embedding_service
from ostinato.serve.embeddings.routes import routes

__all__ = ["Embedder", "embedding_service", "routes"]
