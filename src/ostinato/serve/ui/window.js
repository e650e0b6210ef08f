// The last two minutes: documents of /ui/numbers, and what lies between two of them.

export const SECONDS = 120;

// Counts never fall while a service lives; where one did, it has started anew.
const rise = (now, before) => Math.max(0, now - before);

export class Window {
  constructor() { this.steps = []; this.last = null; }

  // How many seconds the charts show: as many as there are, within reason.
  get span() {
    if (!this.steps.length) return 30;
    const first = this.steps[0];
    return Math.min(SECONDS, Math.max(30, this.last.at - first.at + first.seconds));
  }

  // Take a document; keep the difference to the one before it.
  add(now) {
    const before = this.last;
    this.last = now;
    if (before && now.at > before.at) this.steps.push(between(before, now));
    while (this.steps.length && this.steps[0].at < now.at - SECONDS) this.steps.shift();
  }

  // The sum of something over the last seconds, per second.
  rate(of, seconds) {
    const steps = this.recent(seconds);
    const time = steps.reduce((sum, step) => sum + step.seconds, 0);
    return time ? steps.reduce((sum, step) => sum + of(step), 0) / time : 0;
  }

  sum(of, seconds, until = this.until) {
    return this.recent(seconds, until).reduce((sum, step) => sum + of(step), 0);
  }

  get until() { return this.last ? this.last.at : 0; }

  recent(seconds, until = this.until) {
    return this.steps.filter((step) => step.at > until - seconds && step.at <= until);
  }

  // The histogram of the last seconds, or of those before another time.
  counted(name, seconds, until = this.until) {
    const bounds = this.last ? this.last[name].bounds : [];
    const counts = new Array(bounds.length + 1).fill(0);
    for (const step of this.recent(seconds, until)) {
      step[name].forEach((n, at) => { counts[at] += n; });
    }
    return { bounds, counts };
  }
}

function between(before, now) {
  const apart = (name) => {
    const old = before[name].counts;
    return now[name].counts.map((n, at) => rise(n, old[at] || 0));
  };
  const each = (name) => Object.fromEntries(
    Object.entries(now[name]).map(([key, n]) => [key, rise(n, before[name][key] || 0)]));
  const eager = each("eager");
  const buckets = {};
  for (const [size, bucket] of Object.entries(now.buckets)) {
    const old = before.buckets[size] || { steps: 0, rows: 0, padding: 0 };
    buckets[size] = {
      steps: rise(bucket.steps, old.steps),
      rows: rise(bucket.rows, old.rows),
      padding: rise(bucket.padding, old.padding),
    };
  }
  const replayed = rise(now.replayed, before.replayed);
  const recorded = rise(now.recorded, before.recorded);
  return {
    at: now.at,
    seconds: now.at - before.at,
    tokens: rise(now.tokens, before.tokens),
    prompt_tokens: rise(now.prompt_tokens, before.prompt_tokens),
    requests: rise(now.requests, before.requests),
    prefix_asked: rise(now.prefix_asked, before.prefix_asked),
    prefix_found: rise(now.prefix_found, before.prefix_found),
    first_token: apart("first_token"),
    between: apart("between"),
    queue: apart("queue"),
    replayed, eager, buckets,
    calls: replayed + recorded + Object.values(eager).reduce((a, b) => a + b, 0),
  };
}

// A percentile of a histogram, as Prometheus computes it; null of nothing.
export function quantile(share, { bounds, counts }) {
  const total = counts.reduce((a, b) => a + b, 0);
  if (!total) return null;
  let rank = share * total;
  for (let at = 0; at < bounds.length; at += 1) {
    if (rank <= counts[at]) {
      const low = at ? bounds[at - 1] : 0;
      return low + (bounds[at] - low) * (counts[at] ? rank / counts[at] : 1);
    }
    rank -= counts[at];
  }
  return bounds[bounds.length - 1];
}

// Numbers as people read them.
export function seconds(value) {
  if (value === null) return ["–", ""];
  if (value < 0.001) return [(value * 1e6).toFixed(0), "µs"];
  if (value < 0.01) return [(value * 1e3).toFixed(2), "ms"];
  if (value < 1) return [(value * 1e3).toFixed(value < 0.1 ? 1 : 0), "ms"];
  return [value.toFixed(value < 10 ? 2 : 1), "s"];
}

export const words = (value) => seconds(value).join(" ").trim();

export function count(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(2)} M`;
  if (value >= 1e4) return `${(value / 1e3).toFixed(1)} k`;
  return value >= 100 || Number.isInteger(value) ? value.toFixed(0) : value.toFixed(1);
}

export function bytes(value) {
  for (const unit of ["B", "KiB", "MiB", "GiB"]) {
    if (value < 1024 || unit === "GiB") return `${value.toFixed(unit === "B" ? 0 : 1)} ${unit}`;
    value /= 1024;
  }
  return "";
}

export const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.1 ? 1 : 0)} %`;
