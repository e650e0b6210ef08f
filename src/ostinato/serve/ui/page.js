// Asks for numbers every second while somebody looks, and shows them.

import { bars, heatMap, line } from "/ui/charts.js";
import { start } from "/ui/chat.js";
import { Window, bytes, count, percent, quantile, seconds, words } from "/ui/window.js";

const EVERY_MS = 1000;
const NOW_S = 10; // numbers in large type are those of the last ten seconds
const BREAKER = [["Closed: all are let in", "good"], ["Recovering: letting back in", "warn"],
  ["Open: shedding", "bad"]];
const get = (id) => document.getElementById(id);
const seen = new Window();

function big(id, value, unit) {
  const small = document.createElement("span");
  small.className = "unit";
  small.textContent = unit;
  get(id).replaceChildren(`${value} `, unit ? small : "");
}

function status(text, state) {
  const at = get("status");
  if (at.textContent !== text) at.textContent = text; // said aloud only when it changes
  at.dataset.state = state;
}

function showTokens(now) {
  big("tokens-now", count(seen.rate((step) => step.tokens, NOW_S)), "tokens/s");
  line(get("tokens-line"), seen.steps.map((s) => [s.at, s.tokens / s.seconds]), now.at, seen.span, 1);
  const prompt = count(seen.rate((step) => step.prompt_tokens, NOW_S));
  get("tokens-more").textContent =
    `${prompt} prompt tokens/s, ${count(now.in_flight)} requests in flight`;
}

function showTimes(name, id, now) {
  const lately = seen.counted(name, NOW_S);
  const [value, unit] = seconds(quantile(0.95, lately));
  big(`${id}-now`, value, unit ? `${unit} p95` : "");
  const points = seen.steps.map(({ at }) => [at, quantile(0.95, seen.counted(name, NOW_S, at))]);
  line(get(`${id}-line`), points, now.at, seen.span, 0.001);
  get(`${id}-more`).textContent =
    `p50 ${words(quantile(0.5, lately))}, p99 ${words(quantile(0.99, lately))}`;
}

function showReplayed(now) {
  const calls = seen.sum((step) => step.calls, NOW_S);
  const replayed = seen.sum((step) => step.replayed, NOW_S);
  big("replayed-now", calls ? percent(replayed / calls) : "–", calls ? "of calls" : "");
  const points = seen.steps.map(({ at }) => {
    const all = seen.sum((step) => step.calls, NOW_S, at);
    return [at, all ? seen.sum((step) => step.replayed, NOW_S, at) / all : null];
  });
  line(get("replayed-line"), points, now.at, seen.span, 1);
  const rows = seen.sum((step) => total(step.buckets, "rows"), NOW_S);
  const padding = seen.sum((step) => total(step.buckets, "padding"), NOW_S);
  get("replayed-more").textContent = rows ? `${percent(padding / rows)} of rows are padding` : "";
}

const total = (buckets, name) =>
  Object.values(buckets).reduce((sum, bucket) => sum + bucket[name], 0);

function showHeat(now) {
  const sizes = Object.keys(now.buckets).sort((a, b) => a - b);
  heatMap(get("heat"), seen.steps, now.at, seen.span, sizes);
  const lately = sizes.map((size) => {
    const steps = seen.rate((step) => step.buckets[size]?.steps || 0, NOW_S);
    const rows = seen.sum((step) => step.buckets[size]?.rows || 0, NOW_S);
    const padding = seen.sum((step) => step.buckets[size]?.padding || 0, NOW_S);
    const waste = rows ? `, ${percent(padding / rows)} padding` : "";
    return { steps, text: `${size} row${size === "1" ? "" : "s"} ${count(steps)}/s${waste}` };
  }).filter((each) => each.steps);
  const most = lately.sort((a, b) => b.steps - a.steps).slice(0, 4).map((each) => each.text);
  get("heat-words").textContent = most.length
    ? `Now: ${most.join("; ")}.` : "No step in the last ten seconds.";
}

function showReasons(now) {
  const rows = Object.entries(now.eager).filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  const all = now.replayed + now.recorded + rows.reduce((sum, [, n]) => sum + n, 0);
  bars(get("why"), rows.slice(0, 8).map(([reason, n]) => ({
    name: reason, title: `ostinato explain ${reason}`, value: n,
    words: `${count(n)} (${percent(n / all)})`,
  })), all ? "None did." : "No call yet.");
}

function meter(id, part, whole, text) {
  const full = whole ? (100 * part) / whole : 0;
  get(id).setAttribute("aria-valuenow", full.toFixed(0));
  get(id).setAttribute("aria-valuetext", whole ? text : "unknown");
  get(id).firstElementChild.style.width = `${full.toFixed(1)}%`;
  get(`${id}-words`).textContent = whole ? text : "–";
}

function showQueue(now) {
  meter("rows", now.running, now.rows, `${count(now.running)} of ${count(now.rows)}`);
  const { used = 0, cached = 0, free = 0 } = now.pages;
  meter("pages", used, used + cached + free,
    `${percent(used / (used + cached + free || 1))} used, ${count(cached)} cached`);
  meter("prefix", now.prefix_found, now.prefix_asked,
    percent(now.prefix_found / (now.prefix_asked || 1)));
  get("waiting").textContent = count(now.waiting);
  get("queued").textContent = words(quantile(0.95, seen.counted("queue", NOW_S)));
  get("preemptions").textContent = count(now.preemptions);
  get("graph-bytes").textContent = bytes(now.graph_bytes);
}

function showBreaker(now) {
  const [text, state] = BREAKER[now.breaker] || BREAKER[0];
  get("breaker").textContent = now.rung ? `${text} (rung ${now.rung})` : text;
  get("breaker").dataset.state = state;
  const names = { ttft: "first token", itl: "between tokens" };
  const burning = now.burns.filter((burn) => burn.rate > 0);
  bars(get("burns"), burning.map((burn) => ({
    name: `${names[burn.objective] || burn.objective}, ${burn.length_class}`,
    value: burn.rate, isOver: burn.rate > 1, words: burn.rate.toFixed(2),
  })), "Nothing came late.", 2);
}

function showEnds(now) {
  const rows = [
    ...Object.entries(now.ended).map(([reason, n]) => [reason, n]),
    ...Object.entries(now.shed).map(([reason, n]) => [`refused: ${reason}`, n]),
    ...Object.entries(now.aborted).map(([reason, n]) => [`cut short: ${reason}`, n]),
  ].filter(([, n]) => n > 0).sort((a, b) => b[1] - a[1]);
  bars(get("ends"), rows.slice(0, 8).map(([name, n]) => ({ name, value: n, words: count(n) })),
    "None has ended yet.");
}

function show(now) {
  get("model").textContent = now.model || "no model yet";
  get("version").textContent = now.version;
  if (now.why) status(now.why, "bad");
  else if (now.breaker) status("Ready, shedding load", "warn");
  else status("Ready", "good");
  showTokens(now);
  showTimes("first_token", "first", now);
  showTimes("between", "between", now);
  showReplayed(now);
  showHeat(now);
  showReasons(now);
  showQueue(now);
  showBreaker(now);
  showEnds(now);
}

async function look() {
  try {
    const reply = await fetch("/ui/numbers", { signal: AbortSignal.timeout(5000) });
    if (!reply.ok) throw new Error(`answered ${reply.status}`);
    seen.add(await reply.json());
    show(seen.last);
  } catch (error) {
    status(`No answer from the server (${error.message})`, "bad");
  }
}

async function run() {
  for (;;) {
    if (!document.hidden) await look();
    await new Promise((done) => { setTimeout(done, EVERY_MS); });
  }
}

start(() => (seen.last ? seen.last.model : ""));
run();
