"use strict";
// Figures: the chart, the table behind it, and their downloads.
(() => {
  const { figures, runs, table, element } = ttsReport;
  const SHOWN_ROWS = 50; // of a table, until more are wanted
  const THEME = JSON.parse(document.getElementById("chart-theme").textContent);

  const objects = (figure) => figure.rows.map((row) =>
    Object.fromEntries(figure.columns.map((name, i) => [name, row[i]])));

  async function draw(figure, place) {
    const spec = {
      ...figure.chart,
      datasets: { rows: objects(figure) },
      autosize: { type: "fit-x", contains: "padding" },
      config: THEME,
    };
    const drawn = place.clientWidth < 520 ? narrowed(spec, place.clientWidth) : spec;
    const { view } = await vegaEmbed(place, drawn, {
      mode: "vega-lite",
      ast: true,
      expr: vega.expressionInterpreter,
      renderer: "svg",
      actions: false,
      logLevel: vega.Error,
      defaultStyle: false,
      tooltip: { disableDefaultStyle: true },
    });
    return view;
  }

  // The same for a phone: legends in one column, and short names at the axes.
  function narrowed(part, width) {
    if (Array.isArray(part)) return part.map((each) => narrowed(each, width));
    if (part === null || typeof part !== "object") return part;
    const made = {};
    for (const [name, value] of Object.entries(part)) {
      if (name === "datasets") made[name] = value;
      else if (name === "legend" && value?.orient === "top") made[name] = { ...value, columns: 1, labelLimit: width - 40 };
      else if (name === "axis" && value?.labelLimit) made[name] = { ...value, labelLimit: width / 3 };
      else made[name] = narrowed(value, width);
    }
    return made;
  }

  function csvCell(cell) {
    if (cell === null || cell === undefined) return "";
    let text = String(cell);
    // a spreadsheet would take it for a formula; the same rule as csv_cell in runs/answers.py
    if (typeof cell === "string" && /^[=+@\p{C}-]/u.test(text) && !/^[-+]?[\d.,]*( \[[-+\d., ]*\])?$/.test(text)) text = `'${text}`;
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  }

  function csv(figure) {
    return [figure.columns, ...figure.rows].map((row) => row.map(csvCell).join(",")).join("\r\n") + "\r\n";
  }

  function download(name, type, text) {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([text], { type }));
    link.download = name;
    link.click();
    URL.revokeObjectURL(link.href);
  }

  async function save(figure, format, view) {
    if (format === "csv") download(`${figure.name}.csv`, "text/csv", csv(figure));
    else if (format === "json") download(`${figure.name}.json`, "application/json", JSON.stringify(objects(figure), null, 1));
    else download(`${figure.name}.svg`, "image/svg+xml", await (await view).toSVG());
  }

  // The rows; of problems in the first run and in another one, with links to the trees in both.
  function linked(figure) {
    const [, other] = /^(?:disagreements|by-problem)-(\d+)$/.exec(figure.name) ?? [];
    const place = figure.columns.indexOf("problem");
    if (!other || !runs[other]) return figure.rows;
    const there = new Set(runs[0].problems.map((entry) => entry.id));
    return figure.rows.map((row) => row.map((cell, i) => {
      if (i === place && there.has(cell)) return element("a", { href: ttsReport.linkTo(0, other, cell) }, cell);
      return figure.columns[i].startsWith("answer in ") && cell !== null ? element("span", {}, ttsReport.renderedAnswer(cell)) : cell;
    }));
  }

  function fill(section, figure) {
    const details = section.querySelector("details"); // none where the table is all there is
    const place = section.querySelector(".data");
    const rows = linked(figure);
    const show = () => {
      if (details?.open === false || place.firstChild) return;
      place.append(table(figure.columns, rows.slice(0, SHOWN_ROWS)));
      const more = rows.length - SHOWN_ROWS;
      if (more <= 0) return;
      const button = element("button", { type: "button" }, `Show ${more.toLocaleString("en")} more`);
      button.addEventListener("click", () => place.replaceChildren(table(figure.columns, rows)));
      place.append(button);
    };
    details?.addEventListener("toggle", show);
    show();
  }

  for (const figure of figures) {
    const section = document.getElementById(figure.name);
    fill(section, figure);
    let view = null;
    if (figure.chart) {
      const place = section.querySelector(".chart");
      view = draw(figure, place).catch((error) => {
        place.textContent = `This chart could not be drawn: ${error.message}`;
        throw error;
      });
    }
    for (const button of section.querySelectorAll("[data-format]")) {
      button.addEventListener("click", () => save(figure, button.dataset.format, view));
    }
  }
})();
