// Pieces that sections are made of: choosers, legends, tables of numbers, and charts that a keyboard can walk through.

const charts = new Map();
const text = (value) => echarts.format.encodeHTML(String(value));

// A chart in its box. `steps` is what the arrow keys walk through: a list of actions that show a tip.
function draw(id, height, label, option, steps) {
  const box = byId(id);
  box.style.height = `${height}px`;
  if (!charts.has(id)) {
    charts.set(id, { chart: echarts.init(box, null, { renderer: "svg", width: width(box), height }), steps: [], at: -1 });
    Object.entries({ tabindex: "0", role: "img" }).forEach(([name, value]) => box.setAttribute(name, value));
    box.addEventListener("keydown", (event) => walk(id, event));
    box.addEventListener("blur", () => charts.get(id).chart.dispatchAction({ type: "hideTip" }));
  }
  box.setAttribute("aria-label", `${label}. Arrow keys walk through it; the figures also stand in the table below.`);
  const entry = charts.get(id);
  entry.steps = steps;
  entry.at = Math.min(entry.at, steps.length - 1);
  entry.chart.resize({ width: width(box), height });
  entry.chart.setOption(styled(option), { notMerge: true });
  box.querySelector("svg").setAttribute("viewBox", `0 0 ${width(box)} ${height}`); // paper scales it to the column's width
}

const ON_PAPER = { "bar-chart": 410, "gap-chart": 270 };
const width = (box) => (printing.matches ? ON_PAPER[box.id] || 700 : Math.max(200, box.clientWidth));

function walk(id, event) {
  const entry = charts.get(id);
  const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
  if (event.key === "Escape") entry.chart.dispatchAction({ type: "hideTip" });
  if (!step || !entry.steps.length) return;
  event.preventDefault();
  entry.at = (Math.max(entry.at, step < 0 ? 0 : -1) + step + entry.steps.length) % entry.steps.length;
  entry.chart.dispatchAction({ type: "showTip", ...entry.steps[entry.at](entry.chart) });
}

// What every chart has in common.
function styled(option) {
  const font = getComputedStyle(document.body).fontFamily;
  return {
    animation: false,
    textStyle: { fontFamily: font, color: css("ink"), fontSize: 12 },
    ...option,
    tooltip: {
      confine: true,
      backgroundColor: css("sheet"),
      borderColor: css("line"),
      padding: [8, 12],
      textStyle: { color: css("ink"), fontSize: 13, fontFamily: font },
      extraCssText: "box-shadow: 0 2px 10px rgba(0,0,0,.15); border-radius: 6px; z-index: 2",
      ...option.tooltip,
    },
  };
}

function axis(more = {}) {
  const quiet = css("quiet");
  return {
    axisLine: { show: false },
    axisTick: { show: false },
    splitLine: { lineStyle: { color: css("line") } },
    nameTextStyle: { color: quiet, fontSize: 12 },
    ...more,
    axisLabel: { color: quiet, fontSize: 12, ...more.axisLabel },
  };
}

// An axis of names, which are wrapped into a column beside the chart. A row must be as tall as the longest of them, or they overlap.
function names(labels, box) {
  const room = Math.min(190, Math.round(width(byId(box)) * 0.34));
  const label = { width: room, overflow: "break", lineHeight: 15, color: css("ink"), margin: 10, interval: 0 };
  const tall = 15 * Math.max(...labels.map((name) => linesOf(name, room))) + 10;
  return { room, tall, axis: axis({ type: "category", inverse: true, data: labels, splitLine: { show: false }, axisLabel: label }) };
}

// How many lines a name takes in so many pixels, word by word, at seven pixels a letter.
function linesOf(name, room) {
  let [lines, used] = [1, 0];
  for (const word of name.split(" ")) {
    const long = 7 * word.length;
    if (used && used + 4 + long > room) [lines, used] = [lines + 1, 0];
    lines += Math.max(0, Math.ceil(long / room) - 1); // a word that is too long for a line is broken
    used += (used ? 4 : 0) + Math.min(long, room);
  }
  return lines;
}

function tip(title, rows) {
  const cells = rows.map((row) => `<tr>${row.map((cell) => `<td>${cell}</td>`).join("")}</tr>`).join("");
  return `<div class="tip"><b>${text(title)}</b><table>${cells}</table></div>`;
}
const dot = (fill) => `<span style="display:inline-block;width:.6em;height:.6em;border-radius:50%;margin-right:.45em;background:${fill}"></span>`;

// A chooser keeps its choice across redraws, and is hidden if there is nothing to choose.
function choose(id, options, fallback, change) {
  const box = byId(id);
  const before = box.value;
  const values = options.map(([value]) => String(value));
  box.replaceChildren(...options.map(([value, label]) => el("option", { value }, label)));
  box.value = values.includes(before) ? before : String(fallback);
  box.onchange = change;
  (box.closest("label") || box).hidden = options.length < 2;
  const tools = box.closest(".tools");
  if (tools) tools.hidden = [...tools.querySelectorAll("label")].every((label) => label.hidden);
  return box.value;
}

function legend(where, entries) {
  where.replaceChildren(...entries.map(([label, fill, style]) => el("li", {}, swatch(fill, style), label)));
}

// The section's numbers, made when somebody opens them.
function numbers(section, head, rows) {
  const box = section.querySelector(".numbers");
  const fill = () => {
    if (box.open) box.querySelector(".scroll").replaceChildren(plainTable(head, rows()));
  };
  box.ontoggle = fill;
  fill();
}

function plainTable(head, rows) {
  const spread = (cell) => {
    const [mean, deviation] = String(cell).split(/ (?=± )/);
    return deviation ? [`${mean} `, el("span", { class: "deviation" }, deviation)] : [mean];
  };
  const line = (row) => el("tr", {}, ...row.map((cell, at) => (at ? el("td", {}, ...spread(cell)) : el("th", { scope: "row" }, String(cell)))));
  const headings = head.map((cell, at) => el("th", { scope: "col", class: at ? null : "word" }, cell));
  return el("table", {}, el("thead", {}, el("tr", {}, ...headings)), el("tbody", {}, ...rows.map(line)));
}

const splitChoices = (splits) => splits.map((split) => [split, data.splits[split]]);
