// The page: what is chosen, and the sections drawn from the data.
let data = JSON.parse(document.getElementById("data").textContent);
const chosen = { suite: null, metric: "return", curve: "return", axis: "step", hidden: new Set(), large: null, cost: null, episode: null, diagnostic: null };
const MARKS = { above: "▲", level: "≈", below: "▼", early: "▽", alone: "" };
const METRICS = { return: "Return", valid_action_rate: "Valid action rate", calls: "Solver calls" };
const CURVES = { return: "Return", valid: "Valid action rate", calls: "Projections", acceptance: "Acceptance", diagnostics: "Diagnostics" };
const AXES = { step: "Steps", seconds: "Time" };

const find = (id) => document.getElementById(id);
const colourOf = (method) => `var(--c${data.methods.find((m) => m.id === method).place % 8})`;
const dashOf = (method) => DASHES[Math.floor(data.methods.find((m) => m.id === method).place / 8) % 4];
const shapeOf = (method) => Math.floor(data.methods.find((m) => m.id === method).place / 8) % 4;
const shown = () => data.results.filter((r) => r.suite === chosen.suite);
const tasksShown = () => data.tasks.filter((t) => shown().some((r) => r.task === t.id));
const methodsShown = () => data.methods.filter((m) => shown().some((r) => r.method === m.id));
const visible = (r) => !chosen.hidden.has(r.method);
const written = (value, digits) => value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits }).replace("-", "−");
const digitsFor = (deviation) => deviation > 0 ? Math.min(4, Math.max(0, 1 - Math.floor(Math.log10(deviation)))) : 3;
const plusMinus = (mean, deviation, count) => count > 1 ? `${written(mean, digitsFor(deviation))} ± ${written(deviation, digitsFor(deviation))}` : compact(mean);
const counted = (count, word) => `${compact(count)} ${word}${count === 1 ? "" : "s"}`;
const interval = (iqm) => { const digits = Math.min(3, digitsFor((iqm[2] - iqm[1]) / 4)); return `${written(iqm[0], digits)} [${written(iqm[1], digits)}, ${written(iqm[2], digits)}]`; };

// Charts are as wide as their place, so that letters keep their size on a narrow screen.
function widthIn(grid, count) {
  const probes = Array.from({ length: count }, () => element("div", { class: "panel" }, grid)), style = getComputedStyle(probes[0]);
  const width = probes[0].clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
  probes.forEach((probe) => probe.remove());
  return Math.max(220, Math.round(width));
}

function highlight(method) {
  for (const place of ["curve-grid", "diagnostic-grid", "trade-grid", "cost-grid"]) {
    find(place).classList.toggle("dimmed", method !== null);
    find(place).querySelectorAll("[data-of]").forEach((mark) => mark.classList.toggle("lit", mark.dataset.of === method));
  }
}

function segments(id, options, current, pick, disabled) {
  const place = find(id);
  place.replaceChildren();
  place.hidden = Object.keys(options).length < 2;  // one option is no choice
  for (const key in options) {
    element("button", { type: "button", "data-key": key, "aria-pressed": String(key === current), disabled: disabled && disabled(key) ? "" : null, on: { click: () => pick(key) } }, place, options[key]);
  }
}

function drawHeader() {
  const t = data.totals, sets = find("sets"), known = data.tasks.filter((task) => task.formula);
  sets.replaceChildren();
  for (const task of known) {
    element("dt", {}, sets, task.name);
    element("code", {}, element("dd", { "data-formula": task.id }, sets), task.formula.replace(/<=/g, "≤").replace(/>=/g, "≥"));
  }
  find("version").textContent = data.version;
  find("lead").textContent = "Every number below can be traced to its run, its seed and its command." + (known.length && t.worst_violation <= 0 ? ` Every executed action satisfies the constraint${known.length > 1 ? " of its task" : ""}:` : "");
  const tiles = [
    [`${data.tasks.length} × ${data.methods.length}`, `${data.tasks.length === 1 ? "task" : "tasks"} × ${data.methods.length === 1 ? "method" : "methods"}`, ""],
    [`${t.complete} of ${t.results}`, `${t.results === 1 ? "result" : "results"} finished: all seeds, all steps`, t.complete === t.results ? "good" : ""],
    [compact(t.environment_steps), `environment steps in ${counted(t.runs, "seed")}`, ""],
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
  const question = data.questions[chosen.suite];
  find("suite-words").textContent = question ? `Suite ${chosen.suite}. ${question}` : "";
  select.onchange = () => { chosen.suite = select.value; chosen.large = null; drawAll(); };
}

function drawSummary() {
  segments("summary-metric", METRICS, chosen.metric, (key) => { chosen.metric = key; drawSummary(); });
  const table = find("summary-table"), methods = methodsShown(), tasks = tasksShown();
  const hasPaper = chosen.metric !== "calls" && tasks.some((task) => (task.published[chosen.metric] || {}).aram);
  const references = chosen.metric === "return" ? [...new Set(tasks.flatMap((t) => Object.keys(t.references)))] : [];
  table.replaceChildren();
  const head = element("tr", {}, element("thead", {}, table));
  element("th", {}, head, "method");
  for (const task of tasks) element("th", {}, head, task.name);
  const body = element("tbody", {}, table);
  const quoted = (name, words) => {
    const line = element("tr", { class: "quoted" }, body);
    element("td", {}, line, name);
    for (const task of tasks) {
      const [value, origin] = words(task);
      element("small", {}, element("td", {}, line, value), origin);
    }
  };
  if (hasPaper) quoted("paper: ARAM", (task) => {
    const published = (task.published[chosen.metric] || {}).aram;
    if (!published) return hasNumbers(task) ? ["–", "no number"] : ["", ""];  // the paper has nothing on an own task
    return [plusMinus(published[0], published[1], 5), chosen.metric === "return" || task.best_rate === null ? published[2] : `best of all methods: ${compact(task.best_rate)}`];
  });
  for (const name of references) quoted(name, (task) => {
    const found = task.references[name];
    return found ? [plusMinus(found.mean, found.deviation, 2), `${found.episodes} episodes`] : ["–", ""];
  });
  for (const method of methods) {
    const line = element("tr", {}, body);
    element("td", {}, line, method.label);
    for (const task of tasks) summaryCell(line, task, shown().find((r) => r.task === task.id && r.method === method.id));
  }
  find("summary-hint").textContent = chosen.metric === "calls"
    ? "Solver calls of training per seed: projected actions and what updates solved."
    : (shown().some((r) => r.seeds.length > 1) ? "Mean ± standard deviation over seeds; below, interquartile mean with its 95 % bootstrap interval. " : "") + (hasPaper ? "Colours compare with the paper's number for the same method. " : "") + "Click a cell for its seeds and origin.";
  if (hasPaper && sameShort()) find("summary-hint").textContent += ` All results are after ${written(shown()[0].steps, 0)} steps only.`;
  const legend = find("summary-legend"), kinds = chosen.metric !== "calls" ? new Set(shown().map((r) => r.final[chosen.metric].verdict)) : new Set();
  legend.replaceChildren();
  for (const kind of ["above", "level", "below", "early"].filter((one) => kinds.has(one))) {
    const swatch = element("span", { class: "swatch" }, legend);
    element("i", {}, swatch).style.background = `var(--${kind})`;
    swatch.append(`${MARKS[kind]} ${data.verdicts[kind]}`);
  }
  if (shown().length === 1) drawDetail(shown()[0], true);
  showScrolling();
}

// A table that is wider than its place says so, at the edge that hides columns.
function showScrolling() {
  for (const scroller of document.querySelectorAll(".scroller")) {
    const area = scroller.firstElementChild, rest = area.scrollWidth - area.clientWidth - area.scrollLeft;
    scroller.classList.toggle("more", rest > 2);
    area.onscroll = showScrolling;
  }
}

// What is true of every cell is said once, above the table.
const sameShort = () => shown().every((r) => r.complete && r.short && r.steps === shown()[0].steps);
const isLogged = (r) => Object.keys(r.diagnostics).length > 0;
const isOfTraining = (curve) => curve === "acceptance" || curve === "diagnostics";
const hasNumbers = (task) => Object.keys(task.published.return).length + Object.keys(task.published.valid_action_rate).length > 0;

function summaryCell(line, task, result) {
  if (!result) { element("td", { class: "none" }, line, chosen.suite ? "not run yet" : "–"); return; }  // nobody planned a single run
  const open = () => drawDetail(result);
  const press = (event) => { if (event.key === "Enter" || event.key === " ") { event.preventDefault(); open(); } };
  const seeds = `${result.seeds.length}${result.seeds.length < result.expected ? ` of ${result.expected}` : ""} seed${result.seeds.length === 1 ? "" : "s"}`;
  if (chosen.metric === "calls") {
    const cell = element("td", { "data-verdict": "alone", "data-result": result.name, tabindex: 0, on: { click: open, keydown: press } }, line, result.calls ? compact(result.calls.mean) : "unknown");
    element("small", {}, cell, seeds);
    return;
  }
  const found = result.final[chosen.metric];
  const cell = element("td", { "data-verdict": found.verdict, "data-result": result.name, "data-mean": found.mean, tabindex: 0, on: { click: open, keydown: press } }, line, plusMinus(found.mean, found.deviation, found.values.length));
  if (hasNumbers(task)) element("span", { class: "mark" }, cell, MARKS[found.verdict]);
  element("small", {}, cell, found.values.length > 1 ? interval(found.iqm) : seeds);
  if (result.complete && !result.suite) element("small", {}, cell, `finished, ${written(result.steps, 0)} steps`);
  else if (result.complete && result.short && !sameShort()) element("small", {}, cell, `after ${written(result.steps, 0)} steps only`);
  if (!result.complete) element("small", {}, cell, `${seeds}, ${written(result.steps, 0)} of ${written(result.planned, 0)} steps, not finished`);
}

function drawDetail(result, stays) {
  const place = find("detail");
  place.hidden = false;
  place.replaceChildren();
  if (!stays) element("button", { type: "button", class: "quiet close", title: "Close", "aria-label": "Close", on: { click: () => { place.hidden = true; } } }, place, "✕");
  element("h3", {}, place, `${result.label} on ${data.tasks.find((t) => t.id === result.task).name}`);
  const list = element("dl", {}, place);
  const add = (name, value, isCode) => {
    element("dt", {}, list, name);
    const cell = element("dd", {}, list);
    if (isCode) element("code", {}, cell, value); else cell.textContent = value;
  };
  add("training", result.complete ? `finished: ${written(result.steps, 0)} steps` : `not finished: ${written(result.steps, 0)} of ${written(result.planned, 0)} steps, ${result.seeds.length} of ${result.expected} seeds`);
  add("numbers from", `${result.source}, ${result.episodes} episodes per seed, preference (${result.preference.join(", ")})`);
  add("return by seed", bySeed(result, result.final.return.values));
  add("valid rate by seed", bySeed(result, result.final.valid_action_rate.values));
  add("deterministic action feasible", `${compact(result.deterministic)} of the visited states, before projection`);
  if (result.calls) add("solver calls by seed", bySeed(result, result.calls.values));
  if (result.preparation !== null) add("preparation", `${brief(result.preparation)} s before the first step, all seeds together, compilation included`);
  add("worst violation", compact(result.worst));
  for (const origin of result.provenance) add(`seed${origin.seeds.length === 1 ? "" : "s"} ${origin.seeds.join(", ")}`, originWords(origin, result));
  const commands = [...new Set(result.provenance.map((origin) => commandOf(origin, result)))];
  for (const command of commands) add("command", command, true);
  if (!stays) place.scrollIntoView({ block: "nearest" });
  showScrolling();
}

// Runs that are merged by their seeds keep the command of each.
const commandOf = (origin, result) => origin.command || result.command;
const bySeed = (result, values) => result.seeds.map((seed, i) => `seed ${seed}: ${compact(values[i])}`).join(" · ");
const deviceWords = (origin) => { const [platform, kind] = String(origin.device || "unknown").split(": "); return platform === kind || !kind ? platform.toUpperCase() : kind; };
const timeWords = (started) => (started || "").slice(0, 16).replace("T", " ");

const usesMujoco = (result) => data.tasks.find((t) => t.id === result.task).mujoco;

function originWords(origin, result) {
  const packages = origin.packages || {};
  return `inbounds ${origin.inbounds}, commit ${(origin.commit || "unknown").slice(0, 10)}${origin.is_dirty ? " with changes" : ""}, ${deviceWords(origin)}, ${origin.processor}, Python ${origin.python}, jax ${packages.jax}${usesMujoco(result) ? `, MuJoCo ${packages.mujoco}` : ""}, ${counted(origin.environments, "environment")} per seed, ${compact(origin.median_steps_per_second)} steps/s, started ${timeWords(origin.started)} UTC`;
}

function drawLegend() {
  const redraw = () => { drawLegend(); drawCurves(); drawTrade(); drawCosts(); drawEpisodes(); };
  for (const id of ["method-legend", "trade-legend"]) {
    const place = find(id), methods = methodsShown();
    place.replaceChildren();
    for (const method of methods) {
      const toggle = () => { if (!chosen.hidden.delete(method.id)) chosen.hidden.add(method.id); highlight(null); redraw(); };
      const button = element("button", { type: "button", "data-method": method.id, "aria-pressed": String(!chosen.hidden.has(method.id)), on: { click: toggle, mouseenter: () => highlight(method.id), mouseleave: () => highlight(null) } }, place);
      const svg = node("svg", { width: 26, height: 12 }, button);
      if (id === "trade-legend") node("path", { d: SHAPES[shapeOf(method.id)](13, 6), fill: colourOf(method.id) }, svg);
      else node("line", { x1: 0, x2: 26, y1: 6, y2: 6, stroke: colourOf(method.id), "stroke-width": 2.5, "stroke-dasharray": dashOf(method.id) || null }, svg);
      button.append(method.label);
    }
    if (methods.length < 3) continue;
    const isAll = !methods.some((method) => chosen.hidden.has(method.id));
    element("button", { type: "button", class: "all", on: { click: () => { for (const m of methods) if (isAll) chosen.hidden.add(m.id); else chosen.hidden.delete(m.id); redraw(); } } }, place, isAll ? "hide all" : "show all");
  }
}

function curveOf(result) {
  const found = chosen.curve === "acceptance" ? result.acceptance : result.curves[chosen.curve];
  if (!found) return null;
  const x = chosen.axis === "seconds" ? result.curves.seconds : found.step;
  if (!x || chosen.axis === "seconds" && chosen.curve === "acceptance") return null;
  const [mid, low, high] = found.band;
  return { of: result.method, label: result.label, colour: colourOf(result.method), dash: dashOf(result.method), x, mid, low, high };
}

function drawCurves() {
  segments("curve-metric", CURVES, chosen.curve, (key) => { chosen.curve = key; if (isOfTraining(key)) chosen.axis = "step"; drawCurves(); }, (key) => key === "diagnostics" && !shown().some(isLogged));
  const alone = shown().some((r) => r.curves.seconds);
  segments("curve-axis", AXES, chosen.axis, (key) => { chosen.axis = key; drawCurves(); }, (key) => key === "seconds" && (!alone || isOfTraining(chosen.curve)));
  find("curve-axis").title = alone ? "" : "Times compare only where one seed trained alone (suite wall-clock).";
  const grid = find("curve-grid"), few = tasksShown().length <= 2;
  find("curve-hint").textContent = (shown().some((r) => r.seeds.length > 1) ? "Line: interquartile mean over seeds; band: 95 % bootstrap interval. " : "") + (tasksShown().some(hasNumbers) ? "Grey and dashed: the paper's ARAM. " : "") + "Click a panel to enlarge it" + (methodsShown().length > 1 ? "; point at a name to find it, click it to hide it." : ".");
  grid.replaceChildren();
  grid.className = find("trade-grid").className = few ? "grid two" : "grid";
  find("diagnostics").hidden = chosen.curve !== "diagnostics";
  if (chosen.curve === "diagnostics") { drawDiagnostics(); return; }
  const width = widthIn(grid, tasksShown().length);
  for (const task of tasksShown()) {
    const results = shown().filter((r) => r.task === task.id && visible(r));
    const isLarge = chosen.large === task.id;
    const panel = element("div", { class: isLarge ? "panel large" : "panel open", "data-task": task.id, on: { click: () => { chosen.large = isLarge ? null : task.id; drawCurves(); } } }, grid);
    const title = element("h3", {}, panel, task.name);
    element("span", {}, title, CURVES[chosen.curve].toLowerCase());
    const published = chosen.curve === "return" ? task.published.return.aram : chosen.curve === "valid" ? task.published.valid_action_rate.aram : null;
    const lines = published && !chosen.hidden.has("paper") ? [{ y: published[0], label: "paper: ARAM" }] : [];
    lineChart(panel, results.map(curveOf).filter(Boolean), {
      width: isLarge ? Math.max(width, grid.clientWidth - 22) : width, height: isLarge ? 420 : few ? 270 : 200, title: `${task.name}, ${CURVES[chosen.curve]}`, lines,
      xlabel: chosen.axis === "step" ? "environment steps" : "seconds of training", ylog: chosen.curve === "calls",
      ys01: chosen.curve === "valid" || chosen.curve === "acceptance" ? [0, 1.02] : null,
    });
  }
}

// Losses, temperature, entropy, acceptance: one panel for each quantity that was logged.
function drawDiagnostics() {
  const grid = find("diagnostic-grid"), tasks = tasksShown().filter((t) => shown().some((r) => r.task === t.id && isLogged(r)));
  grid.replaceChildren();
  find("diagnostic-task").hidden = tasks.length < 2;
  find("curve-hint").textContent = "What the learner logged about itself during training; every quantity has its own vertical axis.";
  if (!tasks.length) { chosen.curve = "return"; drawCurves(); return; }
  if (!tasks.some((t) => t.id === chosen.diagnostic)) chosen.diagnostic = tasks[0].id;
  segments("diagnostic-task", Object.fromEntries(tasks.map((t) => [t.id, t.name])), chosen.diagnostic, (key) => { chosen.diagnostic = key; drawDiagnostics(); });
  const results = shown().filter((r) => r.task === chosen.diagnostic && visible(r)), names = [...new Set(results.flatMap((r) => Object.keys(r.diagnostics)))].sort();
  if (!results.length) { element("p", { class: "hint empty" }, grid, "All methods of this task are hidden."); return; }
  const width = widthIn(grid, names.length);
  for (const name of names) {
    const panel = element("div", { class: "panel", "data-quantity": name }, grid);
    element("h3", {}, panel, name.replace(/_/g, " "));
    const curves = results.filter((r) => r.diagnostics[name]).map((r) => {
      const { step, band: [mid, low, high] } = r.diagnostics[name];
      return { of: r.method, label: r.label, colour: colourOf(r.method), dash: dashOf(r.method), x: step, mid, low, high };
    });
    lineChart(panel, curves, { width, height: 170, title: name.replace(/_/g, " "), xlabel: "environment steps" });
  }
}

function drawTrade() {
  const grid = find("trade-grid"), marks = shown().flatMap((r) => r.seeds.concat(r.front ? r.front.points : []));
  grid.replaceChildren();
  find("trade").hidden = marks.length < 2;  // one mark compares with nothing
  if (marks.length < 2) return;
  const width = widthIn(grid, tasksShown().length);
  for (const task of tasksShown()) {
    const groups = shown().filter((r) => r.task === task.id && visible(r)).map((r) => ({
      of: r.method, label: r.label, colour: colourOf(r.method), shape: shapeOf(r.method),
      points: r.seeds.map((seed, i) => [r.final.valid_action_rate.values[i], r.final.return.values[i], seed]),
      line: r.front ? r.front.points.map((p) => [p[3], p[1], `${p[0]} ${Number((1 - p[0]).toFixed(4))}`, p[0] === r.front.suggested[0]]) : null,
    }));
    if (!groups.length) continue;
    const panel = element("div", { class: "panel", "data-task": task.id }, grid);
    element("span", {}, element("h3", {}, panel, task.name), "return");
    scatterChart(panel, groups, { width, height: tasksShown().length <= 2 ? 270 : 200, title: `${task.name}, return and validity`, xlabel: "valid action rate" });
  }
}

function drawCosts() {
  const grid = find("cost-grid"), tasks = tasksShown().filter((t) => shown().some((r) => r.task === t.id && (r.calls || r.inference || r.preparation !== null)));
  grid.replaceChildren();
  find("costs").hidden = !tasks.length;
  if (!tasks.length) return;
  if (!tasks.some((t) => t.id === chosen.cost)) chosen.cost = tasks[0].id;
  segments("cost-task", Object.fromEntries(tasks.map((t) => [t.id, t.name])), chosen.cost, (key) => { chosen.cost = key; drawCosts(); });
  const task = tasks.find((t) => t.id === chosen.cost), results = shown().filter((r) => r.task === task.id && visible(r));
  if (!results.length) { element("p", { class: "hint empty" }, grid, "All methods of this task are hidden."); return; }
  const width = widthIn(grid, 1 + results.some((r) => r.inference) + results.some((r) => r.preparation !== null));
  const panel = (words) => { const made = element("div", { class: "panel" }, grid); element("span", {}, element("h3", {}, made, task.name), words); return made; };
  const calls = results.filter((r) => r.calls).map((r) => ({ of: r.method, label: r.label, value: r.calls.mean, words: compact(r.calls.mean), colour: colourOf(r.method), rows: r.calls.values.map((v, i) => [`seed ${r.seeds[i]}`, compact(v)]) }));
  const times = results.filter((r) => r.inference).map((r) => ({ of: r.method, label: r.label, value: r.inference.median, words: brief(r.inference.median), colour: colourOf(r.method), rows: [["median", `${brief(r.inference.median)} µs`], ["mean", `${brief(r.inference.mean)} µs`], ["99th percentile", `${brief(r.inference.slowest_percent)} µs`], ["with the environment's step", `${brief(r.inference.with_step)} µs`], [r.inference.path, ""]] }));
  if (calls.length) barChart(panel("solver calls of training, per seed"), calls, { width, xlog: true, title: `${task.name}, solver calls`, xlabel: "calls, logarithmic" });
  if (times.length) barChart(panel("time to choose one action"), times, { width, title: `${task.name}, inference time`, xlabel: "microseconds, median" });
  const prepared = results.filter((r) => r.preparation !== null).map((r) => ({ of: r.method, label: r.label, value: r.preparation, words: brief(r.preparation), colour: colourOf(r.method), rows: [["before the first step", `${brief(r.preparation)} s`], ["seeds together", String(r.seeds.length)]] }));
  if (prepared.length) barChart(panel("preparation before the first step"), prepared, { width, title: `${task.name}, preparation`, xlabel: "seconds, compilation included" });
}

function drawEpisodes() {
  const grid = find("episode-grid"), kept = shown().filter((r) => r.episode || r.film), tasks = tasksShown().filter((t) => kept.some((r) => r.task === t.id));
  grid.replaceChildren();
  find("episodes").hidden = !tasks.length;
  if (!tasks.length) return;
  if (!tasks.some((t) => t.id === chosen.episode)) chosen.episode = tasks[0].id;
  segments("episode-task", Object.fromEntries(tasks.map((t) => [t.id, t.name])), chosen.episode, (key) => { chosen.episode = key; drawEpisodes(); });
  const results = kept.filter((r) => r.task === chosen.episode && visible(r));
  if (!results.length) { element("p", { class: "hint empty" }, grid, "All methods of this task are hidden."); return; }
  const width = widthIn(grid, results.length);
  for (const result of results) {
    const panel = element("div", { class: "panel" }, grid);
    const title = element("h3", {}, panel, tasks.length > 1 ? result.label : `${result.label} on ${tasks[0].name}`);
    element("span", {}, title, result.episode ? `return ${brief(result.episode.total)}` : "");
    if (result.film) element(result.film.startsWith("data:video") ? "video" : "img", { src: result.film, controls: "", loop: "", muted: "", playsinline: "", alt: "the policy at work" }, panel);
    if (result.episode) lineChart(panel, [{ label: "share of the bound", colour: colourOf(result.method), x: result.episode.step, mid: result.episode.share }], { width, height: 150, title: `${result.label}, use of the constraint`, xlabel: "step of the episode", ys01: [0, 1.12], lines: [{ y: 1, label: "boundary" }] });
  }
}

function drawOrigin() {
  const table = find("origin-table"), words = find("origin-filter").value.toLowerCase();
  table.replaceChildren();
  const head = element("tr", {}, element("thead", {}, table)), hasMujoco = shown().some(usesMujoco);
  const names = ["result", "seeds", "steps", "device", "commit", ...(hasMujoco ? ["MuJoCo"] : []), "jax", "started (UTC)", "command"];
  for (const name of names) element("th", {}, head, name);
  const body = element("tbody", {}, table);
  let lines = 0;
  for (const result of shown()) for (const origin of result.provenance) {
    const packages = origin.packages || {};
    const cells = [result.name, origin.seeds.join(" "), written(result.steps, 0), deviceWords(origin), (origin.commit || "unknown").slice(0, 10) + (origin.is_dirty ? "+" : ""), ...(hasMujoco ? [usesMujoco(result) && packages.mujoco || "–"] : []), packages.jax || "–", timeWords(origin.started)];
    if (words && !(cells.join(" ") + commandOf(origin, result)).toLowerCase().includes(words)) continue;
    lines += 1;
    const line = element("tr", {}, body);
    cells.forEach((cell) => element("td", {}, line, cell));
    element("code", {}, element("td", { class: "command" }, line), commandOf(origin, result));
  }
  if (!lines) element("td", { colspan: names.length }, element("tr", {}, body), `No result of this suite matches “${words}”.`);
  showScrolling();
}

function drawNotes() {
  const list = find("notes-list");
  find("notes-title").textContent = Object.keys(data.notes).length ? "Definitions, and limits of the comparison" : "Definitions";
  list.querySelectorAll("[data-note]").forEach((old) => old.remove());
  for (const name in data.notes) {
    element("dt", { "data-note": "" }, list, `compared with the paper: ${name.replace(/_/g, " ")}`);
    element("dd", { "data-note": "" }, list, data.notes[name]);
  }
}

// A link leads only to what is on the page.
function drawNavigation() {
  for (const link of document.querySelectorAll("nav a")) link.hidden = find(link.hash.slice(1)).hidden;
}

function drawAll() {
  if (!data.suites.includes(chosen.suite)) chosen.suite = data.suites[0];
  drawHeader(); drawSuites(); drawSummary(); drawLegend(); drawCurves(); drawTrade(); drawCosts(); drawEpisodes(); drawOrigin(); drawNotes(); drawNavigation();
}

const prefersDark = matchMedia("(prefers-color-scheme: dark)");
function applyTheme(theme) { document.documentElement.dataset.theme = theme; }
applyTheme(prefersDark.matches ? "dark" : "light");
prefersDark.addEventListener("change", (event) => applyTheme(event.matches ? "dark" : "light"));
find("theme").addEventListener("click", () => applyTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark"));
find("origin-filter").addEventListener("input", drawOrigin);
let resized = null, wide = innerWidth;
addEventListener("resize", () => {
  if (innerWidth === wide) return;  // a phone's address bar comes and goes; only the width matters
  wide = innerWidth;
  clearTimeout(resized);
  resized = setTimeout(() => { drawCurves(); drawTrade(); drawCosts(); drawEpisodes(); showScrolling(); }, 150);
});
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
