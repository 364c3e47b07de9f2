// The result table: one row per setting, mean and deviation over seeds, by the rule; sorted by any column.

function columns() {
  const all = settings();
  const splits = splitsOf(all);
  const gaps = Object.entries(data.gaps).filter(([, gap]) => gap.splits.every((split) => splits.includes(split)));
  const tests = data.tests.map((name) => [`test, ${name}`, name]).filter(([key]) => all.some((one) => key in figures(one, "last10")));
  const value = (name) => (one) => (figures(one)[name] || [null])[0];
  const cell = (name) => (one) => spread(figures(one)[name], one.metric);
  const rounds = (one) => one.runs.map((run) => run.rounds);
  const told = (some) => [Math.min(...some), Math.max(...some)].filter((number, at, pair) => !at || number !== pair[0]).join("-");
  const list = [
    { key: "label", lines: [unit(metricOf())], word: true, sort: (one) => one.label, cell: label },
    { key: "seeds", lines: [all.every((one) => one.runs.length === 1) ? "seed" : "seeds"], minor: true, sort: (one) => one.runs.length, cell: (one) => one.runs.map((run) => run.seed).join(",") },
    { key: "rounds", lines: ["rounds"], minor: true, sort: (one) => Math.max(...rounds(one)), cell: (one) => told(rounds(one)) },
    ...splits.map((split) => ({ key: split, lines: [data.splits[split]], sort: value(split), cell: cell(split) })),
    ...tests.map(([key, name]) => ({ key, lines: [name], sort: value(key), cell: cell(key) })),
    ...gaps.map(([gap, { difference }]) => ({ key: gap, lines: inTwo(difference), sort: value(gap), cell: cell(gap) })),
  ];
  if (all.some((one) => one.runs.some((run) => run.status !== "done")))
    list.push({ key: "status", lines: ["status"], word: true, status: true, sort: statuses, cell: statuses });
  return list;
}

function inTwo(title) {
  const [first, second] = title.split(" - ");
  return [`${first} `, el("br"), `− ${second}`];
}

const statuses = (one) => [...new Set(one.runs.map((run) => run.status))].sort().join("; ");

// Deviations stand in a column of their own width, so that the means line up.
function spread(pair, metric) {
  if (!pair) return "-";
  const deviation = there(pair[1]) ? ` ± ${figure(pair[1], metric)}` : "";
  return el("span", {}, figure(pair[0], metric), deviation ? el("span", { class: "deviation" }, deviation) : "");
}

function label(one) {
  const drawn = chosen.shown.has(one.id);
  const toggle = () => {
    chosen.touched = true;
    if (!chosen.shown.delete(one.id)) chosen.shown.add(one.id);
    render();
  };
  const box = el("input", { type: "checkbox", checked: drawn, onchange: toggle, "data-key": `show ${one.id}`, "aria-label": `Draw ${one.label}` });
  return el("label", {}, box, drawn ? swatch(colour(one.id), dash(one.id)) : el("span", { class: "swatch" }), el("span", {}, one.label));
}

function order(a, b) {
  if (typeof a === "string") return a.localeCompare(b, undefined, { numeric: true });
  if (!there(a) || !there(b)) return there(a) - there(b);
  return a - b;
}

function drawTable() {
  const list = columns();
  const by = list.find((column) => column.key === chosen.sort);
  const rows = settings().length > 8 ? best(Infinity) : settings(); // of many, those that are drawn at first stand first
  const inTurn = data.left_out[chosen.kind];
  const unseen = (one) => one.runs[0].unseen;
  if (inTurn) rows.sort((a, b) => order(unseen(a), unseen(b))); // those that are judged on the same clients stand together
  if (by) {
    rows.sort((a, b) => (chosen.down ? order(by.sort(b), by.sort(a)) : order(by.sort(a), by.sort(b))));
    const empty = (one) => typeof by.sort(one) !== "string" && !there(by.sort(one));
    rows.sort((a, b) => empty(a) - empty(b)); // what has no figure stands last, either way
  }
  const sortBy = (column) => () => {
    chosen.down = chosen.sort === column.key ? !chosen.down : !column.word;
    chosen.sort = column.key;
    render();
  };
  const heading = (column) => {
    const sorted = column === by ? (chosen.down ? "descending" : "ascending") : null;
    const button = el("button", { type: "button", onclick: sortBy(column), "data-key": `sort ${column.key}` }, ...column.lines);
    return el("th", { scope: "col", class: column.word ? "word" : column.minor ? "minor" : null, "aria-sort": sorted }, button);
  };
  const cellOf = (one) => (column, at) => {
    const attributes = at ? { class: column.status ? "word status" : column.minor ? "minor" : null } : { scope: "row" };
    return el(at ? "td" : "th", attributes, column.cell(one));
  };
  const line = (one) => el("tr", { "data-id": one.id }, ...list.map(cellOf(one)));
  byId("table").replaceChildren(el("thead", {}, el("tr", {}, ...list.map(heading))), el("tbody", {}, ...rows.map(line)));
  byId("rule-about").textContent =
    `By ${chosen.rule}: ${data.rules[chosen.rule]}. Mean and standard deviation over seeds. Ticked rows are drawn below.${unseenByAll()}` +
    (inTurn ? " Rows with different unseen clients are judged on different data: only those with the same ones can be compared." : "");
  drawPick();
}

// Who is unseen, where it is the same in all runs.
function unseenByAll() {
  const names = new Set(settings().flatMap((one) => one.runs.map((run) => run.unseen)));
  return names.size === 1 && [...names][0] ? ` Unseen: ${[...names][0]}.` : "";
}

function drawLeftOut() {
  const [head, ...rows] = data.left_out[chosen.kind]?.[chosen.rule] || [];
  byId("left-out").hidden = !head;
  if (head) byId("left-out-table").replaceChildren(...plainTable(head, rows).childNodes);
}

// The answers of accord choose: a paragraph each, the table that says why, and the command.
function drawChoice() {
  const about = "Every rule at the rates that held-out data chose for it: mean and standard deviation over seeds, and how far it is ahead of averaging, with intervals that hold for all rules at once; the last row, what was chosen, by itself.";
  const answer = ({ paragraph, table: [head, ...rows], command }) => [
    el("p", {}, paragraph),
    el("p", { class: "about" }, about),
    el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Rules" }, el("table", { class: "wraps" }, ...plainTable(head, rows).childNodes)),
    el("p", { class: "about" }, command),
  ];
  byId("choice").hidden = !data.choices.length;
  byId("answers").replaceChildren(...data.choices.flatMap(answer));
}

function drawPick() {
  const pick = (some) => () => {
    chosen.touched = true;
    chosen.shown = new Set(some.map((one) => one.id));
    render();
  };
  const ways = [["The best eight", () => best(8)], ["All", settings], ["None", () => []]];
  const buttons = ways.map(([title, some]) => el("button", { type: "button", "data-key": `pick ${title}`, onclick: () => pick(some())() }, title));
  byId("pick").hidden = settings().length < 3;
  byId("pick").replaceChildren("Draw", ...buttons);
}
