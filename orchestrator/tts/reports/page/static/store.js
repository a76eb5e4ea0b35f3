"use strict";
// What the page holds: figures, problems, and trees that are unpacked when they are opened.
const ttsReport = (() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const figures = read("figure-data");
  const { runs, first } = read("tree-data");
  const packed = read("packed-trees");
  const unpacked = new Map();

  async function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (c) => c.charCodeAt(0));
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
    return JSON.parse(await new Response(stream).text());
  }

  // The tree of a run's problem by its number; `keep` it for later, as the one that is looked at.
  async function tree(run, number, keep = true) {
    const place = `${run}/${number}`;
    if (unpacked.has(place)) return unpacked.get(place);
    const opened = await unpack(packed[run][number]);
    if (keep) unpacked.set(place, opened);
    return opened;
  }

  function element(name, attributes = {}, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value);
    }
    made.append(...children);
    return made;
  }

  function table(columns, rows) {
    // numbers, and texts that begin as one: with an interval or a unit
    const isNumber = (cell) => typeof cell === "number" || (typeof cell === "string" && /^[-+–<]?\d/.test(cell));
    const isNothing = (cell) => ["", "-", "best"].includes(String(cell ?? "").trim());
    const numeric = columns.map((_, i) => rows.some((row) => isNumber(row[i]))
      && rows.every((row) => isNumber(row[i]) || isNothing(row[i])));
    const kind = (i) => (numeric[i] ? "number" : null);
    return element("table", {},
      element("thead", {}, element("tr", {}, ...columns.map((name, i) =>
        element("th", { scope: "col", class: kind(i) }, name)))),
      element("tbody", {}, ...rows.map((row) => element("tr", {}, ...row.map((cell, i) =>
        element("td", { class: kind(i) }, shown(cell)))))));
  }

  function shown(cell) {
    if (cell === null || cell === undefined) return "-";
    if (cell instanceof Node) return cell;
    if (typeof cell === "boolean") return cell ? "yes" : "no";
    if (typeof cell !== "number") return String(cell);
    return Number.isInteger(cell) ? cell.toLocaleString("en") : String(+cell.toPrecision(5));
  }

  // Where the trees of a problem are: in a run, and in another one or "".
  const linkTo = (run, other, id) => `#tree:${run}:${other}:${encodeURIComponent(id)}`;

  return { figures, runs, first, tree, element, table, linkTo };
})();
