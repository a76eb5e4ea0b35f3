"use strict";
// Shows the newest page of a run. A newer one is loaded behind the one that is read, and takes its
// place once it is at the same one: same filters, same problem, same time, same line at the top.
(() => {
  const ASK_MS = 2000;
  const SETTLE_MS = 5000; // charts are drawn, and lines move, for so long at most
  const line = document.getElementById("line");
  const hold = document.getElementById("hold");
  const main = document.querySelector("main");
  let shown = 0; // the number of the page
  let frame = null;

  const fields = (page) => [...page.querySelectorAll("input[id], select[id]")];
  const slider = (page) => page.querySelector('#panes input[type="range"]');
  const chosen = (page) => page.querySelector('#problems [aria-selected="true"] .text')?.textContent;

  // Where the reader is: what stands at the top, what is open, filtered, chosen.
  function placeIn(frame) {
    const page = frame.contentDocument;
    const above = [...page.querySelectorAll("section[id]")].filter((each) => each.getBoundingClientRect().top <= 1);
    const top = above.at(-1);
    const time = slider(page);
    return {
      top: top?.id, offset: top?.getBoundingClientRect().top ?? 0, y: frame.contentWindow.scrollY,
      open: [...page.querySelectorAll("section[id] > details[open]")].map((each) => each.parentElement.id),
      values: fields(page).map(({ id, value }) => [id, value]),
      problem: chosen(page),
      time: time && time.value !== time.max ? time.value : null,
    };
  }

  function scrollTo(frame, { top, offset, y }) {
    const there = top && frame.contentDocument.getElementById(top);
    const to = there ? frame.contentWindow.scrollY + there.getBoundingClientRect().top - offset : y;
    frame.contentWindow.scrollTo({ top: to, behavior: "instant" });
  }

  function choose(page, { problem, time }) {
    if (problem === undefined) return;
    const list = page.getElementById("problems");
    let length = -1;
    const found = () => [...list.children].find((each) => each.querySelector(".text")?.textContent === problem);
    while (!found() && list.children.length > length) { // the list grows as it is scrolled
      length = list.children.length;
      list.scrollTop = list.scrollHeight;
      list.dispatchEvent(new Event("scroll"));
    }
    if (chosen(page) !== problem) found()?.click();
    const at = slider(page);
    if (time !== null && at && at.value === at.max && Number(time) < Number(at.max)) {
      at.value = time;
      at.dispatchEvent(new Event("input"));
    }
  }

  // Bring a page that was just loaded to a place, and keep it there until the reader moves.
  function goTo(frame, place) {
    const page = frame.contentDocument;
    for (const id of place.open) {
      const details = page.querySelector(`#${CSS.escape(id)} > details`);
      if (details) details.open = true;
    }
    for (const [id, value] of place.values) {
      const field = page.getElementById(id);
      if (!field || field.value === value) continue;
      field.value = value;
      field.dispatchEvent(new Event(field.localName === "select" ? "change" : "input"));
    }
    const keep = () => { choose(page, place); scrollTo(frame, place); };
    const observers = [new ResizeObserver(keep)];
    observers[0].observe(page.body);
    const panes = page.getElementById("panes");
    if (panes) {
      observers.push(new MutationObserver(keep));
      observers[1].observe(panes, { childList: true });
    }
    const stop = () => observers.forEach((each) => each.disconnect());
    for (const sign of ["wheel", "pointerdown", "keydown", "touchstart"]) {
      page.addEventListener(sign, stop, { once: true, passive: true });
    }
    setTimeout(stop, SETTLE_MS);
    keep();
  }

  function show(number) {
    shown = number;
    const next = document.createElement("iframe");
    next.className = "coming";
    next.title = "The report";
    next.src = `/${number}/report.html`;
    next.addEventListener("load", () => {
      const gone = !next.contentDocument?.getElementById("figure-data"); // a newer one took its place
      if (gone || number !== shown) {
        next.remove();
        return;
      }
      if (frame) goTo(next, placeIn(frame));
      next.className = "";
      frame?.remove();
      frame = next;
    });
    main.append(next);
  }

  async function ask() {
    try {
      const { page, line: text, problem } = await (await fetch("/state")).json();
      line.textContent = [text, problem].filter(Boolean).join(". ");
      document.title = text || document.title;
      if (page > shown && !(hold.checked && frame)) show(page);
    } catch {
      line.textContent = "tts runs watch has ended; this page stays as it is.";
    }
    setTimeout(ask, ASK_MS);
  }

  ask();
})();
