// The list of earlier conversations: to open one, to remove one, to remove all.
import * as history from "./history.js";

const { element } = ttsReport;
const TITLE = 80; // characters

export function newHistoryList({ onOpen, onForget }) {
  const list = document.getElementById("conversations");
  const clear = document.getElementById("clear");
  const note = document.getElementById("history-note");

  function draw(current) {
    const entries = history.conversations();
    clear.hidden = entries.length === 0;
    note.textContent = entries.length ? "Kept in this browser only." : "Conversations are kept in this browser only.";
    list.replaceChildren(...entries.map((each) => row(each, each.id === current)));
  }

  function row(conversation, isCurrent) {
    const title = conversation.turns[0].question.replace(/\s+/g, " ").slice(0, TITLE);
    const open = element("button", { type: "button", class: "link", "aria-current": isCurrent ? "true" : null },
      title, element("small", {}, new Date(conversation.began).toLocaleString()));
    const remove = element("button", { type: "button", "aria-label": `Remove: ${title}`, title: "Remove" }, "×");
    open.addEventListener("click", () => onOpen(conversation));
    remove.addEventListener("click", () => {
      history.forget(conversation.id);
      onForget(conversation.id);
    });
    return element("li", {}, open, remove);
  }

  clear.addEventListener("click", () => {
    history.clear();
    onForget(null);
  });
  return { draw, lost: () => { note.textContent = "This browser does not keep the history: its storage is blocked or full."; } };
}
