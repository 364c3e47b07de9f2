// What was set: a table of the keys that differ, and every setting whole.

function flattened(table, before = "") {
  return Object.entries(table).flatMap(([key, value]) =>
    value !== null && typeof value === "object" && !Array.isArray(value) ? flattened(value, `${before}${key}.`) : [[before + key, value]],
  );
}
const written = (value) => (value === undefined ? "" : typeof value === "string" ? value : JSON.stringify(value));

// A key that may go on in another line after each of its dots.
const breaking = (key) => el("span", {}, ...key.split(".").flatMap((word, at) => (at ? [".", el("wbr"), word] : [word])));

function drawSettings() {
  const all = settings();
  byId("settings").hidden = !all.length;
  const flat = all.map((one) => new Map(flattened(one.settings).filter(([key]) => key !== "label" && !key.startsWith("run."))));
  const keys = [...new Set(flat.flatMap((one) => [...one.keys()]))];
  const differ = keys.filter((key) => new Set(flat.map((one) => written(one.get(key)))).size > 1);
  const where = byId("apart");
  where.parentElement.hidden = !differ.length;
  byId("apart-about").textContent = differ.length ? "The keys in which settings differ; each is whole below." : "";
  where.replaceChildren(...plainTable(["setting", ...differ.map(breaking)], all.map((one, at) => [one.label, ...differ.map((key) => written(flat[at].get(key)))])).childNodes);
  const opened = new Set([...document.querySelectorAll("#every details[open]")].map((box) => box.dataset.id));
  byId("every").replaceChildren(...all.map((one) => whole(one, opened.has(one.id))));
}

function whole(one, open) {
  const box = el("details", { "data-id": one.id, open }, el("summary", { "data-key": `whole ${one.id}` }, one.label));
  const fill = () => {
    if (!box.open || box.querySelector("table")) return;
    const runs = one.runs.map((run) => [`seed ${run.seed}`, `${run.folder} (${run.ending}${run.unseen ? `, unseen: ${run.unseen}` : ""})`]);
    const rows = [...runs, ...flattened(one.settings).map(([key, value]) => [key, written(value)])];
    box.append(el("table", {}, el("tbody", {}, ...rows.map((row) => el("tr", {}, ...row.map((cell) => el("td", {}, cell)))))));
  };
  box.addEventListener("toggle", fill);
  fill();
  return box;
}
