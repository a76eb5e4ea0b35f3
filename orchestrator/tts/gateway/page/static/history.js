// Conversations of this browser, in its own storage and nowhere else. A storage that is blocked,
// full or damaged costs the history, never an answer.
const KEY = "tts.conversations";
const MOST = 50;

function storage() {
  try {
    return window.localStorage;
  } catch { // blocked
    return null;
  }
}

const isText = (value) => typeof value === "string";
const isTurn = (turn) => isText(turn?.question) && isText(turn?.text) && isText(turn?.model);
const isConversation = (each) => isText(each?.id) && Number.isFinite(each?.began)
  && Array.isArray(each.turns) && each.turns.length > 0 && each.turns.every(isTurn);

// The newest first.
export function conversations() {
  try {
    const entries = JSON.parse(storage()?.getItem(KEY) ?? "[]");
    return Array.isArray(entries) ? entries.filter(isConversation) : [];
  } catch {
    return [];
  }
}

// Whether it was kept: older ones make room for it.
export function keep(conversation) {
  const entries = [conversation, ...conversations().filter((each) => each.id !== conversation.id)];
  for (let count = Math.min(entries.length, MOST); count > 0; count--) {
    if (write(entries.slice(0, count))) return true;
  }
  return false;
}

export function forget(id) {
  write(conversations().filter((each) => each.id !== id));
}

export function clear() {
  try {
    storage()?.removeItem(KEY);
  } catch { /* there is nothing to remove, then */ }
}

// Another page of this browser has changed it.
export function onChange(listener) {
  window.addEventListener("storage", (event) => {
    if (event.key === KEY || event.key === null) listener();
  });
}

function write(entries) {
  try {
    const place = storage();
    place?.setItem(KEY, JSON.stringify(entries));
    return place !== null;
  } catch { // full
    return false;
  }
}
