// Which model is asked, and what the gateway lets a request to it set: a form made from what it says.
import { json } from "./api.js";

const { element } = ttsReport;
const at = (id) => document.getElementById(id);
const cards = new Map(); // what is known of each model
const typed = new Map(); // the values of fields by name, which another model may have, too
let card = null;
let describing = null;

// What is known of the chosen model, once it is; null where it could not be found out.
export async function chosen() {
  await describing?.catch(() => null); // whoever began it tells why
  return card;
}

// Lists the models, and describes the first search of the usual kind.
export async function load() {
  const { data } = await json("/v1/models");
  const names = data.map((model) => model.id);
  const groups = [
    ["Without a search", names.filter((id) => !id.includes(":"))],
    ["Search", names.filter((id) => id.includes(":"))],
  ].filter(([, each]) => each.length);
  const before = at("model").value;
  at("model").replaceChildren(...groups.map(([label, each]) => element("optgroup", { label },
    ...each.map((id) => element("option", { value: id }, id.split(":")[1] ?? `${id} (chat)`)))));
  at("model").value = names.find((id) => id === before) ?? names.find((id) => id.endsWith(":beam-search")) ?? names[0];
  at("deployment").textContent = names[0]?.split(":")[0] ?? "tts";
  document.title = at("deployment").textContent;
  await describe();
}

function describe() {
  describing = show(at("model").value);
  return describing;
}

async function show(model) {
  card = null;
  if (!cards.has(model)) cards.set(model, (await json(`/v1/models/${encodeURIComponent(model)}`)).tts);
  if (model !== at("model").value) return; // another has been chosen meanwhile
  card = { model, ...cards.get(model) };
  at("about").textContent = card.strategy ? `${card.strategy}: ${card.about}` : card.about;
  at("system").disabled = !card.system_messages;
  at("system-help").textContent = card.system_messages ? "Before the conversation, in each request."
    : "The chat template of this model has no system messages.";
  fill("sampling", card.sampling);
  fill("parameters", card.parameters);
}

function fill(name, described) {
  const fields = Object.entries(described).map(([each, facts]) => field(each, facts)).filter(Boolean);
  at(`${name}-group`).hidden = fields.length === 0;
  at(name).replaceChildren(...fields);
}

// A field for a parameter by its JSON schema; null for one of a kind that no field can hold.
function field(name, { default: usual, description, ...schema }) {
  const facts = schema.anyOf?.find((each) => each.type !== "null") ?? schema;
  const input = inputOf(facts, usual);
  if (!input) return null;
  Object.assign(input, { id: `field-${name}`, name });
  input.setAttribute("aria-describedby", `help-${name}`);
  if (typed.has(name)) enter(input, typed.get(name));
  input.addEventListener("change", () => typed.set(name, input.type === "checkbox" ? input.checked : input.value));
  const label = element("label", { for: input.id }, name);
  const help = element("small", { id: `help-${name}`, class: "help" }, description);
  return element("div", { class: "field" }, label, input, help);
}

function inputOf(facts, usual) {
  if (facts.enum) return choice(facts.enum, usual);
  if (facts.type === "boolean") {
    const input = element("input", { type: "checkbox" });
    input.checked = usual === true;
    return Object.assign(input, { usual: usual === true });
  }
  const number = facts.type === "integer" || facts.type === "number";
  if (!number && facts.type !== "string") return null;
  const input = element("input", {
    type: number ? "number" : "text", placeholder: usual ?? "none", autocomplete: "off", spellcheck: "false",
    min: facts.minimum ?? facts.exclusiveMinimum, max: facts.maximum, step: facts.type === "number" ? "any" : null,
  });
  return Object.assign(input, { usual: "" });
}

function choice(values, usual) {
  const input = element("select", {}, ...values.map((each) => element("option", { value: each }, each)));
  input.value = usual;
  return Object.assign(input, { usual });
}

function enter(input, value) {
  if (input.type === "checkbox") input.checked = value === true;
  else if (input.tagName !== "SELECT" || [...input.options].some((each) => each.value === value)) input.value = value;
}

// What was set to something else than its default, by name.
function changed(place) {
  const values = {};
  for (const input of at(place).querySelectorAll("input, select")) {
    const value = input.type === "checkbox" ? input.checked : input.value.trim();
    if (value !== input.usual) values[input.name] = input.type === "number" ? Number(value) : value;
  }
  return values;
}

// The body of a request about this conversation.
export function bodyOf(card, messages) {
  const system = card.system_messages ? at("system").value.trim() : "";
  const body = {
    model: card.model, stream: true, ...changed("sampling"),
    messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    stream_options: { include_usage: true },
  };
  return card.strategy ? { ...body, tts: { progress: "steps", parameters: changed("parameters") } } : body;
}

export function onModel(listener) {
  at("model").addEventListener("change", async () => listener(describe()));
  at("defaults").addEventListener("click", () => {
    typed.clear();
    at("system").value = "";
    describe();
  });
}
