"use strict";
// Asks for a search as any client does, draws its tree while it grows, shows answer and report.
(() => {
  const DRAW_MS = 250; // between two drawings of a tree that grows
  const { element } = ttsReport;
  const at = (id) => document.getElementById(id);
  let key = ""; // nowhere but here
  let running = null; // what ends the search that runs

  class Refused extends Error {}

  async function request(path, body, signal) {
    const headers = key ? { authorization: `Bearer ${key}` } : {};
    if (body) headers["content-type"] = "application/json";
    const answer = await fetch(path, {
      method: body ? "POST" : "GET", body: body && JSON.stringify(body), headers, signal,
      credentials: "omit", cache: "no-store",
    });
    if (answer.ok) return answer;
    const told = await answer.json().catch(() => null);
    at("key-form").hidden = at("key-form").hidden && answer.status !== 401;
    throw new Refused(told?.error?.message ?? `The gateway answered ${answer.status}.`);
  }

  function fail(error) {
    at("failure").textContent = error instanceof Refused ? error.message : `The gateway does not answer: ${error.message}`;
    at("failure").hidden = false;
  }

  async function listModels() {
    at("failure").hidden = true;
    try {
      const { data } = await (await request("/v1/models")).json();
      const searches = data.map((model) => model.id).filter((id) => id.includes(":"));
      at("model").replaceChildren(...searches.map((id) => element("option", { value: id }, id.split(":")[1])));
      const usual = searches.find((id) => id.endsWith(":beam-search"));
      if (usual) at("model").value = usual;
      at("deployment").textContent = data[0]?.id.split(":")[0] ?? "tts";
      document.title = at("deployment").textContent;
      at("key-form").hidden = true;
    } catch (error) {
      fail(error);
    }
  }

  // The chunks of a stream of events, as they come.
  async function* chunks(answer) {
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      text += value;
      const events = text.split("\n\n");
      text = events.pop();
      for (const event of events) {
        if (!event.startsWith("data: ") || event === "data: [DONE]") continue;
        const chunk = JSON.parse(event.slice(6));
        if (chunk.error) throw new Refused(chunk.error.message);
        yield chunk;
      }
    }
  }

  // A tree from the steps that a stream tells: each when it is written, and again with its score.
  function newTree() {
    const began = performance.now();
    const thoughts = new Map();
    const parentOf = (path) => path.split(".").slice(0, -1).join(".");

    function take({ node, text, score }) {
      const now = Math.round(performance.now() - began);
      const path = node.join(".");
      if (!thoughts.has(path)) {
        thoughts.set(path, { path, text: "", fate: "open", done: now });
        const parent = thoughts.get(parentOf(path));
        if (parent?.fate === "open") Object.assign(parent, { fate: "expanded", decided: now });
      }
      const thought = thoughts.get(path);
      if (text !== null) thought.text = text;
      if (score !== null) Object.assign(thought, { score, scored: now });
    }

    const data = () => ({ seconds: null, limit: null, groups: [], completions: [], cancelled: [], thoughts: [...thoughts.values()] });
    return { take, data, seconds: () => (performance.now() - began) / 1000 };
  }

  async function solve(question, model, n, signal) {
    const body = {
      model, messages: [{ role: "user", content: question }], stream: true,
      tts: { n, report: true, progress: "steps" },
    };
    at("status").textContent = "Searching ...";
    const tree = newTree();
    const pane = ttsReport.newPane({ id: "live-tree", title: model });
    let drawn = 0;
    let timer = null;
    let best = null;

    function draw() {
      timer = null;
      drawn = performance.now();
      const data = tree.data();
      if (at("live").hidden) {
        at("live").hidden = false;
        at("live").replaceChildren(pane.article);
      }
      const entry = {
        id: question, solved: false, correct: null, reference: null, level: null,
        answer: best?.answer, seconds: null, thoughts: data.thoughts.length,
      };
      pane.tell(entry, question);
      pane.show(entry, data);
      pane.draw();
      const leads = best ? `; best so far: ${best.answer}${best.score == null ? "" : ` (${best.score.toFixed(3)})`}` : "";
      at("status").textContent = `${data.thoughts.length} steps in ${tree.seconds().toFixed(1)} s${leads}`;
    }

    let solution = "";
    let outcome = null;
    try {
      for await (const { choices, tts } of chunks(await request("/v1/chat/completions", body, signal))) {
        solution += choices[0]?.delta?.content ?? "";
        if (tts?.answers !== undefined) outcome = tts;
        if (!tts?.steps) continue;
        best = tts.best ?? best;
        tts.steps.forEach(tree.take);
        timer ??= setTimeout(draw, Math.max(0, DRAW_MS - (performance.now() - drawn)));
      }
    } finally {
      clearTimeout(timer);
      if (tree.data().thoughts.length) draw();
    }
    await conclude(question, pane, solution, outcome, signal);
  }

  async function conclude(question, pane, solution, outcome, signal) {
    at("outcome").hidden = false;
    at("answer").textContent = outcome?.answer ?? "No answer was found in the text.";
    at("solution").textContent = solution.trim();
    if (!outcome?.report) return;
    for (const link of [at("report"), at("save")]) link.href = outcome.report;
    at("share").hidden = false;
    const { entry, tree } = await (await request(outcome.report.replace(/html$/, "json"), null, signal)).json();
    pane.tell(entry, question);
    pane.show(entry, tree);
    pane.draw();
    at("status").textContent = `Solved in ${entry.seconds} s: ${entry.thoughts} steps, ${entry.tokens} tokens, ${tree.completions.length} completions.`;
  }

  at("key-form").addEventListener("submit", (event) => {
    event.preventDefault();
    key = at("key").value.trim();
    at("key").value = "";
    listModels();
  });

  at("ask").addEventListener("submit", async (event) => {
    event.preventDefault();
    running?.abort();
    const mine = running = new AbortController();
    for (const id of ["failure", "outcome", "share", "live"]) at(id).hidden = true;
    at("go").disabled = true;
    at("stop").disabled = false;
    try {
      await solve(at("question").value, at("model").value, Number(at("n").value), mine.signal);
    } catch (error) {
      if (mine.signal.aborted) at("status").textContent = "Stopped.";
      else fail(error);
    } finally {
      if (running === mine) {
        running = null;
        at("go").disabled = false;
        at("stop").disabled = true;
      }
    }
  });

  at("stop").addEventListener("click", () => running?.abort());
  at("question").addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) at("ask").requestSubmit();
  });
  at("copy").addEventListener("click", async () => {
    const link = at("report").href;
    try {
      await navigator.clipboard.writeText(link);
      at("copy").textContent = "Copied";
    } catch { // without HTTPS there is no clipboard
      at("copy").replaceWith(element("code", {}, link));
    }
  });

  listModels();
})();
