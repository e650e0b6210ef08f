// Lines, bars and the heat map, as SVG. Nothing here knows where numbers come from.

const SVG = "http://www.w3.org/2000/svg";

function element(name, attributes, parent) {
  const made = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (parent) parent.append(made);
  return made;
}

// A line over the last `span` seconds; a null is a gap. `most` bounds the scale from below.
export function line(svg, points, now, span, most) {
  svg.setAttribute("viewBox", "0 0 100 40");
  svg.setAttribute("preserveAspectRatio", "none");
  const top = Math.max(most, ...points.map(([, value]) => value || 0));
  const place = ([at, value]) =>
    `${(100 - (100 * (now - at)) / span).toFixed(2)} ${(39 - (37 * value) / top).toFixed(2)}`;
  const runs = [];
  let run = [];
  for (const point of points) {
    if (point[1] === null) { if (run.length) runs.push(run); run = []; } else run.push(point);
  }
  if (run.length) runs.push(run);
  svg.replaceChildren();
  for (const each of runs) {
    const path = each.map(place);
    const left = path[0].split(" ")[0];
    const right = path[path.length - 1].split(" ")[0];
    element("path", { class: "under", d: `M${left} 40L${path.join("L")}L${right} 40Z` }, svg);
    element("path", { d: `M${path.join("L")}h0.01` }, svg); // one value alone is a dot
  }
}

// One row for each thing: its name, a bar as long as its share of the whole, its value in words.
// The whole is that of the largest, if it is not given.
export function bars(table, rows, none, whole) {
  const body = table.tBodies[0];
  body.replaceChildren();
  if (!rows.length) {
    const cell = body.insertRow().insertCell();
    cell.className = "none";
    cell.textContent = none;
    return;
  }
  const most = whole || Math.max(...rows.map((row) => row.value), 1e-9);
  for (const row of rows) {
    const line = body.insertRow();
    const name = document.createElement("th");
    name.scope = "row";
    name.textContent = row.name;
    if (row.title) name.title = row.title;
    line.append(name);
    const bar = line.insertCell();
    bar.className = "bar";
    const svg = element("svg", { "aria-hidden": "true" }, bar);
    const width = `${(100 * Math.min(1, row.value / most)).toFixed(1)}%`;
    element("rect", { width, height: 8, rx: 4, class: row.isOver ? "over" : "" }, svg);
    line.insertCell().textContent = row.words;
  }
}

const LEFT = 58;
const ROW = 20;

// Buckets upward, time to the right; above them, how much was replayed.
export function heatMap(svg, steps, now, span, sizes) {
  const width = Math.max(280, svg.clientWidth || 600);
  const columns = Math.min(Math.round(span), Math.floor((width - LEFT) / 7));
  const cell = (width - LEFT) / columns;
  const height = (sizes.length + 1) * ROW + 26;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  svg.replaceChildren();
  const slots = gather(steps, now, span, columns);
  const most = Math.max(1e-9, ...slots.flatMap((slot) => Object.values(slot.steps)));
  label(svg, "replayed", 0);
  slots.forEach((slot, at) => {
    const share = slot.calls ? slot.replayed / slot.calls : null;
    const title = share === null ? "no calls" : `${(100 * share).toFixed(1)} % replayed`;
    square(svg, at, 0, cell, share === null ? null : 0.12 + 0.88 * share, "reuse", title, slot);
  });
  sizes.forEach((size, index) => {
    const row = sizes.length - index;
    label(svg, `${size} row${size === "1" ? "" : "s"}`, row);
    slots.forEach((slot, at) => {
      const n = slot.steps[size] || 0;
      const strength = n ? 0.15 + 0.85 * Math.sqrt(n / most) : null;
      square(svg, at, row, cell, strength, "cell", `${size} rows: ${n.toFixed(0)} steps`, slot);
    });
  });
  const y = height - 6;
  const from = element("text", { x: LEFT, y }, svg);
  from.textContent = `${Math.round(span)} s ago`;
  element("text", { x: width - 2, y, "text-anchor": "end" }, svg).textContent = "now";
}

function gather(steps, now, span, columns) {
  const slots = Array.from({ length: columns }, () => ({ steps: {}, calls: 0, replayed: 0, ago: 0 }));
  slots.forEach((slot, at) => { slot.ago = Math.round(((columns - at - 0.5) * span) / columns); });
  for (const step of steps) {
    const at = columns - 1 - Math.floor(((now - step.at) * columns) / span);
    if (at < 0 || at >= columns) continue;
    const slot = slots[at];
    slot.calls += step.calls;
    slot.replayed += step.replayed;
    for (const [size, bucket] of Object.entries(step.buckets)) {
      slot.steps[size] = (slot.steps[size] || 0) + bucket.steps;
    }
  }
  return slots;
}

function square(svg, at, row, cell, strength, name, title, slot) {
  const rect = element("rect", {
    x: (LEFT + at * cell).toFixed(2), y: row * ROW + 2,
    width: Math.max(1, cell - 1).toFixed(2), height: ROW - 3, rx: 2,
    class: strength === null ? "none" : name,
  }, svg);
  if (strength !== null) rect.setAttribute("fill-opacity", strength.toFixed(3));
  if (strength !== null) element("title", {}, rect).textContent = `${title}, ${slot.ago} s ago`;
}

function label(svg, text, row) {
  const at = { x: LEFT - 8, y: row * ROW + 15, "text-anchor": "end" };
  element("text", at, svg).textContent = text;
}
