"use strict";
// Small charts in SVG: lines with bands, scatter plots and bars. Every number comes ready-made from the data.
const NS = "http://www.w3.org/2000/svg";
const DASHES = ["", "6 3", "2 3", "7 3 2 3"];

function node(name, attributes, parent, text) {
  const made = document.createElementNS(NS, name);
  for (const key in attributes) if (attributes[key] !== null) made.setAttribute(key, attributes[key]);
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function element(name, attributes, parent, text) {
  const made = document.createElement(name);
  for (const key in attributes) {
    if (key === "on") for (const kind in attributes.on) made.addEventListener(kind, attributes.on[kind]);
    else if (attributes[key] !== null && attributes[key] !== false) made.setAttribute(key, attributes[key]);
  }
  if (text !== undefined) made.textContent = text;
  if (parent) parent.appendChild(made);
  return made;
}

function compact(value) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  const unit = size >= 1e9 ? [1e9, "G"] : size >= 1e6 ? [1e6, "M"] : size >= 1e4 ? [1e3, "k"] : [1, ""];
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace("-", "−");
  return String(Number((value / unit[0]).toPrecision(unit[1] ? 3 : 4))).replace("-", "−") + unit[1];
}

const brief = (value) => compact(value === null || value === undefined ? value : Number(value.toPrecision(3)));

function ticks(low, high, count) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map((m) => m * power).find((m) => m >= raw);
  const found = [];
  for (let value = Math.ceil(low / step - 1e-9) * step; value <= high + step * 1e-9; value += step) found.push(Math.abs(value) < step * 1e-9 ? 0 : value);
  return found;
}

function scaleOf(values, pixels, isLog, padding) {
  let low = Math.min(...values), high = Math.max(...values);
  if (isLog) {
    // Nothing at all has no logarithm: zero stands below 1, half a decade away, under its own name.
    const hasZero = low < 1, logarithm = (value) => value < 1 ? -0.5 : Math.log10(value);
    low = hasZero ? -0.5 : Math.floor(Math.log10(low) + 1e-9); high = Math.log10(Math.max(high, 10));
    if (high - low < 1) high = low + 1;
    const at = (value) => pixels[0] + (logarithm(value) - low) / (high - low) * (pixels[1] - pixels[0]);
    const marks = hasZero ? [0] : [];
    for (let power = Math.max(0, low); power <= high + 1e-9; power++) marks.push(Math.pow(10, power));
    return { at, marks };
  }
  if (low === high) { low -= Math.abs(low) * 0.05 || 0.5; high += Math.abs(high) * 0.05 || 0.5; }
  const room = (high - low) * padding;
  low -= room; high += room;
  return { at: (value) => pixels[0] + (value - low) / (high - low) * (pixels[1] - pixels[0]), marks: ticks(low, high, 4) };
}

function frame(parent, options) {
  const width = options.width, height = options.height;
  const box = { left: 46, right: width - 8, top: 8, bottom: height - 30 };
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.title }, parent);
  const x = scaleOf(options.xs, [box.left, box.right], options.xlog, options.xpad ?? 0);
  const y = options.ys01
    ? { at: (value) => box.bottom + (value - options.ys01[0]) / (options.ys01[1] - options.ys01[0]) * (box.top - box.bottom), marks: ticks(options.ys01[0], options.ys01[1], 4) }
    : scaleOf(options.ys, [box.bottom, box.top], options.ylog, 0.06);
  for (const mark of y.marks) {
    const at = y.at(mark);
    if (at > box.bottom + 1 || at < box.top - 1) continue;
    node("line", { x1: box.left, x2: box.right, y1: at, y2: at, class: "rule" }, svg);
    node("text", { x: box.left - 5, y: at + 3.5, "text-anchor": "end" }, svg, compact(mark));
  }
  if (options.xs.every((value) => value === options.xs[0])) x.marks = [options.xs[0]];
  for (const mark of x.marks) {
    const at = x.at(mark);
    if (at < box.left - 1 || at > box.right + 1) continue;
    node("line", { x1: at, x2: at, y1: box.bottom, y2: box.bottom + 3, class: "axis" }, svg);
    node("text", { x: at, y: box.bottom + 14, "text-anchor": at > box.right - 14 ? "end" : "middle" }, svg, compact(mark));
  }
  node("line", { x1: box.left, x2: box.right, y1: box.bottom, y2: box.bottom, class: "axis" }, svg);
  node("text", { x: (box.left + box.right) / 2, y: height - 3, "text-anchor": "middle" }, svg, options.xlabel);
  return { svg, x, y, box };
}

function lineChart(parent, series, options) {
  const xs = series.flatMap((s) => [s.x[0], s.x[s.x.length - 1]]);
  const ys = series.flatMap((s) => [...s.mid, ...(s.low || []), ...(s.high || [])]);
  if (!xs.length) { element("p", { class: "hint empty" }, parent, options.empty || "Nothing was recorded for the methods that are shown."); return; }
  // A line far away from every curve would flatten them: then only an arrow says where it is.
  const lowest = Math.min(...ys), highest = Math.max(...ys), room = Math.max((highest - lowest) / 2, Math.abs(highest) * 0.02);
  const isNear = (line) => options.ys01 || options.ylog || line.y > lowest - room && line.y < highest + room;
  for (const line of options.lines || []) if (isNear(line)) ys.push(line.y);
  // Names of lines stand above the plot: within it some curve would cross them.
  for (const line of options.lines || []) {
    const key = element("p", { class: "key" }, parent);
    if (isNear(line)) node("line", { x1: 0, x2: 22, y1: 5, y2: 5, stroke: "var(--soft)", "stroke-dasharray": "5 4", "stroke-width": 1.2 }, node("svg", { width: 22, height: 10 }, key));
    key.append(isNear(line) ? `${line.label} ${compact(line.y)}` : `${line.label} ${compact(line.y)}, ${line.y > highest ? "above" : "below"} this axis`);
  }
  const { svg, x, y, box } = frame(parent, { ...options, xs, ys });
  for (const one of series) {
    const path = (values) => values.map((value, i) => `${i ? "L" : "M"}${x.at(one.x[i]).toFixed(1)} ${y.at(value).toFixed(1)}`).join("");
    if (one.low) {
      const back = one.low.map((value, i) => `L${x.at(one.x[i]).toFixed(1)} ${y.at(value).toFixed(1)}`).reverse().join("");
      node("path", { d: path(one.high) + back + "Z", fill: one.colour, opacity: series.length > 6 ? 0.08 : 0.16, "data-of": one.of }, svg);
    }
    node("path", { "data-of": one.of, d: path(one.mid), fill: "none", stroke: one.colour, "stroke-width": 1.7, "stroke-dasharray": one.dash || null, "stroke-linejoin": "round" }, svg);
    if (one.x.length === 1) node("circle", { cx: x.at(one.x[0]), cy: y.at(one.mid[0]), r: 2.5, fill: one.colour }, svg);
  }
  for (const line of options.lines || []) if (isNear(line)) {
    node("line", { x1: box.left, x2: box.right, y1: y.at(line.y), y2: y.at(line.y), stroke: "var(--soft)", "stroke-dasharray": "5 4", "stroke-width": 1.2 }, svg);
  }
  const cross = node("line", { y1: box.top, y2: box.bottom, class: "axis", visibility: "hidden" }, svg);
  svg.addEventListener("mousemove", (event) => {
    const area = svg.getBoundingClientRect();
    const at = (event.clientX - area.left) / area.width * options.width;
    let nearest = null, where = null;
    for (const one of series) one.x.forEach((value) => { const gap = Math.abs(x.at(value) - at); if (nearest === null || gap < nearest) { nearest = gap; where = value; } });
    cross.setAttribute("x1", x.at(where)); cross.setAttribute("x2", x.at(where)); cross.setAttribute("visibility", "visible");
    const rows = series.map((one) => {
      let i = 0;
      one.x.forEach((value, k) => { if (Math.abs(value - where) < Math.abs(one.x[i] - where)) i = k; });
      return [one.label, one.low ? interval([one.mid[i], one.low[i], one.high[i]]) : compact(one.mid[i]), one.colour, one.mid[i]];
    }).sort((a, b) => b[3] - a[3]);
    const more = rows.length - 20;
    showTip(event, `${compact(where)} ${options.xlabel}`, more > 0 ? [...rows.slice(0, 20), [`and ${more} more`, ""]] : rows);
  });
  svg.addEventListener("mouseleave", () => { cross.setAttribute("visibility", "hidden"); hideTip(); });
}

const SHAPES = [
  (x, y) => `M${x - 4} ${y}a4 4 0 1 0 8 0a4 4 0 1 0 -8 0Z`,
  (x, y) => `M${x - 3.6} ${y - 3.6}h7.2v7.2h-7.2Z`,
  (x, y) => `M${x} ${y - 4.8}L${x + 4.6} ${y + 3.4}H${x - 4.6}Z`,
  (x, y) => `M${x} ${y - 5}L${x + 5} ${y}L${x} ${y + 5}L${x - 5} ${y}Z`,
];

function scatterChart(parent, groups, options) {
  const xs = groups.flatMap((g) => g.points.map((p) => p[0]).concat((g.line || []).map((p) => p[0])));
  const ys = groups.flatMap((g) => g.points.map((p) => p[1]).concat((g.line || []).map((p) => p[1])));
  const { svg, x, y } = frame(parent, { ...options, xs, ys, xpad: 0.05 });
  for (const group of groups) {
    if (group.line) {
      node("path", { d: group.line.map((p, i) => `${i ? "L" : "M"}${x.at(p[0]).toFixed(1)} ${y.at(p[1]).toFixed(1)}`).join(""), fill: "none", stroke: group.colour, "stroke-width": 1, opacity: 0.6, "data-of": group.of }, svg);
      for (const p of group.line) {
        const dot = node("circle", { cx: x.at(p[0]), cy: y.at(p[1]), r: 1.8, fill: group.colour, opacity: 0.7, "data-of": group.of }, svg);
        hoverable(dot, group.label, [[`preference ${p[2]}`, ""], ["return", compact(p[1])], ["valid action rate", compact(p[0])]]);
        if (p[3]) node("circle", { cx: x.at(p[0]), cy: y.at(p[1]), r: 6, fill: "none", stroke: group.colour, "stroke-width": 1.6, "data-of": group.of }, svg);
      }
    }
    for (const p of group.points) {
      const dot = node("path", { d: SHAPES[group.shape](x.at(p[0]), y.at(p[1])), fill: group.colour, stroke: "var(--paper)", "stroke-width": 0.8, opacity: 0.9, "data-of": group.of }, svg);
      hoverable(dot, group.label, [[`seed ${p[2]}`, ""], ["return", compact(p[1])], ["valid action rate", compact(p[0])]]);
    }
  }
}

function barChart(parent, bars, options) {
  const height = 34 + bars.length * 22, width = options.width, left = 14 + 6.9 * Math.max(...bars.map((b) => b.label.length));
  const svg = node("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": options.title }, parent);
  const x = scaleOf([...bars.map((b) => b.value), 0], [left, width - 56], options.xlog, 0);
  for (const mark of x.marks) {
    node("line", { x1: x.at(mark), x2: x.at(mark), y1: 4, y2: height - 26, class: "rule" }, svg);
    node("text", { x: x.at(mark), y: height - 14, "text-anchor": "middle" }, svg, compact(mark));
  }
  bars.forEach((bar, i) => {
    const top = 6 + i * 22, start = x.at(0);
    node("text", { x: left - 6, y: top + 12, "text-anchor": "end" }, svg, bar.label);
    const rect = node("rect", { x: start, y: top, width: Math.max(1, x.at(bar.value) - start), height: 15, rx: 3, fill: bar.colour, opacity: 0.85, "data-of": bar.of }, svg);
    hoverable(rect, bar.label, bar.rows);
    node("text", { x: Math.max(x.at(bar.value), start + 1) + 5, y: top + 12 }, svg, bar.words);
  });
  node("text", { x: (left + width - 56) / 2, y: height - 1, "text-anchor": "middle" }, svg, options.xlabel);
}

function hoverable(target, title, rows) {
  target.addEventListener("mousemove", (event) => showTip(event, title, rows));
  target.addEventListener("mouseleave", hideTip);
}

function showTip(event, title, rows) {
  const tip = document.getElementById("tip");
  tip.replaceChildren();
  element("b", {}, tip, title);
  const table = element("table", {}, tip);
  for (const row of rows) {
    const line = element("tr", {}, table);
    const name = element("td", {}, line);
    if (row[2]) name.style.color = row[2];
    name.textContent = (row[2] ? "● " : "") + row[0];
    element("td", {}, line, row[1]);
  }
  tip.hidden = false;
  const space = tip.getBoundingClientRect();
  tip.style.left = Math.min(event.clientX + 14, innerWidth - space.width - 8) + "px";
  tip.style.top = Math.min(event.clientY + 14, innerHeight - space.height - 8) + "px";
}

function hideTip() { document.getElementById("tip").hidden = true; }
