// Ours against theirs: a point on the diagonal is a number reproduced.

function drawPapers() {
  const section = byId("papers");
  section.hidden = !data.papers.length;
  if (!data.papers.length) return;
  const which = Number(choose("paper-which", data.papers.map((one, at) => [at, one.title]), 0, drawPapers));
  const study = data.papers[which];
  const rules = [...new Set(study.points.flatMap((point) => Object.keys(point.ours)))];
  const rule = rules.includes(chosen.rule) ? chosen.rule : rules[0]; // a study may have windows of rounds of its own
  const points = study.points.filter((point) => point.ours[rule]);
  const part = study.done < study.runs ? ` ${study.done} of ${study.runs} runs are done.` : "";
  const about = points.length
    ? `${study.title}. Test accuracy in percent, ours by ${rule}, theirs as printed; on the line both agree.${part}`
    : `${study.title}. No cell with a printed number is complete yet.${part}`;
  byId("paper-about").replaceChildren(about, el("br"), el("code", {}, study.command));
  const rivals = [...new Set(points.map((point) => point.rival))];
  const fill = (rival) => PALETTES[theme()][rivals.indexOf(rival) % PALETTES.light.length];
  const shape = (rival) => ["circle", "diamond", "triangle", "rect"][rivals.indexOf(rival) % 4];
  legend(section.querySelector(".legend"), rivals.map((rival) => [rival, fill(rival), shape(rival)]));
  byId("paper-chart").hidden = section.querySelector(".numbers").hidden = !points.length;
  if (!points.length) return;
  const all = points.flatMap((point) => [point.printed, point.ours[rule][0]]);
  const step = Math.max(...all) - Math.min(...all) > 20 ? 10 : 2;
  const [low, high] = [Math.max(0, step * Math.floor(Math.min(...all) / step - 0.3)), Math.min(100, step * Math.ceil(Math.max(...all) / step + 0.3))];
  const percent = ([mean, deviation]) => mean.toFixed(2) + (there(deviation) ? ` ± ${deviation.toFixed(2)}` : "");
  const printed = (point) => point.printed + (point.std ? ` ± ${point.std}` : "") + (point.window ? ` (${point.window})` : "");
  const away = (point) => { const gap = point.ours[rule][0] - point.printed; return `${gap < 0 ? "−" : "+"}${Math.abs(gap).toFixed(2)}`; };
  const inWords = ({ data: { point } }) => tip(point.cell, [["theirs", `<b>${text(printed(point))}</b>`], [`ours, ${text(rule)}`, `<b>${percent(point.ours[rule])}</b>`], ["apart", away(point)]]);
  const size = Math.min(width(byId("paper-chart")), 560);
  const diagonal = { symbol: "none", silent: true, label: { show: false }, lineStyle: { color: css("quiet"), type: "dashed", width: 1 }, data: [[{ coord: [low, low] }, { coord: [high, high] }]] };
  const option = {
    grid: { left: 52, top: 30, bottom: 48, width: size - 76 },
    tooltip: { trigger: "item", formatter: inWords },
    xAxis: axis({ type: "value", min: low, max: high, name: "printed", nameLocation: "middle", nameGap: 30 }),
    yAxis: axis({ type: "value", min: low, max: high, name: `ours, ${rule}`, nameTextStyle: { align: "left", color: css("quiet") } }),
    series: rivals.map((rival, at) => ({
      name: rival, type: "scatter", symbol: shape(rival), symbolSize: 11, itemStyle: { color: fill(rival), opacity: 0.85, borderColor: css("sheet"), borderWidth: 1 },
      data: points.filter((point) => point.rival === rival).map((point) => ({ value: [point.printed, point.ours[rule][0]], point })),
      emphasis: { disabled: true }, ...(at ? {} : { markLine: diagonal }),
    })),
  };
  const steps = rivals.flatMap((rival, at) => points.filter((point) => point.rival === rival).map((_, index) => () => ({ seriesIndex: at, dataIndex: index })));
  draw("paper-chart", Math.min(size, 460), `Ours against what ${study.title} prints, ${points.length} numbers`, option, steps);
  numbers(section, ["cell", "theirs", `ours, ${rule}`, "apart"], () => points.map((point) => [point.cell, printed(point), percent(point.ours[rule]), away(point)]));
}
