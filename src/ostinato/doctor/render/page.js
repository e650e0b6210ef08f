"use strict";
// Draws the timeline and the flame graph from the data in the page; nothing is fetched.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name).trim();
  const tip = document.getElementById("tip");
  const say = (event, text) => {
    tip.style.display = text ? "block" : "none";
    if (!text) return;
    tip.textContent = text;
    tip.style.left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 10) + "px";
    tip.style.top = Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 10) + "px";
  };
  const time = (us) => us < 1e3 ? us.toFixed(us < 10 ? 2 : 0) + " us"
    : us < 1e6 ? (us / 1e3).toFixed(us < 1e4 ? 2 : 1) + " ms" : (us / 1e6).toFixed(2) + " s";
  const canvasFor = (id, height) => {
    const canvas = document.getElementById(id);
    if (!canvas) return null;
    const scale = devicePixelRatio || 1;
    const width = canvas.parentElement.clientWidth - 28;
    canvas.width = width * scale;
    canvas.height = height * scale;
    canvas.style.height = height + "px";
    const pen = canvas.getContext("2d");
    pen.scale(scale, scale);
    return { canvas, pen, width, height };
  };

  const COLOURS = { step: "--cool", wait: "--accent", gc: "--warm", loop: "--warm", lock: "--accent", replay: "--good", kernel: "--good" };
  const ROW = 30, LABEL = 64, AXIS = 22;
  function timeline() {
    const spans = data.spans;
    const tracks = [...new Set(spans.map((span) => span[0]))];
    const made = spans.length ? canvasFor("timeline", tracks.length * ROW + AXIS) : null;
    if (!made) return;
    const { canvas, pen, width, height } = made;
    const first = Math.min(...spans.map((span) => span[2]));
    const last = Math.max(...spans.map((span) => span[2] + span[3]));
    const steps = spans.filter((span) => span[0] === "step");
    // At first the middle of the run, about thirty steps long: that is where the pattern shows.
    let from = first, to = last;
    if (steps.length > 40) {
      const middle = Math.floor(steps.length / 2);
      from = steps[middle - 12][2];
      to = steps[middle + 12][2];
    }
    const x = (us) => LABEL + (us - from) / (to - from) * (width - LABEL);
    function draw() {
      pen.clearRect(0, 0, width, height);
      pen.font = "12px system-ui, 'DejaVu Sans', sans-serif";
      tracks.forEach((track, row) => {
        pen.fillStyle = colour("--soft");
        pen.fillText(track, 0, row * ROW + 19);
        pen.fillStyle = colour("--line");
        pen.fillRect(LABEL, row * ROW + ROW - 3, width - LABEL, 1);
      });
      for (const [track, , began, us] of spans) {
        if (began + us < from || began > to) continue;
        const left = Math.max(LABEL, x(began));
        pen.fillStyle = colour(COLOURS[track] || "--soft");
        pen.globalAlpha = track === "step" ? .55 : .95;
        pen.fillRect(left, tracks.indexOf(track) * ROW + 5, Math.max(1.2, x(began + us) - left - .4), ROW - 11);
      }
      pen.globalAlpha = 1;
      pen.fillStyle = colour("--soft");
      for (let tick = 0; tick <= 6; tick++) {
        const us = from + (to - from) * tick / 6;
        const at = Math.min(x(us), width - 46);
        pen.fillText(time(us), at, height - 5);
      }
    }
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const at = from + (event.offsetX - LABEL) / (width - LABEL) * (to - from);
      const by = event.deltaY > 0 ? 1.25 : .8;
      from = Math.max(first, at - (at - from) * by);
      to = Math.min(last, at + (to - at) * by);
      draw();
    }, { passive: false });
    let drag = null;
    canvas.addEventListener("mousedown", (event) => { drag = { x: event.offsetX, from, to }; });
    addEventListener("mouseup", () => { drag = null; });
    canvas.addEventListener("mousemove", (event) => {
      if (drag) {
        const by = (drag.x - event.offsetX) / (width - LABEL) * (drag.to - drag.from);
        from = drag.from + by;
        to = drag.to + by;
        draw();
        return;
      }
      const track = tracks[Math.floor(event.offsetY / ROW)];
      const at = from + (event.offsetX - LABEL) / (width - LABEL) * (to - from);
      const slack = (to - from) / width * 2;
      const hit = spans.find((span) => span[0] === track && at >= span[2] - slack && at <= span[2] + span[3] + slack);
      say(event, hit ? `${hit[1]}: ${time(hit[3])}` : "");
    });
    canvas.addEventListener("mouseleave", (event) => say(event, ""));
    draw();
  }

  const LINE = 19;
  function flame() {
    const root = { name: "all", samples: 0, waits: 0, children: new Map() };
    let deepest = 0;
    for (const [thread, frames, samples, waits] of data.stacks) {
      let node = root;
      node.samples += samples;
      node.waits += waits;
      for (const name of [thread, ...frames]) {
        if (!node.children.has(name)) node.children.set(name, { name, samples: 0, waits: 0, children: new Map() });
        node = node.children.get(name);
        node.samples += samples;
        node.waits += waits;
      }
      deepest = Math.max(deepest, frames.length + 2);
    }
    const made = root.samples ? canvasFor("flame", deepest * LINE + 4) : null;
    if (!made) return;
    const { canvas, pen, width, height } = made;
    const rgb = (name) => {
      let hash = 7;
      for (const letter of name) hash = (hash * 31 + letter.charCodeAt(0)) % 997;
      return `hsl(${14 + hash % 32} ${52 + hash % 18}% ${64 + hash % 12}%)`;
    };
    let boxes = [], top = root;
    function place(node, left, size, depth) {
      boxes.push({ node, left, size, depth });
      let at = left;
      for (const child of [...node.children.values()].sort((a, b) => b.samples - a.samples)) {
        const part = size * child.samples / node.samples;
        if (part > .6) place(child, at, part, depth + 1);
        at += part;
      }
    }
    function draw() {
      boxes = [];
      place(top, 0, width, 0);
      pen.clearRect(0, 0, width, height);
      pen.font = "11.5px ui-monospace, 'DejaVu Sans Mono', monospace";
      for (const { node, left, size, depth } of boxes) {
        const y = depth * LINE;
        pen.fillStyle = node.waits > node.samples / 2 ? "#d08a8a" : depth < 2 && top === root ? "#c9c4ba" : rgb(node.name);
        pen.fillRect(left, y, Math.max(.6, size - 1), LINE - 1.5);
        if (size > 34) {
          pen.save();
          pen.beginPath();
          pen.rect(left, y, size - 4, LINE);
          pen.clip();
          pen.fillStyle = "#2a2018";
          pen.fillText(node.name, left + 4, y + 12.5);
          pen.restore();
        }
      }
    }
    const under = (event) => boxes.find((box) => event.offsetX >= box.left && event.offsetX < box.left + box.size
      && Math.floor(event.offsetY / LINE) === box.depth);
    canvas.addEventListener("mousemove", (event) => {
      const box = under(event);
      const share = box && (100 * box.node.samples / root.samples).toFixed(1);
      say(event, box ? `${box.node.name}: ${share}% of the samples` : "");
    });
    canvas.addEventListener("mouseleave", (event) => say(event, ""));
    canvas.addEventListener("click", (event) => {
      const box = under(event);
      top = box && box.node !== top ? box.node : root;
      draw();
    });
    draw();
  }
  const all = () => { timeline(); flame(); };
  all();
  addEventListener("resize", all);
})();
