// The tree of a search from the steps that a stream tells: each when it is written, and again with
// its score. It is drawn by the report's viewer.
const DRAW_MS = 250; // between two drawings of a tree that grows, at least
const SHARE = 10; // of the time, at most, one part goes into drawing
let count = 0;

export function newLiveTree(question, place, onDraw) {
  const began = performance.now();
  const thoughts = new Map();
  const pane = ttsReport.newPane({ id: `tree-${++count}`, title: "" });
  place.replaceChildren(pane.article);
  let best = null;
  let answer = null; // with the path of its last step, once the search has ended: no other completion is told
  let next = 0; // when it may be drawn again
  let timer = null;

  function take({ node, text, score }) {
    const now = Math.round(performance.now() - began);
    const path = node.join(".");
    if (!thoughts.has(path)) {
      thoughts.set(path, { path, text: "", fate: "open", done: now });
      const parent = thoughts.get(node.slice(0, -1).join("."));
      if (parent?.fate === "open") Object.assign(parent, { fate: "expanded", decided: now });
    }
    const thought = thoughts.get(path);
    if (text != null) thought.text = text;
    if (score != null) Object.assign(thought, { score, scored: now });
  }

  function draw() {
    const from = performance.now();
    const entry = {
      id: question, solved: false, correct: null, reference: null, level: null,
      answer: answer?.text ?? best?.answer, seconds: null, thoughts: thoughts.size,
    };
    pane.tell(entry, question);
    pane.show(entry, {
      seconds: null, limit: null, winner: answer?.path, groups: [], completions: [], cancelled: [],
      thoughts: [...thoughts.values()],
    });
    pane.draw();
    onDraw({ steps: thoughts.size, seconds: (from - began) / 1000, best });
    const now = performance.now();
    next = now + Math.max(DRAW_MS, SHARE * (now - from));
    timer = null;
  }

  function grow(progress) {
    best = progress.best ?? best;
    progress.steps.forEach(take);
    timer ??= setTimeout(draw, Math.max(0, next - performance.now()));
  }

  // It grows no more; drawn as far as it is known, with the way to the answer if there is one.
  function end(outcome) {
    clearTimeout(timer);
    const path = outcome?.node?.join(".");
    if (thoughts.has(path)) {
      answer = { text: outcome.answer, path };
      thoughts.get(path).fate = "completed";
    }
    if (thoughts.size) draw();
    return thoughts.size;
  }

  return { grow, end };
}
