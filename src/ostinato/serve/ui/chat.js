// The box to talk in: a conversation over /v1/chat/completions, streamed.

import { count, words } from "/ui/window.js";

const talk = document.getElementById("talk");
const form = document.getElementById("ask");
const field = document.getElementById("words");
const send = document.getElementById("send");
const stop = document.getElementById("stop");
const key = document.getElementById("key");
const pace = document.getElementById("pace");
const MOST_TOKENS = 256;

let said = [];
let abort = null;

export function start(model) {
  key.value = sessionStorage.getItem("ostinato-key") || "";
  key.addEventListener("change", () => sessionStorage.setItem("ostinato-key", key.value));
  form.addEventListener("submit", (event) => { event.preventDefault(); ask(model()); });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      form.requestSubmit();
    }
  });
  stop.addEventListener("click", () => abort && abort.abort());
  document.getElementById("clear").addEventListener("click", () => {
    if (abort) abort.abort();
    said = [];
    talk.replaceChildren();
    pace.textContent = "";
    field.focus();
  });
}

async function ask(model) {
  const text = field.value.trim();
  if (!text || abort) return;
  field.value = "";
  said.push({ role: "user", content: text });
  show("mine", text, "You said: ");
  const answer = show("theirs", "", "Answer: ");
  abort = new AbortController();
  busy(true);
  const began = performance.now();
  const heard = { text: "", tokens: 0, first: null };
  try {
    await listen(model, heard, answer, began);
    said.push({ role: "assistant", content: heard.text });
    if (!heard.text) answer.append("(no text)");
  } catch (error) {
    if (heard.text) said.push({ role: "assistant", content: heard.text }); else said.pop();
    const why = error.name === "AbortError" ? "stopped" : error.message;
    show("wrong", why, "");
  } finally {
    abort = null;
    busy(false);
    tell(heard, began);
    field.focus();
  }
}

async function listen(model, heard, answer, began) {
  const headers = { "content-type": "application/json" };
  if (key.value) headers.authorization = `Bearer ${key.value}`;
  const reply = await fetch("/v1/chat/completions", {
    method: "POST", headers, signal: abort.signal,
    body: JSON.stringify({
      model, messages: said, stream: true, max_tokens: MOST_TOKENS,
      stream_options: { include_usage: true },
    }),
  });
  if (!reply.ok) throw new Error(await problem(reply));
  for await (const event of events(reply.body)) {
    if (event.error) throw new Error(event.error.message);
    if (event.usage) heard.tokens = event.usage.completion_tokens;
    const piece = event.choices?.[0]?.delta?.content || "";
    if (!piece) continue;
    heard.first ??= performance.now() - began;
    heard.text += piece;
    answer.append(piece);
    talk.scrollTop = talk.scrollHeight;
  }
}

async function* events(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) {
      const data = part.replace(/^data: ?/, "");
      if (data === "[DONE]") return;
      if (part.startsWith("data:")) yield JSON.parse(data);
    }
  }
}

async function problem(reply) {
  const again = reply.headers.get("retry-after");
  const later = again ? ` (try again in ${again} s)` : "";
  try {
    return `${(await reply.json()).error.message}${later}`;
  } catch {
    return `the server answered ${reply.status}${later}`;
  }
}

function show(kind, text, spoken) {
  const line = document.createElement("p");
  line.className = kind;
  if (spoken) {
    const whose = document.createElement("span");
    whose.className = "hidden";
    whose.textContent = spoken;
    line.append(whose);
  }
  line.append(text);
  talk.append(line);
  talk.scrollTop = talk.scrollHeight;
  return line;
}

function busy(is) {
  send.hidden = is;
  stop.hidden = !is;
  talk.setAttribute("aria-busy", String(is));
}

function tell(heard, began) {
  if (heard.first === null) { pace.textContent = ""; return; }
  const whole = (performance.now() - began) / 1000;
  const rate = heard.tokens ? `, ${count(heard.tokens / whole)} tokens/s` : "";
  pace.textContent = `first token after ${words(heard.first / 1000)}${rate}`;
}
