// One turn of the conversation on the page: the question, the answer, what the verifier says of it.
const { element, rendered, renderedAnswer } = ttsReport;
const RULES = { weighted: "weighted vote", majority: "majority vote", best: "best score" };
const SHARE = 10; // of the time, at most, one part goes into drawing a text that grows

export function newTurnView({ question, model }) {
  const part = (name) => view.querySelector(`.${name}`);
  const view = document.getElementById("turn").content.cloneNode(true).firstElementChild;
  part("question-text").textContent = question;
  part("who").textContent = model;
  let drawnUntil = 0;
  let pending = null;

  // The text so far, as often as drawing it is cheap.
  function grow(text) {
    part("said").setAttribute("aria-busy", "true");
    clearTimeout(pending);
    const draw = () => {
      const began = performance.now();
      part("said").replaceChildren(rendered(text));
      drawnUntil = performance.now() + SHARE * (performance.now() - began);
    };
    const wait = drawnUntil - performance.now();
    if (wait <= 0) draw();
    else pending = setTimeout(draw, wait);
  }

  function finish(turn) {
    clearTimeout(pending);
    part("said").replaceChildren(rendered(turn.text.trim()));
    part("said").setAttribute("aria-busy", "false");
    if (turn.search) showOutcome(turn.search);
    if (turn.notes?.length) part("remarks").textContent = turn.notes.join(" · ");
    if (turn.scores) showScores(turn);
    showWarnings(turn.warnings ?? []);
    view.classList.remove("running");
  }

  function showOutcome(search) {
    part("outcome").hidden = false;
    part("answer").hidden = search.answers == null; // where answers are filtered, it is in the text alone
    part("answer").replaceChildren(search.answer == null ? "No answer was found in the text." : renderedAnswer(search.answer));
    part("score").textContent = search.score == null ? "" : `score ${search.score.toFixed(4)}`;
    const others = Object.entries(search.answers ?? {}).filter(([rule, each]) => rule !== search.vote && each != null);
    const agree = others.every(([, each]) => each === search.answer);
    part("votes").textContent = [
      search.completions === 1 ? "The only completion"
        : `Chosen by ${RULES[search.vote] ?? search.vote} from ${search.completions} completions`,
      ...(agree ? [] : others.map(([rule, each]) => `${RULES[rule]}: ${each}`)),
    ].join(" · ");
  }

  function showScores({ text, scores }) {
    const texts = text.split("\n\n").filter((each) => each.trim());
    part("score-box").hidden = false;
    part("chat-score").textContent = `The verifier's score: ${scores.at(-1).toFixed(4)}`;
    part("scores").replaceChildren(...scores.map((score, place) => element("li", {},
      element("span", { class: "step-score" }, score.toFixed(4)), " ", texts.length === scores.length ? texts[place].trim() : "")));
  }

  function showWarnings(warnings) {
    view.classList.toggle("doubtful", warnings.length > 0);
    part("warnings").replaceChildren(...warnings.map((each) => element("p", { class: "warning" }, each)));
  }

  return {
    view, grow, finish,
    // Further text of the thinking before the answer, which is folded.
    think(text) {
      part("thinking").hidden = false;
      part("thought").append(text);
    },
    treePlace() {
      part("tree-box").hidden = false;
      part("tree-box").open = true;
      return part("tree-place");
    },
    // The turn has ended without a text; what there is of it stays in view.
    drop(message) {
      clearTimeout(pending);
      part("said").setAttribute("aria-busy", "false");
      part("remarks").textContent = message;
      view.classList.remove("running");
      view.classList.add("dropped");
    },
  };
}
