"use strict";
// The trees' section: which run, which problem, and a pane for each tree that is looked at.
(() => {
  const section = document.getElementById("trees");
  if (!section) return;
  const { runs, tree, element, table, fates, shapes } = ttsReport;
  const MANY = 700; // thoughts from which on a tree opens with what was kept only
  const ENGLISH = new Intl.NumberFormat("en");
  const runChoice = document.getElementById("run");
  const otherChoice = document.getElementById("other-run");
  const panes = document.getElementById("panes");
  const opened = new Map(); // the pane of each run that is shown
  const seconds = (ms) => `${(ms / 1000).toFixed(ms < 10000 ? 3 : 1)} s`;
  let asked = 0;

  function newPane(run) {
    const article = document.getElementById("pane").content.cloneNode(true).firstElementChild;
    article.querySelector(".tree").id = `tree-${run}`;
    article.querySelector(".legend").append(...legend());
    return article;
  }

  function legend() {
    const drawn = Object.entries(shapes).map(([fate, d]) => {
      const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      icon.setAttribute("width", 14);
      icon.setAttribute("height", 14);
      icon.setAttribute("viewBox", "-7 -7 14 14");
      icon.setAttribute("aria-hidden", "true");
      icon.innerHTML = `<path class="shape ${fate}" d="${d}"></path>`;
      return fate === "open" ? null : element("li", {}, icon, fates[fate]);
    });
    return [...drawn.filter(Boolean), element("li", {}, "score 0", element("span", { class: "scale" }), "1"),
      element("li", {}, "thick line: to the answer")];
  }

  // The completion that gave the answer: the first of its group, in rank order.
  function winner(entry, data) {
    const group = data.groups.findIndex((each) => each.answer === entry.answer);
    const done = data.completions.find((each) => each.group === group) ?? data.completions[0];
    return group < 0 || !done ? null : done.path;
  }

  // Times at which something happened, in order, each with a sentence.
  function timeline(data) {
    const events = new Map([[0, "started"]]);
    const add = (at, text) => { if (at !== undefined && at !== null) events.set(at, text); };
    for (const { path, why, done } of data.cancelled) add(done, `${path || "prompt"} cancelled${why ? `: ${why}` : ""}`);
    for (const thought of data.thoughts) add(thought.done, `${thought.path} written`);
    for (const thought of data.thoughts) {
      add(thought.scored, `${thought.path} scored ${thought.score?.toFixed(4)}`);
      if (thought.fate === "expanded") add(thought.decided, `${thought.path} kept`);
      if (thought.used !== undefined) add(thought.used, `${thought.path}, sent ahead, is wanted`);
    }
    if (data.seconds !== null) add(Math.round(1000 * data.seconds), "solved");
    return [...events].sort(([a], [b]) => a - b);
  }

  async function open(run, id, query) {
    const number = runs[run].problems.findIndex((entry) => entry.id === id);
    const article = newPane(run);
    const one = (name) => article.querySelector(name);
    if (number < 0) {
      one("h3").textContent = runs[run].name;
      one(".question").textContent = "This run has not begun this problem.";
      for (const rest of article.querySelectorAll(".time, .tree, .legend, .cancelled")) rest.remove();
      return { article, step: () => {} };
    }
    const entry = runs[run].problems[number];
    const [word, kind] = ttsReport.verdict(entry);
    one("h3").textContent = runs.length > 1 ? `${runs[run].name}: ${entry.id}` : entry.id;
    one(".question").textContent = entry.question ?? "(The run's folder does not hold the question.)";
    one(".outcome").append(element("strong", { class: kind }, word), about(entry));
    let data;
    try {
      data = await tree(run, number);
    } catch (error) {
      one(".tree").replaceWith(element("p", { class: "problem", role: "alert" }, error.message));
      for (const rest of article.querySelectorAll(".time, .legend, .cancelled")) rest.remove();
      return { article, step: () => {} };
    }
    return { article, ...fill(article, run, entry, data, query) };
  }

  function about(entry) {
    const facts = [
      `answer ${entry.answer ?? "none"}`,
      entry.reference === null ? null : `reference ${entry.reference}`,
      entry.level === null ? null : `level ${entry.level}`,
      entry.seconds === null ? null : `${entry.seconds} s`,
      `${ENGLISH.format(entry.tokens)} tokens`,
      `${ENGLISH.format(entry.thoughts)} thoughts`,
    ];
    return ` · ${facts.filter(Boolean).join(" · ")}`;
  }

  function fill(article, run, entry, data, query) {
    const one = (name) => article.querySelector(name);
    const slider = one('input[type="range"]');
    const keptOnly = one(".kept-only");
    const chosen = winner(entry, data);
    const events = timeline(data);
    const hit = query ? data.thoughts.find((each) => each.text.toLowerCase().includes(query.toLowerCase())) : null;
    keptOnly.checked = data.thoughts.length > MANY;
    slider.max = events.length;
    slider.value = events.length;
    let drawn;
    let selected = hit?.path ?? chosen ?? "";

    function draw() {
      drawn = ttsReport.drawTree(one(".tree"), data, {
        name: entry.id, chosen, keptOnly: keptOnly.checked, query,
        onSelect: (path) => { selected = path; describe(); },
      });
      move();
      drawn.select(selected);
    }

    function move() {
      const last = Number(slider.value) >= events.length;
      const [at, what] = events[Math.min(Number(slider.value), events.length - 1)];
      const text = last ? `all of ${seconds(events.at(-1)[0])}` : `${seconds(at)}: ${what}`;
      one(".time output").textContent = text;
      slider.setAttribute("aria-valuetext", text);
      drawn.showUntil(last ? Infinity : at);
      describe();
    }

    function describe() {
      const steps = drawn.chain(selected);
      one(".thought").replaceChildren(
        steps.length ? element("ol", { class: "steps" }, ...steps.map((thought) => stepOf(thought, thought.path === selected)))
          : element("p", { class: "hint" }, "The root: choose a thought, or press the right arrow."));
    }

    function stepOf(thought, current) {
      const { fate, score, there } = drawn.stateOf(thought);
      const facts = there ? factsOf(thought, fate, score) : ["not written yet"];
      return element("li", { class: current ? "current" : null, "aria-current": current ? "true" : null },
        element("pre", {}, ...(there ? marked(thought.text.trim(), query) : [])),
        element("span", { class: "facts" }, facts.filter(Boolean).join(" · ")));
    }

    slider.addEventListener("input", move);
    keptOnly.addEventListener("change", draw);
    answers(one(".answers"), entry, data);
    cancelled(one(".cancelled"), data);
    return {
      ready: draw, // the drawing measures its place, so it must be on the page
      step(by) {
        slider.value = Number(slider.value) + by;
        move();
      },
    };
  }

  function factsOf(thought, fate, score) {
    return [
      thought.path,
      fates[fate],
      score === null ? "no score" : `score ${score.toFixed(4)}${thought.reused ? ", reused from an equal step" : ""}`,
      `${thought.tokens} tokens`,
      { end: "ended the solution", length: "cut at a token limit" }[thought.stop],
      `written ${seconds(thought.sent)} to ${seconds(thought.done)}`,
      thought.scored === undefined ? null : `scored at ${seconds(thought.scored)}`,
      thought.speculative ? (thought.used === undefined ? "sent ahead" : `sent ahead, wanted at ${seconds(thought.used)}`) : null,
    ];
  }

  function marked(text, query) {
    if (!query) return [text];
    const parts = [];
    const lower = text.toLowerCase();
    const wanted = query.toLowerCase();
    let from = 0;
    for (let at = lower.indexOf(wanted); at >= 0; at = lower.indexOf(wanted, from)) {
      parts.push(text.slice(from, at), element("mark", {}, text.slice(at, at + wanted.length)));
      from = at + wanted.length;
    }
    return [...parts, text.slice(from)];
  }

  function answers(place, entry, data) {
    const rows = data.groups.map((group, number) => {
      const scores = data.completions.filter((each) => each.group === number).map((each) => each.score);
      const known = scores.filter((score) => score !== null);
      return [
        group.answer, group.correct, scores.length,
        known.length ? +known.reduce((sum, score) => sum + score, 0).toFixed(4) : null,
        known.length ? Math.max(...known) : null,
        group.answer === entry.answer ? "← the answer" : "",
      ];
    });
    const none = data.completions.filter((each) => each.group < 0).length;
    if (none) rows.push(["(no answer)", null, none, null, null, ""]);
    if (rows.length) place.append(table(["answer", "right", "completions", "sum of scores", "best score", ""], rows));
    if (data.limit) place.append(element("p", { class: "hint" }, `Its ${data.limit === "tokens" ? "budget of tokens" : "deadline"} ended the search.`));
  }

  function cancelled(details, data) {
    const count = data.cancelled.length;
    details.hidden = count === 0;
    details.querySelector("summary").textContent = `${count} cancelled ${count === 1 ? "request" : "requests"}`;
    details.addEventListener("toggle", () => {
      const place = details.querySelector(".scroll");
      if (details.open && !place.firstChild) {
        place.append(table(["node", "work", "why", "sent, ms", "cancelled, ms"],
          data.cancelled.map((each) => [each.path || "(prompt)", each.work, each.why, each.sent, each.done])));
      }
    });
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
      pane.ready?.();
    }
  }

  function options(empty) {
    return [...(empty ? [element("option", { value: "" }, "no other")] : []),
      ...runs.map((run, number) => element("option", { value: number }, run.name))];
  }

  let last = { id: null, query: "" };
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
  if (runs.length === 2) otherChoice.value = "1";
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
    if (!act) return;
    event.preventDefault();
    act();
  });

  showRuns();
})();
