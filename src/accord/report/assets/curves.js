// Learning curves: the mean over seeds, and a band from the lowest to the highest.

function drawCurves() {
  const section = byId("curves");
  const some = shown();
  section.hidden = !some.length;
  if (!some.length) return;
  const metrics = [...new Set(some.flatMap((one) => Object.keys(one.curves.metrics)))];
  const metric = choose("curve-metric", metrics.map((name) => [name, name]), metricOf(), drawCurves);
  const splits = Object.keys(data.splits).filter((name) => some.some((one) => (one.curves.metrics[metric] || {})[name]));
  const split = choose("curve-split", splitChoices(splits), splits.includes("unseen") ? "unseen" : splits.at(-1), drawCurves);
  const drawn = some.filter((one) => (one.curves.metrics[metric] || {})[split]);
  const rounds = [...new Set(drawn.flatMap((one) => one.curves.rounds))].sort((a, b) => a - b);
  legend(section.querySelector(".legend"), drawn.map((one) => [one.label, colour(one.id), dash(one.id)]));

  const points = (one) => one.curves.rounds.map((round, at) => {
    const of = one.curves.metrics[metric][split];
    return [round, scaled(of.mean[at], metric), scaled(of.low[at], metric), scaled(of.high[at], metric)];
  });
  const series = drawn.flatMap((one) => [band(one, points(one)), line(one, points(one))]);
  const at = (round) => drawn.map((one) => [one, points(one).find((point) => point[0] === round)]).filter(([, point]) => point && there(point[1]));
  const show = (at) => inFigures(at, metric);
  const inWords = (marks) => {
    const round = Number(marks[0].axisValue);
    const rows = at(round).sort(([, a], [, b]) => b[1] - a[1]).map(([one, [, mean, low, high]]) => {
      const reach = one.runs.length > 1 ? `${show(low)} to ${show(high)}` : "";
      return [dot(colour(one.id)) + text(one.label), `<b>${show(mean)}</b>`, reach];
    });
    return tip(`round ${round}`, rows);
  };
  const option = {
    grid: { left: 8, right: 24, top: 30, bottom: 28, containLabel: true },
    tooltip: { trigger: "axis", formatter: inWords, axisPointer: { lineStyle: { color: css("quiet") } } },
    xAxis: axis({ type: "value", minInterval: 1, name: "round", nameLocation: "middle", nameGap: 28, min: "dataMin", max: "dataMax", splitLine: { show: false } }),
    yAxis: axis({ type: "value", scale: true, name: `${data.splits[split]}, ${unit(metric)}`, nameTextStyle: { align: "left", color: css("quiet") } }),
    series,
  };
  const longest = drawn.reduce((a, b) => (a.curves.rounds.length >= b.curves.rounds.length ? a : b));
  const mean = series[2 * drawn.indexOf(longest) + 1];
  const steps = mean.data.map((_, index) => () => ({ seriesIndex: series.indexOf(mean), dataIndex: index }));
  draw("curve-chart", printing.matches ? 300 : 380, `${unit(metric)} on ${data.splits[split]} data over rounds, ${drawn.length} settings`, option, steps);
  numbers(section, ["round", ...drawn.map((one) => one.label)], () =>
    rounds.map((round) => [round, ...drawn.map((one) => show((points(one).find((point) => point[0] === round) || [])[1]))]),
  );
}

function line(one, points) {
  const style = { color: colour(one.id), width: 2, type: dash(one.id) };
  return {
    name: one.label, type: "line", data: points.map(([round, mean]) => [round, mean]), showSymbol: points.length < 2, symbol: "circle",
    symbolSize: 7, lineStyle: style, itemStyle: { color: style.color }, emphasis: { disabled: true }, z: 3,
  };
}

function band(one, points) {
  const sound = one.runs.length > 1 ? points.filter(([, , low, high]) => there(low) && there(high)) : [];
  const outline = (params, api) => ({
    type: "polygon",
    silent: true,
    shape: { points: [...sound.map(([round, , low]) => api.coord([round, low])), ...sound.map(([round, , , high]) => api.coord([round, high])).reverse()] },
    style: { fill: colour(one.id), opacity: 0.14 },
  });
  const corners = sound.length ? [[sound[0][0], Math.min(...sound.map((p) => p[2])), Math.max(...sound.map((p) => p[3]))]] : [];
  return { type: "custom", renderItem: outline, data: corners, encode: { x: 0, y: [1, 2] }, tooltip: { show: false }, silent: true, clip: true, z: 1 };
}
