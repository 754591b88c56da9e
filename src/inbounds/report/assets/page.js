// The page: what is chosen, and the sections drawn from the data.
let data = JSON.parse(document.getElementById("data").textContent);
const chosen = { suite: null, metric: "return", curve: "return", axis: "step", hidden: new Set(), large: null, cost: null };
const MARKS = { above: "▲", level: "≈", below: "▼", alone: "" };
const METRICS = { return: "Return", valid_action_rate: "Valid action rate", calls: "Solver calls" };
const CURVES = { return: "Return", valid: "Valid action rate", calls: "Projections", acceptance: "Acceptance" };
const AXES = { step: "Steps", seconds: "Time" };

const find = (id) => document.getElementById(id);
const colourOf = (method) => `var(--c${data.methods.find((m) => m.id === method).place % 8})`;
const dashOf = (method) => DASHES[Math.floor(data.methods.find((m) => m.id === method).place / 8) % 4];
const shown = () => data.results.filter((r) => r.suite === chosen.suite);
const tasksShown = () => data.tasks.filter((t) => shown().some((r) => r.task === t.id));
const methodsShown = () => data.methods.filter((m) => shown().some((r) => r.method === m.id));
const visible = (r) => !chosen.hidden.has(r.method);
const written = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
const digitsFor = (deviation) => deviation > 0 ? Math.min(4, Math.max(0, 1 - Math.floor(Math.log10(deviation)))) : 3;
const plusMinus = (mean, deviation, count) => count > 1 ? `${written(mean, digitsFor(deviation))} ± ${written(deviation, digitsFor(deviation))}` : compact(mean);
const interval = (iqm) => { const digits = digitsFor((iqm[2] - iqm[1]) / 4); return `${written(iqm[0], digits)} [${written(iqm[1], digits)}, ${written(iqm[2], digits)}]`; };

function segments(id, options, current, pick, disabled) {
  const place = find(id);
  place.replaceChildren();
  for (const key in options) {
    element("button", { type: "button", "data-key": key, "aria-pressed": String(key === current), disabled: disabled && disabled(key) ? "" : null, on: { click: () => pick(key) } }, place, options[key]);
  }
}

function drawHeader() {
  const t = data.totals;
  find("version").textContent = data.version;
  find("lead").textContent = data.tasks.map((task) => task.name).join(", ") + ". Every number below can be traced to its run, its seed and its command.";
  const tiles = [
    [String(t.results), t.results === 1 ? "result" : "results", ""],
    [`${t.complete} of ${t.results}`, "complete: all seeds, fresh final episodes", t.complete === t.results ? "good" : ""],
    [compact(t.environment_steps), `environment steps in ${t.runs} seeds`, ""],
    [compact(t.worst_violation), "worst violation, float64, no tolerance", t.worst_violation <= 0 ? "good" : "bad"],
  ];
  const place = find("tiles");
  place.replaceChildren();
  for (const [value, words, kind] of tiles) {
    const tile = element("div", { class: `tile ${kind}` }, place);
    element("b", {}, tile, value);
    element("span", {}, tile, words);
  }
  find("made").textContent = `Made ${data.made.replace("T", " ").replace("+00:00", " UTC")} by inbounds ${data.version}. This file is complete: it asks no other host for anything.`;
}

function drawSuites() {
  const select = find("suite");
  select.replaceChildren();
  for (const suite of data.suites) element("option", { value: suite, selected: suite === chosen.suite ? "" : null }, select, suite || "single runs");
  find("suite-choice").hidden = data.suites.length < 2;
  select.onchange = () => { chosen.suite = select.value; chosen.large = null; drawAll(); };
}

function drawSummary() {
  segments("summary-metric", METRICS, chosen.metric, (key) => { chosen.metric = key; drawSummary(); });
  const table = find("summary-table"), methods = methodsShown(), tasks = tasksShown();
  const hasPaper = chosen.metric !== "calls";
  const references = chosen.metric === "return" ? [...new Set(tasks.flatMap((t) => Object.keys(t.references)))] : [];
  table.replaceChildren();
  const head = element("tr", {}, element("thead", {}, table));
  element("th", {}, head, "task");
  if (hasPaper) element("th", {}, head, chosen.metric === "return" ? "paper: ARAM" : "paper: ARAM (best)");
  for (const name of references) element("th", {}, head, name);
  for (const method of methods) element("th", {}, head, method.label);
  const body = element("tbody", {}, table);
  for (const task of tasks) {
    const line = element("tr", {}, body);
    element("td", {}, line, task.name);
    if (hasPaper) {
      const published = (task.published[chosen.metric] || {}).aram;
      const cell = element("td", { class: "quoted" }, line, published ? plusMinus(published[0], published[1], 5) : "–");
      if (published) element("small", {}, cell, chosen.metric === "return" ? published[2] : `best of all: ${compact(task.best_rate)}`);
    }
    for (const name of references) {
      const found = task.references[name];
      const cell = element("td", { class: "quoted" }, line, found ? plusMinus(found.mean, found.deviation, 2) : "–");
      if (found) element("small", {}, cell, `${found.episodes} episodes`);
    }
    for (const method of methods) summaryCell(line, task, shown().find((r) => r.task === task.id && r.method === method.id));
  }
  find("summary-hint").textContent = chosen.metric === "calls"
    ? "Solver calls of training per seed: projected actions and what updates solved."
    : "Mean ± standard deviation over seeds; below, interquartile mean with its 95 % bootstrap interval. Colours compare with the paper's number for the same method. Click a cell for its seeds and origin.";
  const legend = find("summary-legend");
  legend.replaceChildren();
  if (hasPaper) for (const kind of ["above", "level", "below"]) {
    const swatch = element("span", { class: "swatch" }, legend);
    element("i", {}, swatch).style.background = `var(--${kind})`;
    swatch.append(`${MARKS[kind]} ${data.verdicts[kind]}`);
  }
}

function summaryCell(line, task, result) {
  if (!result) { element("td", { class: "none" }, line, "not run yet"); return; }
  const open = () => drawDetail(result);
  const seeds = `${result.seeds.length}${result.seeds.length < result.expected ? ` of ${result.expected}` : ""} seed${result.seeds.length === 1 ? "" : "s"}`;
  if (chosen.metric === "calls") {
    const cell = element("td", { "data-verdict": "alone", "data-result": result.name, on: { click: open } }, line, result.calls ? compact(result.calls.mean) : "unknown");
    element("small", {}, cell, seeds);
    return;
  }
  const found = result.final[chosen.metric];
  const cell = element("td", { "data-verdict": found.verdict, "data-result": result.name, "data-mean": found.mean, on: { click: open } }, line, plusMinus(found.mean, found.deviation, found.values.length));
  element("span", { class: "mark" }, cell, MARKS[found.verdict]);
  element("small", {}, cell, found.values.length > 1 ? interval(found.iqm) : seeds);
  if (result.complete && result.short) element("small", {}, cell, `after ${compact(result.steps)} steps only`);
  if (!result.complete) element("small", {}, cell, `${seeds}, ${compact(result.steps)} steps, not complete`);
}

function drawDetail(result) {
  const place = find("detail");
  place.hidden = false;
  place.replaceChildren();
  element("h3", {}, place, `${result.label} on ${data.tasks.find((t) => t.id === result.task).name}`);
  const list = element("dl", {}, place);
  const add = (name, value, isCode) => {
    element("dt", {}, list, name);
    const cell = element("dd", {}, list);
    if (isCode) element("code", {}, cell, value); else cell.textContent = value;
  };
  add("numbers from", `${result.source}, ${result.episodes} episodes per seed, preference ${result.preference.join(" ")}`);
  add("return by seed", result.seeds.map((seed, i) => `${seed}: ${compact(result.final.return.values[i])}`).join("   "));
  add("valid rate by seed", result.seeds.map((seed, i) => `${seed}: ${compact(result.final.valid_action_rate.values[i])}`).join("   "));
  add("raw deterministic action feasible", compact(result.deterministic));
  if (result.calls) add("solver calls by seed", result.calls.values.map(compact).join("   "));
  add("worst violation", compact(result.worst));
  for (const origin of result.provenance) add(`seeds ${origin.seeds.join(", ")}`, originWords(origin));
  add("command", result.command, true);
  place.scrollIntoView({ block: "nearest" });
}

function originWords(origin) {
  const packages = origin.packages || {};
  return `inbounds ${origin.inbounds}, commit ${(origin.commit || "unknown").slice(0, 10)}${origin.is_dirty ? " with changes" : ""}, ${origin.device}, ${origin.processor}, Python ${origin.python}, jax ${packages.jax}, MuJoCo ${packages.mujoco}, ${origin.environments} environments per seed, ${compact(origin.median_steps_per_second)} steps/s, ${origin.started}`;
}

function drawLegend() {
  const place = find("method-legend");
  place.replaceChildren();
  for (const method of methodsShown()) {
    const button = element("button", { type: "button", "data-method": method.id, "aria-pressed": String(!chosen.hidden.has(method.id)), on: { click: () => {
      if (chosen.hidden.has(method.id)) chosen.hidden.delete(method.id); else chosen.hidden.add(method.id);
      drawLegend(); drawCurves(); drawTrade(); drawCosts(); drawEpisodes();
    } } }, place);
    const svg = node("svg", { width: 26, height: 10 }, button);
    node("line", { x1: 0, x2: 26, y1: 5, y2: 5, stroke: colourOf(method.id), "stroke-width": 2.5, "stroke-dasharray": dashOf(method.id) || null }, svg);
    button.append(method.label);
  }
}

function curveOf(result) {
  const found = chosen.curve === "acceptance" ? result.acceptance : result.curves[chosen.curve];
  if (!found) return null;
  const x = chosen.axis === "seconds" ? result.curves.seconds : found.step;
  if (!x || chosen.axis === "seconds" && chosen.curve === "acceptance") return null;
  const [mid, low, high] = found.band;
  return { label: result.label, colour: colourOf(result.method), dash: dashOf(result.method), x, mid, low, high };
}

function drawCurves() {
  segments("curve-metric", CURVES, chosen.curve, (key) => { chosen.curve = key; if (key === "acceptance") chosen.axis = "step"; drawCurves(); });
  const alone = shown().some((r) => r.curves.seconds);
  segments("curve-axis", AXES, chosen.axis, (key) => { chosen.axis = key; drawCurves(); }, (key) => key === "seconds" && (!alone || chosen.curve === "acceptance"));
  find("curve-axis").title = alone ? "" : "Times compare only where one seed trained alone (suite wall-clock).";
  const grid = find("curve-grid"), few = tasksShown().length <= 2;
  grid.replaceChildren();
  grid.className = find("trade-grid").className = few ? "grid two" : "grid";
  for (const task of tasksShown()) {
    const results = shown().filter((r) => r.task === task.id && visible(r));
    const isLarge = chosen.large === task.id;
    const panel = element("div", { class: isLarge ? "panel large" : "panel open", "data-task": task.id, on: { click: () => { chosen.large = isLarge ? null : task.id; drawCurves(); } } }, grid);
    const title = element("h3", {}, panel, task.name);
    element("span", {}, title, CURVES[chosen.curve].toLowerCase());
    const published = chosen.curve === "return" ? task.published.return.aram : chosen.curve === "valid" ? task.published.valid_action_rate.aram : null;
    const lines = published && !chosen.hidden.has("paper") ? [{ y: published[0], label: "paper" }] : [];
    lineChart(panel, results.map(curveOf).filter(Boolean), {
      width: isLarge ? 1160 : few ? 480 : 320, height: isLarge ? 420 : few ? 230 : 190, title: `${task.name}, ${CURVES[chosen.curve]}`, lines,
      xlabel: chosen.axis === "step" ? "environment steps" : "seconds of training", ylog: chosen.curve === "calls",
      ys01: chosen.curve === "valid" || chosen.curve === "acceptance" ? [0, 1.02] : null,
    });
  }
}

function drawTrade() {
  const grid = find("trade-grid");
  grid.replaceChildren();
  for (const task of tasksShown()) {
    const groups = shown().filter((r) => r.task === task.id && visible(r)).map((r) => ({
      label: r.label, colour: colourOf(r.method),
      points: r.seeds.map((seed, i) => [r.final.valid_action_rate.values[i], r.final.return.values[i], seed]),
      line: r.front ? r.front.points.map((p) => [p[3], p[1], `${p[0]} ${Number((1 - p[0]).toFixed(4))}`, p[0] === r.front.suggested[0]]) : null,
    }));
    if (!groups.length) continue;
    const panel = element("div", { class: "panel", "data-task": task.id }, grid);
    element("h3", {}, panel, task.name);
    scatterChart(panel, groups, { width: tasksShown().length <= 2 ? 480 : 320, height: tasksShown().length <= 2 ? 230 : 200, title: `${task.name}, return and validity`, xlabel: "valid action rate" });
  }
}

function drawCosts() {
  const grid = find("cost-grid"), tasks = tasksShown().filter((t) => shown().some((r) => r.task === t.id && (r.calls || r.inference)));
  grid.replaceChildren();
  find("costs").hidden = !tasks.length;
  if (!tasks.length) return;
  if (!tasks.some((t) => t.id === chosen.cost)) chosen.cost = tasks[0].id;
  segments("cost-task", Object.fromEntries(tasks.map((t) => [t.id, t.name])), chosen.cost, (key) => { chosen.cost = key; drawCosts(); });
  const task = tasks.find((t) => t.id === chosen.cost), results = shown().filter((r) => r.task === task.id && visible(r));
  const panel = (words) => { const made = element("div", { class: "panel" }, grid); element("span", {}, element("h3", {}, made, task.name), words); return made; };
  const calls = results.filter((r) => r.calls).map((r) => ({ label: r.label, value: r.calls.mean, colour: colourOf(r.method), rows: r.calls.values.map((v, i) => [`seed ${r.seeds[i]}`, compact(v)]) }));
  const times = results.filter((r) => r.inference).map((r) => ({ label: r.label, value: r.inference.median, colour: colourOf(r.method), rows: [["median", `${compact(r.inference.median)} µs`], ["mean", `${compact(r.inference.mean)} µs`], ["99th percentile", `${compact(r.inference.slowest_percent)} µs`], ["with the environment's step", `${compact(r.inference.with_step)} µs`], [r.inference.path, ""]] }));
  if (calls.length) barChart(panel("solver calls of training, per seed"), calls, { width: 460, xlog: true, title: `${task.name}, solver calls`, xlabel: "calls, logarithmic" });
  if (times.length) barChart(panel("one action, one at a time"), times, { width: 460, title: `${task.name}, inference time`, xlabel: "microseconds, median" });
}

function drawEpisodes() {
  const grid = find("episode-grid");
  grid.replaceChildren();
  for (const result of shown().filter((r) => visible(r) && (r.episode || r.film))) {
    const panel = element("div", { class: "panel" }, grid);
    const title = element("h3", {}, panel, data.tasks.find((t) => t.id === result.task).name);
    element("span", {}, title, result.label + (result.episode ? `, return ${compact(result.episode.total)}` : ""));
    if (result.film) element(result.film.startsWith("data:video") ? "video" : "img", { src: result.film, controls: "", loop: "", muted: "", playsinline: "", alt: "the policy at work" }, panel);
    if (result.episode) lineChart(panel, [{ label: "share of the bound", colour: colourOf(result.method), x: result.episode.step, mid: result.episode.share }], { width: 320, height: 150, title: "use of the constraint", xlabel: "step of the episode", ys01: [0, 1.08], lines: [{ y: 1, label: "boundary" }] });
  }
  find("episodes").hidden = !grid.children.length;
}

function drawOrigin() {
  const table = find("origin-table"), words = find("origin-filter").value.toLowerCase();
  table.replaceChildren();
  const head = element("tr", {}, element("thead", {}, table));
  for (const name of ["result", "seeds", "steps", "device", "commit", "MuJoCo", "jax", "started", "command"]) element("th", {}, head, name);
  const body = element("tbody", {}, table);
  for (const result of shown()) for (const origin of result.provenance) {
    const packages = origin.packages || {};
    const cells = [result.name, origin.seeds.join(" "), compact(result.steps), origin.device, (origin.commit || "unknown").slice(0, 10) + (origin.is_dirty ? "+" : ""), packages.mujoco || "–", packages.jax || "–", (origin.started || "").slice(0, 16)];
    if (words && !(cells.join(" ") + result.command).toLowerCase().includes(words)) continue;
    const line = element("tr", {}, body);
    cells.forEach((cell) => element("td", {}, line, cell));
    element("code", {}, element("td", { class: "wrap" }, line), result.command);
  }
}

function drawNotes() {
  const list = find("notes-list");
  list.querySelectorAll("[data-note]").forEach((old) => old.remove());
  for (const name in data.notes) {
    element("dt", { "data-note": "" }, list, `compared with the paper: ${name.replace(/_/g, " ")}`);
    element("dd", { "data-note": "" }, list, data.notes[name]);
  }
}

function drawAll() {
  if (!data.suites.includes(chosen.suite)) chosen.suite = data.suites[0];
  drawHeader(); drawSuites(); drawSummary(); drawLegend(); drawCurves(); drawTrade(); drawCosts(); drawEpisodes(); drawOrigin(); drawNotes();
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function applyTheme(theme) { document.documentElement.dataset.theme = theme; }
applyTheme(prefersDark.matches ? "dark" : "light");
prefersDark.addEventListener("change", (event) => applyTheme(event.matches ? "dark" : "light"));
find("theme").addEventListener("click", () => applyTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
find("origin-filter").addEventListener("input", drawOrigin);
drawAll();

if (document.body.dataset.live === "yes") {
  let last = JSON.stringify(data);
  setInterval(async () => {
    try {
      const answer = await fetch("data.json", { cache: "no-store" });
      const text = await answer.text();
      if (!answer.ok || text === last) return;
      last = text; data = JSON.parse(text); drawAll();
    } catch (error) { /* the run's server has ended: what is on the page stays */ }
  }, 2000);
}
