// Every split as a bar from zero, and the two gaps, which a bar from zero would hide, as bars of their own.

function drawBars() {
  const section = byId("bars");
  const some = shown().filter((one) => Object.keys(figures(one)).length);
  section.hidden = !some.length;
  if (!some.length) return;
  const metric = metricOf();
  const splits = splitsOf(some);
  const gaps = Object.keys(data.gaps).filter((gap) => some.some((one) => gap in figures(one)));
  const fills = OF_SPLITS[theme()];
  const gapFills = OF_GAPS[theme()];
  legend(section.querySelector(".legend"), splits.map((split) => [data.splits[split], fills[split]]));
  const gapNames = Object.fromEntries(gaps.map((gap) => [gap, data.gaps[gap].title]));
  legend(byId("gap-legend"), gaps.map((gap) => [gapNames[gap], gapFills[gap]]));
  byId("gap-chart").parentElement.hidden = !gaps.length;
  const label = `${unit(metric)} by ${chosen.rule}`;
  const tall = Math.max(...["bar-chart", ...(gaps.length ? ["gap-chart"] : [])].map((id) => names(some.map((one) => one.label), id).tall));
  const height = 36 + some.length * Math.max(tall, 18 * splits.length + 14); // both charts alike, so that their rows stand side by side
  barChart("bar-chart", height, some, splits, (split) => [data.splits[split], fills[split]], metric, `${label}: ${splits.map((s) => data.splits[s]).join(", ")}`);
  if (gaps.length) barChart("gap-chart", height, some, gaps, (gap) => [gapNames[gap], gapFills[gap]], metric, `${label}: both gaps`);
  numbers(section, [unit(metric), ...splits.map((split) => data.splits[split]), ...gaps.map((gap) => gapNames[gap])], () =>
    some.map((one) => [one.label, ...[...splits, ...gaps].map((name) => plusMinus(figures(one)[name], metric))]),
  );
}

function barChart(id, height, some, keys, describe, metric, label) {
  const { room, axis: categories } = names(some.map((one) => one.label), id);
  const value = (one, key) => scaled((figures(one)[key] || [null])[0], metric);
  const series = keys.map((key) => {
    const [name, fill] = describe(key);
    return {
      name, type: "bar", data: some.map((one) => value(one, key)), itemStyle: { color: fill, borderRadius: 2 }, barMaxWidth: 13, barGap: "18%",
      barCategoryGap: "32%", emphasis: { disabled: true },
      label: { show: true, position: "right", color: css("quiet"), fontSize: 11, formatter: ({ value: at }) => (there(at) ? at.toFixed(data.metrics[metric].percent ? 1 : 2).replace(/^-(0\.0+)$/, "$1") : "") },
      labelLayout: { hideOverlap: true },
    };
  });
  const inWords = (marks) => {
    const one = some[marks[0].dataIndex];
    return tip(one.label, keys.map((key) => [dot(describe(key)[1]) + text(describe(key)[0]), `<b>${plusMinus(figures(one)[key], metric)}</b>`]));
  };
  // A label stands at the outer end of its bar, on whichever side of zero that is.
  for (const one of series) one.data = one.data.map((at) => ({ value: at, label: { position: at < 0 ? "left" : "right" } }));
  const extent = keys[0] in data.gaps ? { boundaryGap: ["12%", "12%"] } : {}; // room for labels on both sides of zero
  const option = {
    grid: { left: room + 14, right: 38, top: 6, bottom: 24 },
    tooltip: { trigger: "axis", axisPointer: { type: "shadow", shadowStyle: { color: css("line"), opacity: 0.4 } }, formatter: inWords },
    xAxis: axis({ type: "value", ...extent, splitNumber: 4, axisLabel: { hideOverlap: true, formatter: (at) => String(Number(at.toFixed(2))) } }),
    yAxis: { ...categories, axisLine: { show: true, lineStyle: { color: css("line") }, onZero: true } },
    series,
  };
  draw(id, height, label, option, some.map((_, index) => () => ({ seriesIndex: 0, dataIndex: index })));
}
