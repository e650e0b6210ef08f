"""The service: an OpenAI-compatible HTTP server in front of one engine.

    ostinato serve --model smollm2 --port 8000

`supervisor` starts one engine process and some front-end processes and keeps them running. A front
end (`front_process`) speaks HTTP: it checks, tokenises, asks the engine through a `link`, turns
tokens into text and streams it. The engine process (`engine_process`) holds the model and nothing
else. `app.build` joins the routes of all features over one frozen `services.Services`.
"""
