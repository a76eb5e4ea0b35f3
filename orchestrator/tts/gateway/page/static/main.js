// The conversation: what is typed, who answers, what is kept of it.
import { Refused, hasKey, messageOf, useKey } from "./api.js";
import { chat, search } from "./asking.js";
import * as history from "./history.js";
import { newHistoryList } from "./history_list.js";
import * as settings from "./settings.js";
import { newTurnView } from "./turn.js";

const { element } = ttsReport;
const at = (id) => document.getElementById(id);
let conversation = newConversation();
let running = null; // what stops the answer that is being written

function newConversation() {
  return { id: crypto.getRandomValues(new Uint32Array(2)).join("-"), began: Date.now(), turns: [] };
}

const list = newHistoryList({
  onOpen: (earlier) => open(earlier),
  onForget: (id) => (id === null || id === conversation.id ? open(newConversation()) : list.draw(conversation.id)),
});

function open(another) {
  running?.abort();
  running = null;
  busy(false);
  conversation = another;
  at("turns").replaceChildren(...another.turns.map((turn) => {
    const view = newTurnView(turn);
    view.finish(turn);
    return view.view;
  }));
  at("failure").hidden = true;
  at("status").textContent = "";
  emptiness();
  list.draw(conversation.id);
  at("question").focus({ preventScroll: true });
}

function emptiness() {
  at("empty").hidden = at("turns").childElementCount > 0;
}

function suggest(card) {
  at("examples").replaceChildren(...(card?.examples ?? []).map((text) => {
    const button = element("button", { type: "button" }, text);
    button.addEventListener("click", () => {
      at("question").value = text;
      at("question").focus();
    });
    return element("li", {}, button);
  }));
}

function fail(error) {
  const wantsKey = error instanceof Refused && error.status === 401;
  at("failure").textContent = messageOf(error);
  at("failure").hidden = wantsKey && !hasKey(); // nobody has done anything wrong yet
  if (wantsKey) {
    at("key-form").hidden = false;
    at("key").focus();
  }
}

async function load(loading) {
  at("failure").hidden = true;
  try {
    await loading;
    at("key-form").hidden = true;
    document.body.classList.remove("closed");
    suggest(await settings.chosen());
  } catch (error) {
    fail(error);
  }
}

async function ask(question) {
  const mine = running = new AbortController();
  busy(true);
  const card = await settings.chosen();
  if (!card || mine.signal.aborted) {
    running = null;
    busy(false);
    return;
  }
  const { model, strategy } = card;
  const turn = { question, model, text: "", notes: [] };
  const view = newTurnView(turn);
  const mentioned = conversation;
  const messages = mentioned.turns.flatMap((each) => [
    { role: "user", content: each.question }, { role: "assistant", content: each.text },
  ]);
  const body = settings.bodyOf(card, [...messages, { role: "user", content: question }]);
  at("turns").append(view.view);
  at("failure").hidden = true;
  at("question").value = "";
  emptiness();
  at("status").textContent = strategy ? "Searching ..." : "Writing ...";
  view.view.scrollIntoView({ block: "start" });
  let failure = null;
  let best = null;
  const onProgress = (text, leader = null) => {
    best = leader;
    if (running === mine) at("status").textContent = text;
  };
  try {
    await (strategy ? search : chat)(turn, view, body, mine.signal, onProgress);
  } catch (error) {
    failure = error;
  }
  const stopped = mine.signal.aborted;
  if (stopped) turn.notes.unshift("Stopped");
  else if (failure) turn.notes.unshift("Broken off");
  if (turn.text.trim()) {
    view.finish(turn);
    mentioned.turns.push(turn);
    if (!history.keep(mentioned)) list.lost();
    else list.draw(conversation.id);
  } else {
    if (best) view.drop(`The best answer so far was ${best.answer}. This is not part of the conversation.`);
    else view.view.remove();
    emptiness();
    if (running === mine && !at("question").value) at("question").value = question;
  }
  if (running !== mine) return;
  running = null;
  busy(false);
  at("status").textContent = stopped ? "Stopped." : failure ? "" : "Answered.";
  if (failure && !stopped) fail(failure);
}

function busy(is) {
  const had = document.activeElement;
  at("go").hidden = is;
  at("stop").hidden = !is;
  if (had === at("go") || had === at("stop")) at(is ? "stop" : "question").focus({ preventScroll: true });
}

at("key-form").addEventListener("submit", (event) => {
  event.preventDefault();
  useKey(at("key").value.trim());
  at("key").value = "";
  load(settings.load());
});
at("ask").addEventListener("submit", (event) => {
  event.preventDefault();
  const question = at("question").value.trim();
  if (question && !running) ask(question);
});
at("stop").addEventListener("click", () => running?.abort());
at("new").addEventListener("click", () => open(newConversation()));
at("question").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    at("ask").requestSubmit();
  }
});
settings.onModel(load);
history.onChange(() => list.draw(conversation.id));
matchMedia("(max-width: 63.99rem)").addEventListener("change", (narrow) => {
  if (narrow.matches) at("settings").open = at("history").open = false; // they would stand above it all
});
list.draw(conversation.id);
load(settings.load());
