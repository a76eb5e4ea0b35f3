"use strict";
// The list of a run's problems: filters, the search over texts, and the choice of one.
ttsReport.problemList = (onChoice) => {
  const { runs, tree, element } = ttsReport;
  const PAGE = 200; // entries that are added to the list at a time
  const list = document.getElementById("problems");
  const found = document.getElementById("found");
  const outcome = document.getElementById("outcome");
  const level = document.getElementById("level");
  const search = document.getElementById("search");
  const texts = new Map(); // of each tree that was searched, in lower case
  let run = 0;
  let other = null;
  let shown = []; // numbers of the run's problems
  let chosen = null;
  let asked = 0; // how many filters were asked for so far: a newer one ends an older search

  const KINDS = {
    wrong: (entry) => entry.correct === false,
    right: (entry) => entry.correct === true,
    ungraded: (entry) => entry.solved && entry.correct === null,
    unfinished: (entry) => !entry.solved,
    differ: (entry) => {
      const beside = other === null ? null : runs[other].problems.find((each) => each.id === entry.id);
      return Boolean(beside) && beside.correct !== entry.correct;
    },
  };

  function fillLevels() {
    const levels = [...new Set(runs[run].problems.map((entry) => entry.level).filter((each) => each !== null))];
    levels.sort((a, b) => String(a).localeCompare(String(b), "en", { numeric: true }));
    level.replaceChildren(element("option", { value: "" }, "all"),
      ...levels.map((each) => element("option", { value: each }, String(each))));
    level.closest("label").hidden = levels.length === 0;
  }

  async function textOf(number) {
    const place = `${run}/${number}`;
    if (!texts.has(place)) {
      const { thoughts } = await tree(run, number, false);
      texts.set(place, thoughts.map((thought) => thought.text).join("\n").toLowerCase());
    }
    return texts.get(place);
  }

  async function filter() {
    const mine = ++asked;
    const wanted = search.value.trim().toLowerCase();
    const { problems } = runs[run];
    const some = [...problems.keys()].filter((number) => {
      const entry = problems[number];
      return (!outcome.value || KINDS[outcome.value](entry)) && (!level.value || String(entry.level) === level.value);
    });
    const missing = new Set();
    const hits = [];
    for (const [place, number] of some.entries()) {
      const entry = problems[number];
      const named = `${entry.id}\n${entry.question ?? ""}`.toLowerCase();
      let hit = !wanted || named.includes(wanted);
      if (!hit) {
        try {
          hit = (await textOf(number)).includes(wanted);
        } catch (error) {
          missing.add(error.message);
        }
        if (mine !== asked) return;
        if (place % 20 === 19) found.textContent = `Searched ${place + 1} of ${some.length} problems …`;
      }
      if (hit) hits.push(number);
    }
    shown = hits;
    found.textContent = [`${hits.length.toLocaleString("en")} of ${problems.length.toLocaleString("en")} problem${problems.length === 1 ? "" : "s"}`, ...missing].join(". ");
    draw();
    if (!shown.includes(chosen)) choose(shown.length ? shown[0] : null);
    else choose(chosen);
  }

  function draw() {
    list.replaceChildren();
    more();
    list.scrollTop = 0;
  }

  function more() {
    const next = shown.slice(list.children.length, list.children.length + PAGE);
    list.append(...next.map(item));
  }

  function item(number) {
    const entry = runs[run].problems[number];
    const [word, kind] = ttsReport.verdict(entry);
    const about = [word, entry.level == null ? null : `level ${entry.level}`, `${entry.thoughts} step${entry.thoughts === 1 ? "" : "s"}`];
    const made = element("li", { role: "option", id: `problem-${number}`, "aria-selected": "false" },
      element("span", { class: "said" }, ttsReport.renderedLine((entry.question ?? entry.id).replaceAll(/\s+/g, " "))),
      element("small", { class: kind }, about.filter(Boolean).join(" · ")));
    made.addEventListener("click", () => choose(number));
    return made;
  }

  function choose(number) {
    const changed = number !== chosen;
    chosen = number;
    for (const each of list.querySelectorAll('[aria-selected="true"]')) each.setAttribute("aria-selected", "false");
    while (number !== null && list.children.length <= shown.indexOf(number)) more();
    const made = number === null ? null : document.getElementById(`problem-${number}`);
    if (made) {
      made.setAttribute("aria-selected", "true");
      list.setAttribute("aria-activedescendant", made.id);
      const above = made.offsetTop - list.offsetTop;
      if (above < list.scrollTop || above + made.offsetHeight > list.scrollTop + list.clientHeight) {
        list.scrollTop = above - list.clientHeight / 3;
      }
    }
    onChoice(number, search.value.trim(), changed);
  }

  function step(by) {
    const place = shown.indexOf(chosen) + by;
    if (shown[place] !== undefined) choose(shown[place]);
  }

  list.addEventListener("scroll", () => {
    if (list.scrollTop + 2 * list.clientHeight > list.scrollHeight) more();
  });
  list.addEventListener("keydown", (event) => {
    const by = { ArrowDown: 1, ArrowUp: -1, PageDown: 10, PageUp: -10 }[event.key];
    if (!by) return;
    event.preventDefault();
    step(by);
  });
  let typing;
  search.addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(filter, 150);
  });
  search.closest("form").addEventListener("submit", (event) => event.preventDefault());
  outcome.addEventListener("change", filter);
  level.addEventListener("change", filter);

  return {
    step,
    // show the problems of a run, beside those of another or null, and of them the one of this id
    show(newRun, newOther, id = null) {
      [run, other] = [newRun, newOther];
      const number = runs[run].problems.findIndex((entry) => entry.id === id);
      chosen = number < 0 ? null : number;
      fillLevels();
      return filter();
    },
  };
};

// How a problem ended, and the class that it is coloured by.
ttsReport.verdict = (entry) => {
  if (!entry.solved) return ["✎ not finished", ""];
  if (entry.correct === null) return ["not graded", ""];
  return entry.correct ? ["✓ right", "right"] : ["✗ wrong", "wrong"];
};
