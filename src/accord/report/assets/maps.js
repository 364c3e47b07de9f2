// Heat maps: agreement by layer and round, and figures over grids of tau and learning rates.

function drawAgreement() {
  const section = byId("agreement");
  const some = settings().filter((one) => one.agreement);
  section.hidden = !some.length;
  if (!some.length) return;
  const first = some.find((one) => chosen.shown.has(one.id)) || some[0];
  const id = choose("agreement-setting", some.map((one) => [one.id, one.label]), first.id, drawAgreement);
  const { rounds, layers, values } = some.find((one) => one.id === id).agreement;
  const cells = layers.flatMap((_, row) => rounds.map((_, column) => [column, row, values[row][column]])).filter((cell) => there(cell[2]));
  const title = (layer) => (layer === "all" ? "whole model" : layer);
  const inWords = ({ value: [column, row, at] }) => tip(title(layers[row]), [[`round ${rounds[column]}`, `<b>${at.toFixed(3)}</b>`]]);
  heatMap("agreement-chart", {
    columns: rounds, rows: layers.map(title), cells, low: 0, high: 1, x: "round", inWords, height: 96 + Math.max(160, 19 * layers.length),
    label: `Agreement by parameter over ${rounds.at(-1)} rounds`,
  });
  numbers(section, ["round", ...layers.map(title)], () => rounds.map((round, at) => [round, ...values.map((row) => (there(row[at]) ? row[at].toFixed(3) : "-"))]));
}

function drawGrids() {
  const section = byId("grids");
  const grids = data.grids.filter((grid) => grid.kind === chosen.kind);
  section.hidden = !grids.length;
  if (!grids.length) return;
  const title = (grid) => (grid.y ? `${grid.title}: ${grid.y} by ${grid.x}` : `by ${grid.x}`);
  const grid = grids[Number(choose("grid-which", grids.map((one, at) => [at, title(one)]), 0, drawGrids))];
  const metric = metricOf();
  const all = grid.cells.map(([, , index]) => data.settings[index]);
  const splits = splitsOf(all);
  const split = choose("grid-split", splitChoices(splits), splits.includes("heldout") ? "heldout" : splits[0], drawGrids);
  const cells = grid.cells
    .map(([column, row, index]) => [column, row, scaled((figures(data.settings[index])[split] || [null])[0], metric), index])
    .filter((cell) => there(cell[2]));
  const reach = cells.map((cell) => cell[2]);
  const inWords = ({ value: [, , , index] }) => {
    const one = data.settings[index];
    return tip(one.label, [[data.splits[split], `<b>${text(plusMinus(figures(one)[split], metric))}</b>`], [one.runs.length === 1 ? "seed" : "seeds", text(one.runs.map((run) => run.seed).join(", "))], ["rounds", text([...new Set(one.runs.map((run) => run.rounds))].join(", "))]]);
  };
  heatMap("grid-chart", {
    columns: grid.columns, rows: grid.rows, cells, low: Math.min(...reach), high: Math.max(...reach), x: grid.x, y: grid.y, inWords, written: metric,
    height: 110 + 42 * grid.rows.length, label: `${data.splits[split]}, ${unit(metric)}, by ${chosen.rule}: ${title(grid)}`,
  });
  const at = (column, row) => grid.cells.find((cell) => cell[0] === column && cell[1] === row);
  numbers(section, [grid.y ? `${grid.y} \\ ${grid.x}` : grid.x, ...grid.columns], () =>
    grid.rows.map((name, row) => [name, ...grid.columns.map((_, column) => {
      const cell = at(column, row);
      return cell ? plusMinus(figures(data.settings[cell[2]])[split], metric) : "-";
    })]),
  );
}

function heatMap(id, { columns, rows, cells, low, high, x, y, inWords, written, height, label }) {
  const { room, axis: wrapped } = names(rows, id);
  const [left, categories] = y ? [74, axis({ type: "category", inverse: true, data: rows, splitLine: { show: false } })] : [room + 14, wrapped];
  const every = Math.ceil(columns.length / Math.max(1, (width(byId(id)) - left) / 44)); // columns from one label to the next
  const ramp = RAMPS[theme()];
  const deep = (at) => (high > low ? (at - low) / (high - low) : 0.5) > 0.5;
  const ink = (at) => (deep(at) === (theme() === "light") ? "#f3f6f9" : "#10202e"); // a ramp ends dark on paper and bright on a dark sheet
  const words = (at) => (written ? inFigures(at, written) : String(Number(at.toPrecision(4))));
  const option = {
    grid: { left, right: 16, top: 8, bottom: 88 },
    tooltip: { trigger: "item", formatter: inWords },
    xAxis: axis({ type: "category", data: columns, name: x, nameLocation: "middle", nameGap: 28, splitLine: { show: false }, axisLabel: { interval: every - 1 } }),
    yAxis: y ? { ...categories, name: y, nameLocation: "middle", nameGap: 46 } : categories,
    visualMap: {
      min: low, max: high > low ? high : low + 1e-9, calculable: false, orient: "horizontal", left: "center", bottom: 2, itemWidth: 12, itemHeight: 160,
      inRange: { color: ramp }, text: [words(high), words(low)], textStyle: { color: css("quiet") }, dimension: 2,
    },
    series: [{
      type: "heatmap",
      data: cells.map((cell) => ({ value: cell, label: { color: ink(cell[2]) } })),
      itemStyle: { borderColor: css("sheet"), borderWidth: written ? 2 : 0.5 },
      label: { show: Boolean(written) && width(byId(id)) / columns.length > 70, formatter: ({ value }) => words(value[2]), fontSize: 13 },
      emphasis: { itemStyle: { borderColor: css("ink"), borderWidth: 1.5 } },
    }],
  };
  draw(id, height, label, option, cells.map((_, index) => () => ({ seriesIndex: 0, dataIndex: index })));
}
