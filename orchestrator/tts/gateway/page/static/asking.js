// An answer from the gateway: streamed as text, or searched for with its tree in view.
import { Refused, chunks, json, request } from "./api.js";
import { newLiveTree } from "./live_tree.js";

const ENGLISH = new Intl.NumberFormat("en");

// Each takes the turn that it fills in, its view, the body of the request, a signal that stops it
// and a function that is told how far it is, and of the best answer so far.
export async function chat(turn, view, body, signal, onProgress) {
  const began = performance.now();
  let usage = null;
  for await (const chunk of chunks(await request("/v1/chat/completions", body, signal))) {
    const choice = chunk.choices[0];
    usage = chunk.usage ?? usage;
    if (choice?.finish_reason === "length") turn.notes.push("Cut at the limit of tokens");
    if (choice?.delta?.reasoning_content) view.think(choice.delta.reasoning_content);
    if (!choice?.delta?.content) continue;
    turn.text += choice.delta.content;
    view.grow(turn.text);
    onProgress(`${((performance.now() - began) / 1000).toFixed(1)} s`);
  }
  const seconds = (performance.now() - began) / 1000;
  if (usage) turn.notes.push(`${ENGLISH.format(usage.completion_tokens)} tokens in ${seconds.toFixed(1)} s`);
  if (turn.text.trim()) await scoreText(turn, body, signal);
}

// What the verifier says of a text that nothing has scored.
async function scoreText(turn, { model, messages }, signal) {
  const dialogue = [...messages, { role: "assistant", content: turn.text }];
  try {
    const { data, tts } = await json("/pooling", { model, messages: dialogue }, signal);
    turn.scores = data[0].data.map(([, right]) => right);
    turn.warnings = tts.warnings;
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    turn.notes.push(`Not scored: ${error.message}`);
  }
}

export async function search(turn, view, body, signal, onProgress) {
  const tree = newLiveTree(turn.question, view.treePlace(), ({ steps, seconds, best }) => {
    const leads = best ? `; best so far: ${best.answer}${best.score == null ? "" : ` (${best.score.toFixed(3)})`}` : "";
    onProgress(`${steps} steps in ${seconds.toFixed(1)} s${leads}`, best);
  });
  let outcome = null;
  let usage = null;
  let text = "";
  let steps = 0;
  try {
    for await (const chunk of chunks(await request("/v1/chat/completions", body, signal))) {
      const { choices, tts } = chunk;
      usage = chunk.usage ?? usage;
      text += choices[0]?.delta?.content ?? "";
      if (choices[0]?.delta?.reasoning_content) view.think(choices[0].delta.reasoning_content);
      if (tts?.answers !== undefined) outcome = tts;
      if (tts?.steps) tree.grow(tts);
    }
  } finally {
    steps = tree.end(outcome);
  }
  turn.text = text;
  if (!outcome) return;
  const { answer, answers, vote, score, completions, limit, warnings } = outcome;
  turn.search = { answer, answers, vote, score, completions };
  turn.warnings = warnings;
  if (limit) turn.notes.push(limit === "tokens" ? "Its budget of tokens ended the search" : "Its deadline ended the search");
  if (usage) turn.notes.push(`${ENGLISH.format(steps)} steps and ${ENGLISH.format(usage.completion_tokens)} tokens in ${usage.tts.seconds.toFixed(2)} s`);
  if (turn.search.score == null && text.trim()) await scoreText(turn, body, signal);
}
