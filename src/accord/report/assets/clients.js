// How the clients of a setting fare: a box of quantiles, and dots for clients.

function drawClients() {
  const section = byId("clients");
  const every = shown().filter((one) => Object.keys(one.clients).length);
  section.hidden = !every.length;
  if (!every.length) return;
  const splits = Object.keys(data.splits).filter((split) => every.some((one) => split in one.clients));
  const split = choose("client-split", splitChoices(splits), splits.includes("unseen") ? "unseen" : splits.at(-1), drawClients);
  const some = every.filter((one) => split in one.clients);
  const metric = metricOf();
  const { room, tall, axis: categories } = names(some.map((one) => one.label), "client-chart");
  const value = (at) => scaled(at, metric);
  const boxes = some.map((one) => {
    const [, q10, q25, q50, q75, q90] = one.clients[split].quantiles.map(value);
    return { value: [q10, q25, q50, q75, q90], itemStyle: { color: "transparent", borderColor: colour(one.id), borderWidth: 1.8 } };
  });
  const dots = some.flatMap((one, row) => one.clients[split].dots.map(([at, client, samples], rank) => ({
    value: [value(at), row, client, samples],
    symbolOffset: [0, 9 * Math.sin(rank * 2.4)], // side by side, the same way every time
    itemStyle: { color: colour(one.id), opacity: 0.45 },
  })));
  const ofBox = (one) => {
    const [worst, q10, q25, q50, q75, q90, most] = one.clients[split].quantiles;
    const [low, high] = one.smaller ? ["best", "worst"] : ["worst", "best"];
    return [[low, worst], ["10 %", q10], ["25 %", q25], ["median", q50], ["75 %", q75], ["90 %", q90], [high, most]];
  };
  const inWords = ({ seriesType, dataIndex, value: at }) => {
    if (seriesType === "scatter") return tip(at[2], [["", `<b>${inFigures(at[0], metric)}</b>`, `${at[3]} samples`]]);
    const one = some[dataIndex];
    const rows = ofBox(one).map(([name, quantile]) => [name, `<b>${figure(quantile, metric)}</b>`]);
    return tip(`${one.label}: ${one.clients[split].count} clients`, rows);
  };
  const option = {
    grid: { left: room + 14, right: 24, top: 8, bottom: 42 },
    tooltip: { trigger: "item", formatter: inWords },
    xAxis: axis({ type: "value", scale: true, name: `${data.splits[split]}, ${unit(metric)} of a client`, nameLocation: "middle", nameGap: 28 }),
    yAxis: categories,
    series: [
      { type: "scatter", data: dots, symbolSize: 5, emphasis: { disabled: true }, z: 2 },
      { type: "boxplot", data: boxes, boxWidth: [16, 26], emphasis: { disabled: true }, z: 3 },
    ],
  };
  const steps = some.map((_, index) => () => ({ seriesIndex: 1, dataIndex: index }));
  draw("client-chart", 58 + Math.max(52, tall) * some.length, `${unit(metric)} of single clients, ${data.splits[split]} data, ${some.length} settings`, option, steps);
  const head = ofBox(some[0]).map(([name]) => name);
  numbers(section, [unit(metric), "clients", ...head], () =>
    some.map((one) => [one.label, one.clients[split].count, ...ofBox(one).map(([, quantile]) => figure(quantile, metric))]),
  );
}
