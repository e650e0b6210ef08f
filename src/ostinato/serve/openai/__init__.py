"""OpenAI's HTTP API: chat, completions, responses, models, tokenising, and errors in its shape."""
