// Puts the page together, and again whenever the reader chooses, the window changes or, on a live page, runs go on.

function render() {
  const focused = document.activeElement && document.activeElement.dataset.key;
  if (!data.kinds.includes(chosen.kind)) [chosen.kind, chosen.shown] = [data.kinds[0] || "", null];
  chosen.rule = chosen.rule || data.rule;
  if (!chosen.shown || !chosen.touched) chosen.shown = new Set(best(8).map((one) => one.id));
  drawHead();
  drawTable();
  for (const part of [drawChoice, drawLeftOut, drawCurves, drawBars, drawClients, drawAgreement, drawGrids, drawPapers, drawSettings]) part();
  if (focused) [...document.querySelectorAll("[data-key]")].find((node) => node.dataset.key === focused)?.focus({ preventScroll: true });
}

function drawHead() {
  const all = settings();
  const runs = all.reduce((sum, one) => sum + one.runs.length, 0);
  const count = (number, what) => `${number} ${what}${number === 1 ? "" : "s"}`;
  const going = all.flatMap((one) => one.runs).filter((run) => run.status !== "done").length;
  byId("title").textContent = chosen.kind || (runs ? "No figures yet" : data.papers.length ? "Ours and theirs" : "No runs yet");
  document.title = `${byId("title").textContent} · accord report`;
  byId("lead").textContent = runs ? `${count(runs, "run")} of ${count(all.length, "setting")}${going ? `, ${going} not done` : ""}` : "";
  byId("results").hidden = !runs;
  byId("notices").hidden = !data.notices.length;
  byId("notices").replaceChildren(...data.notices.map((notice) => el("li", {}, notice)));
  chosen.kind = choose("kind", data.kinds.map((kind) => [kind, kind]), chosen.kind, (event) => {
    [chosen.kind, chosen.shown, chosen.touched, chosen.sort] = [event.target.value, null, false, null];
    render();
  }) || chosen.kind;
  segments("rule", Object.keys(data.rules), chosen.rule, (rule) => { chosen.rule = rule; render(); });
  segments("theme", ["auto", "light", "dark"], document.documentElement.dataset.theme || "auto", recolour);
  const when = new Date(data.made);
  byId("made").textContent = `Made with accord ${data.accord} on ${when.toLocaleDateString(undefined, { dateStyle: "long" })}, ${when.toLocaleTimeString(undefined, { timeStyle: "short" })}.`;
}

function segments(id, values, at, change) {
  const box = byId(id);
  if (!box.querySelector("input"))
    box.append(...values.map((value) => el("label", {}, el("input", { type: "radio", name: id, value, onchange: () => change(value) }), el("span", {}, value))));
  for (const input of box.querySelectorAll("input")) input.checked = input.value === at;
}

function recolour(asked) {
  if (asked === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = asked;
  try { localStorage.setItem("accord-theme", asked); } catch { /* a page from disk may have no memory */ }
  render();
}

// ---------------------------------------------------------------------------------------------------------------------- live

let tag = null;
async function renew() {
  const status = byId("live");
  try {
    const answer = await fetch("data.json", { headers: tag ? { "If-None-Match": tag } : {}, cache: "no-store" });
    if (answer.status === 200) {
      tag = answer.headers.get("ETag");
      data = await answer.json();
      render();
    }
    status.classList.remove("gone");
    status.textContent = `live, as of ${new Date(data.made).toLocaleTimeString()}`;
  } catch {
    status.classList.add("gone");
    status.textContent = "the server has stopped: this is how things stood";
  }
  setTimeout(renew, document.hidden ? 10000 : 2000);
}

// --------------------------------------------------------------------------------------------------------------------- start

try {
  const kept = localStorage.getItem("accord-theme");
  if (["light", "dark"].includes(kept)) document.documentElement.dataset.theme = kept;
} catch { /* as above */ }
render();
printing.addEventListener("change", render);
darkness.addEventListener("change", render);
let wide = document.body.clientWidth;
new ResizeObserver(() => {
  if (document.body.clientWidth === wide || printing.matches) return;
  wide = document.body.clientWidth;
  render();
}).observe(document.body);
if (data.live) {
  byId("live").hidden = false;
  renew();
}
