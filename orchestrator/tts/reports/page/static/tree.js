"use strict";
// One search tree: its drawing, where it stood at a time, and the walk through it.
ttsReport.fates = {
  expanded: "kept",
  completed: "completed",
  pruned: "pruned",
  surplus: "ended, not among the completions",
  unused: "never used",
  open: "undecided",
};

ttsReport.shapes = {
  expanded: "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0",
  completed: "M-6,-6h12v12h-12z",
  pruned: "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0",
  surplus: "M0,-6.5L6.5,0L0,6.5L-6.5,0z",
  unused: "M-4.5,0a4.5,4.5 0 1,0 9,0a4.5,4.5 0 1,0 -9,0",
  open: "M-6,0a6,6 0 1,0 12,0a6,6 0 1,0 -12,0",
};

// Scores from dark blue over grey to yellow (cividis): the order is seen in grey, too.
ttsReport.scoreColour = (score) => {
  const stops = [[0, 32, 77], [65, 77, 107], [124, 123, 120], [188, 175, 111], [255, 234, 70]];
  const at = Math.min(Math.max(score, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(at), stops.length - 2);
  return `rgb(${stops[low].map((from, i) => Math.round(from + (stops[low + 1][i] - from) * (at - low))).join(",")})`;
};

// Draws `data` into `place`. `chosen` is the path whose answer won; `onSelect` is told the path of
// the step that was walked to; `scale` is the size that was chosen before, or null to fit.
ttsReport.drawTree = (place, data, { name, chosen, keptOnly, query, scale = null, onSelect }) => {
  const { fates, shapes, scoreColour } = ttsReport;
  const ROW = 21;
  const COLUMN = 86;
  const MARGIN = 24;
  const LEAST = 0.2; // of the natural size
  const MOST = 4;
  const thoughts = new Map(data.thoughts.map((thought) => [thought.path, thought]));
  const kept = (thought) => !["pruned", "surplus", "unused"].includes(thought.fate);
  const above = (path) => path.split(".").slice(0, -1).join(".");
  const byIndex = (a, b) => a.path.localeCompare(b.path, "en", { numeric: true });

  function parentOf(path) { // the nearest that there is: a log may lack one
    let parent = above(path);
    while (parent && !thoughts.has(parent)) parent = above(parent);
    return parent;
  }

  const children = new Map([["", []]]);
  for (const thought of [...data.thoughts].sort(byIndex)) {
    if (keptOnly && !kept(thought)) continue;
    const parent = parentOf(thought.path);
    if (!children.has(parent)) children.set(parent, []);
    children.get(parent).push(thought);
  }
  const root = d3.hierarchy({ path: "" }, (node) => children.get(node.path));
  d3.tree().nodeSize([ROW, COLUMN]).separation((a, b) => a.children || b.children ? 1.5 : 1)(root); // room for a score
  const nodes = root.descendants();
  const byPath = new Map(nodes.map((node) => [node.data.path, node]));
  const rows = nodes.map((node) => node.x);
  const top = Math.min(...rows);
  const width = (root.height + 1) * COLUMN + 2 * MARGIN;
  const height = Math.max(...rows) - top + 2 * MARGIN;
  const x = (node) => node.y + MARGIN + 10;
  const y = (node) => node.x - top + MARGIN;

  const svg = svgElement("svg", {
    width, height, viewBox: `0 0 ${width} ${height}`, role: "tree", tabindex: 0,
    "aria-label": `Tree of ${name}: ${data.thoughts.length} step${data.thoughts.length === 1 ? "" : "s"}`,
  });
  const edges = svgElement("g", { "aria-hidden": "true" });
  svg.append(edges);
  const onPath = (path) => chosen !== null && (chosen === path || chosen.startsWith(`${path}.`));
  const marks = new Map();
  for (const node of nodes) {
    const { path, text = "" } = node.data;
    const group = svgElement("g", {
      class: path ? "node" : "node root", transform: `translate(${x(node)},${y(node)})`,
      role: "treeitem", "aria-level": node.depth + 1, id: `${place.id}-${path || "root"}`,
    });
    let edge = null;
    if (path) {
      const middle = (x(node) + x(node.parent)) / 2;
      edge = svgElement("path", {
        class: onPath(path) ? "edge chosen" : "edge",
        d: `M${x(node.parent)},${y(node.parent)}C${middle},${y(node.parent)} ${middle},${y(node)} ${x(node)},${y(node)}`,
      });
      edges.append(edge);
    }
    const hit = query && text.toLowerCase().includes(query.toLowerCase());
    const shape = svgElement("path", { class: "shape", d: shapes.open, fill: "none" });
    const label = svgElement("text", node.children ? { y: -9.5, "text-anchor": "middle" } : { x: 10, y: 3.5 }); // beside its edges
    group.append(svgElement("circle", { class: "ring", r: 10 }), shape, label);
    group.addEventListener("click", () => {
      svg.focus({ preventScroll: true });
      select(path);
    });
    svg.append(group);
    marks.set(path, { group, shape, label, edge, hit });
  }
  place.replaceChildren(svg);

  let size = 1;
  let wanted = scale; // null: as it fits

  // Draw at `next` times the natural size; the point at `left` and `upper` in the box stays there.
  function resize(next, left = place.clientWidth / 2, upper = place.clientHeight / 2) {
    const [atX, atY] = [(place.scrollLeft + left) / size, (place.scrollTop + upper) / size];
    size = Math.min(Math.max(next, LEAST), MOST);
    svg.setAttribute("width", width * size);
    svg.setAttribute("height", height * size);
    place.scrollTo({ left: atX * size - left, top: atY * size - upper, behavior: "instant" });
  }

  const roomX = () => place.clientWidth / width;
  const roomY = () => parseFloat(getComputedStyle(place).maxHeight) / height || 1;

  // As it opens: the whole depth, and of the rows at least those from the root to the answer.
  function open() {
    const path = root.path(byPath.get(chosen ?? "") ?? root).map(y);
    const [low, high] = [Math.min(...path) - MARGIN, Math.max(...path) + MARGIN];
    resize(Math.min(1, roomX(), roomY() * height / (high - low)));
    const top = size * (low + high) / 2 - place.clientHeight / 2;
    place.scrollTo({ left: 0, top, behavior: "instant" });
  }

  let room = place.offsetWidth;

  // The place has another width: what was fitted fits again.
  function refit() {
    if (wanted !== null || place.offsetWidth === room) return;
    room = place.offsetWidth;
    open();
  }

  function zoom(how) {
    const next = { in: size * 1.25, out: size / 1.25, full: 1, fit: Math.min(1, roomX(), roomY()) }[how];
    resize(next);
    wanted = how === "fit" ? null : size;
    if (how === "full" || how === "in") scrollTo(byPath.get(selected));
  }

  place.onwheel = (event) => {
    if (!event.ctrlKey && !event.metaKey) return;
    event.preventDefault();
    const box = place.getBoundingClientRect();
    resize(size * Math.exp(-event.deltaY / 400), event.clientX - box.left, event.clientY - box.top);
    wanted = size;
  };

  let until = Infinity;
  let selected = "";

  // What is known of a thought at the time that is shown.
  function stateOf(thought) {
    if (!thought.path) return { fate: "expanded", score: null, there: true };
    const there = thought.done <= until;
    const score = thought.score !== undefined && thought.scored <= until ? thought.score : null;
    const decided = thought.fate === "unused" || (thought.decided ?? Infinity) <= until || until === Infinity;
    const ahead = thought.speculative && (thought.used ?? Infinity) > until && until !== Infinity;
    const fate = ahead ? "unused" : decided ? thought.fate : "open";
    return { there, score, fate };
  }

  function showUntil(ms) {
    until = ms;
    for (const node of nodes) {
      const { group, shape, label, edge, hit } = marks.get(node.data.path);
      const { there, score, fate } = stateOf(node.data);
      const later = there ? "" : " later";
      group.setAttribute("class", `node${node.data.path ? "" : " root"} ${fate}${later}${hit ? " hit" : ""}${node.data.path === selected ? " selected" : ""}`);
      edge?.classList.toggle("later", !there);
      shape.setAttribute("d", shapes[fate]);
      shape.setAttribute("fill", score === null ? "none" : scoreColour(score));
      label.textContent = score === null ? "" : score.toFixed(2);
      group.setAttribute("aria-label", spoken(node.data, fate, score));
    }
  }

  function spoken(thought, fate, score) {
    if (!thought.path) return "The problem";
    const judged = score === null ? "no score" : `score ${score.toFixed(4)}`;
    return `${thought.path}, ${fates[fate]}, ${judged}: ${thought.text.trim()}`;
  }

  function select(path) {
    while (path && !byPath.has(path)) path = above(path);
    marks.get(selected)?.group.classList.remove("selected");
    selected = path;
    const { group } = marks.get(path);
    group.classList.add("selected");
    svg.setAttribute("aria-activedescendant", group.id);
    scrollTo(byPath.get(path));
    onSelect(path);
  }

  function scrollTo(node) {
    const [left, upper] = [x(node) * size, y(node) * size];
    if (left - 30 < place.scrollLeft || left + 60 > place.scrollLeft + place.clientWidth) {
      place.scrollLeft = left - place.clientWidth / 2;
    }
    if (upper - 15 < place.scrollTop || upper + 15 > place.scrollTop + place.clientHeight) {
      place.scrollTop = upper - place.clientHeight / 2;
    }
  }

  const there = (node) => !marks.get(node.data.path).group.classList.contains("later");

  // The nearest of the same depth above (-1) or below (1).
  function beside(node, by) {
    const level = nodes.filter((each) => each.depth === node.depth && there(each)).sort((a, b) => a.x - b.x);
    return level[level.indexOf(node) + by];
  }

  function key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const how = { "+": "in", "=": "in", "-": "out", 0: "fit" }[event.key];
    if (how) {
      event.preventDefault();
      zoom(how);
      return;
    }
    const node = byPath.get(selected);
    const goal = {
      ArrowRight: () => node.children?.filter(there)[0],
      ArrowLeft: () => node.parent,
      ArrowUp: () => beside(node, -1),
      ArrowDown: () => beside(node, 1),
      Home: () => root,
      End: () => (chosen !== null ? byPath.get(chosen) : undefined),
    }[event.key];
    if (!goal) return;
    event.preventDefault();
    const to = goal();
    if (to) select(to.data.path);
  }
  svg.addEventListener("keydown", key);

  function svgElement(kind, attributes) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", kind);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    return made;
  }

  showUntil(Infinity);
  resize(wanted ?? Math.min(1, roomX()));
  return { showUntil, select, stateOf, thoughts, chain, open, refit, zoom, key, chosenScale: () => wanted };

  // The thoughts from the first step to this one.
  function chain(path) {
    const steps = [];
    for (let at = path; at; at = above(at)) if (thoughts.has(at)) steps.unshift(thoughts.get(at));
    return steps;
  }
};
