// What all parts share: the data, what the reader has chosen, colours, numbers, and charts that follow both.

let data = JSON.parse(document.getElementById("data").textContent);

// `touched`: the reader has said what to draw; until then it is the best eight, which may change on a live page.
const chosen = { kind: null, rule: null, sort: null, down: true, shown: null, touched: false };
const printing = window.matchMedia("print");
const darkness = window.matchMedia("(prefers-color-scheme: dark)");
const byId = (id) => document.getElementById(id);

// An element with attributes and children; text is always text, never markup.
function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value !== null && value !== false) node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null));
  return node;
}

// ------------------------------------------------------------------------------------------------------------------- numbers

const there = (value) => value !== null && value !== undefined && Number.isFinite(value);
const scaled = (value, metric) => (there(value) ? data.metrics[metric].scale * value : null);
const unit = (metric) => data.metrics[metric].title;

// As `accord show` prints it: shares in percent, scores with four decimals, anything else with four digits, a dash for what is not a number.
const figure = (value, metric) => inFigures(scaled(value, metric), metric);
function inFigures(at, metric) {
  if (!there(at)) return "-";
  const { decimals } = data.metrics[metric];
  return there(decimals) ? at.toFixed(decimals) : String(Number(at.toPrecision(4)));
}
const plusMinus = (pair, metric) => (pair ? figure(pair[0], metric) + (there(pair[1]) ? ` ± ${figure(pair[1], metric)}` : "") : "-");

// ------------------------------------------------------------------------------------------------------------------- choices

const settings = () => data.settings.map((one, index) => ({ ...one, index })).filter((one) => one.kind === chosen.kind);
const shown = () => settings().filter((one) => chosen.shown.has(one.id) && Object.keys(one.curves.metrics).length);
const figures = (one, rule = chosen.rule) => one.figures[rule].values;
const splitsOf = (some) => Object.keys(data.splits).filter((split) => some.some((one) => split in figures(one, "last10")));
const metricOf = () => (settings().find((one) => Object.keys(one.curves.metrics).length) || { metric: Object.keys(data.metrics)[0] }).metric;

// The settings that stand out: the best by the rule on held-out data, or on what there is.
function best(count) {
  const split = ["heldout", "test", "unseen", "train"].find((name) => splitsOf(settings()).includes(name));
  const value = (one) => (figures(one)[split] || [null])[0];
  const worth = (one) => (there(value(one)) ? (one.smaller ? -value(one) : value(one)) : -Infinity);
  return settings().sort((a, b) => worth(b) - worth(a)).slice(0, count);
}

// -------------------------------------------------------------------------------------------------------------------- colours

// Okabe and Ito's palette, told apart by people who see colours differently; darker or lighter to stand out from the sheet.
const PALETTES = {
  light: ["#0072b2", "#d55e00", "#00875f", "#b4558d", "#e09a00", "#3a9bd9", "#5b6770", "#7a4b00"],
  dark: ["#5aa9e6", "#f28c4f", "#35c795", "#e095c2", "#f0c04c", "#9ad4f7", "#aeb8c0", "#c79a5b"],
};
const OF_SPLITS = {
  light: { train: "#b3bec8", heldout: "#0072b2", unseen: "#d55e00", test: "#5b6770" },
  dark: { train: "#56616b", heldout: "#5aa9e6", unseen: "#f28c4f", test: "#aeb8c0" },
};
const OF_GAPS = { light: { out_of_sample: "#3a9bd9", participation: "#e09a00" }, dark: { out_of_sample: "#9ad4f7", participation: "#f0c04c" } };
const RAMPS = {
  light: ["#f3f6f9", "#cfe0ee", "#8fbbdc", "#4a8fc4", "#15609b", "#0a3a63"],
  dark: ["#1f262d", "#1d3f5c", "#1f6096", "#3f8ccb", "#85bfee", "#d6ecff"],
};
const DASHES = ["solid", "dashed", "dotted"];

const theme = () => {
  const asked = document.documentElement.dataset.theme;
  return printing.matches ? "light" : asked || (darkness.matches ? "dark" : "light");
};
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

// A setting keeps its colour for as long as it is shown, and takes one that nobody has.
const places = new Map();
function place(id) {
  for (const known of [...places.keys()]) if (!chosen.shown.has(known)) places.delete(known);
  if (!places.has(id)) {
    const taken = new Set(places.values());
    let free = 0;
    while (taken.has(free)) free += 1;
    places.set(id, free);
  }
  return places.get(id);
}
const colour = (id) => PALETTES[theme()][place(id) % PALETTES.light.length];
const dash = (id) => DASHES[Math.floor(place(id) / PALETTES.light.length) % DASHES.length];

// What stands beside a name: a line as it is drawn, a point's shape, or a square.
function swatch(fill, style = null) {
  const box = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  box.setAttribute("class", "swatch");
  box.setAttribute("viewBox", "0 0 26 14");
  box.setAttribute("aria-hidden", "true");
  const mark = document.createElementNS("http://www.w3.org/2000/svg", "path");
  const outline = { circle: "M6 7a7 7 0 1 1 14 0a7 7 0 1 1-14 0", diamond: "M13 0l7 7-7 7-7-7z", triangle: "M13 1l7 12H6z" }[style];
  const attributes = DASHES.includes(style)
    ? { d: "M1 7H25", stroke: fill, "stroke-width": 3.5, "stroke-dasharray": { dashed: "7 4", dotted: "3 4" }[style] || "none" }
    : { d: outline || "M6 0h14v14H6z", fill };
  for (const [name, value] of Object.entries(attributes)) mark.setAttribute(name, value);
  box.append(mark);
  return box;
}
