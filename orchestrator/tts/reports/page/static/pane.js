"use strict";
// One problem's pane: its tree, where it stood at a time, the steps up to the chosen one, the answers. It
// may be given more of its tree while the search goes on.
ttsReport.newPane = ({ id, title, query = "" }) => {
  const { element, table, fates, shapes } = ttsReport;
  const MANY = 700; // steps from which on a tree opens with what was kept only
  const ENGLISH = new Intl.NumberFormat("en");
  const seconds = (ms) => `${(ms / 1000).toFixed(ms < 10000 ? 3 : 1)} s`;
  const article = document.getElementById("pane").content.cloneNode(true).firstElementChild;
  const one = (name) => article.querySelector(name);
  const slider = one('input[type="range"]');
  const keptOnly = one(".kept-only");
  let entry;
  let data;
  let chosen = null;
  let events = [[0, "started"]];
  let drawn = null;
  let selected = null; // the path of a thought; null: that of the answer

  one(".tree").id = id;
  one("h3").textContent = title;
  one(".legend").append(...legend());
  slider.addEventListener("input", move);
  keptOnly.addEventListener("change", draw);
  for (const button of article.querySelectorAll("[data-zoom]")) {
    button.addEventListener("click", () => drawn?.zoom(button.dataset.zoom));
  }
  new ResizeObserver(() => drawn?.refit()).observe(one(".tree"));
  one(".cancelled").addEventListener("toggle", listCancelled);

  function legend() {
    const drawn = Object.entries(shapes).map(([fate, d]) => {
      const icon = document.createElementNS("http://www.w3.org/2000/svg", "svg");
      icon.setAttribute("width", 14);
      icon.setAttribute("height", 14);
      icon.setAttribute("viewBox", "-7 -7 14 14");
      icon.setAttribute("aria-hidden", "true");
      const shape = document.createElementNS("http://www.w3.org/2000/svg", "path");
      shape.setAttribute("class", `shape ${fate}`);
      shape.setAttribute("d", d);
      icon.append(shape);
      return fate === "open" ? null : element("li", {}, icon, fates[fate]);
    });
    return [...drawn.filter(Boolean), element("li", {}, "score 0", element("span", { class: "scale" }), "1"),
      element("li", {}, "thick line: to the answer")];
  }

  // The completion that gave the answer: the one that is named, or the first of its group in rank order.
  function winner() {
    if (data.winner != null) return data.winner;
    const group = data.groups.findIndex((each) => each.answer === entry.answer);
    const done = data.completions.find((each) => each.group === group) ?? data.completions[0];
    return group < 0 || !done ? null : done.path;
  }

  // Times at which something happened, in order, each with a sentence.
  function timeline() {
    const found = new Map([[0, "started"]]);
    const add = (at, text) => { if (at != null) found.set(at, text); };
    for (const { path, why, done } of data.cancelled) add(done, `${path || "prompt"} cancelled${why ? `: ${why}` : ""}`);
    for (const thought of data.thoughts) add(thought.done, `${thought.path} written`);
    for (const thought of data.thoughts) {
      add(thought.scored, `${thought.path} scored ${thought.score?.toFixed(4)}`);
      if (thought.fate === "expanded") add(thought.decided, `${thought.path} kept`);
      if (thought.used !== undefined) add(thought.used, `${thought.path}, sent ahead, is wanted`);
    }
    if (data.seconds != null) add(Math.round(1000 * data.seconds), "solved");
    return [...found].sort(([a], [b]) => a - b);
  }

  function facts(entry) {
    const known = [
      entry.answer === undefined ? null : ["answer ", ttsReport.renderedAnswer(entry.answer ?? "none")],
      entry.reference == null ? null : ["reference ", ttsReport.renderedAnswer(entry.reference)],
      entry.level == null ? null : `level ${entry.level}`,
      entry.seconds == null ? null : `${entry.seconds} s`,
      entry.tokens == null ? null : `${ENGLISH.format(entry.tokens)} tokens`,
      `${ENGLISH.format(entry.thoughts)} step${entry.thoughts === 1 ? "" : "s"}`,
    ];
    return known.filter(Boolean).flatMap((each) => [" · ", ...[each].flat()]);
  }

  // What is said of the problem; `about` has what is known, the rest stays out.
  function tell(about, question) {
    const [word, kind] = ttsReport.verdict(about);
    one(".question").replaceChildren(written(question));
    one(".outcome").replaceChildren(element("strong", { class: kind }, word), ...facts(about));
  }

  // Take in a tree, or more of one: whoever looks at an earlier time or a thought stays there.
  function show(about, tree) {
    const atEnd = data === undefined || Number(slider.value) >= events.length;
    const first = data === undefined;
    entry = about;
    data = tree;
    chosen = winner();
    events = timeline();
    if (first) {
      const hit = query ? data.thoughts.find((each) => each.text.toLowerCase().includes(query.toLowerCase())) : null;
      selected = hit?.path ?? null;
      keptOnly.checked = data.thoughts.length > MANY;
    }
    slider.max = events.length;
    if (atEnd) slider.value = events.length;
    answers();
    countCancelled();
  }

  // The drawing measures its place, so the pane must be on the page.
  function draw() {
    const place = one(".tree");
    const { scrollLeft, scrollTop } = place;
    const before = drawn;
    drawn = ttsReport.drawTree(place, data, {
      name: entry.id, chosen, keptOnly: keptOnly.checked, query, scale: before?.chosenScale() ?? null,
      onSelect: (path) => { selected = path; describe(); },
    });
    move();
    const wanted = selected;
    drawn.select(wanted ?? chosen ?? "");
    if (!before && selected === null) drawn.open(); // the root and the path to the answer in view
    if (before && (wanted !== null || chosen === null)) place.scrollTo(scrollLeft, scrollTop);
    if (wanted === null) selected = null; // which thought gives the answer may change yet
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
    const path = selected ?? chosen ?? "";
    const steps = drawn.chain(path);
    one(".thought").replaceChildren(
      steps.length ? element("ol", { class: "steps" }, ...steps.map((thought) => stepOf(thought, thought.path === path)))
        : element("p", { class: "hint" }, "The root: choose a step, or press the right arrow."));
  }

  function stepOf(thought, current) {
    const { fate, score, there } = drawn.stateOf(thought);
    const known = there ? factsOf(thought, fate, score) : ["not written yet"];
    return element("li", { class: current ? "current" : null, "aria-current": current ? "true" : null },
      thought.thinking && there ? folded(tokensOf("thinking", thought), thought.text) : textOf(there ? thought.text.trim() : ""),
      ...(thought.critique && there ? [folded("the verifier's critique", thought.critique)] : []),
      element("span", { class: "facts" }, known.filter(Boolean).join(" · ")));
  }

  // Thinking and critiques may be long: they are folded unless they hold what is searched for.
  function folded(summary, text) {
    const open = query !== "" && text.toLowerCase().includes(query.toLowerCase());
    return element("details", { class: "thinking", open: open ? "" : null },
      element("summary", {}, summary),
      textOf(text.trim()));
  }

  function tokensOf(what, thought) {
    return thought.tokens === undefined ? what : `${what}, ${ENGLISH.format(thought.tokens)} tokens`;
  }

  function textOf(text) {
    return element("div", { class: "text" }, written(text));
  }

  // As Markdown with TeX; as it is with what is searched for, which may lie across elements.
  function written(text) {
    const found = query && text.toLowerCase().includes(query.toLowerCase());
    return found ? element("pre", {}, ...marked(text, query)) : ttsReport.rendered(text);
  }

  function factsOf(thought, fate, score) {
    return [
      thought.path,
      fates[fate],
      score === null ? "no score" : `score ${score.toFixed(4)}${thought.reused ? ", reused from an equal step" : ""}`,
      thought.tokens === undefined ? null : `${thought.tokens} tokens`,
      { end: "ended the solution", length: "cut at a token limit", cut: "ended for want of confidence" }[thought.stop],
      thought.sent === undefined ? `written at ${seconds(thought.done)}` : `written ${seconds(thought.sent)} to ${seconds(thought.done)}`,
      thought.scored === undefined ? null : `scored at ${seconds(thought.scored)}`,
      thought.speculative ? (thought.used === undefined ? "sent ahead" : `sent ahead, wanted at ${seconds(thought.used)}`) : null,
    ];
  }

  function marked(text, query) {
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

  function answers() {
    const place = one(".answers");
    place.replaceChildren();
    const rows = data.groups.map((group, number) => {
      const scores = data.completions.filter((each) => each.group === number).map((each) => each.score);
      const known = scores.filter((score) => score != null);
      return [
        element("span", {}, group.answer === entry.answer ? "→ " : "", ttsReport.renderedAnswer(group.answer)), group.correct, scores.length,
        known.length ? +known.reduce((sum, score) => sum + score, 0).toFixed(4) : null,
        known.length ? Math.max(...known) : null,
      ];
    });
    const none = data.completions.filter((each) => each.group < 0).length;
    if (none) rows.push(["(no answer)", null, none, null, null]);
    const columns = ["answer", "right", "completions", "sum of scores", "best score"];
    const graded = rows.some(([, right]) => right != null);
    if (!graded) for (const row of [columns, ...rows]) row.splice(1, 1);
    if (rows.length) place.append(table(columns, rows));
    if (data.why) place.append(element("p", { class: "hint" }, data.why));
    if (data.limit) place.append(element("p", { class: "hint" }, `Its ${data.limit === "tokens" ? "budget of tokens" : "deadline"} ended the search.`));
  }

  function countCancelled() {
    const count = data.cancelled.length;
    one(".cancelled").hidden = count === 0;
    one(".cancelled summary").textContent = `${count} cancelled ${count === 1 ? "request" : "requests"}`;
    listCancelled();
  }

  function listCancelled() {
    if (!one(".cancelled").open) return;
    one(".cancelled .scroll").replaceChildren(table(["node", "work", "why", "sent, ms", "cancelled, ms"],
      data.cancelled.map((each) => [each.path || "(prompt)", each.work, each.why, each.sent, each.done])));
  }

  // Nothing but a sentence, where there is no tree.
  function fail(message, role) {
    one(".tree").replaceWith(element("p", { class: "problem", role }, message));
    for (const rest of article.querySelectorAll(".time, .zoom, .legend, .cancelled")) rest.remove();
  }

  function step(by) {
    slider.value = Number(slider.value) + by;
    move();
  }

  return { article, tell, show, draw, step, fail, key: (event) => drawn?.key(event) ?? false };
};
