"use strict";
// The trees' section: which run, which problem, and a pane for each tree that is looked at.
(() => {
  const section = document.getElementById("trees");
  if (!section) return;
  const { runs, tree, element } = ttsReport;
  const runChoice = document.getElementById("run");
  const otherChoice = document.getElementById("other-run");
  const panes = document.getElementById("panes");
  const opened = new Map(); // the pane of each run that is shown
  let asked = 0;

  const none = (pane) => ({ article: pane.article, step: () => {}, key: () => false });

  async function open(run, id, query) {
    const number = runs[run].problems.findIndex((entry) => entry.id === id);
    const known = runs[run].problems[number];
    const title = !known ? runs[run].name : runs.length > 1 ? `${runs[run].name}: ${id}` : id;
    const pane = ttsReport.newPane({ id: `tree-${run}`, title, query });
    if (!known) {
      pane.article.querySelector(".question").textContent = "The page has no tree of this problem in this run.";
      for (const rest of pane.article.querySelectorAll(".time, .zoom, .tree, .legend, .cancelled")) rest.remove();
      return none(pane);
    }
    pane.tell(known, known.question ?? "(The run's folder does not hold the question.)");
    try {
      pane.show(known, await tree(run, number));
    } catch (error) {
      pane.fail(error.message, "alert");
      return none(pane);
    }
    return pane;
  }

  async function show(number, query) {
    const mine = ++asked;
    if (number === null) {
      panes.replaceChildren();
      opened.clear();
      return;
    }
    const run = Number(runChoice.value);
    const { id } = runs[run].problems[number];
    const wanted = otherChoice.value === "" ? [run] : [run, Number(otherChoice.value)];
    const made = await Promise.all(wanted.map((each) => open(each, id, query)));
    if (mine !== asked) return;
    opened.clear();
    panes.replaceChildren(...made.map((pane) => pane.article));
    for (const [place, pane] of made.entries()) {
      opened.set(wanted[place], pane);
      pane.draw?.();
    }
  }

  function options(empty) {
    return [...(empty ? [element("option", { value: "" }, "no other")] : []),
      ...runs.map((run, number) => element("option", { value: number }, run.name))];
  }

  let last = { id: ttsReport.first?.id ?? null, query: "" };
  const list = ttsReport.problemList((number, query, changed) => {
    if (!changed && query === last.query && opened.size) return;
    last = { id: number === null ? null : runs[Number(runChoice.value)].problems[number].id, query };
    show(number, query);
  });

  function showRuns() {
    opened.clear();
    list.show(Number(runChoice.value), otherChoice.value === "" ? null : Number(otherChoice.value), last.id);
  }

  runChoice.append(...options(false));
  otherChoice.append(...options(true));
  runChoice.value = ttsReport.first?.run ?? 0;
  otherChoice.value = ttsReport.first?.beside ?? "";
  for (const each of section.querySelectorAll(".several-runs")) each.hidden = runs.length < 2;
  for (const choice of [runChoice, otherChoice]) choice.addEventListener("change", showRuns);

  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input, select, textarea") && event.target.type !== "range";
    if (typing || event.ctrlKey || event.metaKey || event.altKey) {
      if (event.key === "Escape" && event.target.id === "search") document.getElementById("problems").focus();
      return;
    }
    const act = {
      "/": () => document.getElementById("search").focus(),
      n: () => list.step(1),
      p: () => list.step(-1),
      ",": () => opened.forEach((pane) => pane.step(-1)),
      ".": () => opened.forEach((pane) => pane.step(1)),
    }[event.key];
    if (act) {
      event.preventDefault();
      act();
    } else if (event.target === document.body) { // no drawing has the focus: the one in view
      const seen = [...opened.values()].find((pane) => inView(pane.article.querySelector(".tree")));
      seen?.key(event);
    }
  });

  // Whether more than half of it, or of the window's height, is seen.
  function inView(place) {
    if (!place) return false;
    const { top, bottom } = place.getBoundingClientRect();
    const seen = Math.min(bottom, window.innerHeight) - Math.max(top, 0);
    return seen > Math.min(bottom - top, window.innerHeight) / 2;
  }

  // What a link to a problem's trees names (see linkTo).
  function follow() {
    const [, run, other, id] = /^#tree:(\d+):(\d*):(.+)$/.exec(location.hash) ?? [];
    if (!runs[run]) return false;
    for (const name of ["outcome", "level", "search"]) document.getElementById(name).value = "";
    runChoice.value = run;
    otherChoice.value = other;
    last = { id: decodeURIComponent(id), query: "" };
    showRuns();
    section.scrollIntoView();
    return true;
  }
  window.addEventListener("hashchange", follow);

  if (!follow()) showRuns();
})();
